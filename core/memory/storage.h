// The bytes under a tensor. Several tensors may share one storage (reshape, leading-axis slices, detach).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include <sinter/core/base/device.h>
#include <sinter/core/memory/memory_pool.h>

namespace sinter {

class Storage {
  struct Private {};  // only the functions below can name it, yet std::make_shared can pass it on

 public:
  Storage(Private, size_t bytes, Device device) : bytes_(bytes), device_(device) {}

  /// Takes `bytes` from the pool of `device` for the calling thread's current stream; the contents are
  /// undefined.
  static std::shared_ptr<Storage> allocate(size_t bytes, Device device);
  /// Wraps memory that somebody else owns; `release` runs when the last tensor lets go.
  static std::shared_ptr<Storage> wrap(void* data, size_t bytes, Device device,
                                       std::function<void()> release);

  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }

  /// Counts the in-place changes; autograd compares it to refuse stale saved tensors.
  uint64_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void* data_ = nullptr;
  size_t bytes_;
  Device device_;
  MemoryPool* pool_ = nullptr;  // null for wrapped memory
  std::function<void()> release_;
  std::atomic<uint64_t> version_ = 0;
};

}  // namespace sinter
