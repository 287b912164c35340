// Matrix products on a GPU: through cuBLASLt, or as products with a few vectors where those are faster.
#include <algorithm>
#include <limits>
#include <optional>

#include <cuda_runtime_api.h>

#include <sinter/core/cuda/cublaslt_matmul.h>
#include <sinter/core/cuda/cuda_check.h>
#include <sinter/ops/common/add_bias_cuda.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/matmul/batch.h>
#include <sinter/ops/matmul/batch_runs.h>
#include <sinter/ops/matmul/matmul.h>
#include <sinter/ops/matmul/thin_matmul.h>
#include <sinter/ops/matvec/thin_product_cuda.h>

namespace sinter::ops {
namespace {

using cuda::MatmulProblem;

std::byte* at(const TensorView& view, int64_t element) {
  return view.as<std::byte>() + element * static_cast<int64_t>(size_of(view.dtype));
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

/// The products of a matmul call. Call is KernelQuery or KernelContext.
struct Products {
  MatmulOptions options;
  int64_t m = 0, n = 0, k = 0;

  template <class Call>
  explicit Products(const Call& call)
      : options(call.template attributes<MatmulOptions>()),
        m(call.output(0).shape[-2]),
        n(call.output(0).shape[-1]),
        k(call.input(0).shape[options.transpose_a ? -2 : -1]) {}

  /// One right-hand matrix for all: the rows of the whole batch are those of one tall matrix.
  bool is_tall(const BatchRun& run) const {
    return run.a_step == 1 && run.b_step == 0 && !options.transpose_a &&
           m <= std::numeric_limits<int32_t>::max() / run.count;
  }
};

template <class Call, class Body>
void for_each_product(const Call& call, Body&& body, int64_t most = std::numeric_limits<int32_t>::max()) {
  for_each_batch_run(batch_shape(call.output(0).shape, 2), batch_shape(call.input(0).shape, 2),
                     batch_shape(call.input(1).shape, 2), body, most);
}

void run_matmul(const KernelContext& context) {
  const TensorView &a = context.input(0), &b = context.input(1), &y = context.output(0);
  if (y.numel() == 0) return;
  const Products products(context);
  if (products.k == 0) {
    fill_with_zeros(context);
    return;
  }
  for_each_product(context, [&](const BatchRun& run) {
    MatmulProblem problem{.dtype = y.dtype,
                          .transpose_a = products.options.transpose_a,
                          .transpose_b = products.options.transpose_b,
                          .m = products.m,
                          .n = products.n,
                          .k = products.k,
                          .batch = run.count,
                          .a_stride = run.a_step * products.m * products.k,
                          .b_stride = run.b_step * products.k * products.n};
    if (products.is_tall(run)) {
      problem.m *= run.count;
      problem.batch = 1;
    }
    if (problem.batch == 1) problem.a_stride = problem.b_stride = 0;
    cuda::run_matmul(context.stream(), problem, at(a, run.a * products.m * products.k),
                     at(b, run.b * products.k * products.n), nullptr,
                     at(y, run.first * products.m * products.n), context.workspace(),
                     context.workspace_bytes());
  });
}

// ---- as products with a few vectors

/// Calls `body(run, thin)` for all runs, where `thin` may be empty.
template <class Call, class Body>
void for_each_thin(const Call& call, Body&& body) {
  constexpr int64_t kMostOuts = int64_t{1} << 30;
  const Products products(call);
  const auto run_product = [&](const BatchRun& run) {
    BatchRun one = run;
    int64_t m = products.m;
    if (products.is_tall(run)) m *= run.count, one.count = 1, one.a_step = 0;
    body(run, as_thin(products.options, call.output(0).dtype, m, products.n, products.k, one));
  };
  for_each_product(call, run_product,
                   std::max<int64_t>(kMostOuts / std::max<int64_t>({products.m, products.n, 1}), 1));
}

bool can_run_thin(const KernelQuery& query) {
  if (query.output(0).shape.numel() == 0) return false;
  bool can = true;
  for_each_thin(query, [&](const BatchRun&, const std::optional<ThinMatmul>& thin) {
    can = can && thin && is_thin_faster(thin->problem);
  });
  return can;
}

size_t thin_matmul_workspace(const KernelQuery& query) {
  size_t most = 0;
  for_each_thin(query, [&](const BatchRun&, const std::optional<ThinMatmul>& thin) {
    most = std::max(most, thin_workspace(thin->problem));
  });
  return most;
}

void run_thin(const KernelContext& context) {
  const TensorView &a = context.input(0), &b = context.input(1), &y = context.output(0);
  const Products products(context);
  for_each_thin(context, [&](const BatchRun& run, const std::optional<ThinMatmul>& thin) {
    const std::byte *left = at(a, run.a * products.m * products.k),
                    *right = at(b, run.b * products.k * products.n);
    multiply_thin(context.stream(), thin->problem, thin->swapped ? right : left, thin->swapped ? left : right,
                  at(y, run.first * products.m * products.n), context.workspace());
  });
}

// ---- the linear layer

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
  registry.add_kernel("matmul", {.device = DeviceType::kCuda,
                                 .name = "thin",
                                 .priority = 1,
                                 .can_run = can_run_thin,
                                 .workspace_bytes = thin_matmul_workspace,
                                 .run = run_thin});
  add("linear", run_linear);
  add("linear_grad_weight", run_linear_grad_weight);
}

}  // namespace sinter::ops
