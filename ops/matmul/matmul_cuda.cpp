// Matrix products on a GPU: through cuBLASLt, or as products with a few vectors where those are faster.
#include <algorithm>
#include <bit>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include <cuda_runtime_api.h>

#include <sinter/core/cuda/cublaslt/cublaslt_matmul.h>
#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/cuda/device_traits.h>
#include <sinter/ops/common/cuda/add_bias_cuda.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/gemv/batch.h>
#include <sinter/ops/gemv/gemv.h>
#include <sinter/ops/gemv/gemv_cuda.h>
#include <sinter/ops/matmul/as_gemv.h>
#include <sinter/ops/matmul/matmul.h>
#include <sinter/ops/reduce/reduce_cuda.h>

namespace sinter::ops {
namespace {

using cuda::MatmulProblem;

std::byte* at(const TensorView& view, int64_t element) {
  return view.as<std::byte>() + element * static_cast<int64_t>(size_of(view.dtype));
}

void fill_with_zeros(const KernelContext& context) {
  const TensorView& y = context.output(0);
  SINTER_CUDA_CHECK(cudaMemsetAsync(y.data, 0, static_cast<size_t>(y.numel()) * size_of(y.dtype),
                                    static_cast<cudaStream_t>(context.stream().native)));
}

/// Of element `offset` of input i.
size_t alignment_at(const KernelQuery& query, size_t i, int64_t offset) {
  const size_t bytes = static_cast<size_t>(offset) * size_of(query.input(i).dtype);
  return query.alignment(i, size_t{1} << std::countr_zero(bytes | cuda::kMatmulAlignment));
}

/// Products through cuBLASLt: each has a plan and begins at elements of a, b and y.
struct PreparedProducts final : Prepared {
  struct Product {
    std::shared_ptr<const cuda::MatmulPlan> plan;
    int64_t a = 0, b = 0, y = 0;
  };
  std::vector<Product> products;
  bool is_zero = false;    // y has elements, and each is a sum of no terms
  size_t other_bytes = 0;  // scratch for what follows the products

  size_t workspace_bytes() const override {
    size_t most = other_bytes;
    for (const Product& product : products) most = std::max(most, product.plan->workspace_bytes());
    return most;
  }
  /// y, its array `extra` included if that is not null; whether the extra was done.
  bool run(const KernelContext& context, const void* extra = nullptr) const {
    if (is_zero) fill_with_zeros(context);
    bool done = false;
    for (const auto& [plan, a, b, y] : products) {
      done = extra != nullptr && plan->does_extra();
      plan->run(context.stream(), at(context.input(0), a), at(context.input(1), b), at(context.output(0), y),
                extra, context.workspace());
    }
    return done;
  }
};

/// A plan for a product of inputs 0 and 1 that starts at these elements.
PreparedProducts::Product find_product(const KernelQuery& query, const MatmulProblem& problem, int64_t a = 0,
                                       int64_t b = 0, int64_t y = 0,
                                       cuda::MatmulExtra extra = cuda::MatmulExtra::kNone) {
  const TensorSpec& output = query.output(0);
  const size_t y_bytes = static_cast<size_t>(y) * size_of(output.dtype) | cuda::kMatmulAlignment;
  return {
      cuda::find_matmul_plan({.problem = problem,
                              .device = output.device.index,
                              .extra = extra,
                              .alignments = {alignment_at(query, 0, a), alignment_at(query, 1, b),
                                             size_t{1} << std::countr_zero(y_bytes)},
                              .workspace_limit = std::min(cuda::kMatmulWorkspace, query.workspace_limit())}),
      a, b, y};
}

/// The products of a matmul call.
struct Products {
  MatmulOptions options;
  int64_t m = 0, n = 0, k = 0;

  explicit Products(const KernelQuery& call)
      : options(call.attributes<MatmulOptions>()),
        m(call.output(0).shape[-2]),
        n(call.output(0).shape[-1]),
        k(call.input(0).shape[options.transpose_a ? -2 : -1]) {}

