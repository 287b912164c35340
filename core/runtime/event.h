// Event: a point in the work of a stream, for order between streams without the host.
#pragma once

#include <sinter/core/runtime/backend.h>

namespace sinter {

/// The end of the work that was on a stream when the event was made. Move-only; a default-constructed one has
/// passed. On the CPU, whose work is finished when a call returns, every event has passed. Members throw
/// DeviceError if the device fails.
class Event {
 public:
  Event() = default;
  explicit Event(const Stream& stream);
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  ~Event();

  /// True once all work before the event has finished; does not wait.
  bool done() const;
  /// Blocks the calling thread until then.
  void synchronize() const;
  /// Lets work that is queued on `stream` from now on start only after the event; does not block.
  void make_wait(const Stream& stream) const;

 private:
  void release() noexcept;

  Device device_;
  void* native_ = nullptr;
};

}  // namespace sinter
