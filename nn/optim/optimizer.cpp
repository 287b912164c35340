#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include <sinter/core/op/node.h>
#include <sinter/nn/optim/optimizer.h>
#include <sinter/ops/fill/fill.h>

namespace sinter::nn {
namespace {

std::string listing(const char* what, const std::vector<std::string>& names) {
  std::string text = fmt::format("{} {}: ", names.size(), what);
  for (size_t i = 0; i < names.size(); ++i) text += (i == 0 ? "" : ", ") + names[i];
  return text;
}

}  // namespace

std::vector<ParameterGroup> decay_groups(const std::vector<Parameter>& parameters) {
  DecaySplit split = split_decay(parameters);
  std::vector<ParameterGroup> groups;
  if (!split.decay.empty()) groups.push_back({.parameters = std::move(split.decay)});
  if (!split.no_decay.empty())
    groups.push_back({.parameters = std::move(split.no_decay), .weight_decay = 0.0});
  return groups;
}

Optimizer::Optimizer(std::string tag, std::vector<ParameterGroup> groups, double weight_decay,
                     std::vector<std::string> buffer_names)
    : tag_(std::move(tag)),
      groups_(std::move(groups)),
      weight_decay_(weight_decay),
      buffer_names_(std::move(buffer_names)) {
  check_groups();
  for (const ParameterGroup& group : groups_) {
    auto& slots = slots_.emplace_back();
    for (const Parameter& parameter : group.parameters) slots.push_back({.parameter = parameter});
  }
}

void Optimizer::check_groups() const {
  std::vector<Parameter> seen;
  std::set<std::string> names;
  SINTER_CHECK(weight_decay_ >= 0.0, "[{}] expected a weight decay >= 0 but got {}", tag_, weight_decay_);
  for (const ParameterGroup& group : groups_) {
    SINTER_CHECK(group.lr_scale >= 0.0, "[{}] expected a learning rate scale >= 0 but got {}", tag_,
                 group.lr_scale);
    SINTER_CHECK(group.weight_decay.value_or(0.0) >= 0.0, "[{}] expected a weight decay >= 0 but got {}",
                 tag_, group.weight_decay.value_or(0.0));
    for (const Parameter& parameter : group.parameters) {
      SINTER_CHECK(parameter.defined(), "[{}] a parameter is undefined", tag_);
      const bool is_known =
          std::ranges::any_of(seen, [&](const Parameter& p) { return p.is_same(parameter); });
      SINTER_CHECK(!is_known, "[{}] parameter '{}' is listed twice", tag_, parameter.name());
      SINTER_CHECK(names.insert(parameter.name()).second,
                   "[{}] two parameters are named '{}'; tell them apart with nn::with_prefix", tag_,
                   parameter.name());
      seen.push_back(parameter);
    }
  }
  SINTER_CHECK(!seen.empty(), "[{}] expected at least one parameter", tag_);
}

void Optimizer::zero_grad() {
  for (const ParameterGroup& group : groups_) {
    for (const Parameter& parameter : group.parameters) parameter.tensor().set_grad({});
  }
}

void Optimizer::prepare(Slot& slot) const {
  const TensorSpec& spec = slot.parameter.tensor().spec();
  for (const Tensor& buffer : slot.buffers) {
    SINTER_CHECK(
        buffer.spec() == spec,
        "[{}] parameter '{}' is {} but was {} in an earlier step; move the model before the first step", tag_,
        slot.parameter.name(), spec, buffer.spec());
  }
  if (!slot.buffers.empty()) return;
  for (size_t i = 0; i < buffer_names_.size(); ++i) {
    slot.buffers.push_back(ops::zeros(spec.shape, spec.dtype, spec.device));
  }
}

void Optimizer::step(double learning_rate) {
  SINTER_CHECK(learning_rate >= 0.0 && std::isfinite(learning_rate),
               "[{}] expected a finite learning rate >= 0 but got {}", tag_, learning_rate);
  const NoGrad no_grad;
  // Everything is checked before anything changes.
  for (auto& group : slots_) {
    for (Slot& slot : group) {
      if (slot.parameter.grad().defined()) prepare(slot);
    }
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    using Key = std::tuple<Device, DType, int64_t>;
    std::map<Key, std::vector<Slot*>> alike;
    for (Slot& slot : slots_[g]) {
      const Tensor& parameter = slot.parameter.tensor();
      if (parameter.grad().defined()) {
        alike[{parameter.device(), parameter.dtype(), slot.updates}].push_back(&slot);
      }
    }
    const double rate = learning_rate * groups_[g].lr_scale;
    for (const auto& [key, slots] : alike) {
      const auto& [device, dtype, updates] = key;
      update(slots, {.learning_rate = ops::full({}, rate, DType::kFloat64, device),
                     .weight_decay = groups_[g].weight_decay.value_or(weight_decay_),
                     .updates = updates});
      for (Slot* slot : slots) ++slot->updates;
    }
  }
}

State Optimizer::state() const {
  State state;
  for (const auto& group : slots_) {
    for (const Slot& slot : group) {
      if (slot.updates == 0) continue;
      const std::string& name = slot.parameter.name();
      state["step." + name] = Tensor::scalar(slot.updates);
      for (size_t i = 0; i < slot.buffers.size(); ++i) {
        state[buffer_names_[i] + "." + name] = slot.parameter.to_canonical(slot.buffers[i]);
      }
    }
  }
  return state;
}

void Optimizer::load_state(const State& state) {
  State unused = state;
  std::vector<std::string> missing, mismatched, unexpected;
  const auto take = [&](const std::string& name, const Shape& shape, DType dtype) -> Tensor {
    const auto found = state.find(name);
    if (found == state.end()) {
      missing.push_back(name);
      return {};
    }
    unused.erase(name);
    const Tensor& value = found->second;
    if (value.defined() && value.shape() == shape && value.dtype() == dtype) return value;
    mismatched.push_back(
        fmt::format("{} (expected {} {} but got {})", name, dtype, shape,
                    value.defined() ? fmt::format("{} {}", value.dtype(), value.shape()) : "none"));
    return {};
  };

  auto loaded = slots_;
  for (auto& group : loaded) {
    for (Slot& slot : group) {
      const std::string& name = slot.parameter.name();
      slot = {.parameter = slot.parameter};
      if (!state.contains("step." + name)) continue;
      const Tensor updates = take("step." + name, {}, DType::kInt64);
      if (updates.defined()) slot.updates = updates.to_vector<int64_t>()[0];
      if (updates.defined() && slot.updates < 1) {
        mismatched.push_back(fmt::format("step.{} (expected a count >= 1 but got {})", name, slot.updates));
      }
      for (const std::string& buffer_name : buffer_names_) {
        const TensorSpec& spec = slot.parameter.tensor().spec();
        const Tensor value = take(buffer_name + "." + name, slot.parameter.canonical_shape(), spec.dtype);
        if (value.defined()) slot.buffers.push_back(slot.parameter.from_canonical(value.to(spec.device)));
      }
    }
  }
  for (const auto& [name, value] : unused) unexpected.push_back(name);

  std::string text;
  for (const auto& [what, names] : {std::pair{"missing", &missing}, std::pair{"unexpected", &unexpected},
                                    std::pair{"mismatched", &mismatched}}) {
    if (!names->empty()) text += (text.empty() ? "" : "; ") + listing(what, *names);
  }
  SINTER_CHECK(text.empty(), "[{}] the state does not fit the optimiser: {}", tag_, text);
  slots_ = std::move(loaded);
}

}  // namespace sinter::nn
