#include <algorithm>
#include <cmath>
#include <set>

#include <sinter/core/op/call_tracer.h>
#include <sinter/core/op/node.h>
#include <sinter/core/tensor/transfer.h>
#include <sinter/nn/optim/optimizer.h>
#include <sinter/ops/advance_steps/advance_steps.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/grad_norm/grad_norm.h>
#include <sinter/ops/loss_scale/loss_scale.h>
#include <sinter/ops/optimizer/optimizer.h>

namespace sinter::nn {
namespace {

constexpr const char* kOneOptimizerAThread =
    "each thread that trains needs a model and an optimiser of its own";

/// "2 missing: a, b", with the first 20 names at most.
std::string listing(const char* what, const std::vector<std::string>& names) {
  constexpr size_t kMost = 20;
  std::string text = fmt::format("{} {}: ", names.size(), what);
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kMost) text += fmt::format(" and {} more", names.size() - kMost);
  return text;
}

bool is_scale(double value) {
  return value >= 0.0 && std::isfinite(value);
}

}  // namespace

Optimizer::Optimizer(std::string tag, std::vector<ParameterGroup> groups, double weight_decay,
                     std::vector<std::string> buffer_names)
    : tag_(std::move(tag)),
      groups_(std::move(groups)),
      weight_decay_(weight_decay),
      buffer_names_(std::move(buffer_names)) {
  check_groups();
  for (const ParameterGroup& group : groups_) {
    auto& slots = slots_.emplace_back();
    for (const Parameter& parameter : group.parameters)
      slots.push_back({.parameter = parameter, .layout = parameter.layout()});
  }
}

void Optimizer::check_groups() const {
  std::vector<Parameter> seen;
  std::set<std::string> names;
  SINTER_CHECK(is_scale(weight_decay_), "[{}] expected a weight decay >= 0 but got {}", tag_, weight_decay_);
  for (const ParameterGroup& group : groups_) {
    SINTER_CHECK(is_scale(group.lr_scale), "[{}] expected a learning rate scale >= 0 but got {}", tag_,
                 group.lr_scale);
    SINTER_CHECK(is_scale(group.weight_decay.value_or(0.0)), "[{}] expected a weight decay >= 0 but got {}",
                 tag_, group.weight_decay.value_or(0.0));
    for (const Parameter& parameter : group.parameters) {
      SINTER_CHECK(parameter.defined(), "[{}] a parameter is undefined", tag_);
      const bool is_known =
          std::ranges::any_of(seen, [&](const Parameter& p) { return p.is_same(parameter); });
      SINTER_CHECK(!is_known, "[{}] parameter '{}' is listed twice", tag_, parameter.name());
      SINTER_CHECK(names.insert(parameter.name()).second,
                   "[{}] two parameters are named '{}'; tell them apart with nn::add_prefix", tag_,
                   parameter.name());
      seen.push_back(parameter);
    }
  }
  SINTER_CHECK(!seen.empty(),
               "[{}] expected at least one parameter but got none; the modules that are members of a module "
               "belong to it, with their parameters, when child(\"name\", ...) has registered them",
               tag_);
}

std::vector<Parameter> Optimizer::parameters() const {
  std::vector<Parameter> all;
  for (const ParameterGroup& group : groups_) {
    all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  }
  return all;
}

void Optimizer::zero_grad() {
  for (const ParameterGroup& group : groups_) {
    for (const Parameter& parameter : group.parameters) parameter.tensor().set_grad({});
  }
}

void Optimizer::reset() {
  const ExclusiveUse::Scope scope(use_, tag_.c_str(), kOneOptimizerAThread);
  const NoGrad no_grad;
  if (counts_.defined()) ops::fill_(counts_, 0.0);
  for (const auto& group : slots_) {
    for (const Slot& slot : group) {
      for (const Tensor& buffer : slot.buffers) ops::fill_(buffer, 0.0);
    }
  }
}

