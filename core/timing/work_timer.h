// Times of work on a device, on a stream of its own and out of a cold cache, as work in a training step finds
// it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include <sinter/core/runtime/backend.h>
#include <sinter/core/timing/time_budget.h>

namespace sinter {

/// An interface, so that what chooses by time is tested with times that a test writes.
class WorkTimer {
 public:
  virtual ~WorkTimer() = default;

  virtual const Stream& stream() const = 0;

  /// Memory of the timer's device until the timer ends, aligned as RawMemory says and filled with values that
  /// are finite and not zero in every floating-point dtype: on zeros a GPU draws less power and runs faster.
  /// Zero bytes give nullptr. Throws OutOfMemory.
  virtual void* scratch(size_t bytes) = 0;

  /// Microseconds of the work that `queue` puts on stream(), as `budget` measures them.
  virtual double measure(const std::function<void()>& queue, TimeBudget& budget) = 0;
};

/// A timer for `device`, whose memory comes from the device and not from the pool, and goes back there with
/// the timer: nothing stays cached. Waits until the device is idle and makes it current. Throws OutOfMemory
/// if there is no room to flush the cache, and Unsupported while any thread captures work, which lets nobody
/// wait for a device.
std::unique_ptr<WorkTimer> make_work_timer(Device device);

}  // namespace sinter
