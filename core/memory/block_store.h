// The mechanics under MemoryPool: segments of device memory, the blocks they are cut into, and when which
// stream may have a free block. What to take, split and give back is the pool's decision (memory_pool.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include <sinter/core/memory/free_list.h>
#include <sinter/core/memory/raw_memory.h>

namespace sinter::detail {

/// What the device gave in one piece. Small and large requests have segments of their own, because one small
/// block that lives long would keep a large segment from ever being whole again.
struct Segment {
  std::byte* data = nullptr;
  size_t size = 0;
  bool small = false;
  Block* first = nullptr;
  size_t used = 0;          // blocks that are live or pending
  uint64_t touched_at = 0;  // when a block of it was last handed out or became free
};

/// An event on a stream, which tells when the stream is done with every block freed there up to `at`.
struct Mark {
  void* event;
  uint64_t at;
};

/// The free blocks of one stream, and how far the stream has come. Few streams ever take another's blocks, so
/// events are recorded only for those that do: when one asks for a block, and at frees for a while after it
/// asked in vain, so that it then need not wait for much more than the block's own work.
struct Heap {
  explicit Heap(StreamId id) : stream(id) {}
  FreeList& list(bool of_small) { return of_small ? small : large; }

  StreamId stream;
  FreeList small;
  FreeList large;

  std::vector<Mark> marks;     // oldest first, and so in the order in which they pass
  uint64_t passed = 0;         // the stream is done with blocks freed up to here
  uint64_t asked_at = 0;       // when the oldest mark was last found not to have passed
  uint64_t watched_until = 0;  // until then every `spacing`-th free is marked
  uint64_t spacing = 1;        // grows with the marks that have not passed, so that they stay few
  uint64_t unmarked = 0;       // frees since the last mark
};

/// Not thread-safe. A call of the device may throw; every list and count is consistent whenever one is made.
class BlockStore {
 public:
  /// With `poison`, free blocks are filled with 0xFF bytes.
  BlockStore(RawMemory& memory, bool poison);
  /// Waits for what streams still do, as far as the device lets it, and gives every segment back.
  ~BlockStore();
  BlockStore(const BlockStore&) = delete;
  BlockStore& operator=(const BlockStore&) = delete;

  Heap& heap_of(StreamId stream);
  const std::vector<std::unique_ptr<Heap>>& heaps() const { return heaps_; }
  /// The live block at `data`, or nullptr.
  Block* find_live(const void* data);

  /// A new segment as one free block of `heap`, or nullptr if the device has no room.
  Block* add_segment(size_t bytes, bool small, Heap& heap);
  /// Cuts `bytes` off the front of a free block and makes them a live block of `heap`; a rest of less than
  /// `granule` stays with it.
  Block& take(Block& block, size_t bytes, size_t granule, Heap& heap);
  /// Puts a live block back: into the free lists, or among the pending blocks if other streams use it. A
  /// failure of the device is returned; the block is then asked about again later.
  std::exception_ptr put_back(Block& block) noexcept;
  void add_use(Block& block, StreamId stream);

  /// True if no stream has work left on a free block, so that another than its own may have it; asks the
  /// device if that is not known.
  bool is_ready(Block& block);
  bool has_pending() const { return first_pending_ != nullptr; }
  /// Frees the pending blocks whose streams are done: from the oldest up to the first that is not, or all of
  /// them.
  void retire_pending(bool all);
  /// Waits until every pending and free block is ready for every stream, and joins neighbours.
  void settle();

  /// The segment without live and pending blocks that was not touched for longest, or nullptr.
  Segment* oldest_idle();
  /// Gives an idle segment back to the device, after its streams' work on it.
  void release(Segment& segment);

  size_t reserved_bytes() const { return reserved_bytes_; }
  uint64_t segments_taken() const { return segments_taken_; }
  uint64_t segments_given_back() const { return segments_taken_ - segments_.size(); }

 private:
  std::exception_ptr make_free(Block& block) noexcept;
  Block& join_neighbours(Block& block) noexcept;
  void wait_until_ready(Block& block);
  bool has_passed(Heap& heap, uint64_t at);
  void mark(Heap& heap);
  void drop_marks(Heap& heap, size_t count) noexcept;
  void drop_event(void*& event) noexcept;
  bool uses_ended(Block& block, bool wait);
  Block& new_block(std::byte* data, size_t size, Segment& segment);
  void delete_block(Block& block) noexcept;
  void append_pending(Block& block) noexcept;
  void remove_pending(Block& block) noexcept;

  using BlockMap = std::unordered_map<const void*, Block>;

  RawMemory& memory_;
  bool poison_;
  uint64_t clock_ = 0;
  size_t reserved_bytes_ = 0;
  uint64_t segments_taken_ = 0;
  std::vector<std::unique_ptr<Heap>> heaps_;
  std::map<std::byte*, Segment> segments_;
  BlockMap blocks_;                          // all of them, by address
  std::vector<BlockMap::node_type> spares_;  // nodes of blocks that are gone, for the next ones
  Block* first_pending_ = nullptr;           // oldest first
  Block* last_pending_ = nullptr;
};

}  // namespace sinter::detail
