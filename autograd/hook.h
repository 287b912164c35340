// Hooks on gradients, and gradients of activations that are kept.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include <sinter/core/tensor/tensor.h>

namespace sinter {

/// Keeps a hook in place: on a tensor (autograd::register_hook) or on a module
/// (nn::ModuleOf::register_forward_hook). The hook goes when this does.
class [[nodiscard]] Hook {
 public:
  Hook() = default;
  explicit Hook(std::shared_ptr<void> entry) : entry_(std::move(entry)) {}
  Hook(Hook&&) noexcept = default;
  Hook& operator=(Hook&&) noexcept = default;
  Hook(const Hook&) = delete;
  Hook& operator=(const Hook&) = delete;

  /// Takes the hook away now.
  void remove() { entry_.reset(); }

 private:
  std::shared_ptr<void> entry_;
};

namespace autograd {

/// Lets backward() add the gradient of `x` to x.grad() although `x` is no leaf, as it does for leaves, for as
/// long as what computed `x` is recorded. Nothing changes for a leaf. Returns `x`. Throws InvalidArgument
/// unless x requires a gradient, and while a job is traced, whose gradients stay in it: grad() gives them
/// there.
Tensor retain_grad(const Tensor& x);

/// Calls `hook` with the gradient of `x`, all that has arrived, whenever backward() or grad() has computed
/// it, while the Hook that is returned lives. What it gives, of the same spec, takes the gradient's place,
/// for x.grad() and for whatever x was computed from; an undefined tensor leaves it as it is. Hooks of one
/// tensor run in the order in which they were registered, and what retain_grad() keeps comes behind them. A
/// hook's own calls are recorded only under GradOptions::create_graph. Throws InvalidArgument unless x
/// requires a gradient, and while a job is traced; a job whose parameter has a hook refuses to step.
Hook register_hook(const Tensor& x, std::function<Tensor(const Tensor& gradient)> hook);

}  // namespace autograd
}  // namespace sinter
