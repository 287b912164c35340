#include <utility>

#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/cpu/block_cpu.h>
#include <sinter/ops/common/cpu/multi_tensor_cpu.h>
#include <sinter/ops/common/gradient_factor.h>
#include <sinter/ops/optimizer/rules.h>

namespace sinter::ops {
namespace {

constexpr int64_t kGrain = 16384;
constexpr int64_t kPiece = 8192;  // elements whose norms are summed up together, whatever the threads

template <class Rule>
float factor_of(const KernelContext& context, size_t slot) {
  return gradient_factor_at(context.input(slot + kArrays<Rule> + kGradientFactor).data);
}

template <class Rule>
int64_t step_of(const KernelContext& context, size_t slot) {
  const auto* step = context.input(slot + kArrays<Rule> + kStepCount).template as<const int64_t>();
  return step == nullptr ? 0 : *step;
}

template <class Rule, class C>
auto element_of(const KernelContext& context, size_t slot, const TrustSums& sums) {
  const TensorView& rates = context.input(slot + kArrays<Rule> + kLearningRate);
  return typename Rule::template Element<C>(context.attributes<typename Rule::Options>(),
                                            rates.as<const double>(), step_of<Rule>(context, slot), sums);
}

/// The arrays of a slot: copies of all that loops read, so that the compiler knows that no store changes it.
template <class Rule, class T, class G>
struct Arrays {
  using C = compute_type<T>;
  static constexpr size_t kCount = Rule::kBuffers.size();

  Arrays(const KernelContext& context, size_t slot)
      : parameter(context.input(slot).as<T>()),
        gradient(context.input(slot + 1).as<const G>()),
        working(context.input(slot + kArrays<Rule> + kWorkingCopy).template as<G>()),
        factor(static_cast<C>(factor_of<Rule>(context, slot))) {
    for (size_t k = 0; k < kCount; ++k) buffers[k] = context.input(slot + 2 + k).as<T>();
  }

