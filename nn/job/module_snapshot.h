// ModuleSnapshot: what a traced forward pass of a model took for fixed.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <sinter/nn/module/module.h>

namespace sinter::nn {

/// The modes of a model and of all modules in it, and which tensors its variables hold, at one moment.
class ModuleSnapshot {
 public:
  explicit ModuleSnapshot(const ModuleBase& model);

  /// Whether all of it is still so: no mode was switched, nothing frozen or thawed, moved or converted.
  /// Values may have changed.
  bool holds() const { return modes_hold() && variables_hold(); }
  bool modes_hold() const;
  bool variables_hold() const;

 private:
  struct Entry {
    Variable variable;
    Tensor tensor, master;
    bool requires_grad;
  };
  std::vector<std::pair<std::shared_ptr<ModuleBase::Node>, bool>> modes_;
  std::vector<Entry> entries_;
};

}  // namespace sinter::nn
