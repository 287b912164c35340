#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/multi_tensor_cpu.h>
#include <sinter/ops/sgd/sgd_math.h>

namespace sinter::ops {
namespace {

constexpr int64_t kGrainElements = 16384;

template <class T>
void step_range(const KernelContext& context, size_t slot, int64_t begin, int64_t end) {
  using C = compute_type<T>;
  // A copy, so that the compiler knows that no store changes it.
  const SgdElement<C> element(context.attributes<SgdOptions>(), *context.input(slot + 3).as<const double>());
  T* parameter = context.input(slot).as<T>();
  const T* gradient = context.input(slot + 1).as<const T>();
  if (!context.has_input(slot + 2)) {
    for (int64_t i = begin; i < end; ++i) {
      parameter[i] = static_cast<T>(element.plain(static_cast<C>(parameter[i]), static_cast<C>(gradient[i])));
    }
    return;
  }
  T* momentum = context.input(slot + 2).as<T>();
  for (int64_t i = begin; i < end; ++i) {
    C buffer = static_cast<C>(momentum[i]);
    const C updated =
        element.with_momentum(static_cast<C>(parameter[i]), static_cast<C>(gradient[i]), buffer);
    parameter[i] = static_cast<T>(updated);
    momentum[i] = static_cast<T>(buffer);
  }
}

void run_sgd_step(const KernelContext& context) {
  for_each_slot_range(context, 4, kGrainElements, [&](size_t slot, int64_t begin, int64_t end) {
    dispatch_float(context.input(slot).dtype, "sgd_step",
                   [&]<class T> { step_range<T>(context, slot, begin, end); });
  });
}

}  // namespace

void register_sgd_cpu(OpRegistry& registry);
void register_sgd_cpu(OpRegistry& registry) {
  registry.add_kernel("sgd_step", {.device = DeviceType::kCpu, .run = run_sgd_step});
}

}  // namespace sinter::ops
