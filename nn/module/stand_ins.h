// VariableStandIns: other tensors in the place of mixed variables' working copies, while a job is traced.
#pragma once

#include <map>

#include <sinter/nn/module/variable.h>

namespace sinter::nn {

/// As long as it lives, the mixed variables that it has a tensor for give modules on this thread that tensor
/// in place of their working copy: Variable::tensor() and all that goes by it. So the code of a model that
/// was made mixed can be traced as if the model were float32. What the variables hold is not touched.
class VariableStandIns {
 public:
  VariableStandIns() : previous_(Variable::set_stand_ins(this)) {}
  ~VariableStandIns() { Variable::set_stand_ins(previous_); }
  VariableStandIns(const VariableStandIns&) = delete;
  VariableStandIns& operator=(const VariableStandIns&) = delete;

  /// Throws InternalError unless `variable` is mixed.
  void set(const Variable& variable, const Tensor& tensor) {
    SINTER_ASSERT(variable.is_mixed(), "[variable] '{}' has no working copy to stand in for",
                  variable.name());
    tensors_.insert_or_assign(variable.slot_.get(), tensor);
  }
  bool has(const Variable& variable) const { return tensors_.contains(variable.slot_.get()); }

 private:
  friend class Variable;

  std::map<const Variable::Slot*, Tensor> tensors_;
  const VariableStandIns* previous_;
};

}  // namespace sinter::nn
