// ModuleBase::Node: what all handles of one module share.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include <sinter/nn/module/module.h>

namespace sinter::nn {

/// The name of a class without its namespaces: "Conv2d".
std::string type_name(const std::type_info& type);

struct ModuleBase::Node : std::enable_shared_from_this<ModuleBase::Node> {
  struct Entry {
    Variable variable;
    bool is_parameter;
    bool is_frozen = false;  // freeze() took its gradient
  };
  std::vector<Entry> entries;
  std::vector<std::pair<std::string, std::shared_ptr<Node>>> children;
  std::vector<std::shared_ptr<Node>> borrowed;  // called, but not owned
  bool training = true;
  bool is_frozen = false;
  /// Unless the module is frozen, or this thread has it in an EvalMode.
  bool trains() const { return training && !is_frozen && !EvalMode::covers(this); }
  std::string type;                                  // empty until a member or an AnyModule tells it
  std::string options;                               // as given to describe()
  std::optional<std::pair<Layout, Layout>> layouts;  // of input and output; none: it has no part in them
  Layout chosen = Layout::kNCHW;  // of a module in which no layout is declared: as to(Layout) said last
  bool warned_of_layouts = false;
  std::vector<std::weak_ptr<void>> forward_hooks;  // each lives in a Hook
  bool is_chain = false;  // its members follow one another, so their layouts are checked

  /// Which layouts occur in a subtree.
  struct LayoutSet {
    bool nchw = false;
    bool nhwc = false;
    int count() const { return (nchw ? 1 : 0) + (nhwc ? 1 : 0); }
  };

  void check_new(const std::string& name) const {
    SINTER_CHECK(!name.empty() && name.find('.') == std::string::npos,
                 "[module] expected a name without dots, not empty, but got '{}'", name);
    const bool taken =
        std::ranges::any_of(entries, [&](const Entry& e) { return e.variable.name() == name; }) ||
        std::ranges::any_of(children, [&](const auto& c) { return c.first == name; });
    SINTER_CHECK(!taken, "[module] there is already a member named '{}'", name);
  }

  std::vector<std::shared_ptr<void>> living_hooks() const {
    std::vector<std::shared_ptr<void>> living;
    for (const auto& hook : forward_hooks) {
      if (auto alive = hook.lock()) living.push_back(std::move(alive));
    }
    return living;
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

  /// An independent copy, to be called while a CloneScope lives: entries are copied as variables are.
  std::shared_ptr<Node> clone() const;
  /// Whether `node` is this one or below it, borrowed ones included.
  bool reaches(const Node* node) const;
  /// Whether there is a parameter or a buffer here or below.
  bool owns_variables() const;
  LayoutSet layout_set() const;
  /// What goes into this module or the first below it that has a part in layouts.
  std::optional<Layout> input_layout() const;
  /// Of this module alone: its filters are permuted, and it works in `layout` from now on.
  void to(Layout layout);
  /// The layouts that go in and out; none if images have no part in it or layouts are mixed within.
  std::optional<std::pair<Layout, Layout>> flow() const;
  void check_next(const Node& next);
  /// Logs a warning, once, when the members work in different layouts.
  void warn_of_layouts();
  /// Calls `visitor` with the node that `self` points to and those below it.
  static void walk(const std::shared_ptr<Node>& self,
                   const std::function<void(const std::shared_ptr<Node>&)>& visitor) {
    visitor(self);
    for (const auto& [name, node] : self->children) walk(node, visitor);
  }

  /// Freezes or thaws what is here and below and has a name that begins with `prefix`; this module's own
  /// names begin with `path`. Gives whether there is any.
  bool set_frozen(const std::string& path, std::string_view prefix, bool value);
  void set_training(bool mode) {
    training = mode;
    for (const auto& [name, node] : children) node->set_training(mode);
  }
};

}  // namespace sinter::nn
