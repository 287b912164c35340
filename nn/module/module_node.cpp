// What the tree of modules says of itself: copies, reach, and the layouts in it.
#include <sinter/core/base/log.h>
#include <sinter/nn/module/module_node_internal.h>

namespace sinter::nn {

std::shared_ptr<ModuleBase::Node> ModuleBase::Node::clone() const {
  const auto copy_of = [](const std::shared_ptr<Node>& node) {
    return detail::CloneScope::copy_of(node, [](const Node& original) { return original.clone(); });
  };
  auto copy = std::make_shared<Node>(*this);  // with copies of the variables
  copy->forward_hooks.clear();
  for (auto& [name, child] : copy->children) child = copy_of(child);
  for (std::shared_ptr<Node>& node : copy->borrowed) node = copy_of(node);
  return copy;
}

bool ModuleBase::Node::reaches(const Node* node) const {
  if (node == this) return true;
  // Most calls are of a direct member.
  for (const auto& [name, child] : children) {
    if (child.get() == node) return true;
  }
  return std::ranges::any_of(children, [node](const auto& child) { return child.second->reaches(node); }) ||
         std::ranges::any_of(borrowed, [node](const auto& other) { return other->reaches(node); });
}

bool ModuleBase::Node::set_frozen(const std::string& path, std::string_view prefix, bool value) {
  bool found = path.starts_with(prefix);
  if (found) is_frozen = value;
  for (Entry& entry : entries) {
    if (!(path + entry.variable.name()).starts_with(prefix)) continue;
    found = true;
    const Tensor& tensor = entry.variable.tensor();
    // One that needs no gradient anyway is not given one when it is thawed.
    if (!entry.is_parameter || tensor.requires_grad() != value || (!value && !entry.is_frozen)) continue;
    tensor.set_requires_grad(!value);
    tensor.set_grad({});
    ++entry.variable.slot_->freezes;
    entry.is_frozen = value;
  }
  for (const auto& [name, child] : children)
    found = child->set_frozen(path + name + ".", prefix, value) || found;
  return found;
}

bool ModuleBase::Node::owns_variables() const {
  return !entries.empty() ||
         std::ranges::any_of(children, [](const auto& child) { return child.second->owns_variables(); });
}

std::optional<Layout> ModuleBase::Node::input_layout() const {
  if (layouts) return layouts->first;
  for (const auto& [name, child] : children) {
    if (const std::optional<Layout> found = child->input_layout()) return found;
  }
  return std::nullopt;
}

void ModuleBase::Node::to(Layout layout) {
  for (const Entry& entry : entries) entry.variable.to(layout);
  chosen = layout;
  if (layouts) layouts = {layout, layout};
}

ModuleBase::Node::LayoutSet ModuleBase::Node::layout_set() const {
  LayoutSet found;
  const auto add = [&found](Layout layout) { (layout == Layout::kNCHW ? found.nchw : found.nhwc) = true; };
  if (layouts) {
    add(layouts->first);
    add(layouts->second);
  }
  for (const auto& [name, child] : children) {
    const LayoutSet below = child->layout_set();
    found.nchw = found.nchw || below.nchw;
    found.nhwc = found.nhwc || below.nhwc;
  }
  return found;
}

void ModuleBase::Node::check_next(const Node& next) {
  is_chain = true;
  const std::optional<std::pair<Layout, Layout>> wanted = next.flow();
  if (!wanted) return;
  for (auto before = children.rbegin(); before != children.rend(); ++before) {
    const auto& [name, node] = *before;
    const std::optional<std::pair<Layout, Layout>> given = node->flow();
    if (!given && node->layout_set().count() == 0) continue;  // an activation, say: images pass through
    SINTER_CHECK(
        !given || given->second == wanted->first,
        "[sequential] module '{}' ({}) works in {} but '{}' ({}) before it gives {}; to(Layout) of the "
        "whole model sets one for all of it, and an nn::ChangeLayout may stand between two parts",
        children.size(), next.type, to_string(wanted->first), name, node->type, to_string(given->second));
    return;
  }
}

std::optional<std::pair<Layout, Layout>> ModuleBase::Node::flow() const {
  if (layouts) return layouts;
  const LayoutSet set = layout_set();
  if (set.count() != 1) return std::nullopt;
  const Layout only = set.nchw ? Layout::kNCHW : Layout::kNHWC;
  return std::pair(only, only);
}

void ModuleBase::Node::warn_of_layouts() {
  if (warned_of_layouts || is_chain) return;
  std::optional<Layout> first;
  std::string first_name;
  for (const auto& [name, child] : children) {
    const LayoutSet set = child->layout_set();
    if (set.count() != 1) continue;
    const Layout own = set.nchw ? Layout::kNCHW : Layout::kNHWC;
    if (!first) {
      first = own;
      first_name = name;
    } else if (own != *first) {
      log::warning(
          "[module] member '{}' ({}) works in {} but '{}' in {}; unless images are permuted between them, "
          "set one layout for the whole model with to(Layout)",
          name, child->type, to_string(own), first_name, to_string(*first));
      warned_of_layouts = true;
      return;
    }
  }
}

}  // namespace sinter::nn
