// The pool's policy: how sizes are rounded, what is taken, split and given back, the limit, the counters and
// the words of an error. The mechanics are in block_store.h.
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include <sinter/core/base/error.h>
#include <sinter/core/base/log.h>
#include <sinter/core/memory/block_bytes.h>
#include <sinter/core/memory/block_store.h>
#include <sinter/core/memory/memory_pool.h>

namespace sinter {
namespace {

using detail::Block;
using detail::BlockStore;
using detail::FreeList;
using detail::Heap;
using detail::Segment;

constexpr size_t kKiB = size_t{1} << 10;
constexpr size_t kMiB = size_t{1} << 20;

constexpr uint8_t kPoison = 0xFF;
constexpr size_t kSmallGranule = 256;
constexpr size_t kLargeGranule = 4 * kKiB;
constexpr size_t kSmallRequest =
    256 * kKiB;  // an eighth of a small segment: at most so much of it stays unused
constexpr size_t kSegmentGranule = 2 * kMiB;  // the physical pages of a GPU, the huge pages of a CPU
constexpr size_t kSharedSegment = 32 * kMiB;  // the most that is taken ahead of need for large blocks
constexpr size_t kShareOfPeak = 16;           // ... and the part of the live bytes that it may be
constexpr size_t kWastefulSplit = 8;          // a block this many times larger than the request stays whole
constexpr size_t kFreeBudget = 32 * kMiB;     // with less than this held, nothing is given back unasked
constexpr size_t kBudgetPart = 6;             // the part of the peak that may be held beyond it: 7/6 in all

size_t round_up(size_t bytes, size_t granule) {
  return (bytes + granule - 1) / granule * granule;
}

bool is_small(size_t bytes) {
  return bytes <= kSmallRequest;
}

size_t granule_of(size_t bytes) {
  return is_small(bytes) ? kSmallGranule : kLargeGranule;
}

// True if a block of this size is better kept whole for somebody who needs it.
bool keep_whole(const Block& block, size_t bytes) {
  return block.size > kSharedSegment && bytes < block.size / kWastefulSplit;
}

std::string readable(size_t bytes) {
  constexpr std::string_view units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < kKiB) return fmt::format("{} bytes", bytes);
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024; ++unit) value /= 1024;
  return fmt::format("{:.2f} {} ({} bytes)", value, units[unit], bytes);
}

// For deallocate, which runs in destructors.
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) noexcept {
  try {
    log::warning(format, std::forward<Args>(args)...);
  } catch (...) {  // a log that fails has nowhere to say so
  }
}

void warn_of(const std::exception_ptr& failure) noexcept {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    warn("[memory] deallocate: the device failed and is asked again later: {}", error.what());
  } catch (...) {
    warn("[memory] deallocate: the device failed and is asked again later");
  }
}

}  // namespace

PoolMode pool_mode_from_environment() {
  const char* value = std::getenv("SINTER_MEMORY");
  const std::string_view mode = value == nullptr ? "" : value;
  if (mode.empty() || mode == "caching") return PoolMode::kCaching;
  if (mode == "passthrough") return PoolMode::kPassThrough;
  if (mode == "poison") return PoolMode::kPoison;
  throw_error<InvalidArgument>("[memory] SINTER_MEMORY: expected caching, passthrough or poison but got '{}'",
                               mode);
}

size_t pool_block_bytes(size_t bytes) {
  return pool_mode_from_environment() == PoolMode::kPassThrough ? bytes : round_up(bytes, granule_of(bytes));
}

// All of it runs under the mutex.
struct MemoryPool::Impl {
  Impl(RawMemory& device, const MemoryPoolOptions& pool_options)
      : memory(device), options(pool_options), store(device, pool_options.mode == PoolMode::kPoison) {}

  void* allocate(size_t bytes, StreamId stream);
  std::exception_ptr deallocate(Block& block) noexcept;
  PoolStats stats() const;