void Optimizer::prepare(Slot& slot) {
  const TensorSpec& spec = slot.parameter.master().spec();
  if (slot.layout != slot.parameter.layout()) {
    std::vector<Tensor> buffers;  // all of them or, when memory runs out, none
    for (const Tensor& buffer : slot.buffers) buffers.push_back(slot.parameter.follow(buffer, slot.layout));
    slot.buffers = std::move(buffers);
    slot.layout = slot.parameter.layout();
    ++revision_;
  }
  for (const Tensor& buffer : slot.buffers) {
    SINTER_CHECK(
        buffer.spec() == spec,
        "[{}] parameter '{}' is {} but was {} in an earlier step; move the model before the first step", tag_,
        slot.parameter.name(), spec, buffer.spec());
  }
  if (slot.buffers.size() == buffer_names_.size()) return;
  std::vector<Tensor> buffers;  // all of them or, when memory runs out, none
  for (size_t i = 0; i < buffer_names_.size(); ++i) {
    buffers.push_back(ops::zeros(spec.shape, spec.dtype, spec.device));
  }
  slot.buffers = std::move(buffers);
  ++revision_;
}

std::vector<ops::UpdateSlot> Optimizer::update_slots(std::span<Slot* const> slots) {
  std::vector<ops::UpdateSlot> updates;
  updates.reserve(slots.size());
  for (const Slot* slot : slots) {
    const Parameter& parameter = slot->parameter;
    ops::UpdateSlot& update = updates.emplace_back();
    update = {.parameter = parameter.master(),
              .gradient = parameter.grad(),
              .step = slot->step,
              .working = parameter.working()};
    SINTER_CHECK(slot->buffers.size() <= std::size(update.buffers),
                 "[optimizer] expected at most {} buffers a parameter but got {}", std::size(update.buffers),
                 slot->buffers.size());
    std::ranges::copy(slot->buffers, update.buffers);
  }
  return updates;
}

void Optimizer::set_counts(const Tensor& counts) {
  counts_ = counts;
  mask_.clear();
  ++revision_;
  size_t place = 0;
  for (auto& group : slots_) {
    for (Slot& slot : group) {
      slot.step = Tensor::over(counts_.storage(), counts_.offset_bytes() + place++ * sizeof(int64_t),
                               {Shape{}, DType::kInt64, counts_.device()});
    }
  }
}

void Optimizer::place_counts(Device device) {
  if (!counts_.defined()) {
    int64_t slots = 0;
    for (const auto& group : slots_) slots += static_cast<int64_t>(group.size());
    set_counts(ops::zeros({slots}, DType::kInt64, device));
  } else if (counts_.device() != device) {
    set_counts(counts_.to(device));
  }
}

void Optimizer::place_mask() {
  std::vector<bool> mask;
  for (const auto& group : slots_) {
    for (const Slot& slot : group) mask.push_back(slot.parameter.grad().defined());
  }
  if (mask == mask_) return;
  Tensor on_device;
  if (std::ranges::find(mask, false) != mask.end()) {
    // Pinned, as a copy from elsewhere would have to wait.
    const Tensor host =
        Tensor::empty_pinned({static_cast<int64_t>(mask.size())}, DType::kBool, counts_.device());
    std::ranges::copy(mask, host.data<bool>());
    on_device = to_async(host, counts_.device());
  }
  mask_ = std::move(mask);
  mask_tensor_ = on_device;
}

const Tensor& Optimizer::rate_on_device(double scale, double learning_rate, Device device) {
  auto found = std::ranges::find(rates_, scale, &Rate::scale);
  if (found == rates_.end()) found = rates_.insert(found, {.scale = scale});
  std::vector<double> values = {learning_rate * scale};
  if (moving_) values.push_back(*moving_);
  if (!found->tensor.defined() || found->tensor.device() != device || found->values.size() != values.size()) {
    ++revision_;
    found->tensor = ops::full(moving_ ? Shape{2} : Shape{}, values[0], DType::kFloat64, device);
    found->values.assign(values.size(), values[0]);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (found->values[i] == values[i]) continue;
    // A kernel fills it in: a copy from the host would have to wait.
    ops::fill_(Tensor::over(found->tensor.storage(), found->tensor.offset_bytes() + i * sizeof(double),
                            {Shape{}, DType::kFloat64, device}),
               values[i]);
    found->values[i] = values[i];
  }
  return found->tensor;
}

