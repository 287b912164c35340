#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/parameter_update.h>
#include <sinter/ops/lars/lars_math.h>
#include <sinter/ops/trust_ratio/trust_ratio_cpu.h>

namespace sinter::ops {
namespace {

constexpr size_t kArrays = 3;
constexpr size_t kWidth = kArrays + kUpdateInputs;

float factor_of(const KernelContext& context, size_t slot) {
  return gradient_factor_at(context.input(slot + kArrays + kGradientFactor).data);
}

template <class T, class G>
TrustSums measure_range(const KernelContext& context, size_t slot, int64_t begin, int64_t end) {
  using C = compute_type<T>;
  const C factor = static_cast<C>(factor_of(context, slot));
  const T* const parameter = context.input(slot).as<const T>();
  const G* const gradient = context.input(slot + 1).as<const G>();
  return sum_terms(begin, end, [=](int64_t i) {
    return std::pair(static_cast<C>(parameter[i]), static_cast<C>(gradient[i]) * factor);
  });
}

template <class T, class G>
void step_range(const KernelContext& context, size_t slot, int64_t begin, int64_t end,
                const TrustSums& sums) {
  using C = compute_type<T>;
  const C factor = static_cast<C>(factor_of(context, slot));
  // A copy, so that the compiler knows that no store changes it.
  const LarsElement<C> element(context.attributes<LarsOptions>(),
                               context.input(slot + kArrays + kLearningRate).as<const double>(), sums);
  T* const parameter = context.input(slot).as<T>();
  const G* const gradient = context.input(slot + 1).as<const G>();
  T* const momentum = context.input(slot + 2).as<T>();
  [[maybe_unused]] G* const working = context.input(slot + kArrays + kWorkingCopy).as<G>();
  for_each_element(begin, end, [=](int64_t i) {
    C buffer = static_cast<C>(momentum[i]);
    const C updated = element(static_cast<C>(parameter[i]), static_cast<C>(gradient[i]) * factor, buffer);
    parameter[i] = static_cast<T>(updated);
    momentum[i] = static_cast<T>(buffer);
    if constexpr (!std::is_same_v<T, G>) working[i] = static_cast<G>(updated);
  });
}

void run_lars_step(const KernelContext& context) {
  const bool adapts = context.attributes<LarsOptions>().adapts;
  const auto dispatch = [&](size_t slot, auto&& function) {
    if (skips_update(factor_of(context, slot))) return;
    dispatch_update(context.input(slot).dtype, context.input(slot + 1).dtype, "lars_step", function);
  };
  run_trust_step<kWidth>(
      context,
      [&](size_t slot, int64_t begin, int64_t end) {
        TrustSums sums;
        if (!adapts) return sums;
        dispatch(slot, [&]<class T, class G> { sums = measure_range<T, G>(context, slot, begin, end); });
        return sums;
      },
      [&](size_t slot, int64_t begin, int64_t end, const TrustSums& sums) {
        dispatch(slot, [&]<class T, class G> { step_range<T, G>(context, slot, begin, end, sums); });
      });
}

}  // namespace

void register_lars_cpu(OpRegistry& registry);
void register_lars_cpu(OpRegistry& registry) {
  registry.add_kernel(
      "lars_step",
      {.device = DeviceType::kCpu, .workspace_bytes = trust_workspace<kWidth>, .run = run_lars_step});
}

}  // namespace sinter::ops