  // The ways to a free block of `bytes` that `heap` may take, from cheap to dear.
  Block& find_or_grow(size_t bytes, bool small, Heap& heap);
  Block* find_elsewhere(size_t bytes, bool small, const Heap& heap, bool whole);
  Block* find_anywhere(size_t bytes, bool small, Heap& heap);
  Block& grow_or_throw(size_t bytes, bool small, Heap& heap);
  Block* grow(size_t bytes, bool small, Heap& heap);

  void expect_admitted(StreamId stream) const;
  bool caches() const { return options.mode != PoolMode::kPassThrough; }
  size_t segment_bytes(size_t bytes, bool small) const;
  size_t budget(size_t bytes) const;
  bool fits_limit(size_t bytes) const;
  bool give_back(size_t bytes);
  [[noreturn]] void throw_out_of_memory(size_t bytes);

  RawMemory& memory;
  MemoryPoolOptions options;
  mutable std::mutex mutex;
  PoolStats counters;     // but for what the store counts
  size_t high_water = 0;  // the most live bytes since the last trim(), whatever becomes of the peaks
  uint64_t fail_in = 0;   // how many allocations from now the next failure on order is; 0: none
  std::vector<StreamId> barred;
  BlockStore store;
};

// ---- The public face

MemoryPool::MemoryPool(RawMemory& memory, MemoryPoolOptions options)
    : impl_(std::make_unique<Impl>(memory, options)) {}

MemoryPool::~MemoryPool() {
  if (const uint64_t live = impl_->counters.live_blocks; live != 0) {
    warn("[memory] a pool ends while {} of its blocks are live", live);
  }
}

void* MemoryPool::allocate(size_t bytes, StreamId stream) {
  if (bytes == 0) return nullptr;
  const std::lock_guard lock(impl_->mutex);
  impl_->expect_admitted(stream);
  return impl_->allocate(bytes, stream);
}

void MemoryPool::deallocate(void* block) noexcept {
  if (block == nullptr) return;
  bool known = false;
  std::exception_ptr failure;
  {
    const std::lock_guard lock(impl_->mutex);
    if (Block* const found = impl_->store.find_live(block); found != nullptr) {
      known = true;
      failure = impl_->deallocate(*found);
    }
  }
  if (!known) warn("[memory] deallocate: expected a live block but got {}", block);
  if (failure != nullptr) warn_of(failure);
}

void MemoryPool::record_stream(void* block, StreamId stream) {
  if (block == nullptr) return;
  const std::lock_guard lock(impl_->mutex);
  Block* const found = impl_->store.find_live(block);
  SINTER_CHECK(found != nullptr, "[memory] record_stream: expected a live block but got {}", block);
  impl_->expect_admitted(stream);
  impl_->store.add_use(*found, stream);
}

void MemoryPool::bar_stream(StreamId stream) {
  const std::lock_guard lock(impl_->mutex);
  impl_->barred.push_back(stream);
}

void MemoryPool::admit_stream(StreamId stream) noexcept {
  const std::lock_guard lock(impl_->mutex);
  std::erase(impl_->barred, stream);
}

void MemoryPool::trim() {
  const std::lock_guard lock(impl_->mutex);
  impl_->give_back(std::numeric_limits<size_t>::max());
  impl_->high_water = impl_->counters.live_bytes;
}

void MemoryPool::set_byte_limit(std::optional<size_t> limit) {
  const std::lock_guard lock(impl_->mutex);
  impl_->options.byte_limit = limit;
  const size_t reserved = impl_->store.reserved_bytes();
  if (limit && reserved > *limit) impl_->give_back(reserved - *limit);
}

void MemoryPool::fail_allocation(uint64_t k) {
  const std::lock_guard lock(impl_->mutex);
  impl_->fail_in = k;
}

PoolStats MemoryPool::stats() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->stats();
}

void MemoryPool::reset_peaks() {
  const std::lock_guard lock(impl_->mutex);
  impl_->counters.peak_live_bytes = impl_->counters.live_bytes;
  impl_->counters.peak_reserved_bytes = impl_->store.reserved_bytes();
}

