// ModuleSnapshot: what a traced forward pass of a model took for fixed.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <sinter/nn/module/module.h>

namespace sinter::nn {

/// The modes of modules, what they are made of, and which tensors their variables hold, at one moment.
class ModuleSnapshot {
 public:
  /// Of a model and all modules in it, and of parameters that need not be among theirs.
  explicit ModuleSnapshot(const ModuleBase& model, std::span<const Parameter> parameters = {});
  /// Also of a module outside of the model that the traced code called, or whose mode it asked for: without
  /// its variables. `id` is that of ModuleInfo.
  void add_outside(const void* id);
  /// Also of a variable that the traced code read.
  void add(const Variable& variable);

  /// Whether all of it is still so: no mode was switched, no forward hook added or taken away, no member
  /// added, nothing frozen or thawed, moved, converted or brought to another layout. Values may have changed.
  bool holds() const { return modes_hold() && hooks_hold() && variables_hold(); }
  bool modes_hold() const { return modes_hold(own_) && outside_modes_hold(); }
  /// Of the modules outside of the model only.
  bool outside_modes_hold() const { return modes_hold(outside_); }
  /// Whether the modules have the same forward hooks.
  bool hooks_hold() const;
  bool variables_hold() const;
  /// Whether the tensors are still those: once exchanged, they do not come back.
  bool tensors_hold() const;

 private:
  struct Part {
    std::shared_ptr<ModuleBase::Node> node;
    bool training;
    size_t members;
    Layout layout;
    std::vector<std::weak_ptr<void>> hooks;
  };
  struct Entry {
    Variable variable;
    Tensor tensor, master;
    bool requires_grad;
  };
  static bool modes_hold(const std::vector<Part>& parts);
  static Part part_of(const std::shared_ptr<ModuleBase::Node>& node);

  std::vector<Part> own_, outside_;
  std::vector<Entry> entries_;
};

}  // namespace sinter::nn