void Optimizer::set_moving(double value) {
  if (!moving_) options_changed();
  moving_ = value;
}

void Optimizer::check_learning_rate(double learning_rate) const {
  SINTER_CHECK(is_scale(learning_rate), "[{}] expected a finite learning rate >= 0 but got {}", tag_,
               learning_rate);
}

void Optimizer::set_learning_rate(double learning_rate) {
  check_learning_rate(learning_rate);
  const ExclusiveUse::Scope scope(use_, tag_.c_str(), kOneOptimizerAThread);
  const NoGrad no_grad;
  for (const Rate& rate : std::vector<Rate>(rates_)) {
    rate_on_device(rate.scale, learning_rate, rate.tensor.device());
  }
}

std::vector<std::pair<std::string, Tensor>> Optimizer::tensors() const {
  std::vector<std::pair<std::string, Tensor>> all;
  for (const Rate& rate : rates_) {
    all.emplace_back(rate.scale == 1.0 ? "learning_rate" : fmt::format("learning_rate*{}", rate.scale),
                     rate.tensor);
  }
  if (counts_.defined()) all.emplace_back("steps", counts_);
  if (mask_tensor_.defined()) all.emplace_back("has_gradient", mask_tensor_);
  for (const auto& group : slots_) {
    for (const Slot& slot : group) {
      if (slot.step.defined()) all.emplace_back("step." + slot.parameter.name(), slot.step);
      for (size_t i = 0; i < slot.buffers.size(); ++i) {
        all.emplace_back(buffer_names_[i] + "." + slot.parameter.name(), slot.buffers[i]);
      }
    }
  }
  return all;
}

void Optimizer::step(double learning_rate, const Tensor& gradient_factor) {
  step_with(learning_rate, [&] { return Factors{gradient_factor, gradient_factor}; });
}

void Optimizer::step_with(double learning_rate, const std::function<Factors()>& make_factors) {
  check_learning_rate(learning_rate);
  const ExclusiveUse::Scope scope(use_, tag_.c_str(), kOneOptimizerAThread);
  const NoGrad no_grad;
  // Everything is checked, and all memory is there, before anything changes: a step that fails for want of
  // memory can be repeated.
  struct Update {
    std::vector<Slot*> slots;
    UpdateOptions options;
    bool clip = true;
  };
  std::vector<Update> updates;
  std::optional<Device> device;
  std::optional<Untraced> untraced(std::in_place);  // what follows is state that outlives a traced step
  for (size_t g = 0; g < groups_.size(); ++g) {
    std::vector<Slot*> slots;
    for (Slot& slot : slots_[g]) {
      if (!slot.parameter.grad().defined()) continue;
      const Device own = slot.parameter.master().device();
      if (!device) device = own;
      SINTER_CHECK(own == *device, "[{}] expected all parameters on {} but '{}' is on {}", tag_, *device,
                   slot.parameter.name(), own);
      prepare(slot);
      slots.push_back(&slot);
    }
    if (slots.empty()) continue;
    updates.push_back({std::move(slots),
                       {.learning_rate = rate_on_device(groups_[g].lr_scale, learning_rate, *device),
                        .weight_decay = groups_[g].weight_decay.value_or(weight_decay_),
                        .gradient_factor = {}},
                       groups_[g].clip});
  }
  if (!device) return;
  place_counts(*device);
  place_mask();
  untraced.reset();
  if (CallTracer* const tracer = call_tracer()) {
    for (const auto& [name, tensor] : this->tensors()) tracer->keep(tensor, name);
  }
  const Factors factors = make_factors();
  ops::update::advance_steps(counts_, mask_tensor_, factors.clipped);
  for (auto& [slots, options, clip] : updates) {
    options.gradient_factor = clip ? factors.clipped : factors.others;
    update(slots, options);
  }
}

