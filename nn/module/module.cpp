#include <algorithm>
#include <set>

#include <sinter/core/base/log.h>
#include <sinter/nn/module/module_node_internal.h>

namespace sinter::nn {

namespace {

thread_local const EvalMode* innermost_eval_mode = nullptr;

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
    const size_t before = mismatched_.size();
    compare_values(variable, value);
    if (mismatched_.size() > before) mismatched_names_.push_back(variable.name());
  }

  /// `known`: how many names of the state are the module's.
  void finish(const LoadReport& report, size_t known, bool strict) const {
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
    const std::string prefix = prefix_hint(report);
    if (text.empty()) {
      if (known == 0 && !report.unexpected.empty()) {
        log::warning("[load_state] nothing was loaded: none of the state's {} names is one of the module's{}",
                     report.unexpected.size(), prefix);
      }
      return;
    }
    if (!mismatched_names_.empty()) {
      text +=
          fmt::format("; to keep the module's own {}, load the state with LoadOptions::skip, which takes {}",
                      join(mismatched_names_),
                      mismatched_names_.size() == 1 ? "this name" : "these names or how they begin");
    }
    throw_error<InvalidArgument>("[load_state] the state does not fit the module: {}{}", text, prefix);
  }

 private:
  void compare_values(const Variable& variable, const Tensor& value) {
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

  /// What to do if all unexpected names begin alike and missing ones are the same without that; else empty.
  static std::string prefix_hint(const LoadReport& report) {
    if (report.unexpected.empty() || report.missing.empty()) return {};
    const std::set<std::string> missing(report.missing.begin(), report.missing.end());
    const std::string& first = report.unexpected.front();
    for (size_t end = first.find('.'); end != std::string::npos; end = first.find('.', end + 1)) {
      const std::string prefix = first.substr(0, end + 1);
      const bool fits = std::ranges::all_of(
          report.unexpected, [&](const std::string& name) { return name.starts_with(prefix); });
      if (!fits) return {};
      const bool found = std::ranges::any_of(report.unexpected, [&](const std::string& name) {
        return missing.contains(name.substr(prefix.size()));
      });
      if (found) {
        return fmt::format(
            "; the state's names begin with '{}'{}: nn::strip_prefix(\"{}\", state) takes it off", prefix,
            prefix == "module." ? ", as PyTorch's DataParallel writes them" : "", prefix);
      }
    }
    return {};
  }

  std::vector<std::string> mismatched_;        // with what is wrong
  std::vector<std::string> mismatched_names_;  // the names alone
};

}  // namespace

ModuleBase::ModuleBase() : node_(std::make_shared<Node>()) {}

ModuleBase::ModuleBase(const ModuleBase& other)
    : node_(detail::CloneScope::copy_of(other.node_, [](const Node& node) { return node.clone(); })) {}

std::vector<Parameter> ModuleBase::parameters() const {
  return node_->collect(true, true);
}
std::vector<Buffer> ModuleBase::buffers() const {
  return node_->collect(false, true);
}
std::vector<std::pair<std::string, Tensor>> ModuleBase::named_parameters() const {
  return with_names(parameters());
}
std::vector<std::pair<std::string, Tensor>> ModuleBase::named_buffers() const {
  return with_names(buffers());
}

int64_t ModuleBase::parameter_count() const {
  int64_t count = 0;
  for (const Parameter& parameter : parameters()) count += parameter.tensor().numel();
  return count;
}

void ModuleBase::train(bool mode) const {
  node_->set_training(mode);
}
bool ModuleBase::training() const {
  ModuleCall::ask_mode(*this);
  return node_->trains();
}

EvalMode::EvalMode(const ModuleBase& model) : outer_(std::exchange(innermost_eval_mode, this)) {
  ModuleBase::Node::walk(model.node_, [this](const std::shared_ptr<ModuleBase::Node>& node) {
    nodes_.emplace(node.get(), node);
  });
}

EvalMode::~EvalMode() {
  innermost_eval_mode = outer_;
}

bool EvalMode::covers(const ModuleBase::Node* node) {
  for (const EvalMode* mode = innermost_eval_mode; mode != nullptr; mode = mode->outer_) {
    if (mode->nodes_.contains(node)) return true;
  }
  return false;
}

void ModuleBase::to(Device device) const {
  node_->visit("", [device](const Variable& variable, bool) { variable.to(device); });
}

void ModuleBase::to(DType dtype) const {
  SINTER_CHECK(is_float(dtype), "[module] expected a floating-point dtype but got {}", dtype);
  node_->visit("", [dtype](const Variable& variable, bool) { variable.to(dtype); });
}

