// Chooses the kernels of thin products. They are bound by memory: the matrix is read once, coalesced, in
// accesses as wide as its rows allow. docs/kernels/matvec.md tells why they are cut as they are.
#include <sinter/core/cuda/device_traits.h>
#include <sinter/ops/matvec/thin_kernels_cuda.h>

namespace sinter::ops {
namespace {

constexpr int64_t kMostRows = int64_t{1} << 30;

/// Whether every matrix begins at a multiple of 16 bytes.
bool begins_with_units(const ThinProblem& problem, const void* a) {
  return cuda::is_aligned(a, 16) && (problem.batch == 1 || problem.a_stride % unit_elements(problem) == 0);
}

/// Whether every matrix begins at a multiple of as many elements as its rows and units have in common: some
/// row does with a unit, then.
bool begins_with_common_part(const ThinProblem& problem, const void* a) {
  const int64_t common = unit_elements(problem) / rows_of_fold(problem);
  return cuda::is_aligned(a, static_cast<size_t>(common) * size_of(problem.dtype)) &&
         (problem.batch == 1 || problem.a_stride % common == 0);
}

bool has_few_terms_in_place(const ThinProblem& problem, const void* a) {
  return takes_few_terms(problem) && (problem.transpose || begins_with_units(problem, a));
}

/// Products of several vectors in the 16-bit types that need no shared tiles; false if this is none.
template <class T>
bool launch_halves(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y,
                   float* table, const ThinBias& bias) {
  const bool adds_nothing = bias.data == nullptr;
  if (adds_nothing && takes_packed_products(problem) && begins_with_units(problem, a)) {
    launch_packed_products<T>(stream, problem, a, x, y);
  } else if (adds_nothing && takes_row_groups(problem) && begins_with_units(problem, a)) {
    launch_row_groups<T>(stream, problem, a, x, y);
  } else if (adds_nothing && takes_few_term_columns(problem)) {
    launch_few_term_columns<T>(stream, problem, a, x, y);
  } else if (takes_many_term_columns(problem)) {
    launch_many_term_columns<T>(stream, problem, a, x, y, table, bias);
  } else if (takes_row_products(problem)) {
    launch_row_products<T>(stream, problem, a, x, y, table, bias);
  } else if (takes_long_row_products(problem)) {
    launch_long_row_products<T>(stream, problem, a, x, y, table, bias);
  } else {
    return false;
  }
  return true;
}

/// The same in float32.
template <class T>
bool launch_floats(const Stream& stream, const ThinProblem& problem, const T* a, const T* x, T* y,
                   float* table, const ThinBias& bias) {
  const bool adds_nothing = bias.data == nullptr;
  if (adds_nothing && has_few_terms_in_place(problem, a)) {
    launch_few_terms<T>(stream, problem, a, x, y);
  } else if (adds_nothing && takes_row_groups(problem) && begins_with_units(problem, a)) {
    launch_row_groups<T>(stream, problem, a, x, y);
  } else if (adds_nothing && takes_float_columns(problem)) {
    launch_float_columns<T>(stream, problem, a, x, y);
  } else if (takes_row_products(problem)) {
    launch_row_products<T>(stream, problem, a, x, y, table, bias);
  } else {
    return false;
  }
  return true;
}

}  // namespace

void multiply_thin(const Stream& stream, const ThinProblem& given, const void* a, const void* x, void* y,
                   void* workspace, const ThinBias& bias) {
  const ThinProblem problem = without_single_column(given);
  SINTER_ASSERT(can_multiply_thin(problem), "[matvec] {} vectors with strides {} and {} have no kernel",
                problem.vectors, problem.x_vector, problem.x_element);
  SINTER_ASSERT(bias.data == nullptr || problem.batch == 1, "[matvec] a bias for a batch of {}",
                problem.batch);
  dispatch_float(problem.dtype, "matvec", [&]<class T> {
    const T *matrix = static_cast<const T*>(a), *vectors = static_cast<const T*>(x);
    T* out = static_cast<T*>(y);
    auto* const table = static_cast<compute_type<T>*>(workspace);
    if (is_staged(problem)) {
      const StagedPlan plan = staged_plan_of(problem);
      if constexpr (sizeof(T) == 2) {
        if (launch_halves<T>(stream, problem, matrix, vectors, out, table, bias)) return;
      }
      if constexpr (sizeof(T) == 4) {
        if (launch_floats<T>(stream, problem, matrix, vectors, out, table, bias)) return;
        const bool has_room =
            cuda::device_traits(stream.device.index).most_shared_bytes >= FloatManyTermPlan::kMostSharedBytes;
        if (has_room && takes_float_many_terms(problem)) {
          return launch_float_many_term_columns<T>(stream, problem, matrix, vectors, out, table, bias);
        }
      }
      if constexpr (sizeof(T) == 2) {
        return launch_staged_tensor_cores<T>(stream, problem, plan, matrix, vectors, out, table, bias);
      } else if (plan.tensor_cores) {
        return launch_staged_full<T>(stream, problem, plan, matrix, vectors, out, table, bias);
      } else {
        return launch_staged_plain<T>(stream, problem, plan, matrix, vectors, out, table, bias);
      }
    }
    if (takes_long_rows(problem)) {
      return launch_long_rows<T>(stream, problem, matrix, vectors, out, table, bias);
    }
    if (takes_few_rows(problem)) return launch_few_rows<T>(stream, problem, matrix, vectors, out, bias);
    if (takes_narrow_columns(problem) && begins_with_common_part(problem, a)) {
      return launch_narrow_columns<T>(stream, problem, matrix, vectors, out, table, bias);
    }
    if constexpr (sizeof(T) == 2) {
      if (is_folded_product(problem)) {
        return launch_many_term_columns<T>(stream, problem, matrix, vectors, out, table, bias);
      }
    }
    if (problem.transpose) return launch_column_sums<T>(stream, problem, matrix, vectors, out, table, bias);
    // The kernel counts rows with 32 bits.
    ThinProblem piece = problem;
    ThinBias piece_bias = bias;
    for (int64_t row = 0; row < problem.rows; row += kMostRows) {
      piece.rows = std::min(kMostRows, problem.rows - row);
      if (bias.data != nullptr) piece_bias.data = static_cast<const T*>(bias.data) + row * bias.element;
      launch_row_sums<T>(stream, piece, matrix + row * problem.columns, vectors,
                         out + row * problem.y_element, table, piece_bias);
    }
  });
}

}  // namespace sinter::ops
