#include <algorithm>
#include <functional>

#include <sinter/nn/module/module.h>

namespace sinter::nn {

struct Module::Node {
  struct Entry {
    Variable variable;
    bool is_parameter;
  };
  std::vector<Entry> entries;
  std::vector<std::pair<std::string, std::shared_ptr<Node>>> children;
  bool training = true;

  void check_new(const std::string& name) const {
    SINTER_CHECK(!name.empty() && name.find('.') == std::string::npos,
                 "[module] expected a name without dots, not empty, but got '{}'", name);
    const bool taken =
        std::ranges::any_of(entries, [&](const Entry& e) { return e.variable.name() == name; }) ||
        std::ranges::any_of(children, [&](const auto& c) { return c.first == name; });
    SINTER_CHECK(!taken, "[module] there is already a member named '{}'", name);
  }

  /// Every entry under its path, depth first.
  void visit(const std::string& prefix, const std::function<void(const Variable&, bool)>& visitor) const {
    for (const Entry& entry : entries) {
      visitor(entry.variable.renamed(prefix + entry.variable.name()), entry.is_parameter);
    }
    for (const auto& [name, node] : children) node->visit(prefix + name + ".", visitor);
  }

  /// Parameters or buffers; one that is reached over several paths comes once if `unique`.
  std::vector<Variable> collect(bool parameters, bool unique) const {
    std::vector<Variable> found;
    visit("", [&](const Variable& variable, bool is_parameter) {
      if (is_parameter != parameters) return;
      const auto is_known = [&](const Variable& other) { return other.is_same(variable); };
      if (!unique || std::ranges::none_of(found, is_known)) found.push_back(variable);
    });
    return found;
  }

  void set_training(bool mode) {
    training = mode;
    for (const auto& [name, node] : children) node->set_training(mode);
  }
};

namespace {

/// "a, b, c", or the first 20 and how many there are more.
std::string join(const std::vector<std::string>& names) {
  constexpr size_t kMost = 20;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kMost) text += fmt::format(" and {} more", names.size() - kMost);
  return text;
}

std::vector<std::pair<std::string, Tensor>> with_names(const std::vector<Variable>& variables) {
  std::vector<std::pair<std::string, Tensor>> named;
  named.reserve(variables.size());
  for (const Variable& variable : variables) named.emplace_back(variable.name(), variable.tensor());
  return named;
}

/// Collects everything that is wrong, so that one message tells it all.
class StateChecker {
 public:
  void compare(const Variable& variable, const Tensor& value) {
    if (!value.defined()) {
      mismatched_.push_back(variable.name() + " (undefined)");
    } else if (value.shape() != variable.canonical_shape()) {
      mismatched_.push_back(fmt::format("{} (expected shape {} but got {})", variable.name(),
                                        variable.canonical_shape(), value.shape()));
    } else if (is_float(value.dtype()) != is_float(variable.master().dtype()) ||
               (!is_float(value.dtype()) && value.dtype() != variable.master().dtype())) {
      mismatched_.push_back(fmt::format("{} (expected {} but got {})", variable.name(),
                                        variable.master().dtype(), value.dtype()));
    }
  }

  void finish(const LoadReport& report, bool strict) const {
    std::string text;
    const auto add = [&text](const char* what, const std::vector<std::string>& names) {
      if (!names.empty())
        text += fmt::format("{}{} {}: {}", text.empty() ? "" : "; ", names.size(), what, join(names));
    };
    if (strict) {
      add("missing", report.missing);
      add("unexpected", report.unexpected);
    }
    add("mismatched", mismatched_);
    SINTER_CHECK(text.empty(), "[load_state] the state does not fit the module: {}", text);
  }

 private:
  std::vector<std::string> mismatched_;
};

}  // namespace

Module::Module() : node_(std::make_shared<Node>()) {}

