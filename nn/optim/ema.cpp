#include <algorithm>

#include <sinter/core/graph/host_effect.h>
#include <sinter/core/op/call_tracer.h>
#include <sinter/core/op/node.h>
#include <sinter/nn/optim/ema.h>
#include <sinter/nn/parallel/data_parallel.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/optimizer/optimizer.h>

namespace sinter::nn {
namespace {

constexpr const char* kOneAverageAThread = "each thread that trains needs a model and an average of its own";

DType average_dtype(const Tensor& parameter) {
  return accumulate_dtype(parameter.dtype());
}

/// The averages in canonical layout, as "average.<name>".
State state_of(const std::vector<detail::AverageSlot>& slots) {
  State state;
  for (const detail::AverageSlot& slot : slots) {
    state["average." + slot.variable.name()] =
        slot.variable.to_canonical(slot.variable.follow(slot.average, slot.layout));
  }
  return state;
}

/// The inverse: all or nothing.
void take_averages(std::vector<detail::AverageSlot>& slots, const State& state, const char* tag) {
  std::vector<Tensor> averages;
  for (const detail::AverageSlot& slot : slots) {
    const auto found = state.find("average." + slot.variable.name());
    const Shape shape = slot.variable.canonical_shape();
    SINTER_CHECK(found != state.end() && found->second.defined() && found->second.shape() == shape &&
                     found->second.dtype() == slot.average.dtype(),
                 "[{}] expected an average '{}' of {} {} in the state", tag, slot.variable.name(),
                 slot.average.dtype(), shape);
    averages.push_back(slot.variable.from_canonical(found->second.to(slot.average.device())));
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    slots[i].average = averages[i];
    slots[i].layout = slots[i].variable.layout();
  }
}

}  // namespace

EMA::EMA(const ModuleBase& model, const EMAOptions& options) : model_(model), options_(options) {
  SINTER_CHECK(options.decay >= 0.0 && options.decay < 1.0, "[ema] expected a decay in [0, 1) but got {}",
               options.decay);
  const NoGrad no_grad;
  for (const Parameter& parameter : model.parameters()) {
    const Tensor& value = parameter.master();
    const Tensor average = ops::cast(value.detach(), average_dtype(value));
    slots_.push_back(
        {parameter, average.storage() == value.storage() ? ops::copy(average) : average, parameter.layout()});
  }
  SINTER_CHECK(!slots_.empty(), "[ema] expected a model with parameters");
}

double EMA::decay_at(int64_t update) const {
  const auto n = static_cast<double>(update);
  return options_.warmup ? std::min(options_.decay, (1.0 + n) / (10.0 + n)) : options_.decay;
}

void EMA::follow_layouts() {
  for (Slot& slot : slots_) {
    if (slot.layout == slot.variable.layout()) continue;
    const Untraced untraced;
    slot.average = slot.variable.follow(slot.average, slot.layout);
    slot.layout = slot.variable.layout();
    ++revision_;
  }
}

void EMA::update() {
  const ExclusiveUse::Scope scope(use_, "ema", kOneAverageAThread);
  const NoGrad no_grad;
  follow_layouts();
  for (const Slot& slot : slots_) {
    const TensorSpec& spec = slot.variable.master().spec();
    SINTER_CHECK(
        spec.device == slot.average.device() && average_dtype(slot.variable.master()) == slot.average.dtype(),
        "[ema] parameter '{}' is {} but its average {}; make the EMA after the model has been moved",
        slot.variable.name(), spec, slot.average.spec());
  }
  // A step of gradient descent on half the squared distance: average - (1 - decay) (average - parameter),
  // with -parameter as the gradient and the average itself as what weight decay adds.
  std::vector<ops::UpdateSlot> updates;
  updates.reserve(slots_.size());
  for (const Slot& slot : slots_) {
    updates.push_back({.parameter = slot.average,
                       .gradient = ops::cast(slot.variable.master().detach(), slot.average.dtype())});
  }
  write_decay();
  if (options_.decay == 0.0) {  // whatever the averages hold
    for (const ops::UpdateSlot& slot : updates) ops::copy_(slot.parameter, slot.gradient);
  } else {
    ops::update::sgd_step(updates, rate_, {.weight_decay = 1.0}, minus_one_);
  }
  host_effect(slots_.back().average, [this] { ++updates_; });
}

void EMA::set_decay() {
  const ExclusiveUse::Scope scope(use_, "ema", kOneAverageAThread);
  write_decay();
}

void EMA::write_decay() {
  const Untraced untraced;
  const NoGrad no_grad;
  const Device device = slots_.front().average.device();
  const double value = 1.0 - decay_at(updates_ + 1);
  if (!rate_.defined() || rate_.device() != device) {
    // Both or none: memory may run out between them.
    const Tensor rate = ops::full({}, value, DType::kFloat64, device);
    minus_one_ = ops::full({}, -1.0, DType::kFloat32, device);
    rate_ = rate;
  } else if (rate_value_ != value) {
    ops::fill_(rate_, value);
  }
  rate_value_ = value;
}

std::vector<std::pair<std::string, Tensor>> EMA::tensors() {
  set_decay();
  follow_layouts();
  std::vector<std::pair<std::string, Tensor>> all = averages();
  all.emplace_back("average.rate", rate_);
  return all;
}

std::vector<std::pair<std::string, Tensor>> EMA::averages(const std::vector<Parameter>& sharded) const {
  std::vector<std::pair<std::string, Tensor>> all;
  for (const Slot& slot : slots_) {
    const auto is_it = [&](const Parameter& parameter) { return parameter.is_same(slot.variable); };
    if (std::ranges::none_of(sharded, is_it))
      all.emplace_back("average." + slot.variable.name(), slot.average);
  }
  return all;
}

void EMA::broadcast(const Communicator& ranks, const std::vector<Parameter>& sharded) {
  broadcast_parameters(averages(sharded), ranks);
  const Tensor count = Tensor::from_values<int64_t>({updates_}, {1});
  ranks.broadcast_(count);
  updates_ = count.item<int64_t>();
}

State EMA::averaged_state() const {
  State state = model_.state();
  // By way of the modules, since a shared parameter stands under several names.
  for (const ModuleInfo& module : model_.modules()) {
    for (const Parameter& parameter : module.parameters) {
      const auto slot = std::ranges::find_if(
          slots_, [&](const Slot& candidate) { return candidate.variable.is_same(parameter); });
      if (slot == slots_.end()) continue;  // a member that came after the EMA
      const std::string prefix = module.path.empty() ? "" : module.path + ".";
      state[prefix + parameter.name()] =
          parameter.to_canonical(parameter.follow(slot->average, slot->layout));
    }
  }
  return state;
}

void EMA::load_state(const State& state) {
  const auto count = state.find("updates");
  SINTER_CHECK(count != state.end() && count->second.defined() &&
                   (count->second.spec() == TensorSpec{{}, DType::kInt64, {}}),
               "[ema] expected an int64 scalar 'updates' in the state");
  SINTER_CHECK(state.size() == slots_.size() + 1, "[ema] expected a state of {} averages but got {}",
               slots_.size(), state.size() - 1);
  take_averages(slots_, state, "ema");
  updates_ = static_cast<int64_t>(count->second.item());
  ++revision_;
}

State EMA::state() const {
  State state = state_of(slots_);
  state["updates"] = Tensor::scalar(updates_);
  return state;
}

Lookahead::Lookahead(const ModuleBase& model) {
  const NoGrad no_grad;
  const std::vector<Parameter> parameters = model.parameters();
  SINTER_CHECK(!parameters.empty(), "[lookahead] expected a model with parameters");
  const auto add = [this](const std::vector<Variable>& variables) {
    for (const Variable& variable : variables) {
      if (!is_float(variable.master().dtype())) continue;
      SINTER_CHECK(!is_half(variable.master().dtype()),
                   "[lookahead] expected float32 or float64 but '{}' is {}; make the model mixed instead",
                   variable.name(), variable.master().dtype());
      slots_.push_back({variable, ops::copy(variable.master().detach()), variable.layout()});
    }
  };
  add(parameters);
  add(model.buffers());
  const Device device = parameters.front().master().device();
  for (const detail::AverageSlot& slot : slots_) {
    SINTER_CHECK(slot.average.device() == device,
                 "[lookahead] expected all of the model on {} but '{}' is on {}", device,
                 slot.variable.name(), slot.average.device());
  }
  rate_ = ops::full({}, rate_value_, DType::kFloat64, device);
  one_ = ops::full({}, 1.0, DType::kFloat64, device);
  minus_one_ = ops::full({}, -1.0, DType::kFloat32, device);
}

void Lookahead::check() {
  for (detail::AverageSlot& slot : slots_) {
    slot.average = slot.variable.follow(slot.average, slot.layout);
    slot.layout = slot.variable.layout();
    const TensorSpec& spec = slot.variable.master().spec();
    SINTER_CHECK(
        spec == slot.average.spec(),
        "[lookahead] '{}' is {} but its average {}; make the Lookahead after the model has been moved",
        slot.variable.name(), spec, slot.average.spec());
  }
}

void Lookahead::update(double decay) {
  const ExclusiveUse::Scope scope(use_, "lookahead", kOneAverageAThread);
  SINTER_CHECK(decay >= 0.0 && decay <= 1.0, "[lookahead] expected a decay in [0, 1] but got {}", decay);
  check();
  const NoGrad no_grad;
  if (decay == 0.0 || decay == 1.0) {  // whatever the other one holds
    for (const detail::AverageSlot& slot : slots_) {
      const Tensor value = slot.variable.master().detach();
      decay == 1.0 ? ops::copy_(value, slot.average) : ops::copy_(slot.average, value);
      slot.variable.refresh_working();
    }
    return;
  }
  if (rate_value_ != decay) ops::fill_(rate_, decay);
  rate_value_ = decay;
  // Two steps of gradient descent on half the squared distance, as in EMA::update: first the values go to
  // what the average will be, then the average goes all the way to the values.
  std::vector<ops::UpdateSlot> values, averages;
  for (const detail::AverageSlot& slot : slots_) {
    const Tensor value = slot.variable.master().detach();
    values.push_back({.parameter = value, .gradient = slot.average});
    averages.push_back({.parameter = slot.average, .gradient = value});
  }
  ops::update::sgd_step(values, rate_, {.weight_decay = 1.0}, minus_one_);
  ops::update::sgd_step(averages, one_, {.weight_decay = 1.0}, minus_one_);
  for (const detail::AverageSlot& slot : slots_) slot.variable.refresh_working();
}

void Lookahead::reset() {
  const ExclusiveUse::Scope scope(use_, "lookahead", kOneAverageAThread);
  check();
  const NoGrad no_grad;
  for (const detail::AverageSlot& slot : slots_) ops::copy_(slot.average, slot.variable.master().detach());
}

State Lookahead::state() const {
  return state_of(slots_);
}

void Lookahead::load_state(const State& state) {
  const ExclusiveUse::Scope scope(use_, "lookahead", kOneAverageAThread);
  SINTER_CHECK(state.size() == slots_.size(), "[lookahead] expected a state of {} averages but got {}",
               slots_.size(), state.size());
  take_averages(slots_, state, "lookahead");
}

}  // namespace sinter::nn
