// A device made of host memory for tests: limited, with streams whose work ends when the test says so,
// failures on order, and an account of every misuse.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <sinter/core/base/error.h>
#include <sinter/core/memory/raw_memory.h>

namespace sinter::testing {

class FakeMemory final : public RawMemory {
 public:
  enum class Call {
    kAllocate,
    kDeallocate,
    kFill,
    kRecordEvent,
    kEventDone,
    kWaitEvent,
    kReleaseEvent,
    kCount
  };

  /// `capacity` bytes can be had at once.
  explicit FakeMemory(size_t capacity = SIZE_MAX) : capacity_(capacity) {}
  ~FakeMemory() override {
    for (const auto& [block, bytes] : blocks_) std::free(block);
  }

  // ---- What a test may set and ask ----

  /// The `k`-th call from now (from 1) that can fail throws DeviceError; with `call` only calls of that kind
  /// count.
  void fail_kth(uint64_t k, Call call = Call::kCount) {
    const std::lock_guard lock(mutex_);
    fail_in_ = k;
    fail_call_ = call;
  }
  void fail_none() { fail_kth(0); }
  /// True if the failure that fail_kth ordered is still to come.
  bool failure_is_due() const {
    const std::lock_guard lock(mutex_);
    return fail_in_ != 0;
  }

  /// Queues a piece of work on `stream` and gives its number, counted from 1 on each stream.
  uint64_t work(StreamId stream) {
    const std::lock_guard lock(mutex_);
    return ++streams_[stream].issued;
  }
  /// Ends all work that is queued on `stream`, or up to and including number `position`.
  void finish(StreamId stream, uint64_t position = UINT64_MAX) {
    const std::lock_guard lock(mutex_);
    finish_locked(stream, position);
  }
  /// The number of the last piece of work on `stream` that has ended.
  uint64_t finished(StreamId stream) {
    const std::lock_guard lock(mutex_);
    return streams_[stream].done;
  }

  uint64_t calls(Call call) const {
    const std::lock_guard lock(mutex_);
    return calls_[static_cast<size_t>(call)];
  }
  size_t bytes_held() const {
    const std::lock_guard lock(mutex_);
    return held_;
  }
  size_t blocks_held() const {
    const std::lock_guard lock(mutex_);
    return blocks_.size();
  }
  size_t events_held() const {
    const std::lock_guard lock(mutex_);
    return events_.size();
  }
  /// Double frees, strangers' pointers and stale events: one line each.
  std::vector<std::string> misuses() const {
    const std::lock_guard lock(mutex_);
    return misuses_;
  }
  /// Called with each block that goes back, before it does.
  std::function<void(void*, size_t)> on_deallocate;

  // ---- RawMemory ----

  void* allocate(size_t bytes) override {
    const std::lock_guard lock(mutex_);
    count(Call::kAllocate);
    if (bytes == 0) misuses_.emplace_back("allocate of 0 bytes");
    if (bytes > capacity_ - held_) return nullptr;
    void* const block = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    if (block == nullptr) return nullptr;
    blocks_.emplace(block, bytes);
    held_ += bytes;
    return block;
  }

  void deallocate(void* block) noexcept override {
    size_t bytes = 0;
    {
      const std::lock_guard lock(mutex_);
      ++calls_[static_cast<size_t>(Call::kDeallocate)];
      const auto found = blocks_.find(block);
      if (found == blocks_.end()) {
        misuses_.emplace_back("deallocate of a block that is not held");
        return;
      }
      bytes = found->second;
      held_ -= bytes;
      blocks_.erase(found);
    }
    if (on_deallocate) on_deallocate(block, bytes);
    std::free(block);
  }

  void fill(void* block, uint8_t byte, size_t bytes, StreamId) override {
    {
      const std::lock_guard lock(mutex_);
      count(Call::kFill);
    }
    std::memset(block, byte, bytes);
  }

  void* record_event(StreamId stream) override {
    const std::lock_guard lock(mutex_);
    count(Call::kRecordEvent);
    events_.emplace(++last_event_, Event{stream, streams_[stream].issued});
    return reinterpret_cast<void*>(last_event_);
  }

  bool event_done(void* event) override {
    const std::lock_guard lock(mutex_);
    count(Call::kEventDone);
    const Event known = find_event(event);
    return streams_[known.stream].done >= known.position;
  }

  void wait_event(void* event) override {
    const std::lock_guard lock(mutex_);
    count(Call::kWaitEvent);
    const Event known = find_event(event);
    finish_locked(known.stream, known.position);
  }

  void release_event(void* event) noexcept override {
    const std::lock_guard lock(mutex_);
    ++calls_[static_cast<size_t>(Call::kReleaseEvent)];
    if (events_.erase(reinterpret_cast<uintptr_t>(event)) == 0)
      misuses_.emplace_back("release of a stale event");
  }

  Capacity capacity() override {
    const std::lock_guard lock(mutex_);
    if (capacity_ == SIZE_MAX) return {};
    return {capacity_ - held_, capacity_};
  }
  std::string name() const override { return "fake:0"; }

 private:
  static constexpr size_t kAlignment = 64;  // what a CPU promises, the least of all devices

  struct Stream {
    uint64_t issued = 0;
    uint64_t done = 0;
  };
  struct Event {
    StreamId stream = 0;
    uint64_t position = 0;
  };

  void count(Call call) {
    ++calls_[static_cast<size_t>(call)];
    if (fail_in_ == 0 || (fail_call_ != Call::kCount && fail_call_ != call)) return;
    if (--fail_in_ == 0) throw DeviceError("[fake] a failure on order");
  }

  Event find_event(void* event) {
    const auto found = events_.find(reinterpret_cast<uintptr_t>(event));
    if (found != events_.end()) return found->second;
    misuses_.emplace_back("use of a stale event");
    return {};
  }

  void finish_locked(StreamId stream, uint64_t position) {
    Stream& known = streams_[stream];
    known.done = std::max(known.done, std::min(known.issued, position));
  }

  mutable std::mutex mutex_;
  size_t capacity_;
  size_t held_ = 0;
  uint64_t fail_in_ = 0;
  Call fail_call_ = Call::kCount;
  uintptr_t last_event_ = 0;
  std::map<void*, size_t> blocks_;
  std::map<uintptr_t, Event> events_;
  std::map<StreamId, Stream> streams_;
  uint64_t calls_[static_cast<size_t>(Call::kCount)] = {};
  std::vector<std::string> misuses_;
};

}  // namespace sinter::testing