  /// One right-hand matrix for all: the rows of the whole batch are those of one tall matrix.
  bool is_tall(const BatchRun& run) const {
    return run.a_step == 1 && run.b_step == 0 && !options.transpose_a &&
           m <= std::numeric_limits<int32_t>::max() / run.count;
  }
};

template <class Body>
void for_each_product(const KernelQuery& call, Body&& body,
                      int64_t most = std::numeric_limits<int32_t>::max()) {
  for_each_batch_run(batch_shape(call.output(0).shape, 2), batch_shape(call.input(0).shape, 2),
                     batch_shape(call.input(1).shape, 2), body, most);
}

std::shared_ptr<const Prepared> prepare_matmul(const KernelQuery& query) {
  auto prepared = std::make_shared<PreparedProducts>();
  const TensorSpec& y = query.output(0);
  if (y.shape.numel() == 0) return prepared;
  const Products products(query);
  prepared->is_zero = products.k == 0;
  if (prepared->is_zero) return prepared;
  for_each_product(query, [&](const BatchRun& run) {
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
    prepared->products.push_back(find_product(query, problem, run.a * products.m * products.k,
                                              run.b * products.k * products.n,
                                              run.first * products.m * products.n));
  });
  return prepared;
}

/// A matvec is a product with a single column.
std::shared_ptr<const Prepared> prepare_matvec(const KernelQuery& query) {
  auto prepared = std::make_shared<PreparedProducts>();
  const Shape &a = query.input(0).shape, &y = query.output(0).shape;
  if (y.numel() == 0) return prepared;
  const bool transpose = query.attributes<MatvecOptions>().transpose_a;
  const int64_t out = a[transpose ? -1 : -2], in = a[transpose ? -2 : -1];
  prepared->is_zero = in == 0;
  if (prepared->is_zero) return prepared;
  const auto add = [&](const BatchRun& run) {
    const MatmulProblem problem{.dtype = query.output(0).dtype,
                                .transpose_a = transpose,
                                .m = out,
                                .n = 1,
                                .k = in,
                                .batch = run.count,
                                .a_stride = run.count == 1 ? 0 : run.a_step * out * in,
                                .b_stride = run.count == 1 ? 0 : run.b_step * in};
    prepared->products.push_back(find_product(query, problem, run.a * out * in, run.b * in, run.first * out));
  };
  for_each_batch_run(batch_shape(y, 1), batch_shape(a, 2), batch_shape(query.input(1).shape, 1), add,
                     std::numeric_limits<int32_t>::max());
  return prepared;
}

void run_products(const KernelContext& context) {
  context.prepared<PreparedProducts>().run(context);
}

// ---- as products with a few vectors

int64_t processors_of(const KernelQuery& query) {
  return cuda::device_traits(query.output(0).device.index).processors;
}

/// Null unless all products of the call have few vectors.
std::shared_ptr<const Prepared> prepare_gemv(const KernelQuery& query) {
  constexpr int64_t kMostOuts = int64_t{1} << 30;
  const TensorSpec& y = query.output(0);
  if (y.shape.numel() == 0) return nullptr;
  const Products products(query);
  auto prepared = std::make_shared<PreparedGemv>();
  bool can = true;
  const auto add = [&](const BatchRun& run) {
    if (!can) return;
    BatchRun one = run;
    int64_t m = products.m;
    if (products.is_tall(run)) m *= run.count, one.count = 1, one.a_step = 0;
    const auto gemv = as_gemv(products.options, y.dtype, m, products.n, products.k, one);
    can = gemv.has_value();
    if (!can) return;
    prepared->products.push_back({.problem = gemv->problem,
                                  .swapped = gemv->swapped,
                                  .first = run.a * products.m * products.k,
                                  .second = run.b * products.k * products.n,
                                  .out = run.first * products.m * products.n});
    prepared->products.back().problem.processors = processors_of(query);
  };
  for_each_product(query, add,
                   std::max<int64_t>(kMostOuts / std::max<int64_t>({products.m, products.n, 1}), 1));
  if (!can) return nullptr;
  return prepared;
}

void run_gemv_products(const KernelContext& context) {
  context.prepared<PreparedGemv>().run(context);
}

// ---- the linear layer

/// x weight^T as a product with a few vectors; null if both x and weight have many rows.
std::shared_ptr<const Prepared> prepare_gemv_linear(const KernelQuery& query) {
  const Shape &weight = query.input(1).shape, &y = query.output(0).shape;
  if (y.numel() == 0) return nullptr;
  const auto gemv = as_gemv({.transpose_b = true}, query.output(0).dtype, y.numel() / weight[0], weight[0],
                            weight[1], {.count = 1});
  if (!gemv) return nullptr;
  auto prepared = std::make_shared<PreparedGemv>();
  prepared->products.push_back({.problem = gemv->problem, .swapped = gemv->swapped});
  prepared->products.back().problem.processors = processors_of(query);
  return prepared;
}

void run_gemv_linear(const KernelContext& context) {
  const auto& gemv = context.prepared<PreparedGemv>();
  // Swapped, the sums of a vector are those of all outputs for one row of x; else those of one output.
  const bool swapped = gemv.products.front().swapped;
  gemv.run(context, {.data = context.has_input(2) ? context.input(2).data : nullptr,
                     .vector = swapped ? 0 : 1,
                     .element = swapped ? 1 : 0});
}

std::shared_ptr<const Prepared> prepare_linear(const KernelQuery& query) {
  const Shape &weight = query.input(1).shape, &y = query.output(0).shape;
  auto prepared = std::make_shared<PreparedProducts>();
  if (y.numel() == 0) return prepared;
  prepared->is_zero = weight[1] == 0;
  if (prepared->is_zero) return prepared;
  const bool has_bias = query.has_input(2) && query.is_aligned(2, cuda::kMatmulAlignment);
  prepared->products.push_back(find_product(query,
                                            {.dtype = query.output(0).dtype,
                                             .transpose_b = true,
                                             .m = y.numel() / weight[0],
                                             .n = weight[0],
                                             .k = weight[1]},
                                            0, 0, 0,
                                            has_bias ? cuda::MatmulExtra::kBias : cuda::MatmulExtra::kNone));
  return prepared;
}

void run_linear(const KernelContext& context) {
  const TensorView& y = context.output(0);
  const void* const bias = context.has_input(2) ? context.input(2).data : nullptr;
  const bool bias_added = context.prepared<PreparedProducts>().run(context, bias);
  if (bias == nullptr || bias_added || y.numel() == 0) return;
  const int64_t out = context.input(1).shape[0];
  add_bias_cuda(context.stream(), y.dtype, y.data, bias, y.numel() / out, out, 1);
}

/// Whether cuBLASLt is faster with the sums for the bias than without them and a kernel for the sums, as
/// measured on an H200 (docs/performance.md). With them it takes other algorithms, which do not cut long
/// sums, and are slow on 16-bit rows that are not aligned.
bool is_faster_with_bias_sums(const MatmulProblem& problem) {
  constexpr int64_t kMostRows = 4096, kAlignment = 8;
  const bool aligned = problem.m % kAlignment == 0 && problem.n % kAlignment == 0;
  return problem.k <= kMostRows && (aligned || !is_half(problem.dtype));
}

/// dweight from dy (input 0) and x (input 1), and dbias if it is an output.
std::shared_ptr<const Prepared> prepare_grad_weight(const KernelQuery& query) {
  const TensorSpec& dweight = query.output(0);
  const bool has_bias = query.output_count() > 1;
  auto prepared = std::make_shared<PreparedProducts>();
  if (has_bias) prepared->other_bytes = sum_to_workspace_cuda(query.input(0), query.output(1).shape);
  if (dweight.shape.numel() == 0) return prepared;
  const int64_t out = dweight.shape[0], in = dweight.shape[1];
  const int64_t rows = query.input(0).shape.numel() / out;
  prepared->is_zero = rows == 0;
  if (prepared->is_zero) return prepared;
  const MatmulProblem problem{.dtype = dweight.dtype, .transpose_a = true, .m = out, .n = in, .k = rows};
  const bool sums = has_bias && is_faster_with_bias_sums(problem);
  prepared->products.push_back(
      find_product(query, problem, 0, 0, 0, sums ? cuda::MatmulExtra::kRowSums : cuda::MatmulExtra::kNone));
  return prepared;
}

void run_linear_grad_weight_bias(const KernelContext& context) {
  const TensorView& dbias = context.output(1);
  if (context.prepared<PreparedProducts>().run(context, dbias.data)) return;
  sum_to_cuda(context.stream(), context.input(0), dbias, context.workspace());
}

}  // namespace

void register_matmul_cuda(OpRegistry& registry);
void register_matmul_cuda(OpRegistry& registry) {
  using Prepare = std::shared_ptr<const Prepared> (*)(const KernelQuery&);
  const auto add = [&registry](const char* op, Prepare prepare, void (*run)(const KernelContext&)) {
    registry.add_kernel(op,
                        {.device = DeviceType::kCuda, .name = "cublaslt", .prepare = prepare, .run = run});
  };
  const auto add_gemv = [&registry](const char* op, Prepare prepare, void (*run)(const KernelContext&)) {
    registry.add_kernel(op, {.device = DeviceType::kCuda,
                             .name = "gemv",
                             .microseconds = gemv_microseconds,
                             .prepare = prepare,
                             .run = run});
  };
  add("matvec", prepare_matvec, run_products);
  add("matmul", prepare_matmul, run_products);
  add_gemv("matmul", prepare_gemv, run_gemv_products);
  add("linear", prepare_linear, run_linear);
  add_gemv("linear", prepare_gemv_linear, run_gemv_linear);
  add("linear_grad_weight", prepare_grad_weight, run_products);
  add("linear_grad_weight_bias", prepare_grad_weight, run_linear_grad_weight_bias);
}

}  // namespace sinter::ops
