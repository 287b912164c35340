#include <algorithm>
#include <cmath>
#include <utility>

#include <sinter/nn/optim/parameter_groups.h>

namespace sinter::nn {

std::vector<ParameterGroup> parameter_groups(const ModuleBase& model, const std::vector<GroupRule>& rules,
                                             const GroupOptions& options) {
  return parameter_groups(model.parameters(), rules, options);
}

std::vector<ParameterGroup> parameter_groups(const std::vector<Parameter>& parameters,
                                             const std::vector<GroupRule>& rules,
                                             const GroupOptions& options) {
  std::vector<GroupRule> all = rules;
  all.emplace_back();  // for those that no rule fits
  struct Members {
    std::vector<Parameter> decayed, others;
  };
  std::vector<Members> members(all.size());
  for (const Parameter& parameter : parameters) {
    SINTER_CHECK(parameter.defined(), "[parameter_groups] a parameter is undefined");
    const auto rule = std::ranges::find_if(
        all, [&](const GroupRule& candidate) { return parameter.name().starts_with(candidate.prefix); });
    Members& chosen = members[static_cast<size_t>(rule - all.begin())];
    const bool decays = options.decay_vectors || parameter.tensor().rank() >= 2;
    (decays ? chosen.decayed : chosen.others).push_back(parameter);
  }
  std::vector<ParameterGroup> groups;
  for (size_t i = 0; i < all.size(); ++i) {
    const GroupRule& rule = all[i];
    auto& [decayed, others] = members[i];
    SINTER_CHECK(rule.prefix.empty() || !decayed.empty() || !others.empty(),
                 "[parameter_groups] expected parameters for the rule of '{}' but none is left whose name "
                 "begins so",
                 rule.prefix);
    if (!decayed.empty()) groups.push_back({std::move(decayed), rule.lr_scale, rule.weight_decay, rule.clip});
    if (!others.empty()) groups.push_back({std::move(others), rule.lr_scale, 0.0, rule.clip});
  }
  return groups;
}

std::vector<GroupRule> layer_decay(const std::vector<std::vector<std::string>>& layers, double decay) {
  SINTER_CHECK(decay > 0.0 && decay <= 1.0, "[layer_decay] expected a decay in (0, 1] but got {}", decay);
  std::vector<GroupRule> rules;
  for (size_t i = 0; i < layers.size(); ++i) {
    const double scale = std::pow(decay, static_cast<double>(layers.size() - 1 - i));
    for (const std::string& prefix : layers[i]) rules.push_back({.prefix = prefix, .lr_scale = scale});
  }
  return rules;
}

}  // namespace sinter::nn
