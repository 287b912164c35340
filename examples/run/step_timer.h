// How long a device works on training steps, apart from the waiting in between.
#pragma once

#include <deque>
#include <memory>
#include <utility>

#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/event.h>

namespace sinter::examples {

/// Adds up the time from begin() to end() as the device's stream passes these points: work that is queued on
/// a GPU counts when it runs, whenever the host had queued it. A gap in which the device has nothing to do,
/// since no batch was there, lies between end() and the next begin().
class StepTimer {
 public:
  explicit StepTimer(Device device) : device_(device) {}

  void begin();
  void end();

  /// Whether the device still works on a step that has ended for the host.
  bool is_busy() const { return !last_.done(); }

  /// Seconds of all steps that were timed since the last call. Waits for the device.
  double take_seconds();

 private:
  using Mark = std::unique_ptr<TimeMark>;

  Mark mark() const;
  void read(size_t keep);

  Device device_;
  Mark begun_;
  Event last_;  // the end of the last step
  std::deque<std::pair<Mark, Mark>> unread_;
  double seconds_ = 0.0;
};

}  // namespace sinter::examples
