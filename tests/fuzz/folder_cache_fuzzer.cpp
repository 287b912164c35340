// Any bytes as the list of an image folder, as they are and with a right checksum: names that a folder can
// hold, or an IoError. What was read comes back as it was when it is written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <sinter/core/base/error.h>
#include <sinter/core/file_system/file_system.h>
#include <sinter/nn/data/formats/folder_cache.h>

namespace {

using namespace sinter::nn::data;

void try_list(const std::vector<uint8_t>& bytes) {
  ListedClasses classes;
  try {
    classes = parse_folder_cache(bytes, "fuzz");
  } catch (const sinter::IoError&) {
    return;
  }
  for (const auto& [name, listed] : classes) {
    for (const std::string& image : listed.images) {
      const std::string parts = '/' + image + '/';
      if (parts.find("//") != std::string::npos || parts.find("/.") != std::string::npos) std::abort();
    }
  }
  if (format_folder_cache(classes) != bytes) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<uint8_t> bytes(data, data + size);
  try_list(bytes);
  constexpr std::string_view kMagic = "sinter image folder 2\n";
  bytes.insert(bytes.begin(), kMagic.begin(), kMagic.end());
  const uint32_t crc = sinter::extend_crc32(0, std::as_bytes(std::span(bytes)));
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<uint8_t>(crc >> (8 * i)));
  try_list(bytes);
  return 0;
}
