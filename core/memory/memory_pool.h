// A caching allocator over the raw memory of one device.
//
// Blocks are carved best-fit out of segments, split when much larger than asked for, and coalesced with free
// neighbours of the same segment and stream when they come back. A block freed on a stream is reused there at
// once, because work on one stream is ordered; another stream gets it only after an event recorded there at
// or after the free has passed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include <sinter/core/memory/raw_memory.h>

namespace sinter {

/// How a pool treats its blocks, chosen by the environment variable SINTER_MEMORY.
enum class PoolMode {
  kCaching,      ///< the normal mode ("caching" or unset)
  kPassThrough,  ///< every block goes straight to and from the device ("passthrough"), for memory checkers
  kPoison,  ///< caching, with fresh and freed blocks filled with 0xFF bytes, which read as NaN ("poison")
};

/// Reads SINTER_MEMORY; throws InvalidArgument for a value that names no mode.
PoolMode pool_mode_from_environment();

struct MemoryPoolOptions {
  PoolMode mode = PoolMode::kCaching;
  /// The most bytes that the pool may hold of the device, cached ones included; none: as much as there is.
  std::optional<size_t> byte_limit;
};

/// Exact counters of a pool. Bytes are those of blocks after rounding up; `requested` is before.
struct PoolStats {
  size_t live_bytes = 0;       ///< in blocks that are handed out
  size_t requested_bytes = 0;  ///< asked for by the holders of live blocks
  size_t reserved_bytes = 0;   ///< held of the device: live and cached
  size_t peak_live_bytes = 0;
  size_t peak_reserved_bytes = 0;
  uint64_t live_blocks = 0;
  uint64_t allocations = 0;         ///< calls of allocate that succeeded, ever
  uint64_t device_allocations = 0;  ///< segments taken from the device, ever
  uint64_t device_deallocations = 0;
  uint64_t retries = 0;  ///< allocations that first had to give cached memory back to the device

  size_t cached_bytes() const { return reserved_bytes - live_bytes; }
};

/// All members are safe to call from several threads at once.
class MemoryPool {
 public:
  /// The pool does not own `memory`, which must outlive it.
  explicit MemoryPool(RawMemory& memory, MemoryPoolOptions options = {});
  /// Gives every segment back to the device, live ones too.
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  /// A block of at least `bytes` bytes for use on `stream`. Zero bytes give nullptr.
  /// When the device or the byte limit has no room, cached segments are given back and the call retries; then
  /// throws OutOfMemory naming the requested, live, cached and free bytes. The pool stays usable.
  void* allocate(size_t bytes, StreamId stream = 0);
  /// Takes back a block that allocate returned (nullptr is ignored) at the present end of its stream.
  /// A pointer that is not live is a bug: logged and left alone, since this runs in destructors.
  void deallocate(void* block) noexcept;

  /// Declares that a live block is also used on `stream`, so that its memory is not reused before that work
  /// ends.
  void record_stream(void* block, StreamId stream);

  /// Until admit_stream(), allocate and record_stream throw Unsupported for `stream`. For one whose work is
  /// captured: it would use its blocks again at every launch, long after they were given back.
  void bar_stream(StreamId stream);
  void admit_stream(StreamId stream) noexcept;

  /// Gives all cached segments without live blocks back to the device; waits for their pending events.
  void trim();

  void set_byte_limit(std::optional<size_t> limit);
  /// For tests of what programs do then: the `k`-th call of allocate from now (from 1) throws OutOfMemory,
  /// even if there is room. 0 takes the order back.
  void fail_allocation(uint64_t k);
  PoolStats stats() const;
  /// Sets the peaks to the present values.
  void reset_peaks();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sinter
