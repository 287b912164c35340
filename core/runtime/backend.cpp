#include <array>
#include <atomic>
#include <vector>

#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/cpu_backend.h>
#include <sinter/core/runtime/event.h>

namespace sinter {

std::vector<std::unique_ptr<Backend>> make_backends();  // generated: one of each kind that this build has

namespace {

// Looked up several times in every call of an op, hence no lock.
using Backends = std::array<std::atomic<Backend*>, kDeviceTypes>;

// Never destroyed: tensors with static storage duration may free their memory after main has returned.
Backends& backends() {
  static Backends& instance = [&]() -> Backends& {
    auto& made = *new Backends{};
    for (auto& backend : make_backends()) {
      const auto type = static_cast<size_t>(backend->type());
      made[type] = backend.release();
    }
    return made;
  }();
  return instance;
}

Backend* find_backend(DeviceType type) {
  return backends()[static_cast<size_t>(type)].load(std::memory_order_acquire);
}

thread_local const StreamGuard* innermost_guard = nullptr;

}  // namespace

void register_backend(std::unique_ptr<Backend> backend) {
  Backend* none = nullptr;
  const bool is_first =
      backends()[static_cast<size_t>(backend->type())].compare_exchange_strong(none, backend.get());
  SINTER_ASSERT(is_first, "[device] a backend for {} is already registered", to_string(backend->type()));
  (void)backend.release();
}

Backend& backend_of(Device device) {
  Backend* backend = find_backend(device.type);
  if (backend == nullptr) {
    throw_error<DeviceError>("[device] {} asked for, but this build of Sinter has no {} backend", device,
                             to_string(device.type));
  }
  if (device.is_cpu() && device.index == 0) return *backend;
  const int count = backend->device_count();
  if (count == 0)
    throw_error<DeviceError>("[device] {} asked for, but {}", device, backend->unavailable_reason());
  if (device.index < 0 || device.index >= count) {
    throw_error<DeviceError>("[device] {} asked for, but there are only {} devices of that type", device,
                             count);
  }
  return *backend;
}

Device best_device() {
  return is_available(Device::cuda()) ? Device::cuda() : Device::cpu();
}

bool is_available(Device device) {
  Backend* backend = find_backend(device.type);
  return backend != nullptr && device.index >= 0 && device.index < backend->device_count();
}

Stream current_stream(Device device) {
  for (const StreamGuard* guard = innermost_guard; guard != nullptr; guard = guard->outer_) {
    if (guard->stream_.device == device) return guard->stream_;
  }
  return backend_of(device).default_stream(device.index);
}

StreamGuard::StreamGuard(const Stream& stream) : stream_(stream), outer_(innermost_guard) {
  innermost_guard = this;
}

StreamGuard::~StreamGuard() {
  innermost_guard = outer_;
}

std::unique_ptr<StreamCapture> Backend::begin_capture(int) {
  throw_error<Unsupported>("[device] work of a {} cannot be captured", to_string(type()));
}

Capture::Capture(Device device)
    : capture_(backend_of(device).begin_capture(device.index)), guard_(capture_->stream()) {}

std::shared_ptr<CapturedWork> Capture::end() {
  SINTER_CHECK(guard_.has_value(), "[device] end() of a capture that has ended");
  guard_.reset();
  return capture_->end();
}

void synchronize(Device device) {
  backend_of(device).synchronize(current_stream(device));
}

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t bytes) {
  if (bytes == 0) return;
  const Device leader = to_device.is_cpu() ? from_device : to_device;
  const Stream stream = current_stream(leader);
  const bool between_gpus = !to_device.is_cpu() && !from_device.is_cpu() && to_device != from_device;
  // Two streams take part: what fills `from` ends before the copy, and the copy before `from` is reused.
  if (between_gpus) Event(current_stream(from_device)).make_wait(stream);
  backend_of(leader).copy(to, to_device, from, from_device, bytes, stream);
  if (between_gpus) Event(stream).make_wait(current_stream(from_device));
}

}  // namespace sinter
