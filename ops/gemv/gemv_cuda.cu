// Chooses among the kernels of products with a few vectors. They are bound by memory: the matrix is read
// once, coalesced, in accesses as wide as its rows allow. docs/kernels/gemv.md tells why they are cut as they
// are.
#include <sinter/core/cuda/device_traits.h>
#include <sinter/ops/gemv/gemv_kernels_cuda.h>

namespace sinter::ops {
namespace {

/// Sums along rows; the kernels count rows with 32 bits.
template <class T>
void launch_rows(const Stream& stream, const GemvProblem& problem, const T* a, const T* x, T* y,
                 compute_type<T>* table, const GemvBias& bias) {
  constexpr int64_t kMostRows = int64_t{1} << 30;
  GemvProblem piece = problem;
  GemvBias piece_bias = bias;
  for (int64_t row = 0; row < problem.rows; row += kMostRows) {
    piece.rows = std::min(kMostRows, problem.rows - row);
    if (bias.data != nullptr) piece_bias.data = static_cast<const T*>(bias.data) + row * bias.element;
    launch_row_sums<T>(stream, piece, a + row * problem.columns, x, y + row * problem.y_element, table,
                       piece_bias);
  }
}

}  // namespace

void run_gemv(const Stream& stream, const GemvProblem& given, const void* a, const void* x, void* y,
              void* workspace, const GemvBias& bias) {
  const GemvProblem problem = without_single_column(given);
  SINTER_ASSERT(can_gemv(problem), "[gemv] {} vectors with strides {} and {} have no kernel", problem.vectors,
                problem.x_vector, problem.x_element);
  SINTER_ASSERT(bias.data == nullptr || problem.batch == 1, "[gemv] a bias for a batch of {}", problem.batch);
  dispatch_float(problem.dtype, "gemv", [&]<class T> {
    const T *matrix = static_cast<const T*>(a), *vectors = static_cast<const T*>(x);
    T* const out = static_cast<T*>(y);
    auto* const table = static_cast<compute_type<T>*>(workspace);
    if (takes_long_rows(problem)) {
      launch_long_rows<T>(stream, problem, matrix, vectors, out, table, bias);
    } else if (takes_few_rows(problem)) {
      launch_few_rows<T>(stream, problem, matrix, vectors, out, bias);
    } else if (problem.transpose) {
      launch_column_sums<T>(stream, problem, matrix, vectors, out, table, bias);
    } else {
      launch_rows<T>(stream, problem, matrix, vectors, out, table, bias);
    }
  });
}

void PreparedGemv::run(const KernelContext& context, const GemvBias& bias) const {
  const auto at = [](const TensorView& view, int64_t element) {
    return view.as<std::byte>() + element * static_cast<int64_t>(size_of(view.dtype));
  };
  for (const auto& [problem, swapped, first, second, out] : products) {
    const std::byte *left = at(context.input(0), first), *right = at(context.input(1), second);
    run_gemv(context.stream(), problem, swapped ? right : left, swapped ? left : right,
             at(context.output(0), out), context.workspace(), bias);
  }
}

double gemv_microseconds(const KernelQuery& query, const Prepared* prepared) {
  double elements = 0;
  for (const PreparedGemv::Product& product : static_cast<const PreparedGemv*>(prepared)->products) {
    const GemvProblem& problem = product.problem;
    elements += static_cast<double>(problem.a_stride == 0 ? 1 : problem.batch) *
                static_cast<double>(problem.rows) * static_cast<double>(problem.columns);
  }
  return elements * static_cast<double>(size_of(query.output(0).dtype)) /
         cuda::device_traits(query.output(0).device.index).dram_bytes_per_us;
}

}  // namespace sinter::ops