void MemoryPool::Impl::expect_admitted(StreamId stream) const {
  if (std::find(barred.begin(), barred.end(), stream) == barred.end()) [[likely]]
    return;
  throw_error<Unsupported>(
      "[memory] {}: a stream whose work is captured can neither allocate nor use blocks that may be given "
      "back: take what it needs before the capture, and keep it for as long as the captured work",
      memory.name());
}

// ---- Handing out and taking back

void* MemoryPool::Impl::allocate(size_t bytes, StreamId stream) {
  if (bytes > std::numeric_limits<size_t>::max() / 4) throw_out_of_memory(bytes);  // too much to be rounded
  if (fail_in != 0 && --fail_in == 0) throw_out_of_memory(bytes);
  if (store.has_pending()) store.retire_pending(false);

  const bool small = is_small(bytes);
  const size_t granule = granule_of(bytes);
  const size_t rounded = caches() ? round_up(bytes, granule) : bytes;
  Heap& heap = store.heap_of(stream);
  Block& block = store.take(find_or_grow(rounded, small, heap), rounded, granule, heap);
  if (options.mode == PoolMode::kPoison) {
    try {
      memory.fill(block.data, kPoison, block.size, stream);
    } catch (...) {
      store.put_back(block);
      throw;
    }
  }

  block.requested = bytes;
  counters.live_bytes += block.size;
  counters.requested_bytes += bytes;
  counters.peak_live_bytes = std::max(counters.peak_live_bytes, counters.live_bytes);
  high_water = std::max(high_water, counters.live_bytes);
  ++counters.live_blocks;
  ++counters.allocations;
  return block.data;
}

std::exception_ptr MemoryPool::Impl::deallocate(Block& block) noexcept {
  counters.live_bytes -= block.size;
  counters.requested_bytes -= block.requested;
  --counters.live_blocks;
  std::exception_ptr failure = store.put_back(block);
  if (!caches() && failure == nullptr) {
    try {
      give_back(std::numeric_limits<size_t>::max());
    } catch (...) {
      failure = std::current_exception();
    }
  }
  return failure;
}

PoolStats MemoryPool::Impl::stats() const {
  PoolStats stats = counters;
  stats.reserved_bytes = store.reserved_bytes();
  stats.device_allocations = store.segments_taken();
  stats.device_deallocations = store.segments_given_back();
  return stats;
}

// ---- Finding a block

Block& MemoryPool::Impl::find_or_grow(size_t bytes, bool small, Heap& heap) {
  if (!caches()) return grow_or_throw(bytes, small, heap);

  Block* spared = heap.list(small).best_fit(bytes);
  if (spared != nullptr && !keep_whole(*spared, bytes)) return *spared;
  if (store.has_pending()) {
    store.retire_pending(true);
    spared = heap.list(small).best_fit(bytes);
    if (spared != nullptr && !keep_whole(*spared, bytes)) return *spared;
  }
  if (Block* const found = find_elsewhere(bytes, small, heap, true); found != nullptr) return *found;

  // A new segment, unless it goes beyond the budget and a large block can be split after all.
  const size_t wanted = segment_bytes(bytes, small);
  if (store.reserved_bytes() + wanted > budget(bytes)) {
    if (spared != nullptr) return *spared;
    if (Block* const found = find_elsewhere(bytes, small, heap, false); found != nullptr) return *found;
    // Waiting for their work costs nothing beside the call that gives them back, which waits for the device.
    give_back(store.reserved_bytes() + wanted - budget(bytes));
  }
  return grow_or_throw(bytes, small, heap);
}

Block* MemoryPool::Impl::find_elsewhere(size_t bytes, bool small, const Heap& heap, bool whole) {
  for (const auto& other : store.heaps()) {
    if (other.get() == &heap) continue;
    const FreeList& list = other->list(small);
    for (Block* block = list.best_fit(bytes); block != nullptr; block = list.next_larger(*block)) {
      if (whole && keep_whole(*block, bytes)) break;
      if (store.is_ready(*block)) return block;
    }
  }
  return nullptr;
}

