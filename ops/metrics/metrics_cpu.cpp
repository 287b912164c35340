#include <algorithm>

#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/metrics/metrics_math.h>

namespace sinter::ops {
namespace {

template <class T>
void count_ranks(const KernelContext& context) {
  using C = compute_type<T>;
  auto* counts = context.input(0).as<int64_t>();
  const int64_t last = context.input(0).numel() - 1;
  const T* logits = context.input(1).as<const T>();
  const auto* targets = context.input(2).as<const int64_t>();
  const int64_t rows = context.input(1).shape[0], classes = context.input(1).shape[1];
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t target = targets[row];
    if (target < 0 || target >= classes) continue;
    const T* x = logits + row * classes;
    const C own = static_cast<C>(x[target]);
    int64_t place = 0;
    for (int64_t c = 0; c < classes; ++c) place += comes_before(static_cast<C>(x[c]), c, own, target) ? 1 : 0;
    ++counts[std::min(place, last)];
  }
}

void run_count_ranks(const KernelContext& context) {
  dispatch_float(context.input(1).dtype, "count_ranks_", [&]<class T> { count_ranks<T>(context); });
}

void run_add_to_mean(const KernelContext& context) {
  dispatch_float(context.input(1).dtype, "add_to_mean_", [&]<class T> {
    add_to_totals(context.input(0).as<double>(),
                  static_cast<double>(static_cast<compute_type<T>>(*context.input(1).as<const T>())),
                  context.attributes<AddToMeanAttributes>().weight);
  });
}

}  // namespace

void register_metrics_cpu(OpRegistry& registry);
void register_metrics_cpu(OpRegistry& registry) {
  registry.add_kernel("count_ranks_", {.device = DeviceType::kCpu, .run = run_count_ranks});
  registry.add_kernel("add_to_mean_", {.device = DeviceType::kCpu, .run = run_add_to_mean});
}

}  // namespace sinter::ops
