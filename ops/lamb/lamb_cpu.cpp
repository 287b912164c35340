#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/parameter_update.h>
#include <sinter/ops/lamb/lamb_math.h>
#include <sinter/ops/trust_ratio/trust_ratio_cpu.h>

namespace sinter::ops {
namespace {

constexpr size_t kArrays = 4;
constexpr size_t kWidth = kArrays + kUpdateInputs;

float factor_of(const KernelContext& context, size_t slot) {
  return gradient_factor_at(context.input(slot + kArrays + kGradientFactor).data);
}

int64_t step_of(const KernelContext& context, size_t slot) {
  return *context.input(slot + kArrays + kStepCount).as<const int64_t>();
}

const double* rates_of(const KernelContext& context, size_t slot) {
  return context.input(slot + kArrays + kLearningRate).as<const double>();
}

/// What all elements of a slot share: a copy, so that the compiler knows that no store changes it.
template <class C>
LambElement<C> element_of(const KernelContext& context, size_t slot) {
  return {context.attributes<LambOptions>(), rates_of(context, slot),
          static_cast<double>(step_of(context, slot))};
}

/// Sums over the direction that follows from the new averages, which are not kept.
template <class T, class G>
TrustSums measure_range(const KernelContext& context, size_t slot, int64_t begin, int64_t end) {
  using C = compute_type<T>;
  const C factor = static_cast<C>(factor_of(context, slot));
  const LambElement<C> element = element_of<C>(context, slot);
  const T* const parameter = context.input(slot).as<const T>();
  const G* const gradient = context.input(slot + 1).as<const G>();
  const T* const exp_avg = context.input(slot + 2).as<const T>();
  const T* const exp_avg_sq = context.input(slot + 3).as<const T>();
  return sum_terms(begin, end, [=](int64_t i) {
    const C p = static_cast<C>(parameter[i]);
    C average = static_cast<C>(exp_avg[i]), square = static_cast<C>(exp_avg_sq[i]);
    return std::pair(p, element.direction(p, static_cast<C>(gradient[i]) * factor, average, square));
  });
}

template <class T, class G>
void step_range(const KernelContext& context, size_t slot, int64_t begin, int64_t end,
                const TrustSums& sums) {
  using C = compute_type<T>;
  const C factor = static_cast<C>(factor_of(context, slot));
  const LambElement<C> element = element_of<C>(context, slot);
  const C rate = static_cast<C>(lamb_rate(context.attributes<LambOptions>(), rates_of(context, slot), sums));
  T* const parameter = context.input(slot).as<T>();
  const G* const gradient = context.input(slot + 1).as<const G>();
  T* const exp_avg = context.input(slot + 2).as<T>();
  T* const exp_avg_sq = context.input(slot + 3).as<T>();
  [[maybe_unused]] G* const working = context.input(slot + kArrays + kWorkingCopy).as<G>();
  for_each_element(begin, end, [=](int64_t i) {
    const C p = static_cast<C>(parameter[i]);
    C average = static_cast<C>(exp_avg[i]), square = static_cast<C>(exp_avg_sq[i]);
    const C updated = p - rate * element.direction(p, static_cast<C>(gradient[i]) * factor, average, square);
    parameter[i] = static_cast<T>(updated);
    exp_avg[i] = static_cast<T>(average);
    exp_avg_sq[i] = static_cast<T>(square);
    if constexpr (!std::is_same_v<T, G>) working[i] = static_cast<G>(updated);
  });
}

void run_lamb_step(const KernelContext& context) {
  for (size_t slot = 0; slot < context.input_count(); slot += kWidth) {
    const int64_t step = step_of(context, slot);
    SINTER_CHECK(step >= 1 || skips_update(factor_of(context, slot)),
                 "[lamb_step] expected a step count >= 1 but got {}", step);
  }
  const bool adapts = context.attributes<LambOptions>().adapts;
  const auto dispatch = [&](size_t slot, auto&& function) {
    if (skips_update(factor_of(context, slot))) return;
    dispatch_update(context.input(slot).dtype, context.input(slot + 1).dtype, "lamb_step", function);
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

void register_lamb_cpu(OpRegistry& registry);
void register_lamb_cpu(OpRegistry& registry) {
  registry.add_kernel(
      "lamb_step",
      {.device = DeviceType::kCpu, .workspace_bytes = trust_workspace<kWidth>, .run = run_lamb_step});
}

}  // namespace sinter::ops
