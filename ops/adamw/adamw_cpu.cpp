#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/adamw/adamw_math.h>
#include <sinter/ops/common/multi_tensor_cpu.h>

namespace sinter::ops {
namespace {

constexpr size_t kSlotInputs = 6;
constexpr int64_t kGrainElements = 8192;

template <class T>
void step_range(const KernelContext& context, size_t slot, int64_t begin, int64_t end) {
  using C = compute_type<T>;
  // A copy, so that the compiler knows that no store changes it.
  const AdamWElement<C> element(context.attributes<AdamWOptions>(),
                                *context.input(slot + 4).as<const double>(),
                                static_cast<double>(*context.input(slot + 5).as<const int64_t>()));
  T* parameter = context.input(slot).as<T>();
  const T* gradient = context.input(slot + 1).as<const T>();
  T* exp_avg = context.input(slot + 2).as<T>();
  T* exp_avg_sq = context.input(slot + 3).as<T>();
  for (int64_t i = begin; i < end; ++i) {
    C average = static_cast<C>(exp_avg[i]), square = static_cast<C>(exp_avg_sq[i]);
    const C updated = element(static_cast<C>(parameter[i]), static_cast<C>(gradient[i]), average, square);
    parameter[i] = static_cast<T>(updated);
    exp_avg[i] = static_cast<T>(average);
    exp_avg_sq[i] = static_cast<T>(square);
  }
}

void run_adamw_step(const KernelContext& context) {
  for (size_t slot = 0; slot < context.input_count(); slot += kSlotInputs) {
    const int64_t step = *context.input(slot + 5).as<const int64_t>();
    SINTER_CHECK(step >= 1, "[adamw_step] expected a step count >= 1 but got {}", step);
  }
  for_each_slot_range(context, kSlotInputs, kGrainElements, [&](size_t slot, int64_t begin, int64_t end) {
    dispatch_float(context.input(slot).dtype, "adamw_step",
                   [&]<class T> { step_range<T>(context, slot, begin, end); });
  });
}

}  // namespace

void register_adamw_cpu(OpRegistry& registry);
void register_adamw_cpu(OpRegistry& registry) {
  registry.add_kernel("adamw_step", {.device = DeviceType::kCpu, .run = run_adamw_step});
}

}  // namespace sinter::ops
