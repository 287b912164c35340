#include <array>
#include <map>
#include <mutex>
#include <vector>

#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/cpu_backend.h>

namespace sinter {

std::vector<std::unique_ptr<Backend>> make_backends();  // generated: one of each kind that this build has

namespace {

struct Backends {
  std::mutex mutex;
  std::array<std::unique_ptr<Backend>, kDeviceTypes> by_type;
};

// Never destroyed: tensors with static storage duration may free their memory after main has returned.
Backends& backends() {
  static Backends* instance = [] {
    auto* made = new Backends;
    for (auto& backend : make_backends())
      made->by_type[static_cast<size_t>(backend->type())] = std::move(backend);
    return made;
  }();
  return *instance;
}

Backend* find_backend(DeviceType type) {
  static Backend* const cpu = backends().by_type[static_cast<size_t>(DeviceType::kCpu)].get();
  if (type == DeviceType::kCpu) return cpu;
  const std::lock_guard lock(backends().mutex);
  return backends().by_type[static_cast<size_t>(type)].get();
}

thread_local std::map<Device, Stream> current_streams;

}  // namespace

void register_backend(std::unique_ptr<Backend> backend) {
  const std::lock_guard lock(backends().mutex);
  auto& slot = backends().by_type[static_cast<size_t>(backend->type())];
  SINTER_ASSERT(slot == nullptr, "[device] a backend for {} is already registered",
                to_string(backend->type()));
  slot = std::move(backend);
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

bool is_available(Device device) {
  Backend* backend = find_backend(device.type);
  return backend != nullptr && device.index >= 0 && device.index < backend->device_count();
}

Stream current_stream(Device device) {
  if (!device.is_cpu()) {
    if (const auto found = current_streams.find(device); found != current_streams.end()) return found->second;
  }
  return backend_of(device).default_stream(device.index);
}

StreamGuard::StreamGuard(const Stream& stream) : device_(stream.device) {
  const auto found = current_streams.find(device_);
  had_previous_ = found != current_streams.end();
  if (had_previous_) previous_ = found->second;
  current_streams[device_] = stream;
}

StreamGuard::~StreamGuard() {
  if (had_previous_) {
    current_streams[device_] = previous_;
  } else {
    current_streams.erase(device_);
  }
}

void synchronize(Device device) {
  backend_of(device).synchronize(current_stream(device));
}

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t bytes) {
  if (bytes == 0) return;
  const Device leader = to_device.is_cpu() ? from_device : to_device;
  backend_of(leader).copy(to, to_device, from, from_device, bytes, current_stream(leader));
}

}  // namespace sinter