  T* parameter;
  const G* gradient;
  T* buffers[kCount];
  G* working;
  C factor;
};

/// Calls `function.operator()<known>()`, whose bits are the element's branches: a compiler takes few
/// conditions out of a loop by itself, and vectorises none that it leaves there.
template <unsigned known = 0, size_t branch = 0, class Element, class F>
void with_branches(const Element& element, const F& function) {
  constexpr auto branches = Element::branches();
  if constexpr (branch == branches.size()) {
    function.template operator()<known>();
  } else if (element.*branches[branch]) {
    with_branches<known | 1u << branch, branch + 1>(element, function);
  } else {
    with_branches<known, branch + 1>(element, function);
  }
}

/// A function of its own, for its own registers. A loop over buffers would be unrolled too late for
/// conditions to leave the outer one.
template <unsigned known, class Element, class Slot, size_t... k>
[[gnu::flatten, gnu::noinline]] void step_elements(int64_t begin, int64_t end, Element element, Slot slot,
                                                   std::index_sequence<k...>) {
  using C = typename Slot::C;
  using T = std::remove_pointer_t<decltype(slot.parameter)>;
  using G = std::remove_pointer_t<decltype(slot.working)>;
  constexpr auto branches = Element::branches();
  for (size_t i = 0; i < branches.size(); ++i) element.*branches[i] = (known >> i & 1u) != 0;
  for_each_element(begin, end, [=](int64_t i) {
    C buffers[] = {(element.uses(k) ? static_cast<C>(slot.buffers[k][i]) : C{0})...};
    const C updated =
        element(static_cast<C>(slot.parameter[i]), static_cast<C>(slot.gradient[i]) * slot.factor, buffers);
    slot.parameter[i] = static_cast<T>(updated);
    ((element.uses(k) ? void(slot.buffers[k][i] = static_cast<T>(buffers[k])) : void()), ...);
    if constexpr (!std::is_same_v<T, G>) slot.working[i] = static_cast<G>(updated);
  });
}

/// The sums over a parameter's elements [begin, end) in lanes side by side: one sum after the other would
/// wait for each addition.
template <class Rule, class T, class G>
[[gnu::flatten, gnu::noinline]] TrustSums sum_range(const KernelContext& context, size_t first, int64_t begin,
                                                    int64_t end) {
  using C = compute_type<T>;
  constexpr int64_t kLanes = 16;
  const Arrays<Rule, T, G> slot(context, first);
  const auto element = element_of<Rule, C>(context, first, {});
  double parameters[kLanes] = {}, directions[kLanes] = {};
  const auto add = [&, slot, element](int64_t i, int64_t lane) {
    C buffers[slot.kCount] = {};
    for (size_t k = 0; Rule::kDirectionReadsBuffers && k < slot.kCount; ++k) {
      buffers[k] = static_cast<C>(slot.buffers[k][i]);
    }
    const C parameter = static_cast<C>(slot.parameter[i]);
    const C direction = element.direction(parameter, static_cast<C>(slot.gradient[i]) * slot.factor, buffers);
    parameters[lane] += static_cast<double>(parameter) * static_cast<double>(parameter);
    directions[lane] += static_cast<double>(direction) * static_cast<double>(direction);
  };
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    SINTER_IVDEP
    for (int64_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
  }
  for (int64_t lane = 0; i < end; ++i, ++lane) add(i, lane);
  TrustSums sums;
  for (int64_t lane = 0; lane < kLanes; ++lane) sums.add(TrustSums{parameters[lane], directions[lane]});
  return sums;
}

int64_t pieces_of(const Shape& shape) {
  return (shape.numel() + kPiece - 1) / kPiece;
}

/// One sum for each slot, and those of the pieces of all parameters.
template <class Rule>
size_t trust_workspace(const KernelQuery& query) {
  int64_t sums = 0;
  for (size_t slot = 0; slot < query.input_count(); slot += kSlotInputs<Rule>) {
    sums += pieces_of(query.input(slot).shape) + 1;
  }
  return static_cast<size_t>(sums) * sizeof(TrustSums);
}

/// Calls function.operator()<T, G>() with the types of a slot whose update is not skipped.
template <class Rule, class F>
void dispatch_slot(const KernelContext& context, size_t slot, const F& function) {
  if (skips_update(factor_of<Rule>(context, slot))) return;
  dispatch_update(context.input(slot).dtype, context.input(slot + 1).dtype, Rule::kName, function);
}

/// The sums of each slot, in the workspace.
template <class Rule>
const TrustSums* sum_slots(const KernelContext& context) {
  constexpr size_t width = kSlotInputs<Rule>;
  auto* const totals = context.workspace<TrustSums>();
  TrustSums* const pieces = totals + context.input_count() / width;
  int64_t count = 0;
  for (size_t slot = 0; slot < context.input_count(); slot += width) {
    count += pieces_of(context.input(slot).shape);
  }
  parallel_for(count, 1, [&](int64_t begin, int64_t end) {
    int64_t first = 0;
    for (size_t slot = 0; slot < context.input_count() && first < end; slot += width) {
      const int64_t own = pieces_of(context.input(slot).shape), elements = context.input(slot).numel();
      for (int64_t i = std::max(begin - first, int64_t{0}); i < std::min(end - first, own); ++i) {
        TrustSums& piece = pieces[first + i] = {};
        dispatch_slot<Rule>(context, slot, [&]<class T, class G> {
          piece = sum_range<Rule, T, G>(context, slot, i * kPiece, std::min((i + 1) * kPiece, elements));
        });
      }
      first += own;
    }
  });
  const TrustSums* piece = pieces;
  for (size_t slot = 0; slot < context.input_count(); slot += width) {
    TrustSums& total = totals[slot / width] = {};
    for (int64_t i = pieces_of(context.input(slot).shape); i > 0; --i) total.add(*piece++);
  }
  return totals;
}

template <class Rule>
void run_step(const KernelContext& context) {
  constexpr size_t width = kSlotInputs<Rule>;
  for (size_t slot = 0; Rule::kStep == StepCount::kNeeds && slot < context.input_count(); slot += width) {
    const int64_t step = step_of<Rule>(context, slot);
    SINTER_CHECK(step >= 1 || skips_update(factor_of<Rule>(context, slot)),
                 "[{}] expected a step count >= 1 but got {}", Rule::kName, step);
  }
  const TrustSums* sums = nullptr;
  if constexpr (Rule::kTrusts) {
    if (context.attributes<typename Rule::Options>().adapts) sums = sum_slots<Rule>(context);
  }
  for_each_slot_range(context, width, kGrain, [&](size_t slot, int64_t begin, int64_t end) {
    dispatch_slot<Rule>(context, slot, [&]<class T, class G> {
      const auto element = element_of<Rule, compute_type<T>>(
          context, slot, sums == nullptr ? TrustSums{} : sums[slot / width]);
      with_branches(element, [&]<unsigned known> {
        step_elements<known>(begin, end, element, Arrays<Rule, T, G>(context, slot),
                             std::make_index_sequence<Rule::kBuffers.size()>());
      });
    });
  });
}

}  // namespace

void register_optimizer_cpu(OpRegistry& registry);
void register_optimizer_cpu(OpRegistry& registry) {
  for_each_rule([&]<class Rule> {
    Kernel kernel{.device = DeviceType::kCpu, .run = run_step<Rule>};
    if constexpr (Rule::kTrusts) kernel.workspace_bytes = trust_workspace<Rule>;
    registry.add_kernel(Rule::kName, kernel);
  });
}

}  // namespace sinter::ops
