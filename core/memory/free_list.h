// The pool's blocks and the lists of those that are free: bins by size, eight to a power of two, each sorted
// by size. A bitmap finds the next bin that holds something, so a search touches few blocks however many
// there are.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <sinter/core/memory/raw_memory.h>

namespace sinter::detail {

struct Heap;
struct Segment;

/// A piece of a segment. Every byte of a segment belongs to exactly one block.
struct Block {
  enum class State : uint8_t {
    kLive,     ///< handed out
    kPending,  ///< taken back, but another stream that used it may still be at work
    kFree,     ///< in the free list of its heap
  };
  /// A stream beside the block's own that uses it, and the end of that use once the block was taken back.
  struct Use {
    StreamId stream;
    void* event;  // nullptr: not recorded yet
  };

  std::byte* data = nullptr;
  size_t size = 0;
  size_t requested = 0;
  Segment* segment = nullptr;
  Heap* heap = nullptr;   // of the stream that uses it or used it last
  Block* left = nullptr;  // neighbours in the segment
  Block* right = nullptr;
  Block* previous = nullptr;  // in a free list, or among the pending blocks
  Block* next = nullptr;
  std::vector<Use> uses;

  State state = State::kFree;
  /// Of a free block: no stream has work left on it, so that every stream may have it.
  bool ready = false;
  /// When it became free, by the store's clock.
  uint64_t freed_at = 0;
};

/// Free blocks by size. Nothing here allocates, so that a block can always be put back.
class FreeList {
 public:
  void insert(Block& block) {
    const size_t bin = bin_of(block.size);
    Block* before = nullptr;
    Block* after = bins_[bin];
    // Ahead of its equals: what was freed last is warmest in the caches of a CPU.
    while (after != nullptr && after->size < block.size) {
      before = after;
      after = after->next;
    }
    block.previous = before;
    block.next = after;
    if (after != nullptr) after->previous = &block;
    (before != nullptr ? before->next : bins_[bin]) = &block;
    occupied_[bin / 64] |= uint64_t{1} << (bin % 64);
  }

  void remove(Block& block) {
    if (block.next != nullptr) block.next->previous = block.previous;
    if (block.previous != nullptr) {
      block.previous->next = block.next;
    } else {
      const size_t bin = bin_of(block.size);
      bins_[bin] = block.next;
      if (block.next == nullptr) occupied_[bin / 64] &= ~(uint64_t{1} << (bin % 64));
    }
    block.previous = block.next = nullptr;
  }

  /// The smallest block of at least `bytes`, among equals the one inserted last; or nullptr.
  Block* best_fit(size_t bytes) const {
    const size_t bin = bin_of(bytes);
    for (Block* block = bins_[bin]; block != nullptr; block = block->next) {
      if (block->size >= bytes) return block;
    }
    return first_from(bin + 1);
  }

  /// The block that follows `block` by size, or nullptr.
  Block* next_larger(const Block& block) const {
    return block.next != nullptr ? block.next : first_from(bin_of(block.size) + 1);
  }

 private:
  static constexpr size_t kGranuleBits = 8;
  static constexpr size_t kBins = (64 - kGranuleBits - 2) * 8;
  static constexpr size_t kWords = (kBins + 63) / 64;

  // Granules of 256 bytes. Below 16 of them each count has its bin; above, the three bits under the leading
  // one pick among the eight bins of a power of two.
  static size_t bin_of(size_t bytes) {
    const size_t granules = bytes >> kGranuleBits;
    if (granules < 8) return granules;
    const auto exponent = static_cast<size_t>(std::bit_width(granules)) - 1;
    return (exponent - 2) * 8 + ((granules >> (exponent - 3)) & 7);
  }

  Block* first_from(size_t bin) const {
    size_t word = bin / 64;
    if (word >= kWords) return nullptr;
    uint64_t bits = occupied_[word] & (~uint64_t{0} << (bin % 64));
    while (bits == 0) {
      if (++word == kWords) return nullptr;
      bits = occupied_[word];
    }
    return bins_[word * 64 + static_cast<size_t>(std::countr_zero(bits))];
  }

  std::array<Block*, kBins> bins_{};
  std::array<uint64_t, kWords> occupied_{};
};

}  // namespace sinter::detail
