// Scratch memory inside an op: one arena per stream that grows to the largest need and is then reused, so
// that a steady training loop allocates nothing here.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>

#include <sinter/core/base/device.h>
#include <sinter/core/memory/memory_pool.h>

namespace sinter {

/// Arena of one stream. All members are safe to call from several threads, which may share a stream: pieces
/// that are leased at once never overlap.
class Workspace {
 public:
  Workspace(MemoryPool& pool, StreamId stream) : pool_(pool), stream_(stream) {}
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  /// A piece of the arena, aligned to 256 bytes, contents undefined; given back when the lease ends. Leases
  /// nest like a stack: the one taken last ends first. Out of turn is safe, but its room comes back only with
  /// the last one's.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept;
    Lease& operator=(Lease&& other) noexcept;
    ~Lease();

    void* data() const { return data_; }
    size_t bytes() const { return bytes_; }

   private:
    friend class Workspace;
    Workspace* owner_ = nullptr;
    void* data_ = nullptr;
    void* overflow_ = nullptr;  // a block of its own when the arena was in use and too small
    size_t bytes_ = 0;
    size_t previous_top_ = 0;
  };

  /// Throws OutOfMemory like MemoryPool::allocate. Zero bytes give a lease whose data() is nullptr.
  Lease lease(size_t bytes);

  size_t capacity() const;
  /// Gives the arena back to the pool; ignored while a lease is out.
  void release();

 private:
  void give_back_arena();
  void grow(size_t least);
  void end(Lease& lease) noexcept;

  mutable std::mutex mutex_;
  MemoryPool& pool_;
  StreamId stream_;
  void* arena_ = nullptr;
  size_t capacity_ = 0;
  size_t top_ = 0;     // bytes of the arena in use, those of leases that ended out of turn included
  size_t wanted_ = 0;  // most bytes in use at once so far, overflow included: the arena's next size
  size_t in_use_ = 0;  // leases and overflow blocks together
};

}  // namespace sinter
