#include <algorithm>

#include <sinter/nn/job/module_snapshot.h>
#include <sinter/nn/module/module_node_internal.h>

namespace sinter::nn {
namespace {

size_t members_of(const auto& node) {
  return node.entries.size() + node.children.size() + node.borrowed.size();
}

Layout layout_of(const auto& node) {
  return node.input_layout().value_or(node.chosen);
}

}  // namespace

ModuleSnapshot::Part ModuleSnapshot::part_of(const std::shared_ptr<ModuleBase::Node>& node) {
  const auto hooks = node->living_hooks();
  return {node, node->trains(), members_of(*node), layout_of(*node), {hooks.begin(), hooks.end()}};
}

ModuleSnapshot::ModuleSnapshot(const ModuleBase& model, std::span<const Parameter> parameters) {
  ModuleBase::Node::walk(model.node_, [this](const std::shared_ptr<ModuleBase::Node>& node) {
    own_.push_back(part_of(node));
    for (const auto& entry : node->entries) add(entry.variable);
  });
  for (const Parameter& parameter : parameters) add(parameter);
}

void ModuleSnapshot::add_outside(const void* id) {
  const auto is_it = [id](const Part& part) { return part.node.get() == id; };
  if (std::ranges::any_of(own_, is_it) || std::ranges::any_of(outside_, is_it)) return;
  // Nobody but its handles changes it, and they are not constant.
  auto* const node = const_cast<ModuleBase::Node*>(static_cast<const ModuleBase::Node*>(id));
  outside_.push_back(part_of(node->shared_from_this()));
}

void ModuleSnapshot::add(const Variable& variable) {
  // Not tensor(), for which another may stand in.
  const Tensor& used = variable.is_mixed() ? variable.working() : variable.master();
  entries_.push_back({variable, used, variable.master(), used.requires_grad()});
}

bool ModuleSnapshot::modes_hold(const std::vector<Part>& parts) {
  return std::ranges::all_of(parts, [](const Part& part) { return part.node->trains() == part.training; });
}

bool ModuleSnapshot::hooks_hold() const {
  const auto hold = [](const Part& part) {
    if (part.hooks.empty() && part.node->forward_hooks.empty()) return true;
    return std::ranges::equal(part.hooks, part.node->living_hooks(),
                              [](const auto& then, const auto& now) { return then.lock() == now; });
  };
  return std::ranges::all_of(own_, hold) && std::ranges::all_of(outside_, hold);
}

bool ModuleSnapshot::variables_hold() const {
  const auto has_same_members = [](const Part& part) {
    return members_of(*part.node) == part.members && layout_of(*part.node) == part.layout;
  };
  return tensors_hold() && std::ranges::all_of(own_, has_same_members) &&
         std::ranges::all_of(outside_, has_same_members) &&
         std::ranges::all_of(entries_, [](const Entry& entry) {
           return entry.tensor.requires_grad() == entry.requires_grad;
         });
}

bool ModuleSnapshot::tensors_hold() const {
  return std::ranges::all_of(entries_, [](const Entry& entry) {
    return entry.variable.tensor().is_same(entry.tensor) && entry.variable.master().is_same(entry.master);
  });
}

}  // namespace sinter::nn
