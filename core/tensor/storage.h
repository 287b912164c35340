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

struct Stream;

class Storage {
  struct Private {};  // only the functions below can name it, yet std::make_shared can pass it on

 public:
  Storage(Private, size_t bytes, Device device) : bytes_(bytes), device_(device) {}

  /// Takes `bytes` from the pool of `device` for the calling thread's current stream; the contents are
  /// undefined.
  static std::shared_ptr<Storage> allocate(size_t bytes, Device device);
  /// Page-locked host memory for copies to and from `device`; ordinary memory for the CPU.
  static std::shared_ptr<Storage> allocate_pinned(size_t bytes, Device device);
  /// Wraps memory that somebody else owns; `release` runs when the last tensor lets go.
  static std::shared_ptr<Storage> wrap(void* data, size_t bytes, Device device,
                                       std::function<void()> release);

  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }

  /// True for page-locked host memory from allocate_pinned.
  bool pinned() const { return pinned_; }

  /// Declares that work on `stream`, other than the one that the memory was allocated on, uses it, so that
  /// the memory is not reused before that work ends, however soon the storage goes. Ordinary host memory,
  /// with which every call is finished when it returns, has no need of it and wrapped memory is its owner's
  /// care: nothing happens.
  void record_stream(const Stream& stream);
  /// Whether record_stream() ever did: other work than that of its own stream may still use the memory.
  bool is_used_elsewhere() const { return used_elsewhere_.load(std::memory_order_relaxed); }

  /// Counts the in-place changes; autograd compares it to refuse stale saved tensors.
  uint64_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void* data_ = nullptr;
  size_t bytes_;
  Device device_;
  bool pinned_ = false;
  MemoryPool* pool_ = nullptr;  // null for wrapped memory
  std::function<void()> release_;
  std::atomic<uint64_t> version_ = 0;
  std::atomic<bool> used_elsewhere_ = false;
};

}  // namespace sinter
