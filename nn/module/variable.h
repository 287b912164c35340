// Variable: a named tensor that a module owns, and the conversion between the layout it is kept in and
// PyTorch's.
#pragma once

#include <concepts>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sinter/autograd/hook.h>
#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::nn {

class VariableReads;

/// How a module keeps a variable.
struct VariableOptions {
  /// For filters: the layout that a rank-4 variable starts in, and to(Layout) of its module changes. kNHWC
  /// keeps it as (out, height, width, in); its canonical form is always (out, in, height, width). None: it
  /// stays as it is whatever the module works in.
  std::optional<Layout> layout = {};
  /// Stays float32 when the module becomes float16 or bfloat16: parameters and statistics of norms, slopes.
  bool keep_float32 = false;
  /// Stays on the CPU when the module moves: counters.
  bool on_host = false;
  /// A file may lack it.
  bool optional = false;
};

/// A parameter or buffer of a module: a handle, so that optimisers keep seeing the right tensor when the
/// module moves to another device or dtype. Converts to a tensor wherever one is expected. A
/// default-constructed variable stands for "none" and converts to an undefined tensor.
///
/// *Canonical* is PyTorch's order of axes (OIHW for filters): what files hold, whatever layout the module
/// works in.
///
/// In a model made mixed (Module::to_mixed) a parameter has two tensors: the float32 *master*, which is the
/// value that files hold and optimisers update, and a 16-bit *working* copy of it, which modules compute with
/// and where the gradient arrives. Elsewhere both are one tensor.
class Variable {
 public:
  Variable() = default;
  /// Another handle on the same variable; within nn::clone, one on a copy of it.
  Variable(const Variable& other);
  Variable(Variable&&) = default;
  Variable& operator=(const Variable&) = default;
  Variable& operator=(Variable&&) = default;
  ~Variable() = default;
  /// Keeps a copy of `canonical` in the layout that `options` ask for.
  Variable(std::string name, const Tensor& canonical, const VariableOptions& options = {});

  /// The path from the module that listed it, "layer1.0.conv1.weight"; a module's own members have the last
  /// part only.
  const std::string& name() const { return name_; }
  Variable renamed(std::string name) const;
  bool defined() const { return slot_ != nullptr; }
  bool is_same(const Variable& other) const { return slot_ == other.slot_; }
  const VariableOptions& options() const { return slot_->options; }

  /// The tensor as the module works with it; a leaf of autograd. While a job is traced, another may take
  /// its place (nn/module/variable_reads.h).
  const Tensor& tensor() const;
  /// The tensor that holds the value: what optimisers update. After changing it otherwise than by assign(),
  /// call refresh_working().
  const Tensor& master() const;
  /// The working copy, or an undefined tensor if the module computes with the master itself.
  Tensor working() const { return is_mixed() ? slot_->working : Tensor(); }
  bool is_mixed() const { return slot_ != nullptr && slot_->working.defined(); }
  /// Overwrites the working copy, if there is one, with the rounded master.
  void refresh_working() const;
  operator const Tensor&() const { return tensor(); }  // NOLINT: a variable is used as the tensor it holds
  const Shape& shape() const { return tensor().shape(); }
  Tensor grad() const { return tensor().grad(); }
  /// How often freeze() and unfreeze() of modules have taken its gradient.
  int64_t freezes() const { return slot_->freezes; }
  /// As of tensor(); see Tensor::set_requires_grad and Tensor::register_hook.
  const Variable& set_requires_grad(bool value) const {
    tensor().set_requires_grad(value);
    return *this;
  }
  template <std::invocable<const Tensor&> F>
  Hook register_hook(F hook) const {
    return tensor().register_hook(std::move(hook));
  }

  Shape canonical_shape() const;
  /// A copy of the value in canonical layout, without autograd history.
  Tensor canonical() const { return to_canonical(master()); }
  /// Overwrites the value in place, working copy included, converting device and floating-point dtype. Throws
  /// InvalidArgument unless `value` has the canonical shape and is a float tensor if and only if this is one.
  void assign(const Tensor& value) const;

  /// A copy of `kept`, a tensor in this variable's own layout (a momentum, say), in canonical layout; and
  /// back.
  Tensor to_canonical(const Tensor& kept) const;
  Tensor from_canonical(const Tensor& canonical) const;
  /// The layout in which the value is kept now; kNCHW for one that none concerns.
  Layout layout() const { return slot_->options.layout.value_or(Layout::kNCHW); }
  /// `kept`, which was in this variable's layout when that was `before`, as the value is kept now: itself if
  /// that is the same.
  Tensor follow(const Tensor& kept, Layout before) const;

  /// Moves or converts value and gradient, as the options allow. Integer variables keep their dtype. A
  /// working copy moves along, but does not outlive a conversion.
  void to(Device device) const;
  void to(DType dtype) const;
  /// Permutes value, working copy and gradient of a filter; nothing else has a layout.
  void to(Layout layout) const;
  /// Makes the value float32, if it is a floating-point one, and gives it a working copy in `dtype` unless
  /// the options keep it float32. Throws InvalidArgument unless `dtype` is float16 or bfloat16.
  void to_mixed(DType dtype) const;

 private:
  friend class VariableReads;
  friend class ModuleBase;

  struct Slot {
    Tensor master;
    VariableOptions options;
    Tensor working = {};
    int64_t freezes = 0;
  };
  bool is_permuted(const Tensor& tensor) const { return layout() == Layout::kNHWC && tensor.rank() == 4; }
  static VariableReads* set_reads(VariableReads* reads);
  static std::shared_ptr<Slot> clone_slot(const Slot& slot);
  void replace(const Tensor& master, const Tensor& working, const Tensor& grad) const;

  std::string name_;
  std::shared_ptr<Slot> slot_;
};

/// A variable that training changes through its gradient.
using Parameter = Variable;
/// A variable that the forward pass itself keeps up to date.
using Buffer = Variable;

}  // namespace sinter::nn
