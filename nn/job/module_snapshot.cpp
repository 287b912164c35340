#include <algorithm>

#include <sinter/nn/job/module_snapshot.h>
#include <sinter/nn/module/module_node_internal.h>

namespace sinter::nn {

ModuleSnapshot::ModuleSnapshot(const ModuleBase& model) {
  ModuleBase::Node::walk(model.node_, [this](const std::shared_ptr<ModuleBase::Node>& node) {
    modes_.emplace_back(node, node->training);
    for (const auto& [variable, is_parameter] : node->entries) {
      entries_.push_back({variable, variable.tensor(), variable.master(), variable.tensor().requires_grad()});
    }
  });
}

bool ModuleSnapshot::modes_hold() const {
  return std::ranges::all_of(modes_, [](const auto& mode) { return mode.first->training == mode.second; });
}

bool ModuleSnapshot::variables_hold() const {
  return std::ranges::all_of(entries_, [](const Entry& entry) {
    return entry.variable.tensor().is_same(entry.tensor) && entry.variable.master().is_same(entry.master) &&
           entry.tensor.requires_grad() == entry.requires_grad;
  });
}

}  // namespace sinter::nn