std::vector<int64_t> Optimizer::read_counts() const {
  size_t slots = 0;
  for (const auto& group : slots_) slots += group.size();
  return counts_.defined() ? counts_.to_vector<int64_t>() : std::vector<int64_t>(slots);
}

State Optimizer::state() const {
  State state;
  const std::vector<int64_t> counts = read_counts();
  if (std::ranges::all_of(counts, [](int64_t updates) { return updates == 0; })) return state;
  size_t place = 0;
  for (const auto& group : slots_) {
    for (const Slot& slot : group) {
      const int64_t updates = counts[place++];
      const std::string& name = slot.parameter.name();
      state["step." + name] = Tensor::scalar(updates);
      if (updates == 0) continue;
      for (size_t i = 0; i < slot.buffers.size(); ++i) {
        state[buffer_names_[i] + "." + name] =
            slot.parameter.to_canonical(slot.parameter.follow(slot.buffers[i], slot.layout));
      }
    }
  }
  return state;
}

void Optimizer::load_state(const State& state, const LoadOptions& options) {
  const ExclusiveUse::Scope scope(use_, tag_.c_str(), kOneOptimizerAThread);
  State unused = state;
  // Names are "<buffer>.<parameter>".
  std::erase_if(unused, [&](const auto& entry) {
    return options.skips(std::string_view(entry.first).substr(entry.first.find('.') + 1));
  });
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
  std::vector<int64_t> counts;
  for (auto& group : loaded) {
    for (Slot& slot : group) {
      const std::string& name = slot.parameter.name();
      slot = {.parameter = slot.parameter, .layout = slot.parameter.layout()};
      counts.push_back(0);
      if (options.skips(name)) continue;
      const bool may_lack = state.empty() || !options.strict;
      if (may_lack && !state.contains("step." + name)) continue;
      const Tensor updates = take("step." + name, {}, DType::kInt64);
      if (!updates.defined()) continue;
      counts.back() = updates.to_vector<int64_t>()[0];
      if (counts.back() < 0) {
        mismatched.push_back(fmt::format("step.{} (expected a count >= 0 but got {})", name, counts.back()));
      }
      if (counts.back() == 0) continue;
      for (const std::string& buffer_name : buffer_names_) {
        const TensorSpec& spec = slot.parameter.master().spec();
        const Tensor value = take(buffer_name + "." + name, slot.parameter.canonical_shape(), spec.dtype);
        if (value.defined()) slot.buffers.push_back(slot.parameter.from_canonical(value.to(spec.device)));
      }
    }
  }
  for (const auto& [name, value] : unused) {
    if (options.strict) unexpected.push_back(name);
  }

  std::string text;
  for (const auto& [what, names] : {std::pair{"missing", &missing}, std::pair{"unexpected", &unexpected},
                                    std::pair{"mismatched", &mismatched}}) {
    if (!names->empty()) text += (text.empty() ? "" : "; ") + listing(what, *names);
  }
  SINTER_CHECK(text.empty(), "[{}] the state does not fit the optimiser: {}", tag_, text);
  const Tensor loaded_counts = Tensor::from_values(counts, {static_cast<int64_t>(counts.size())});
  slots_ = std::move(loaded);
  set_counts(loaded_counts);
}

Tensor grad_norm(const std::vector<Parameter>& parameters) {
  std::vector<Tensor> gradients;
  gradients.reserve(parameters.size());
  for (const Parameter& parameter : parameters) {
    if (Tensor grad = parameter.grad(); grad.defined()) gradients.push_back(std::move(grad));
  }
  SINTER_CHECK(!gradients.empty(), "[grad_norm] none of the {} parameters has a gradient", parameters.size());
  return ops::update::grad_norm(gradients);
}

ClippedGradients clip_grad_norm(const std::vector<Parameter>& parameters, double max_norm) {
  SINTER_CHECK(max_norm > 0.0, "[clip_grad_norm] expected a norm > 0 but got {}", max_norm);
  const Tensor norm = grad_norm(parameters);
  return {norm, ops::update::clip_factor(norm, max_norm)};
}

}  // namespace sinter::nn
