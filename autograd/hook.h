// What keeps hooks in place: Tensor::register_hook, and register_forward_hook of modules.
#pragma once

#include <memory>
#include <utility>

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

}  // namespace sinter
