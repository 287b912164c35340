#include <charconv>

#include <sinter/core/base/device.h>

namespace sinter {

std::string_view to_string(DeviceType type) {
  return type == DeviceType::kCpu ? "cpu" : "cuda";
}

std::string to_string(Device device) {
  std::string text(to_string(device.type));
  if (!device.is_cpu()) text += ":" + std::to_string(device.index);
  return text;
}

Device Device::parse(std::string_view text) {
  if (text == "cpu") return cpu();
  if (text == "cuda") return cuda();
  if (text.starts_with("cuda:")) {
    const std::string_view digits = text.substr(5);
    int index = 0;
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (status == std::errc() && end == digits.data() + digits.size() && index >= 0) return cuda(index);
  }
  throw_error<InvalidArgument>("[device] '{}' is not a device; expected cpu, cuda or cuda:<index>", text);
}

}  // namespace sinter
