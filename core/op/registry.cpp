#include <algorithm>
#include <mutex>
#include <numeric>

#include <dlfcn.h>

#include <sinter/core/op/norm_chain.h>
#include <sinter/core/op/registry.h>

namespace sinter {

namespace ops {
void register_builtin_ops(OpRegistry& registry);  // generated: calls register_<op> of every folder
}

namespace {

/// Levenshtein's edit distance, for suggestions.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

namespace {

/// Rules by the names of their ops.
struct RewriteRules {
  std::shared_mutex mutex;
  std::map<std::string, RecomputeRule> recomputed;

  static RewriteRules& instance() {
    static auto& rules = *new RewriteRules;  // outlives every static graph
    return rules;
  }
};

}  // namespace

void add_recompute_rule(RecomputeRule rule) {
  SINTER_CHECK(rule.compute != nullptr, "[registry] the rule to compute {} again has no function", rule.op);
  RewriteRules& rules = RewriteRules::instance();
  const std::unique_lock lock(rules.mutex);
  std::string key = rule.op;
  const auto [place, added] = rules.recomputed.try_emplace(std::move(key), std::move(rule));
  SINTER_CHECK(added, "[registry] there is a rule to compute {} again already", place->first);
}

const RecomputeRule* find_recompute_rule(const std::string& op) {
  RewriteRules& rules = RewriteRules::instance();
  const std::shared_lock lock(rules.mutex);
  const auto found = rules.recomputed.find(op);
  return found == rules.recomputed.end() ? nullptr : &found->second;
}

OpRegistry& OpRegistry::instance() {
  static OpRegistry* const registry = [] {
    auto made = std::make_unique<OpRegistry>();
    ops::register_builtin_ops(*made);
    return made.release();  // outlives every static tensor
  }();
  return *registry;
}

const Op& OpRegistry::add(OpDef definition) {
  const bool writes = std::any_of(definition.inputs.begin(), definition.inputs.end(),
                                  [](const InputDef& input) { return input.mutated; });
  SINTER_CHECK(
      !definition.name.empty() && definition.infer != nullptr && (writes || !definition.outputs.empty()),
      "[registry] op '{}' needs a name, outputs or mutated inputs, and an infer function", definition.name);
  SINTER_CHECK(!definition.variadic || !definition.inputs.empty(), "[registry] variadic op '{}' needs inputs",
               definition.name);
  const std::unique_lock lock(mutex_);
  auto [place, added] = ops_.try_emplace(definition.name);
  SINTER_CHECK(added, "[registry] op '{}' is registered already", definition.name);
  place->second = std::make_unique<Op>(Op{.definition = std::move(definition)});
  return *place->second;
}

void OpRegistry::add_kernel(std::string_view op, Kernel kernel) {
  const std::unique_lock lock(mutex_);
  const auto found = ops_.find(op);
  SINTER_CHECK(found != ops_.end(), "[registry] kernel '{}' names the op '{}', which is not registered",
               kernel.name, op);
  SINTER_CHECK(kernel.run != nullptr, "[registry] kernel '{}' of op '{}' has no run function", kernel.name,
               op);
  Op& changed = *found->second;
  ++changed.kernels_of_device[static_cast<size_t>(kernel.device)];
  changed.estimates = changed.estimates || kernel.microseconds != nullptr;
  changed.kernels.insert(changed.kernels.begin(), std::move(kernel));
}

const Op* OpRegistry::find(std::string_view name) const {
  const std::shared_lock lock(mutex_);
  const auto found = ops_.find(name);
  return found == ops_.end() ? nullptr : found->second.get();
}

const Op& OpRegistry::get(std::string_view name) const {
  if (const Op* op = find(name)) return *op;
  const std::vector<std::string> known = names();
  const auto closest = std::min_element(known.begin(), known.end(), [&](const auto& a, const auto& b) {
    return edit_distance(a, name) < edit_distance(b, name);
  });
  throw_error<InvalidArgument>("[registry] there is no op '{}'{}", name,
                               closest == known.end() ? "" : "; did you mean '" + *closest + "'?");
}

std::vector<std::string> OpRegistry::names() const {
  const std::shared_lock lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, op] : ops_) names.push_back(name);
  return names;
}

void load_library(const std::string& path) {
  // RTLD_GLOBAL is not needed: the library reaches Sinter through its own link to libsinter.
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw_error<IoError>("[load_library] {}", dlerror());
  using Register = void (*)(OpRegistry&);
  const auto register_ops = reinterpret_cast<Register>(dlsym(handle, "sinter_register_ops"));
  if (register_ops == nullptr) {
    dlclose(handle);
    throw_error<IoError>("[load_library] {} does not export sinter_register_ops", path);
  }
  register_ops(OpRegistry::instance());
}

}  // namespace sinter
