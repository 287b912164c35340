#include "run/step_timer.h"

namespace sinter::examples {
namespace {

// Steps that may be unread: reading one waits for it, and each holds two of the vendor's events. More than a
// host can queue ahead of a GPU.
constexpr size_t kMostUnread = 2048;

}  // namespace

StepTimer::Mark StepTimer::mark() const {
  return backend_of(device_).mark_time(current_stream(device_));
}

void StepTimer::begin() {
  begun_ = mark();
}

void StepTimer::end() {
  unread_.emplace_back(std::move(begun_), mark());
  last_ = Event(current_stream(device_));
  if (unread_.size() > kMostUnread) read(kMostUnread / 2);
}

double StepTimer::take_seconds() {
  read(0);
  return std::exchange(seconds_, 0.0);
}

void StepTimer::read(size_t keep) {
  for (; unread_.size() > keep; unread_.pop_front()) {
    const auto& [begin, end] = unread_.front();
    seconds_ += 1e-6 * end->microseconds_since(*begin);
  }
}

}  // namespace sinter::examples
