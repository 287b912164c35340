#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/adamw/adamw_math.h>
#include <sinter/ops/common/cpu/multi_tensor_cpu.h>
#include <sinter/ops/common/parameter_update.h>

namespace sinter::ops {
namespace {

constexpr size_t kArrays = 5;
constexpr size_t kWidth = kArrays + kUpdateInputs;
constexpr int64_t kGrainElements = 8192;

float factor_of(const KernelContext& context, size_t slot) {
  return gradient_factor_at(context.input(slot + kArrays + kGradientFactor).data);
}

int64_t step_of(const KernelContext& context, size_t slot) {
  return *context.input(slot + kArrays + kStepCount).as<const int64_t>();
}

template <class T, class G>
void step_range(const KernelContext& context, size_t slot, int64_t begin, int64_t end) {
  using C = compute_type<T>;
  const C factor = static_cast<C>(factor_of(context, slot));
  // A copy, so that the compiler knows that no store changes it.
  const AdamWElement<C> element(context.attributes<AdamWOptions>(),
                                context.input(slot + kArrays + kLearningRate).as<const double>(),
                                static_cast<double>(step_of(context, slot)));
  T* parameter = context.input(slot).as<T>();
  const G* gradient = context.input(slot + 1).as<const G>();
  T* exp_avg = context.input(slot + 2).as<T>();
  T* exp_avg_sq = context.input(slot + 3).as<T>();
  T* largest_sq = context.has_input(slot + 4) ? context.input(slot + 4).as<T>() : nullptr;
  [[maybe_unused]] G* working = context.input(slot + kArrays + kWorkingCopy).as<G>();
  const auto step = [=](int64_t i, C* largest) {
    C average = static_cast<C>(exp_avg[i]), square = static_cast<C>(exp_avg_sq[i]);
    const C updated =
        element(static_cast<C>(parameter[i]), static_cast<C>(gradient[i]) * factor, average, square, largest);
    parameter[i] = static_cast<T>(updated);
    exp_avg[i] = static_cast<T>(average);
    exp_avg_sq[i] = static_cast<T>(square);
    if constexpr (!std::is_same_v<T, G>) working[i] = static_cast<G>(updated);
  };
  if (largest_sq == nullptr) {
    for_each_element(begin, end, [=](int64_t i) { step(i, nullptr); });
  } else {
    for_each_element(begin, end, [=](int64_t i) {
      C largest = static_cast<C>(largest_sq[i]);
      step(i, &largest);
      largest_sq[i] = static_cast<T>(largest);
    });
  }
}

void run_adamw_step(const KernelContext& context) {
  for (size_t slot = 0; slot < context.input_count(); slot += kWidth) {
    const int64_t step = step_of(context, slot);
    SINTER_CHECK(step >= 1 || skips_update(factor_of(context, slot)),
                 "[adamw_step] expected a step count >= 1 but got {}", step);
  }
  for_each_slot_range(context, kWidth, kGrainElements, [&](size_t slot, int64_t begin, int64_t end) {
    if (skips_update(factor_of(context, slot))) return;
    dispatch_update(context.input(slot).dtype, context.input(slot + 1).dtype, "adamw_step",
                    [&]<class T, class G> { step_range<T, G>(context, slot, begin, end); });
  });
}

}  // namespace

void register_adamw_cpu(OpRegistry& registry);
void register_adamw_cpu(OpRegistry& registry) {
  registry.add_kernel("adamw_step", {.device = DeviceType::kCpu, .run = run_adamw_step});
}

}  // namespace sinter::ops
