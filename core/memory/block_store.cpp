#include <utility>

#include <sinter/core/base/log.h>
#include <sinter/core/memory/block_store.h>

namespace sinter::detail {
namespace {

constexpr size_t kSpares = 1024;
constexpr uint8_t kPoison = 0xFF;
constexpr size_t kMostMarks = 32;  // of a stream; with more, every other one is given up
constexpr uint64_t kWatch = 4096;  // calls for which a stream is watched after another asked in vain

bool can_join(const Block& a, const Block& b) {
  if (a.state != Block::State::kFree || b.state != Block::State::kFree) return false;
  return a.heap == b.heap || a.ready || b.ready;
}

}  // namespace

BlockStore::BlockStore(RawMemory& memory, bool poison) : memory_(memory), poison_(poison) {
  spares_.reserve(kSpares);
}

BlockStore::~BlockStore() {
  for (auto& [data, block] : blocks_) {
    try {
      uses_ended(block, true);
      wait_until_ready(block);
    } catch (const std::exception& error) {
      try {
        log::warning("[memory] {} while a pool ended; its memory goes back without waiting", error.what());
      } catch (...) {  // a log that fails has nowhere to say so
      }
    }
    for (Block::Use& use : block.uses) drop_event(use.event);
  }
  for (const auto& heap : heaps_) drop_marks(*heap, heap->marks.size());
  for (const auto& [data, segment] : segments_) memory_.deallocate(data);
}

Heap& BlockStore::heap_of(StreamId stream) {
  for (const auto& heap : heaps_) {
    if (heap->stream == stream) return *heap;
  }
  heaps_.reserve(heaps_.size() + 1);
  return *heaps_.emplace_back(std::make_unique<Heap>(stream));
}

Block* BlockStore::find_live(const void* data) {
  const auto found = blocks_.find(data);
  if (found == blocks_.end() || found->second.state != Block::State::kLive) return nullptr;
  return &found->second;
}

Block* BlockStore::add_segment(size_t bytes, bool small, Heap& heap) {
  auto* const data = static_cast<std::byte*>(memory_.allocate(bytes));
  if (data == nullptr) return nullptr;
  Block* block = nullptr;
  try {
    Segment& segment = segments_[data];
    segment = {.data = data, .size = bytes, .small = small, .touched_at = ++clock_};
    block = &new_block(data, bytes, segment);
  } catch (...) {
    segments_.erase(data);
    memory_.deallocate(data);
    throw;
  }
  block->segment->first = block;
  block->heap = &heap;
  block->ready = true;
  heap.list(small).insert(*block);
  reserved_bytes_ += bytes;
  ++segments_taken_;
  return block;
}

Block& BlockStore::take(Block& block, size_t bytes, size_t granule, Heap& heap) {
  Segment& segment = *block.segment;
  Block* rest = nullptr;
  if (block.size - bytes >= granule) rest = &new_block(block.data + bytes, block.size - bytes, segment);
  // Nothing throws from here on.
  block.heap->list(segment.small).remove(block);
  if (rest != nullptr) {
    rest->left = &block;
    rest->right = block.right;
    if (rest->right != nullptr) rest->right->left = rest;
    block.right = rest;
    block.size = bytes;
    rest->heap = block.heap;
    rest->ready = block.ready;
    rest->freed_at = block.freed_at;
    rest->heap->list(segment.small).insert(*rest);
  }
  block.heap = &heap;
  block.ready = false;
  block.state = Block::State::kLive;
  ++segment.used;
  segment.touched_at = ++clock_;
  return block;
}

void BlockStore::add_use(Block& block, StreamId stream) {
  if (stream == block.heap->stream) return;
  for (const Block::Use& use : block.uses) {
    if (use.stream == stream) return;
  }
  block.uses.push_back({stream, nullptr});
}

std::exception_ptr BlockStore::put_back(Block& block) noexcept {
  if (block.uses.empty()) return make_free(block);
  append_pending(block);
  try {
    for (Block::Use& use : block.uses) use.event = memory_.record_event(use.stream);
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

// ---- Free blocks

std::exception_ptr BlockStore::make_free(Block& block) noexcept {
  std::exception_ptr failure;
  block.freed_at = ++clock_;
  try {
    if (poison_) memory_.fill(block.data, kPoison, block.size, block.heap->stream);
    Heap& heap = *block.heap;
    if (clock_ < heap.watched_until && ++heap.unmarked >= heap.spacing) mark(heap);
  } catch (...) {
    failure = std::current_exception();
  }
  block.state = Block::State::kFree;
  --block.segment->used;
  block.segment->touched_at = clock_;
  Block& joined = join_neighbours(block);
  joined.heap->list(joined.segment->small).insert(joined);
  return failure;
}

// `block` is in no list; its neighbours leave theirs.
Block& BlockStore::join_neighbours(Block& block) noexcept {
  const auto join = [this](Block& into, Block& from) {
    // Of two blocks the one that is not ready decides, and of two of one stream the one whose work ended
    // later.
    const bool from_decides = into.ready || (!from.ready && from.freed_at > into.freed_at);
    if (from_decides) {
      into.heap = from.heap;
      into.ready = from.ready;
      into.freed_at = from.freed_at;
    }
    into.size += from.size;
    into.right = from.right;
    if (into.right != nullptr) into.right->left = &into;
    delete_block(from);
  };
  const bool small = block.segment->small;
  Block* joined = &block;
  if (Block* right = joined->right; right != nullptr && can_join(*joined, *right)) {
    right->heap->list(small).remove(*right);
    join(*joined, *right);
  }
  if (Block* left = joined->left; left != nullptr && can_join(*left, *joined)) {
    left->heap->list(small).remove(*left);
    join(*left, *joined);
    joined = left;
  }
  return *joined;
}

bool BlockStore::is_ready(Block& block) {
  if (!block.ready) block.ready = has_passed(*block.heap, block.freed_at);
  if (!block.ready) block.heap->watched_until = clock_ + kWatch;
  return block.ready;
}

void BlockStore::wait_until_ready(Block& block) {
  Heap& heap = *block.heap;
  if (!block.ready && !has_passed(heap, block.freed_at)) {
    size_t first = 0;
    while (heap.marks[first].at < block.freed_at) ++first;
    memory_.wait_event(heap.marks[first].event);
    heap.passed = heap.marks[first].at;
    drop_marks(heap, first + 1);
  }
  block.ready = true;
}

/// True if the heap's stream is done with what was freed up to `at`. If not, there is a mark that covers it.
bool BlockStore::has_passed(Heap& heap, uint64_t at) {
  if (at <= heap.passed) return true;
  if (heap.marks.empty() || heap.marks.back().at < at) mark(heap);
  if (heap.asked_at == clock_) return false;  // nothing was done since the oldest mark had not passed
  while (at > heap.passed) {
    if (!memory_.event_done(heap.marks.front().event)) {
      heap.asked_at = clock_;
      return false;
    }
    heap.passed = heap.marks.front().at;
    drop_marks(heap, 1);
  }
  return true;
}

void BlockStore::mark(Heap& heap) {
  std::vector<Mark>& marks = heap.marks;
  marks.reserve(kMostMarks);
  if (marks.size() == kMostMarks) {
    // What one covers, the next one covers too.
    for (size_t i = 0; i < kMostMarks / 2; ++i) {
      drop_event(marks[2 * i].event);
      marks[i] = marks[2 * i + 1];
    }
    marks.resize(kMostMarks / 2);
    heap.spacing *= 2;
  }
  marks.push_back({memory_.record_event(heap.stream), clock_});
  heap.unmarked = 0;
}

void BlockStore::drop_marks(Heap& heap, size_t count) noexcept {
  for (size_t i = 0; i < count; ++i) drop_event(heap.marks[i].event);
  heap.marks.erase(heap.marks.begin(), heap.marks.begin() + static_cast<std::ptrdiff_t>(count));
  if (heap.marks.size() < kMostMarks / 4) heap.spacing = 1;
}

void BlockStore::drop_event(void*& event) noexcept {
  if (event != nullptr) memory_.release_event(std::exchange(event, nullptr));
}

Block& BlockStore::new_block(std::byte* data, size_t size, Segment& segment) {
  Block* block = nullptr;
  if (spares_.empty()) {
    block = &blocks_.try_emplace(data).first->second;
  } else {
    auto node = std::move(spares_.back());
    spares_.pop_back();
    node.key() = data;
    block = &blocks_.insert(std::move(node)).position->second;
  }
  block->data = data;
  block->size = size;
  block->requested = 0;
  block->segment = &segment;
  block->left = block->right = nullptr;
  block->state = Block::State::kFree;
  block->ready = false;
  return *block;
}

void BlockStore::delete_block(Block& block) noexcept {
  auto node = blocks_.extract(block.data);
  if (spares_.size() < spares_.capacity()) spares_.push_back(std::move(node));
}

// ---- Pending blocks

void BlockStore::append_pending(Block& block) noexcept {
  block.state = Block::State::kPending;
  block.previous = last_pending_;
  block.next = nullptr;
  (last_pending_ != nullptr ? last_pending_->next : first_pending_) = &block;
  last_pending_ = &block;
}

void BlockStore::remove_pending(Block& block) noexcept {
  (block.previous != nullptr ? block.previous->next : first_pending_) = block.next;
  (block.next != nullptr ? block.next->previous : last_pending_) = block.previous;
  block.previous = block.next = nullptr;
}

bool BlockStore::uses_ended(Block& block, bool wait) {
  while (!block.uses.empty()) {
    Block::Use& use = block.uses.back();
    if (use.event == nullptr) use.event = memory_.record_event(use.stream);
    if (wait) {
      memory_.wait_event(use.event);
    } else if (!memory_.event_done(use.event)) {
      return false;
    }
    drop_event(use.event);
    block.uses.pop_back();
  }
  return true;
}

void BlockStore::retire_pending(bool all) {
  for (Block* block = first_pending_; block != nullptr;) {
    Block* const next = block->next;
    if (uses_ended(*block, false)) {
      remove_pending(*block);
      // A failure here only delays: the block's event is recorded when another stream asks.
      make_free(*block);
    } else if (!all) {
      return;
    }
    block = next;
  }
}

void BlockStore::settle() {
  while (first_pending_ != nullptr) {
    Block& block = *first_pending_;
    uses_ended(block, true);
    remove_pending(block);
    make_free(block);
  }
  for (auto& [data, segment] : segments_) {
    for (Block* block = segment.first; block != nullptr; block = block->right) {
      if (block->state == Block::State::kFree) wait_until_ready(*block);
    }
    for (Block* block = segment.first; block != nullptr; block = block->right) {
      if (block->state != Block::State::kFree) continue;
      block->heap->list(segment.small).remove(*block);
      block = &join_neighbours(*block);
      block->heap->list(segment.small).insert(*block);
    }
  }
}

// ---- Segments

Segment* BlockStore::oldest_idle() {
  Segment* oldest = nullptr;
  for (auto& [data, segment] : segments_) {
    if (segment.used == 0 && (oldest == nullptr || segment.touched_at < oldest->touched_at))
      oldest = &segment;
  }
  return oldest;
}

void BlockStore::release(Segment& segment) {
  for (Block* block = segment.first; block != nullptr; block = block->right) wait_until_ready(*block);
  for (Block* block = segment.first; block != nullptr;) {
    Block* const right = block->right;
    block->heap->list(segment.small).remove(*block);
    delete_block(*block);
    block = right;
  }
  reserved_bytes_ -= segment.size;
  memory_.deallocate(segment.data);
  segments_.erase(segment.data);
}

}  // namespace sinter::detail
