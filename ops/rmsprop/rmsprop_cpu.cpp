#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/cpu/multi_tensor_cpu.h>
#include <sinter/ops/common/parameter_update.h>
#include <sinter/ops/rmsprop/rmsprop_math.h>

namespace sinter::ops {
namespace {

constexpr size_t kArrays = 5;
constexpr size_t kWidth = kArrays + kUpdateInputs;
constexpr int64_t kGrainElements = 8192;

float factor_of(const KernelContext& context, size_t slot) {
  return gradient_factor_at(context.input(slot + kArrays + kGradientFactor).data);
}

template <class T, class G>
void step_range(const KernelContext& context, size_t slot, int64_t begin, int64_t end) {
  using C = compute_type<T>;
  const C factor = static_cast<C>(factor_of(context, slot));
  // A copy, so that the compiler knows that no store changes it.
  const RmsPropElement<C> element(context.attributes<RmsPropOptions>(),
                                  *context.input(slot + kArrays + kLearningRate).as<const double>());
  const auto array_of = [&](size_t i) { return context.has_input(i) ? context.input(i).as<T>() : nullptr; };
  T* const parameter = array_of(slot);
  const G* const gradient = context.input(slot + 1).as<const G>();
  T* const square_avg = array_of(slot + 2);
  T* const grad_avg = array_of(slot + 3);
  T* const momentum = array_of(slot + 4);
  [[maybe_unused]] G* const working = context.input(slot + kArrays + kWorkingCopy).as<G>();
  const auto step = [=](int64_t i, C* mean, C* buffer) {
    C square = static_cast<C>(square_avg[i]);
    const C updated =
        element(static_cast<C>(parameter[i]), static_cast<C>(gradient[i]) * factor, square, mean, buffer);
    parameter[i] = static_cast<T>(updated);
    square_avg[i] = static_cast<T>(square);
    if constexpr (!std::is_same_v<T, G>) working[i] = static_cast<G>(updated);
  };
  // A loop for each choice of averages, as a vectorised loop has no branches.
  if (grad_avg != nullptr && momentum != nullptr) {
    for_each_element(begin, end, [=](int64_t i) {
      C mean = static_cast<C>(grad_avg[i]), buffer = static_cast<C>(momentum[i]);
      step(i, &mean, &buffer);
      grad_avg[i] = static_cast<T>(mean), momentum[i] = static_cast<T>(buffer);
    });
  } else if (grad_avg != nullptr) {
    for_each_element(begin, end, [=](int64_t i) {
      C mean = static_cast<C>(grad_avg[i]);
      step(i, &mean, nullptr);
      grad_avg[i] = static_cast<T>(mean);
    });
  } else if (momentum != nullptr) {
    for_each_element(begin, end, [=](int64_t i) {
      C buffer = static_cast<C>(momentum[i]);
      step(i, nullptr, &buffer);
      momentum[i] = static_cast<T>(buffer);
    });
  } else {
    for_each_element(begin, end, [=](int64_t i) { step(i, nullptr, nullptr); });
  }
}

void run_rmsprop_step(const KernelContext& context) {
  for_each_slot_range(context, kWidth, kGrainElements, [&](size_t slot, int64_t begin, int64_t end) {
    if (skips_update(factor_of(context, slot))) return;
    dispatch_update(context.input(slot).dtype, context.input(slot + 1).dtype, "rmsprop_step",
                    [&]<class T, class G> { step_range<T, G>(context, slot, begin, end); });
  });
}

}  // namespace

void register_rmsprop_cpu(OpRegistry& registry);
void register_rmsprop_cpu(OpRegistry& registry) {
  registry.add_kernel("rmsprop_step", {.device = DeviceType::kCpu, .run = run_rmsprop_step});
}

}  // namespace sinter::ops
