// VariableReads: sees which variables code reads while a job is traced, and gives other tensors in their
// place.
#pragma once

#include <functional>
#include <map>
#include <utility>

#include <sinter/nn/module/variable.h>

namespace sinter::nn {

/// As long as it lives, it sees which variables this thread reads, by Variable::tensor() and all that goes by
/// it. One may be given a stand-in for its working copy: so the code of a model that was made mixed can be
/// traced as if the model were float32. What the variables hold is not touched.
class VariableReads {
 public:
  /// Called before the first read of each variable that is not expected; it may call stand_in().
  using FirstRead = std::function<void(const Variable& variable)>;

  explicit VariableReads(FirstRead first_read)
      : first_read_(std::move(first_read)), previous_(Variable::set_reads(this)) {}
  ~VariableReads() { Variable::set_reads(previous_); }
  VariableReads(const VariableReads&) = delete;
  VariableReads& operator=(const VariableReads&) = delete;

  void expect(const Variable& variable) { read_.try_emplace(variable.slot_.get()); }
  /// Expects it, too. Throws InternalError unless `variable` is mixed.
  void stand_in(const Variable& variable, const Tensor& tensor) {
    SINTER_ASSERT(variable.is_mixed(), "[variable] '{}' has no working copy to stand in for",
                  variable.name());
    read_.insert_or_assign(variable.slot_.get(), tensor);
  }

 private:
  friend class Variable;

  /// What `variable` gives in place of its own tensor; undefined: that.
  const Tensor& see(const Variable& variable) {
    const auto [entry, is_new] = read_.try_emplace(variable.slot_.get());
    if (is_new) first_read_(variable);
    return entry->second;
  }

  FirstRead first_read_;
  std::map<const Variable::Slot*, Tensor> read_;
  VariableReads* previous_;
};

}  // namespace sinter::nn
