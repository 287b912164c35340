// Any bytes as a checkpoint's manifest (with its checksum made right) and as its values: read, or an IoError.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <sinter/nn/checkpoint/checkpoint_format.h>

namespace {

using namespace sinter::nn;

void try_manifest(std::string text) {
  text += fmt::format("{:08x} end\n", sinter::extend_crc32(0, std::as_bytes(std::span(text))));
  try {
    const auto entries = parse_manifest(text, "manifest.txt");
    if (parse_manifest(format_manifest(entries), "again.txt").size() != entries.size()) std::abort();
  } catch (const sinter::IoError&) {
  }
}

void try_values(std::string_view text) {
  std::map<std::string, CheckpointValue> values;
  try {
    values = parse_values(text, "state.json");
  } catch (const sinter::IoError&) {
    return;
  }
  const std::string once = format_values(values);
  if (format_values(parse_values(once, "again.json")) != once) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try_manifest(text);
  try_manifest("sinter checkpoint 1\n" + text);
  try_values(text);
  return 0;
}
