// Cross-entropy on a GPU: losses and gradients of rows (loss_rows_cuda.h), and their sum.
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/cuda/row_reduce_cuda.h>
#include <sinter/ops/cross_entropy/cross_entropy.h>
#include <sinter/ops/cross_entropy/loss_rows_cuda.h>
#include <sinter/ops/cross_entropy/shard_registration.h>

namespace sinter::ops {
namespace {

constexpr int kTotalThreads = 256;
constexpr int64_t kTotalBlocks = 128;

/// What the blocks of the first stage of a total leave for the second.
struct Totals {
  double sums[kTotalBlocks];
  int64_t counts[kTotalBlocks];
};

/// For every block, the sum of its losses (none: null) and the number of its rows that are not ignored.
template <class C>
__global__ void totals_kernel(int64_t rows, const C* losses, const int64_t* indices, int64_t ignore_index,
                              Totals* totals) {
  double sum = 0;
  int64_t count = 0;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kTotalThreads + threadIdx.x; row < rows;
       row += static_cast<int64_t>(gridDim.x) * kTotalThreads) {
    if (losses != nullptr) sum += static_cast<double>(losses[row]);
    count += indices == nullptr || indices[row] != ignore_index ? 1 : 0;
  }
  sum = RowReduce<kTotalThreads>{}(sum, SumOf{});
  count = RowReduce<kTotalThreads>{}(count, SumOf{});
  if (threadIdx.x == 0) {
    totals->sums[blockIdx.x] = sum;
    totals->counts[blockIdx.x] = count;
  }
}

/// The loss (unless null) and the number of rows (unless null) from `blocks` parts; one warp.
template <class C>
__global__ void finish_kernel(int blocks, const Totals* totals, bool mean, C* loss, int64_t* rows) {
  double sum = 0;
  int64_t count = 0;
  for (int block = static_cast<int>(threadIdx.x); block < blocks; block += 32) {
    sum += totals->sums[block];
    count += totals->counts[block];
  }
  sum = reduce_warp(sum, SumOf{});
  count = reduce_warp(count, SumOf{});
  if (threadIdx.x != 0) return;
  if (loss != nullptr) *loss = static_cast<C>(mean ? sum / static_cast<double>(count) : sum);
  if (rows != nullptr) *rows = count;
}

template <class T>
void launch_total(const Stream& stream, const LossRows<T>& rows, const compute_type<T>* losses, bool mean,
                  Totals* totals, compute_type<T>* loss, int64_t* counted) {
  using C = compute_type<T>;
  const auto shape = cuda::grid_stride_shape(rows.rows, kTotalThreads * 4, kTotalThreads, kTotalBlocks);
  cuda::launch(stream, shape, totals_kernel<C>, rows.rows, losses, rows.indices, rows.ignore_index, totals);
  const cuda::LaunchShape one_warp{dim3(1), dim3(32)};
  cuda::launch(stream, one_warp, finish_kernel<C>, static_cast<int>(shape.grid.x), totals, mean, loss,
               counted);
}

size_t cross_entropy_workspace(const KernelQuery& query) {
  if (query.attributes<CrossEntropyOptions>().reduction == Reduction::kNone) return 0;
  return sizeof(Totals) + static_cast<size_t>(query.input(0).shape[0]) * size_of(query.output(0).dtype);
}

void run_cross_entropy(const KernelContext& context) {
  const auto& options = context.attributes<CrossEntropyOptions>();
  const TensorView& logits = context.input(0);
  dispatch_float(logits.dtype, "cross_entropy", [&]<class T> {
    using C = compute_type<T>;
    const LossRows<T> rows(logits, context.input(1), options.label_smoothing, options.ignore_index);
    const bool reduced = options.reduction != Reduction::kNone;
    auto* totals = context.workspace<Totals>();
    C* losses = reduced ? reinterpret_cast<C*>(totals + 1) : context.output(0).as<C>();
    C* log_sums = context.output(1).as<C>();
    launch_loss<T>(context.stream(), rows, losses, log_sums);
    if (!reduced) return;
    launch_total<T>(context.stream(), rows, losses, options.reduction == Reduction::kMean, totals,
                    context.output(0).as<C>(), nullptr);
  });
}

struct GradientWorkspace {
  Totals totals;
  int64_t counted;
};

size_t cross_entropy_grad_workspace(const KernelQuery& query) {
  const bool mean = query.attributes<CrossEntropyGradAttributes>().reduction == Reduction::kMean;
  return mean ? sizeof(GradientWorkspace) : 0;
}

void run_cross_entropy_grad(const KernelContext& context) {
  const auto& attributes = context.attributes<CrossEntropyGradAttributes>();
  const TensorView& logits = context.input(0);
  if (logits.numel() == 0) return;
  dispatch_float(logits.dtype, "cross_entropy_grad", [&]<class T> {
    using C = compute_type<T>;
    const LossRows<T> rows(logits, context.input(1), attributes.label_smoothing, attributes.ignore_index);
    int64_t* counted = nullptr;
    if (attributes.reduction == Reduction::kMean) {
      auto* workspace = context.workspace<GradientWorkspace>();
      counted = &workspace->counted;
      launch_total<T>(context.stream(), rows, nullptr, true, &workspace->totals, nullptr, counted);
    }
    launch_gradient<T>(context.stream(), rows,
                       {.log_sums = context.input(2).as<const C>(),
                        .dloss = context.input(3).as<const C>(),
                        .loss_per_row = attributes.reduction == Reduction::kNone,
                        .divisor = counted,
                        .dlogits = context.output(0).as<T>(),
                        .dtarget = attributes.target_gradient ? context.output(1).as<T>() : nullptr});
  });
}

}  // namespace

void register_cross_entropy_cuda(OpRegistry& registry);
void register_cross_entropy_cuda(OpRegistry& registry) {
  registry.add_kernel(
      "cross_entropy",
      {.device = DeviceType::kCuda, .workspace_bytes = cross_entropy_workspace, .run = run_cross_entropy});
  registry.add_kernel("cross_entropy_grad", {.device = DeviceType::kCuda,
                                             .workspace_bytes = cross_entropy_grad_workspace,
                                             .run = run_cross_entropy_grad});
  register_shard_cross_entropy_cuda(registry);
}

}  // namespace sinter::ops
