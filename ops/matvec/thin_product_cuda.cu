// Chooses the kernels of thin products. They are bound by memory: the matrix is read once, coalesced, in
// accesses as wide as its rows allow. docs/kernels/matvec.md tells why they are cut as they are.
#include <sinter/ops/matvec/thin_kernels_cuda.h>

namespace sinter::ops {
namespace {

constexpr int64_t kMostRows = int64_t{1} << 30;

}  // namespace

bool can_multiply_thin(const ThinProblem& problem) {
  if (problem.vectors < 1 || problem.vectors > kMostThinVectors) return false;
  if (problem.transpose || problem.vectors == 1) return problem.transpose || problem.x_element == 1;
  if (problem.x_element == 1) return problem.x_vector == problem.columns;
  return problem.x_vector == 1 && problem.x_element == problem.vectors &&
         std::has_single_bit(static_cast<unsigned>(problem.vectors));
}

size_t thin_workspace(const ThinProblem& problem) {
  const int64_t sums = problem.batch * problem.out() * problem.vectors;
  int64_t most = 1;
  for (int pack = 1; pack <= 16 / static_cast<int>(size_of(problem.dtype)); pack *= 2) {
    if (problem.columns % pack != 0) break;
    const int64_t parts = problem.transpose
                              ? plan_column_sums(problem.batch, problem.rows, problem.columns, pack).parts
                              : plan_row_sums(problem.batch * problem.rows, problem.columns, pack).parts;
    most = std::max(most, parts);
  }
  return most == 1 ? 0 : static_cast<size_t>(most * sums) * size_of(accumulate_dtype(problem.dtype));
}

void multiply_thin(const Stream& stream, const ThinProblem& problem, const void* a, const void* x, void* y,
                   void* workspace) {
  SINTER_ASSERT(can_multiply_thin(problem), "[matvec] {} vectors with strides {} and {} have no kernel",
                problem.vectors, problem.x_vector, problem.x_element);
  dispatch_float(problem.dtype, "matvec", [&]<class T> {
    const T *matrix = static_cast<const T*>(a), *vectors = static_cast<const T*>(x);
    T* out = static_cast<T*>(y);
    auto* const table = static_cast<compute_type<T>*>(workspace);
    if (problem.transpose) return launch_column_sums<T>(stream, problem, matrix, vectors, out, table);
    // The kernel counts rows with 32 bits.
    ThinProblem piece = problem;
    for (int64_t row = 0; row < problem.rows; row += kMostRows) {
      piece.rows = std::min(kMostRows, problem.rows - row);
      launch_row_sums<T>(stream, piece, matrix + row * problem.columns, vectors,
                         out + row * problem.y_element, table);
    }
  });
}

}  // namespace sinter::ops