std::vector<Parameter> Module::parameters() const {
  return node_->collect(true, true);
}
std::vector<Buffer> Module::buffers() const {
  return node_->collect(false, true);
}
std::vector<std::pair<std::string, Tensor>> Module::named_parameters() const {
  return with_names(parameters());
}
std::vector<std::pair<std::string, Tensor>> Module::named_buffers() const {
  return with_names(buffers());
}

int64_t Module::parameter_count() const {
  int64_t count = 0;
  for (const Parameter& parameter : parameters()) count += parameter.tensor().numel();
  return count;
}

void Module::train(bool mode) const {
  node_->set_training(mode);
}
bool Module::training() const {
  return node_->training;
}

void Module::to(Device device) const {
  node_->visit("", [device](const Variable& variable, bool) { variable.to(device); });
}

void Module::to(DType dtype) const {
  SINTER_CHECK(is_float(dtype), "[module] expected a floating-point dtype but got {}", dtype);
  node_->visit("", [dtype](const Variable& variable, bool) { variable.to(dtype); });
}

void Module::to_mixed(DType dtype) const {
  SINTER_CHECK(is_half(dtype), "[module] expected float16 or bfloat16 for mixed precision but got {}", dtype);
  node_->visit("", [dtype](const Variable& variable, bool is_parameter) {
    is_parameter ? variable.to_mixed(dtype) : variable.to(DType::kFloat32);
  });
}

void Module::set_requires_grad(bool value) const {
  for (const Parameter& parameter : parameters()) parameter.tensor().set_requires_grad(value);
}

void Module::zero_grad() const {
  for (const Parameter& parameter : parameters()) parameter.tensor().set_grad({});
}

State Module::state() const {
  State state;
  node_->visit("",
               [&state](const Variable& variable, bool) { state[variable.name()] = variable.canonical(); });
  return state;
}

LoadReport Module::load_state(const State& state, const LoadOptions& options) const {
  LoadReport report;
  StateChecker checker;
  std::vector<std::pair<Variable, Tensor>> assignments;
  State unused = state;
  node_->visit("", [&](const Variable& variable, bool) {
    const auto found = state.find(variable.name());
    if (found == state.end()) {
      if (!variable.options().optional) report.missing.push_back(variable.name());
      return;
    }
    unused.erase(variable.name());
    checker.compare(variable, found->second);
    assignments.emplace_back(variable, found->second);
  });
  for (const auto& [name, value] : unused) report.unexpected.push_back(name);
  checker.finish(report, options.strict);
  for (const auto& [variable, value] : assignments) variable.assign(value);
  return report;
}

Parameter Module::parameter(const std::string& name, const Tensor& value, const VariableOptions& options) {
  node_->check_new(name);
  Variable variable(name, value, options);
  variable.tensor().set_requires_grad(true);
  node_->entries.push_back({variable, true});
  return variable;
}

Buffer Module::buffer(const std::string& name, const Tensor& value, const VariableOptions& options) {
  node_->check_new(name);
  Variable variable(name, value, options);
  node_->entries.push_back({variable, false});
  return variable;
}

void Module::add_child(const std::string& name, const Module& module) {
  node_->check_new(name);
  SINTER_CHECK(module.node_ != node_, "[module] a module cannot be its own member '{}'", name);
  node_->children.emplace_back(name, module.node_);
}

DecaySplit split_decay(const std::vector<Parameter>& parameters) {
  DecaySplit split;
  for (const Parameter& parameter : parameters) {
    (parameter.tensor().rank() >= 2 ? split.decay : split.no_decay).push_back(parameter);
  }
  return split;
}

std::vector<Parameter> with_prefix(const std::string& prefix, const std::vector<Parameter>& parameters) {
  std::vector<Parameter> renamed;
  renamed.reserve(parameters.size());
  for (const Parameter& parameter : parameters)
    renamed.push_back(parameter.renamed(prefix + parameter.name()));
  return renamed;
}

}  // namespace sinter::nn
