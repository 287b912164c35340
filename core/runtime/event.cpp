#include <utility>

#include <sinter/core/runtime/event.h>

namespace sinter {
namespace {

RawMemory& memory_of(Device device) {
  return backend_of(device).raw_memory(device.index);
}

}  // namespace

Event::Event(const Stream& stream)
    : device_(stream.device), native_(memory_of(stream.device).record_event(stream.id)) {}

Event::Event(Event&& other) noexcept
    : device_(other.device_), native_(std::exchange(other.native_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
  if (this != &other) {
    release();
    device_ = other.device_;
    native_ = std::exchange(other.native_, nullptr);
  }
  return *this;
}

Event::~Event() {
  release();
}

void Event::release() noexcept {
  if (native_ != nullptr) memory_of(device_).release_event(std::exchange(native_, nullptr));
}

bool Event::done() const {
  return native_ == nullptr || memory_of(device_).event_done(native_);
}

void Event::synchronize() const {
  if (native_ != nullptr) memory_of(device_).wait_event(native_);
}

void Event::make_wait(const Stream& stream) const {
  if (native_ == nullptr || device_.is_cpu()) return;
  if (stream.device.is_cpu()) return synchronize();
  backend_of(stream.device).stream_wait(stream, native_);
}

}  // namespace sinter
