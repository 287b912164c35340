// Matrix products on a GPU through cuBLASLt.
#include <limits>

#include <cuda_runtime_api.h>

#include <sinter/core/cuda/cublaslt_matmul.h>
#include <sinter/core/cuda/cuda_check.h>
#include <sinter/ops/common/add_bias_cuda.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/matmul/batch.h>
#include <sinter/ops/matmul/batch_runs.h>
#include <sinter/ops/matmul/matmul.h>

namespace sinter::ops {
namespace {

using cuda::MatmulProblem;

const std::byte* at(const TensorView& view, int64_t element) {
  return view.as<const std::byte>() + element * static_cast<int64_t>(size_of(view.dtype));
}

/// A sum of no terms.
void fill_with_zeros(const KernelContext& context) {
  const TensorView& y = context.output(0);
  SINTER_CUDA_CHECK(cudaMemsetAsync(y.data, 0, static_cast<size_t>(y.numel()) * size_of(y.dtype),
                                    static_cast<cudaStream_t>(context.stream().native)));
}

size_t workspace_bytes(const KernelQuery& query) {
  return query.output(0).shape.numel() > 0 ? cuda::kMatmulWorkspace : 0;
}

void run_matmul(const KernelContext& context) {
  const auto [transpose_a, transpose_b] = context.attributes<MatmulOptions>();
  const TensorView &a = context.input(0), &b = context.input(1), &y = context.output(0);
  const int64_t m = y.shape[-2], n = y.shape[-1], k = a.shape[transpose_a ? -2 : -1];
  if (y.numel() == 0) return;
  if (k == 0) {
    fill_with_zeros(context);
    return;
  }
  for_each_batch_run(
      batch_shape(y.shape, 2), batch_shape(a.shape, 2), batch_shape(b.shape, 2), [&](const BatchRun& run) {
        MatmulProblem problem{.dtype = y.dtype,
                              .transpose_a = transpose_a,
                              .transpose_b = transpose_b,
                              .m = m,
                              .n = n,
                              .k = k,
                              .batch = run.count,
                              .a_stride = run.a_step * m * k,
                              .b_stride = run.b_step * k * n};
        // One right-hand matrix for all: the rows of the whole batch are those of one tall matrix.
        const bool is_tall = run.a_step == 1 && run.b_step == 0 && !transpose_a;
        if (is_tall && m <= std::numeric_limits<int32_t>::max() / run.count) {
          problem.m *= run.count;
          problem.batch = 1;
        }
        if (problem.batch == 1) problem.a_stride = problem.b_stride = 0;
        cuda::run_matmul(context.stream(), problem, at(a, run.a * m * k), at(b, run.b * k * n), nullptr,
                         y.as<std::byte>() + run.first * m * n * static_cast<int64_t>(size_of(y.dtype)),
                         context.workspace(), context.workspace_bytes());
      });
}

void run_linear(const KernelContext& context) {
  const TensorView &x = context.input(0), &weight = context.input(1), &y = context.output(0);
  const int64_t out = weight.shape[0], in = weight.shape[1];
  if (y.numel() == 0) return;
  const int64_t rows = y.numel() / out;
  const void* bias = context.has_input(2) ? context.input(2).data : nullptr;
  bool bias_added = false;
  if (in == 0) {
    fill_with_zeros(context);
  } else {
    const MatmulProblem problem{.dtype = y.dtype, .transpose_b = true, .m = rows, .n = out, .k = in};
    bias_added = cuda::run_matmul(context.stream(), problem, x.data, weight.data, bias, y.data,
                                  context.workspace(), context.workspace_bytes());
  }
  if (bias != nullptr && !bias_added) add_bias_cuda(context.stream(), y.dtype, y.data, bias, rows, out, 1);
}

void run_linear_grad_weight(const KernelContext& context) {
  const TensorView &dy = context.input(0), &x = context.input(1), &dweight = context.output(0);
  const int64_t out = dweight.shape[0], in = dweight.shape[1];
  if (dweight.numel() == 0) return;
  const int64_t rows = dy.numel() / out;
  if (rows == 0) {
    fill_with_zeros(context);
    return;
  }
  const MatmulProblem problem{.dtype = dy.dtype, .transpose_a = true, .m = out, .n = in, .k = rows};
  cuda::run_matmul(context.stream(), problem, dy.data, x.data, nullptr, dweight.data, context.workspace(),
                   context.workspace_bytes());
}

}  // namespace

void register_matmul_cuda(OpRegistry& registry);
void register_matmul_cuda(OpRegistry& registry) {
  const auto add = [&registry](const char* op, void (*run)(const KernelContext&)) {
    registry.add_kernel(op, {.device = DeviceType::kCuda,
                             .name = "cublaslt",
                             .workspace_bytes = workspace_bytes,
                             .takes_less_workspace = true,
                             .run = run});
  };
  add("matmul", run_matmul);
  add("linear", run_linear);
  add("linear_grad_weight", run_linear_grad_weight);
}

}  // namespace sinter::ops
