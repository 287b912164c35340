// What a GPU draws and how it does, from NVIDIA's management library, where that is installed.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sinter/core/base/device.h>

namespace sinter::examples {

/// Loads libnvidia-ml when it is made; without the library, or on a CPU, it has nothing to tell.
class GpuMeter {
 public:
  explicit GpuMeter(Device device);
  ~GpuMeter();
  GpuMeter(const GpuMeter&) = delete;
  GpuMeter& operator=(const GpuMeter&) = delete;

  /// Joules that the GPU has taken since its driver was loaded; those of all programs on it.
  std::optional<double> joules() const;
  /// gpu/power_watts, gpu/sm_clock_mhz, gpu/memory_clock_mhz, gpu/temperature_celsius and
  /// gpu/memory_used_bytes, as far as the GPU tells them.
  std::vector<std::pair<std::string, double>> readings() const;

 private:
  struct Library;
  std::unique_ptr<Library> library_;  // null: there is none
};

}  // namespace sinter::examples