void ModuleBase::to(Layout layout) const {
  Node::walk(node_, [layout](const std::shared_ptr<Node>& node) { node->to(layout); });
}

void ModuleBase::to_mixed(DType dtype) const {
  SINTER_CHECK(is_half(dtype), "[module] expected float16 or bfloat16 for mixed precision but got {}", dtype);
  node_->visit("", [dtype](const Variable& variable, bool is_parameter) {
    is_parameter ? variable.to_mixed(dtype) : variable.to(DType::kFloat32);
  });
}

void ModuleBase::freeze(std::string_view prefix) const {
  const bool found = node_->set_frozen("", prefix, true);
  SINTER_CHECK(found, "[module] expected the beginning of names of the module to freeze but got '{}'",
               prefix);
}

void ModuleBase::unfreeze(std::string_view prefix) const {
  const bool found = node_->set_frozen("", prefix, false);
  SINTER_CHECK(found, "[module] expected the beginning of names of the module to unfreeze but got '{}'",
               prefix);
}

void ModuleBase::set_requires_grad(bool value) const {
  for (const Parameter& parameter : parameters()) parameter.tensor().set_requires_grad(value);
}

void ModuleBase::zero_grad() const {
  for (const Parameter& parameter : parameters()) parameter.tensor().set_grad({});
}

State ModuleBase::state() const {
  State state;
  node_->visit("",
               [&state](const Variable& variable, bool) { state[variable.name()] = variable.canonical(); });
  return state;
}

LoadReport ModuleBase::load_state(const State& state, const LoadOptions& options) const {
  LoadReport report;
  StateChecker checker;
  std::vector<std::pair<Variable, Tensor>> assignments;
  State unused = state;
  std::erase_if(unused, [&](const auto& entry) { return options.skips(entry.first); });
  node_->visit("", [&](const Variable& variable, bool) {
    if (options.skips(variable.name())) return;
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
  checker.finish(report, assignments.size(), options.strict);
  for (const auto& [variable, value] : assignments) variable.assign(value);
  return report;
}

Parameter ModuleBase::parameter(const std::string& name, const Tensor& value,
                                const VariableOptions& options) {
  node_->check_new(name);
  Variable variable(name, value, options);
  variable.tensor().set_requires_grad(true);
  node_->entries.push_back({variable, true});
  return variable;
}

Buffer ModuleBase::buffer(const std::string& name, const Tensor& value, const VariableOptions& options) {
  node_->check_new(name);
  Variable variable(name, value, options);
  node_->entries.push_back({variable, false});
  return variable;
}

void ModuleBase::add_child(const std::string& name, const ModuleBase& module) {
  node_->check_new(name);
  SINTER_CHECK(module.node_ != node_, "[module] a module cannot be its own member '{}'", name);
  if (module.node_->type.empty()) module.node_->type = type_name(typeid(module));
  node_->children.emplace_back(name, module.node_);
  node_->warn_of_layouts();
}

void ModuleBase::add_borrowed(const ModuleBase& module) {
  node_->borrowed.push_back(module.node_);
}

void ModuleBase::works_in(Layout input, Layout output) {
  node_->layouts = {input, output};
}

void ModuleBase::describe(std::string options) {
  node_->options = std::move(options);
}

void ModuleBase::stand_for(const ModuleBase& module) {
  if (node_->type.empty()) node_->type = type_name(typeid(module));
}

void ModuleBase::starts_in(Layout layout) {
  node_->chosen = layout;
}

Layout ModuleBase::layout() const {
  return node_->input_layout().value_or(node_->chosen);
}

Layout ModuleBase::output_layout() const {
  return node_->layouts ? node_->layouts->second : layout();
}

void ModuleBase::check_next(const ModuleBase& next) const {
  node_->check_next(*next.node_);
}

std::vector<Parameter> add_prefix(const std::string& prefix, const std::vector<Parameter>& parameters) {
  std::vector<Parameter> renamed;
  renamed.reserve(parameters.size());
  for (const Parameter& parameter : parameters)
    renamed.push_back(parameter.renamed(prefix + parameter.name()));
  return renamed;
}

State strip_prefix(const std::string& prefix, const State& state) {
  State renamed;
  for (auto at = state.lower_bound(prefix); at != state.end() && at->first.starts_with(prefix); ++at) {
    renamed.emplace(at->first.substr(prefix.size()), at->second);
  }
  return renamed;
}

}  // namespace sinter::nn
