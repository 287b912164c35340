// What keeps hooks in place: Tensor::register_hook, and register_forward_hook of modules.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include <sinter/core/tensor/tensor.h>

namespace sinter {

/// Keeps a hook in place: on a tensor (Tensor::register_hook) or on a module
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

template <std::invocable<const Tensor&> F>
requires std::is_void_v<std::invoke_result_t<F&, const Tensor&>> Hook Tensor::register_hook(F hook)
const {
  std::function<Tensor(const Tensor&)> replacing;
  if (std::function<void(const Tensor&)> looking = std::move(hook)) {
    replacing = [looking = std::move(looking)](const Tensor& gradient) {
      looking(gradient);
      return Tensor();
    };
  }
  return register_hook(std::move(replacing));
}

}  // namespace sinter
