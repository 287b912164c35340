// Names of devices. What a device can do stands in core/runtime/backend.h.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include <sinter/core/base/error.h>

namespace sinter {

enum class DeviceType : uint8_t { kCpu, kCuda };
inline constexpr int kDeviceTypes = 2;

/// "cpu" or "cuda".
std::string_view to_string(DeviceType type);

/// A device by type and index: `Device::cpu()`, `Device::cuda(1)`, `Device::parse("cuda:1")`.
struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;

  static Device cpu() { return {}; }
  static Device cuda(int index = 0) { return {DeviceType::kCuda, index}; }
  /// "cpu", "cuda" (index 0) or "cuda:<index>"; throws InvalidArgument for any other text.
  static Device parse(std::string_view text);

  bool is_cpu() const { return type == DeviceType::kCpu; }
  bool is_cuda() const { return type == DeviceType::kCuda; }
  auto operator<=>(const Device&) const = default;
};

/// "cpu" or "cuda:<index>".
std::string to_string(Device device);

}  // namespace sinter

template <>
struct fmt::formatter<sinter::Device> : sinter::detail::TextFormatter {
  template <class Context>
  auto format(sinter::Device device, Context& context) const {
    return write(sinter::to_string(device), context);
  }
};
