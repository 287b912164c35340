#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include <sinter/core/base/error.h>
#include <sinter/core/memory/workspace.h>

namespace sinter {
namespace {

constexpr size_t kAlignment = 256;

size_t round_up(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// The pool promises less on a CPU, so blocks are asked for with room to align them here.
size_t padded(size_t bytes) {
  return bytes + kAlignment - 1;
}

std::byte* align(void* block) {
  const auto misaligned = reinterpret_cast<uintptr_t>(block) % kAlignment;
  return static_cast<std::byte*>(block) + (misaligned == 0 ? 0 : kAlignment - misaligned);
}

}  // namespace

Workspace::~Workspace() {
  pool_.deallocate(arena_);
}

Workspace::Lease Workspace::lease(size_t bytes) {
  Lease lease;
  if (bytes == 0) return lease;
  // Sizes that cannot be rounded cannot be had either: the pool says so.
  if (bytes > std::numeric_limits<size_t>::max() / 4) pool_.deallocate(pool_.allocate(bytes, stream_));
  const size_t rounded = round_up(bytes);
  const std::lock_guard lock(mutex_);
  if (in_use_ == 0 && std::max(wanted_, rounded) > capacity_) grow(rounded);
  if (rounded <= capacity_ - top_) {
    lease.data_ = align(arena_) + top_;
    lease.previous_top_ = top_;
    top_ += rounded;
  } else {
    lease.overflow_ = pool_.allocate(padded(rounded), stream_);
    lease.data_ = align(lease.overflow_);
  }
  lease.owner_ = this;
  lease.bytes_ = bytes;
  in_use_ += rounded;
  wanted_ = std::max(wanted_, in_use_);
  return lease;
}

size_t Workspace::capacity() const {
  const std::lock_guard lock(mutex_);
  return capacity_;
}

void Workspace::release() {
  const std::lock_guard lock(mutex_);
  if (in_use_ == 0) give_back_arena();
}

void Workspace::give_back_arena() {
  pool_.deallocate(std::exchange(arena_, nullptr));
  capacity_ = 0;
  wanted_ = 0;
}

void Workspace::grow(size_t least) {
  const size_t wanted = std::max(wanted_, least);
  give_back_arena();  // first, so that the pool can make the new arena out of the old one
  try {
    arena_ = pool_.allocate(padded(wanted), stream_);
    capacity_ = wanted;
  } catch (const OutOfMemory&) {
    if (wanted == least) throw;
    arena_ = pool_.allocate(padded(least), stream_);
    capacity_ = least;
  }
  wanted_ = capacity_;
}

void Workspace::end(Lease& lease) noexcept {
  const size_t rounded = round_up(lease.bytes_);
  const std::lock_guard lock(mutex_);
  in_use_ -= rounded;
  if (lease.overflow_ != nullptr) {
    pool_.deallocate(lease.overflow_);
  } else if (lease.previous_top_ + rounded == top_) {
    top_ = lease.previous_top_;
  }
  // A lease that ended out of turn left the top where it was, which is safe; here the arena recovers its
  // room.
  if (in_use_ == 0) top_ = 0;
}

Workspace::Lease::Lease(Lease&& other) noexcept {
  *this = std::move(other);
}

Workspace::Lease& Workspace::Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  if (owner_ != nullptr) owner_->end(*this);
  owner_ = std::exchange(other.owner_, nullptr);
  data_ = std::exchange(other.data_, nullptr);
  overflow_ = std::exchange(other.overflow_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  previous_top_ = std::exchange(other.previous_top_, 0);
  return *this;
}

Workspace::Lease::~Lease() {
  if (owner_ != nullptr) owner_->end(*this);
}

}  // namespace sinter
