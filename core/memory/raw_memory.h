// The few primitives that a device's memory offers. MemoryPool is written over this interface alone, so that
// all of it is tested on a fake device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace sinter {

/// Identifies a stream of one device to the memory pool; 0 is the default stream. The CPU has only that one.
using StreamId = uint64_t;

class RawMemory {
 public:
  virtual ~RawMemory() = default;

  /// `bytes` > 0 of memory aligned to at least 256 bytes on a GPU and 64 on a CPU, or nullptr when the device
  /// has none left. Throws DeviceError for any other failure.
  virtual void* allocate(size_t bytes) = 0;
  /// Returns a block to the device. Must not throw: a failure is logged.
  virtual void deallocate(void* block) noexcept = 0;

  /// Fills `bytes` at `block` with `byte`, ordered on `stream`. Used by the poison mode.
  virtual void fill(void* block, uint8_t byte, size_t bytes, StreamId stream) = 0;

  /// Marks the present end of the work on `stream`; the handle is given back through release_event.
  virtual void* record_event(StreamId stream) = 0;
  /// True once all work before the event has finished.
  virtual bool event_done(void* event) = 0;
  /// Blocks the calling thread until all work before the event has finished.
  virtual void wait_event(void* event) = 0;
  virtual void release_event(void* event) noexcept = 0;

  /// Bytes that the device reports free and in all, for messages; 0 where unknown.
  struct Capacity {
    size_t free = 0;
    size_t total = 0;
  };
  virtual Capacity capacity() = 0;
  /// Name of the device for messages, such as "cpu" or "cuda:0".
  virtual std::string name() const = 0;
};

}  // namespace sinter
