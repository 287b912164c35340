#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/cpu/multi_tensor_cpu.h>
#include <sinter/ops/common/parameter_update.h>
#include <sinter/ops/sgd/sgd_math.h>

namespace sinter::ops {
namespace {

constexpr size_t kArrays = 3;
constexpr size_t kWidth = kArrays + kUpdateInputs;
constexpr int64_t kGrainElements = 16384;

template <class T, class G>
void step_range(const KernelContext& context, size_t slot, int64_t begin, int64_t end) {
  using C = compute_type<T>;
  const size_t tail = slot + kArrays;
  const C factor = static_cast<C>(gradient_factor_at(context.input(tail + kGradientFactor).data));
  const auto* step = context.input(tail + kStepCount).as<const int64_t>();
  // A copy, so that the compiler knows that no store changes it.
  const SgdElement<C> element(context.attributes<SgdOptions>(),
                              context.input(tail + kLearningRate).as<const double>(),
                              step != nullptr && *step == 1);
  T* parameter = context.input(slot).as<T>();
  const G* gradient = context.input(slot + 1).as<const G>();
  [[maybe_unused]] G* working = context.input(tail + kWorkingCopy).as<G>();
  const auto store = [=](int64_t i, C updated) {
    parameter[i] = static_cast<T>(updated);
    if constexpr (!std::is_same_v<T, G>) working[i] = static_cast<G>(updated);
  };
  if (!context.has_input(slot + 2)) {
    return for_each_element(begin, end, [=](int64_t i) {
      store(i, element.plain(static_cast<C>(parameter[i]), static_cast<C>(gradient[i]) * factor));
    });
  }
  T* momentum = context.input(slot + 2).as<T>();
  const auto run = [=](bool first_step, bool nesterov) {
    SgdElement<C> known = element;
    known.first_step = first_step, known.nesterov = nesterov;
    for_each_element(begin, end, [=](int64_t i) {
      C buffer = static_cast<C>(momentum[i]);
      store(i,
            known.with_momentum(static_cast<C>(parameter[i]), static_cast<C>(gradient[i]) * factor, buffer));
      momentum[i] = static_cast<T>(buffer);
    });
  };
  // A compiler takes few conditions out of a loop by itself, and vectorises none that it leaves there.
  if (element.first_step) {
    element.nesterov ? run(true, true) : run(true, false);
  } else {
    element.nesterov ? run(false, true) : run(false, false);
  }
}

void run_sgd_step(const KernelContext& context) {
  for_each_slot_range(context, kWidth, kGrainElements, [&](size_t slot, int64_t begin, int64_t end) {
    if (skips_update(gradient_factor_at(context.input(slot + kArrays + kGradientFactor).data))) return;
    dispatch_update(context.input(slot).dtype, context.input(slot + 1).dtype, "sgd_step",
                    [&]<class T, class G> { step_range<T, G>(context, slot, begin, end); });
  });
}

}  // namespace

void register_sgd_cpu(OpRegistry& registry);
void register_sgd_cpu(OpRegistry& registry) {
  registry.add_kernel("sgd_step", {.device = DeviceType::kCpu, .run = run_sgd_step});
}

}  // namespace sinter::ops
