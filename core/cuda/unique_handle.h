// Ownership of the opaque handles of NVIDIA's libraries.
#pragma once

#include <utility>

namespace sinter::cuda {

/// Owns one handle; `destroy` is called with it unless it is null. Its status is dropped: nothing can be done
/// about it, and destructors do not throw.
template <class T, auto destroy>
class UniqueHandle {
 public:
  UniqueHandle() = default;
  explicit UniqueHandle(T handle) : handle_(handle) {}
  UniqueHandle(UniqueHandle&& other) noexcept : handle_(std::exchange(other.handle_, T{})) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = std::exchange(other.handle_, T{});
    }
    return *this;
  }
  ~UniqueHandle() { reset(); }

  T get() const { return handle_; }
  explicit operator bool() const { return handle_ != T{}; }

 private:
  void reset() noexcept {
    if (handle_ != T{}) destroy(handle_);
    handle_ = T{};
  }

  T handle_{};
};

}  // namespace sinter::cuda
