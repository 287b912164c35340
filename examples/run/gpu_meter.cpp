#include "run/gpu_meter.h"

#include <array>

#include <dlfcn.h>

namespace sinter::examples {
namespace {

/// A shared library that may be missing. It is never closed: others may use it.
class SharedLibrary {
 public:
  explicit SharedLibrary(const char* name) : handle_(dlopen(name, RTLD_NOW | RTLD_LOCAL)) {}
  /// Calls a function that gives 0 where it succeeds; false if it is missing or fails.
  template <class... Args>
  bool call(const char* name, Args... args) const {
    if (handle_ == nullptr) return false;
    const auto function = reinterpret_cast<int (*)(Args...)>(dlsym(handle_, name));
    return function != nullptr && function(args...) == 0;
  }

 private:
  void* handle_;
};

struct MemoryInfo {  // nvmlMemory_t
  unsigned long long total, free, used;
};
constexpr unsigned kSmClock = 1, kMemoryClock = 2;  // nvmlClockType_t
constexpr unsigned kTemperatureOfGpu = 0;           // nvmlTemperatureSensors_t

}  // namespace

struct GpuMeter::Library {
  SharedLibrary nvml{"libnvidia-ml.so.1"};
  void* device = nullptr;  // nvmlDevice_t

  /// Finds the GPU by its place on the bus: the library counts GPUs that CUDA_VISIBLE_DEVICES hides, too.
  bool open(int index) {
    const SharedLibrary driver("libcuda.so.1");
    int of_driver = 0;
    std::array<char, 64> place{};
    return driver.call("cuInit", 0U) && driver.call("cuDeviceGet", &of_driver, index) &&
           driver.call("cuDeviceGetPCIBusId", place.data(), static_cast<int>(place.size()), of_driver) &&
           nvml.call("nvmlInit_v2") &&
           nvml.call("nvmlDeviceGetHandleByPciBusId_v2", static_cast<const char*>(place.data()), &device);
  }
};

GpuMeter::GpuMeter(Device device) {
  if (!device.is_cuda()) return;
  auto library = std::make_unique<Library>();
  if (library->open(device.index)) library_ = std::move(library);
}

GpuMeter::~GpuMeter() = default;

std::optional<double> GpuMeter::joules() const {
  unsigned long long millijoules = 0;
  if (library_ == nullptr ||
      !library_->nvml.call("nvmlDeviceGetTotalEnergyConsumption", library_->device, &millijoules))
    return std::nullopt;
  return static_cast<double>(millijoules) / 1000.0;
}

std::vector<std::pair<std::string, double>> GpuMeter::readings() const {
  std::vector<std::pair<std::string, double>> values;
  if (library_ == nullptr) return values;
  const SharedLibrary& nvml = library_->nvml;
  void* const device = library_->device;
  unsigned number = 0;
  MemoryInfo memory{};
  if (nvml.call("nvmlDeviceGetPowerUsage", device, &number))
    values.emplace_back("gpu/power_watts", static_cast<double>(number) / 1000.0);
  if (nvml.call("nvmlDeviceGetClockInfo", device, kSmClock, &number))
    values.emplace_back("gpu/sm_clock_mhz", static_cast<double>(number));
  if (nvml.call("nvmlDeviceGetClockInfo", device, kMemoryClock, &number))
    values.emplace_back("gpu/memory_clock_mhz", static_cast<double>(number));
  if (nvml.call("nvmlDeviceGetTemperature", device, kTemperatureOfGpu, &number))
    values.emplace_back("gpu/temperature_celsius", static_cast<double>(number));
  if (nvml.call("nvmlDeviceGetMemoryInfo", device, &memory))
    values.emplace_back("gpu/memory_used_bytes", static_cast<double>(memory.used));
  return values;
}

}  // namespace sinter::examples