// When nothing else is left: any stream's blocks, once their work is done, and segments of the other sort.
Block* MemoryPool::Impl::find_anywhere(size_t bytes, bool small, Heap& heap) {
  if (store.has_pending() || store.heaps().size() > 1) store.settle();
  for (const bool of_small : {small, !small}) {
    if (Block* const found = heap.list(of_small).best_fit(bytes); found != nullptr) return found;
    if (Block* const found = find_elsewhere(bytes, of_small, heap, false); found != nullptr) return found;
  }
  return nullptr;
}

Block& MemoryPool::Impl::grow_or_throw(size_t bytes, bool small, Heap& heap) {
  const size_t preferred = segment_bytes(bytes, small);
  if (Block* const block = grow(preferred, small, heap); block != nullptr) return *block;
  if (Block* const block = caches() ? find_anywhere(bytes, small, heap) : nullptr; block != nullptr)
    return *block;

  bool gave_back = false;
  Block* block = nullptr;
  do {
    // Against the limit as much as is missing; when it is the device that has no room, as much as is asked
    // for.
    const size_t excess =
        fits_limit(preferred) ? preferred : store.reserved_bytes() + preferred - *options.byte_limit;
    if (!give_back(excess)) break;
    gave_back = true;
    block = grow(preferred, small, heap);
  } while (block == nullptr);
  if (block == nullptr && bytes < preferred) block = grow(bytes, small, heap);
  if (block == nullptr) throw_out_of_memory(bytes);
  if (gave_back) ++counters.retries;
  return *block;
}

Block* MemoryPool::Impl::grow(size_t bytes, bool small, Heap& heap) {
  if (!fits_limit(bytes)) return nullptr;
  Block* const block = store.add_segment(bytes, small, heap);
  counters.peak_reserved_bytes = std::max(counters.peak_reserved_bytes, store.reserved_bytes());
  return block;
}

// ---- How much to hold

// Small blocks share segments. Large ones do too as far as that takes little ahead of need; very large ones
// get a segment of their own.
size_t MemoryPool::Impl::segment_bytes(size_t bytes, bool small) const {
  if (!caches()) return bytes;
  if (small) return kSegmentGranule;
  const size_t ahead = std::min(high_water / kShareOfPeak, kSharedSegment);
  return round_up(std::max(bytes, ahead), kSegmentGranule);
}

// Batches of changing sizes leave segments behind that fit nothing; beyond this much they are given back.
size_t MemoryPool::Impl::budget(size_t bytes) const {
  const size_t peak = std::max(high_water, counters.live_bytes + bytes);
  return std::max(peak + peak / kBudgetPart, kFreeBudget);
}

bool MemoryPool::Impl::fits_limit(size_t bytes) const {
  if (!options.byte_limit) return true;
  return bytes <= *options.byte_limit && store.reserved_bytes() <= *options.byte_limit - bytes;
}

// Gives idle segments back, those first that were idle for longest, until it is `bytes` or there are no more.
// Waits for the work that streams have left on them. True if it gave any.
bool MemoryPool::Impl::give_back(size_t bytes) {
  if (store.has_pending()) store.settle();
  size_t given = 0;
  while (given < bytes) {
    Segment* const segment = store.oldest_idle();
    if (segment == nullptr) break;
    given += segment->size;
    store.release(*segment);
  }
  return given != 0;
}

void MemoryPool::Impl::throw_out_of_memory(size_t bytes) {
  RawMemory::Capacity capacity;
  try {
    capacity = memory.capacity();
  } catch (const Error&) {  // then it is unknown
  }
  const size_t cached = store.reserved_bytes() - counters.live_bytes;
  std::string message =
      fmt::format("[memory] {}: expected room for {} but the {}: live {}, cached {}", memory.name(),
                  readable(bytes), fits_limit(bytes) ? "device has none left" : "byte limit leaves none",
                  readable(counters.live_bytes), readable(cached));
  if (options.byte_limit) message += fmt::format(", limit {}", readable(*options.byte_limit));
  if (capacity.total != 0) {
    message += fmt::format(", device free {} of {}", readable(capacity.free), readable(capacity.total));
  }
  throw OutOfMemory(message);
}

}  // namespace sinter
