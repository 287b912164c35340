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
#include <sinter/ops/reduce/reduce_cuda.h>

namespace sinter::ops {
namespace {

using cuda::MatmulProblem;

std::byte* at(const TensorView& view, int64_t element) {
  return view.as<std::byte>() + element * static_cast<int64_t>(size_of(view.dtype));
}

/// Sums of no terms.
void fill_with_zeros(const KernelContext& context, size_t output = 0) {
  const TensorView& y = context.output(output);
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
                     at(b, run.b * products.k * products.n), at(y, run.first * products.m * products.n), {},
                     context.workspace(), context.workspace_bytes());
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

/// x weight^T as products with a few vectors; nothing if both x and weight have many rows.
template <class Call>
std::optional<ThinMatmul> thin_linear(const Call& call) {
  const Shape &weight = call.input(1).shape, &y = call.output(0).shape;
  if (y.numel() == 0) return std::nullopt;
  return as_thin({.transpose_b = true}, call.output(0).dtype, y.numel() / weight[0], weight[0], weight[1],
                 {.count = 1});
}

bool can_run_thin_linear(const KernelQuery& query) {
  const auto thin = thin_linear(query);
  return thin && is_thin_faster(thin->problem);
}

size_t thin_linear_workspace(const KernelQuery& query) {
  return thin_workspace(thin_linear(query)->problem);
}

void run_thin_linear(const KernelContext& context) {
  const TensorView &x = context.input(0), &weight = context.input(1);
  const auto [problem, swapped] = *thin_linear(context);
  // Swapped, the sums of a vector are those of all outputs for one row of x; else those of one output.
  const ThinBias bias{.data = context.has_input(2) ? context.input(2).data : nullptr,
                      .vector = swapped ? 0 : 1,
                      .element = swapped ? 1 : 0};
  multiply_thin(context.stream(), problem, swapped ? weight.data : x.data, swapped ? x.data : weight.data,
                context.output(0).data, context.workspace(), bias);
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
    bias_added = cuda::run_matmul(context.stream(), problem, x.data, weight.data, y.data, {.bias = bias},
                                  context.workspace(), context.workspace_bytes());
  }
  if (bias != nullptr && !bias_added) add_bias_cuda(context.stream(), y.dtype, y.data, bias, rows, out, 1);
}

/// Whether cuBLASLt is faster with the sums for the bias than without them and a kernel for the sums, as
/// measured on an H200 (docs/performance.md). With them it takes other algorithms, which do not cut long
/// sums, and are slow on 16-bit rows that are not aligned.
bool is_faster_with_bias_sums(const MatmulProblem& problem) {
  constexpr int64_t kMostRows = 4096, kAlignment = 8;
  const bool aligned = problem.m % kAlignment == 0 && problem.n % kAlignment == 0;
  return problem.k <= kMostRows && (aligned || !is_half(problem.dtype));
}

/// dweight, if it is not empty; true if cuBLASLt has computed dbias (unless that is null) on the way.
bool run_grad_weight(const KernelContext& context, void* dbias) {
  const TensorView &dy = context.input(0), &x = context.input(1), &dweight = context.output(0);
  const int64_t out = dweight.shape[0], in = dweight.shape[1];
  if (dweight.numel() == 0) return false;
  const int64_t rows = dy.numel() / out;
  if (rows == 0) {
    fill_with_zeros(context);
    return false;
  }
  const MatmulProblem problem{.dtype = dy.dtype, .transpose_a = true, .m = out, .n = in, .k = rows};
  void* const row_sums = is_faster_with_bias_sums(problem) ? dbias : nullptr;
  return cuda::run_matmul(context.stream(), problem, dy.data, x.data, dweight.data, {.row_sums = row_sums},
                          context.workspace(), context.workspace_bytes()) &&
         row_sums == dbias;
}

void run_linear_grad_weight(const KernelContext& context) {
  run_grad_weight(context, nullptr);
}

void run_linear_grad_weight_bias(const KernelContext& context) {
  const TensorView& dbias = context.output(1);
  if (run_grad_weight(context, dbias.data)) return;
  sum_to_cuda(context.stream(), context.input(0), dbias, context.workspace());
}

size_t bias_sums_workspace(const KernelQuery& query) {
  return sum_to_workspace_cuda(query.input(0), query.output(1).shape);
}

size_t grad_weight_bias_workspace(const KernelQuery& query) {
  return std::max(workspace_bytes(query), bias_sums_workspace(query));
}

}  // namespace

void register_matmul_cuda(OpRegistry& registry);
void register_matmul_cuda(OpRegistry& registry) {
  constexpr auto nothing = [](const KernelQuery&) { return size_t{0}; };
  const auto add = [&registry](const char* op, void (*run)(const KernelContext&),
                               size_t (*least)(const KernelQuery&)) {
    registry.add_kernel(op, {.device = DeviceType::kCuda,
                             .name = "cublaslt",
                             .workspace_bytes = workspace_bytes,
                             .least_workspace_bytes = least,
                             .run = run});
  };
  add("matmul", run_matmul, nothing);
  registry.add_kernel("matmul", {.device = DeviceType::kCuda,
                                 .name = "thin",
                                 .priority = 1,
                                 .can_run = can_run_thin,
                                 .workspace_bytes = thin_matmul_workspace,
                                 .run = run_thin});
  add("linear", run_linear, nothing);
  registry.add_kernel("linear", {.device = DeviceType::kCuda,
                                 .name = "thin",
                                 .priority = 1,
                                 .can_run = can_run_thin_linear,
                                 .workspace_bytes = thin_linear_workspace,
                                 .run = run_thin_linear});
  add("linear_grad_weight", run_linear_grad_weight, nothing);
  registry.add_kernel("linear_grad_weight_bias", {.device = DeviceType::kCuda,
                                                  .name = "cublaslt",
                                                  .workspace_bytes = grad_weight_bias_workspace,
                                                  .least_workspace_bytes = bias_sums_workspace,
                                                  .run = run_linear_grad_weight_bias});
}

}  // namespace sinter::ops
