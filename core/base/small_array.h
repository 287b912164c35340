// SmallArray: an array whose size is known when it is made, on the stack unless it is unusually large.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

namespace sinter {

/// `size` value-initialised elements. Up to `kInline` of them need no allocation.
template <class T, size_t kInline>
class SmallArray {
  static_assert(std::is_trivially_destructible_v<T>);

 public:
  explicit SmallArray(size_t size) : size_(size) {
    if (size > kInline) heap_ = std::make_unique_for_overwrite<Slot[]>(size);
    std::uninitialized_value_construct_n(data(), size);
  }
  SmallArray(const SmallArray&) = delete;
  SmallArray& operator=(const SmallArray&) = delete;

  size_t size() const { return size_; }
  T* data() { return reinterpret_cast<T*>(heap_ != nullptr ? heap_.get() : inline_); }
  const T* data() const { return reinterpret_cast<const T*>(heap_ != nullptr ? heap_.get() : inline_); }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }

 private:
  struct alignas(T) Slot {
    std::byte bytes[sizeof(T)];
  };

  size_t size_;
  std::unique_ptr<Slot[]> heap_;
  Slot inline_[kInline];
};

}  // namespace sinter
