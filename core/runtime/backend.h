// What a kind of device can do. The CPU's backend is always there; a CUDA build adds another. Everything
// above reaches a device through this interface and the kernels registered for it.
#pragma once

#include <memory>
#include <string>

#include <sinter/core/base/device.h>
#include <sinter/core/memory/memory_pool.h>
#include <sinter/core/memory/workspace.h>

namespace sinter {

/// A queue of work on one device: a value handle. Work on one stream runs in order. The CPU has one stream,
/// which is synchronous; `native` is what the vendor's API takes (a cudaStream_t), nullptr on the CPU.
struct Stream {
  Device device;
  StreamId id = 0;
  void* native = nullptr;
};

/// A point in a stream's work, passed once everything queued before it has finished.
class TimeMark {
 public:
  virtual ~TimeMark() = default;
  /// Microseconds from `earlier`, a mark on the same device, to this one. Waits until both have passed.
  virtual double microseconds_since(const TimeMark& earlier) const = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual DeviceType type() const = 0;
  /// How many devices there are; 0 if the driver or the hardware is missing, then unavailable_reason says
  /// which.
  virtual int device_count() = 0;
  virtual std::string unavailable_reason() = 0;
  /// One line about a device for people: its name, memory and features.
  virtual std::string describe(int index) = 0;

  /// Makes a device the one on which the calling thread's kernels run, until another one is made so. call()
  /// does this for every op; code that uses the vendor's API beside Sinter's must expect it.
  virtual void make_current(int index) = 0;

  virtual MemoryPool& memory_pool(int index) = 0;
  /// Page-locked host memory, which copies to and from device `index` read and write without the host's help.
  /// Its blocks are of stream 0, the host: one that a copy uses is declared with record_stream. The CPU has
  /// no need of it and gives its own pool.
  virtual MemoryPool& pinned_pool(int index) = 0;
  /// The device's memory and events under the pool; Event owns what record_event gives.
  virtual RawMemory& raw_memory(int index) = 0;
  virtual Stream default_stream(int index) = 0;
  /// A new stream, alive until the program ends.
  virtual Stream create_stream(int index) = 0;
  /// The scratch arena of a stream.
  virtual Workspace& workspace(const Stream& stream) = 0;
  /// Blocks until all work on the stream has finished and reports its errors as DeviceError.
  virtual void synchronize(const Stream& stream) = 0;

  /// Lets work queued on `stream` from now on start after `event` (of any of this backend's devices).
  virtual void stream_wait(const Stream& stream, void* event) = 0;

  /// Copies between this backend's devices, or between one of them and the CPU, ordered on `stream` (which is
  /// one of this backend's). Host memory that is not pinned makes the call synchronous.
  virtual void copy(void* to, Device to_device, const void* from, Device from_device, size_t bytes,
                    const Stream& stream) = 0;

  /// Marks the present end of the work on the stream.
  virtual std::unique_ptr<TimeMark> mark_time(const Stream& stream) = 0;

  /// Opens and closes a range with a name on the calling thread, for the vendor's profiler. Ranges nest.
  virtual void push_range(const char* name) = 0;
  virtual void pop_range() noexcept = 0;
};

/// A named range for as long as it lives: `const NamedRange range(backend, "conv2d");`
class NamedRange {
 public:
  NamedRange(Backend& backend, const char* name) : backend_(backend) { backend.push_range(name); }
  ~NamedRange() { backend_.pop_range(); }
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;

 private:
  Backend& backend_;
};

/// The backend of a device. Throws DeviceError if this build has none for the type, if its driver is missing,
/// or if the index does not exist; the message says which.
Backend& backend_of(Device device);

/// True if the device can be used: the build has its backend and the hardware is there.
bool is_available(Device device);

/// Adds the backend of a device type; done once, by the backend's own file.
void register_backend(std::unique_ptr<Backend> backend);

/// The calling thread's current stream of a device: its default stream unless a StreamGuard says otherwise.
Stream current_stream(Device device);

/// Makes `stream` the calling thread's current stream of its device until the guard ends. Guards end in the
/// reverse of the order in which they were made, on the same thread.
class StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  friend Stream current_stream(Device device);

  Stream stream_;
  const StreamGuard* outer_;  // the one that was innermost before
};

/// Blocks until all work on the calling thread's current stream of `device` has finished.
void synchronize(Device device);

/// Copies bytes between any two devices, ordered on the current stream of the device that is not the CPU;
/// between two GPUs on the current streams of both.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t bytes);

}  // namespace sinter
