// Products with a vector, or with a few, beside cuBLAS: a matrix of 16384 rows and few to many columns, plain
// and transposed, and thin right-hand matrices.
#include <cublas_v2.h>

#include <sinter/core/base/error.h>
#include <sinter/core/cuda/cublaslt/cublaslt_handles.h>
#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/cuda/unique_handle.h>
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/ops/gemv/gemv.h>
#include <sinter/ops/matmul/matmul.h>

#include "common/gpu_bench.h"

using namespace sinter;

namespace {

constexpr int64_t kRows = 16384;
constexpr int64_t kColumns[] = {16, 17, 32, 33, 64, 100, 128, 130, 256, 1024, 4096};

/// cuBLAS as a program that calls it directly would use it: gemv in float32, a product with one column in the
/// 16-bit types, which have no gemv of their own.
class Cublas {
 public:
  Cublas() : workspace_(Tensor::empty({kWorkspace}, DType::kUInt8, bench::gpu())) {
    cublasHandle_t made = nullptr;
    SINTER_CUBLAS_CHECK(cublasCreate(&made));
    handle_ = Handle(made);
    SINTER_CUBLAS_CHECK(
        cublasSetStream(made, static_cast<cudaStream_t>(current_stream(bench::gpu()).native)));
    SINTER_CUBLAS_CHECK(cublasSetWorkspace(made, workspace_.raw_data(), static_cast<size_t>(kWorkspace)));
  }

  /// y (rows, count) = a (rows, columns) x (columns, count), or y (columns, count) = a^T x with `transpose`;
  /// x and y lie as `count` vectors behind each other.
  void multiply(const Tensor& a, const Tensor& x, Tensor& y, bool transpose, int count = 1) const {
    const float one = 1.0F, zero = 0.0F;
    const auto rows = static_cast<int>(a.shape()[0]), columns = static_cast<int>(a.shape()[1]);
    // cuBLAS counts by columns: to it, a is its own transpose.
    const cublasOperation_t op = transpose ? CUBLAS_OP_N : CUBLAS_OP_T;
    if (a.dtype() == DType::kFloat32 && count == 1) {
      SINTER_CUBLAS_CHECK(cublasSgemv(
          handle_.get(), op, columns, rows, &one, static_cast<const float*>(a.raw_data()), columns,
          static_cast<const float*>(x.raw_data()), 1, &zero, static_cast<float*>(y.raw_data()), 1));
      return;
    }
    const cudaDataType_t type = a.dtype() == DType::kFloat32   ? CUDA_R_32F
                                : a.dtype() == DType::kFloat16 ? CUDA_R_16F
                                                               : CUDA_R_16BF;
    const int out = transpose ? columns : rows, in = transpose ? rows : columns;
    SINTER_CUBLAS_CHECK(cublasGemmEx(handle_.get(), op, CUBLAS_OP_N, out, count, in, &one, a.raw_data(), type,
                                     columns, x.raw_data(), type, in, &zero, y.raw_data(), type, out,
                                     CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  }

 private:
  using Handle = cuda::UniqueHandle<cublasHandle_t, cublasDestroy>;
  static constexpr int64_t kWorkspace = int64_t{32} << 20;

  Handle handle_;
  Tensor workspace_;
};

/// What the kernels of matvec have to reach against cuBLAS.
double wanted_speedup(int64_t columns) {
  return columns <= 256 ? 1.15 : 1.0;
}

struct Product {
  std::string name;
  Tensor a, x;
  int64_t out;  ///< elements of a result vector
  int count;    ///< of vectors
  bool transpose;
  bool is_target;
};

void add(bench::Report& report, const Cublas& cublas, const Product& product,
         const std::function<void()>& call) {
  const DType dtype = product.a.dtype();
  Tensor y = Tensor::empty({product.count * product.out}, dtype, bench::gpu());
  bench::Row row{.suite = "matvec", .name = product.name, .dtype = std::string(to_string(dtype))};
  row.us = bench::time_cold(call);
  row.minimum_bytes = static_cast<double>(product.a.numel() + product.x.numel() + y.numel()) *
                      static_cast<double>(size_of(dtype));
  row.peers_us["cublas"] =
      bench::time_cold([&] { cublas.multiply(product.a, product.x, y, product.transpose, product.count); });
  if (product.is_target) {
    row.target_speedup["cublas"] = row.target_speedup["torch_mv"] = wanted_speedup(product.a.shape()[1]);
  }
  report.add(std::move(row));
}

void run_columns(bench::Report& report, const Cublas& cublas, DType dtype, int64_t columns) {
  const std::string type(to_string(dtype));
  const Tensor a = bench::normal_tensor({kRows, columns}, dtype, 1);
  const std::string plain = fmt::format("({},{})", kRows, columns);
  if (report.wants("matvec", plain, type)) {
    const Tensor x = bench::normal_tensor({columns}, dtype, 2);
    add(report, cublas, {plain, a, x, kRows, 1, false, dtype != DType::kBFloat16},
        [&] { ops::matvec(a, x); });
  }
  const std::string transposed = plain + " transposed";
  if (report.wants("matvec", transposed, type)) {
    const Tensor x = bench::normal_tensor({kRows}, dtype, 2);
    add(report, cublas, {transposed, a, x, columns, 1, true, false},
        [&] { ops::matvec(a, x, {.transpose_a = true}); });
  }
  for (const int count : {2, 4, 8}) {
    const std::string thin = fmt::format("{} by {} vectors", plain, count);
    if (!report.wants("matvec", thin, type)) continue;
    const Tensor x = bench::normal_tensor({count, columns}, dtype, 2);
    add(report, cublas, {thin, a, x, kRows, count, false, false},
        [&] { ops::matmul(x, a, {.transpose_b = true}); });
  }
}

void run(bench::Report& report) {
  const NoGrad no_grad;
  const Cublas cublas;
  for (const int64_t columns : kColumns) {
    if (report.quick() && columns != 16 && columns != 128 && columns != 1024) continue;
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      run_columns(report, cublas, dtype, columns);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_program(argc, argv, run);
}
