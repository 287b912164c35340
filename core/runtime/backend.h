// What a kind of device can do. The CPU's backend is always there; a CUDA build adds another. Everything
// above reaches a device through this interface and the kernels registered for it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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

/// Work that was captured: what a stream was given, ready to run again as a whole with one call. The memory
/// that it works on is not its own and must stay where it was. One thread at a time uses it.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;

  /// Queues all of it on `stream`, which is of the device of the capture. It runs after what is queued there
  /// and after its own last launch. Throws DeviceError.
  virtual void launch(const Stream& stream) = 0;
  /// Kernels, copies and fills.
  virtual size_t node_count() const = 0;

  /// Keeps `object` for as long as this: the prepared kernels that were captured, for code may end with them.
  void keep(std::shared_ptr<const void> object) { kept_.push_back(std::move(object)); }

 private:
  std::vector<std::shared_ptr<const void>> kept_;  // ends after what a derived class holds
};

/// A capture in progress; Capture has one. Ends without a trace if end() was not called, or failed.
class StreamCapture {
 public:
  virtual ~StreamCapture() = default;
  virtual const Stream& stream() const = 0;
  virtual std::shared_ptr<CapturedWork> end() = 0;
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
  /// What measured times depend on: the model of a device, the versions of its driver and libraries. Equal
  /// devices, also of other machines, have equal texts.
  virtual std::string signature(int index) { return describe(index); }
  /// Bytes of the cache before a device's memory; 0 where nothing flushes it.
  virtual size_t cache_bytes(int) { return 0; }

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
  /// Blocks until a device is idle. False if it did not wait, because some thread captures work, which that
  /// would break.
  virtual bool wait_until_idle(int) { return true; }

  /// Lets work queued on `stream` from now on start after `event` (of any of this backend's devices).
  virtual void stream_wait(const Stream& stream, void* event) = 0;

  /// Copies between this backend's devices, or between one of them and the CPU, ordered on `stream` (which is
  /// one of this backend's). Host memory that is not pinned makes the call synchronous.
  virtual void copy(void* to, Device to_device, const void* from, Device from_device, size_t bytes,
                    const Stream& stream) = 0;

  /// Whether work can be captured on this kind of device.
  virtual bool can_capture() const { return false; }
  /// Begins to capture on a new stream. Throws Unsupported where that cannot be. Capture says what holds
  /// then.
  virtual std::unique_ptr<StreamCapture> begin_capture(int index);

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
/// Where programs compute that have no reason to choose: the first GPU if one can be used, else the CPU.
Device best_device();

/// Adds the backend of a device type; done once, by the backend's own file.
void register_backend(std::unique_ptr<Backend> backend);

/// The calling thread's current stream of a device: its default stream unless a StreamGuard says otherwise.
Stream current_stream(Device device);

/// Makes `stream` the calling thread's current stream of its device until the guard ends. Guards end in the
/// reverse of the order in which they were made, on the same thread.
class StreamGuard {
 public:
  [[nodiscard]] explicit StreamGuard(const Stream& stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  friend Stream current_stream(Device device);

  Stream stream_;
  const StreamGuard* outer_;  // the one that was innermost before
};

/// Captures work: until it ends, the calling thread's current stream of `device` is a new one, stream(), and
/// what is queued there does not run but becomes part of what end() gives.
///
///   Capture capture(device);
///   run_kernel(op, choice, query, context);  // its context has capture.stream()
///   const std::shared_ptr<CapturedWork> step = capture.end();
///   step->keep(choice.prepared);
///   for (...) step->launch(current_stream(device));
///
/// Launches repeat the same work on the same addresses with the same attributes; only what lies there
/// differs. So memory is taken before, scratch too, and kept (the stream can allocate none); kernels are
/// chosen before, and have best run once, for code is loaded at its first run. What needs the host refuses:
/// waiting for the stream, an Event or a TimeMark of it, copies from and to memory that is not pinned. Other
/// streams and other threads go on undisturbed.
///
/// Guards of one thread end in the reverse of the order in which they were made, and so does this, which is
/// one of them; it ends on the thread on which it was made. An error in between leaves nothing behind.
class Capture {
 public:
  /// Throws Unsupported if the device cannot capture (Backend::can_capture), and DeviceError.
  explicit Capture(Device device);
  /// Drops what was captured if end() was not called.
  ~Capture() = default;
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  const Stream& stream() const { return capture_->stream(); }
  /// Ends the capture, once. Throws DeviceError if something in between broke it: a call that the vendor
  /// forbids there, or a wait for what is not part of it; and OutOfMemory.
  std::shared_ptr<CapturedWork> end();

 private:
  std::unique_ptr<StreamCapture> capture_;
  std::optional<StreamGuard> guard_;
};

/// Blocks until all work on the calling thread's current stream of `device` has finished.
void synchronize(Device device);

/// Copies bytes between any two devices, ordered on the current stream of the device that is not the CPU;
/// between two GPUs on the current streams of both.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t bytes);

}  // namespace sinter
