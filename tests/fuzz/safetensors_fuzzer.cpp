// Any bytes as a safetensors file, and its metadata as a model's: read, or refused with a typed error. What
// was read must survive writing.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include <sinter/nn/checkpoint/model_metadata.h>
#include <sinter/nn/checkpoint/safetensors.h>

namespace {

std::string serialize(const sinter::nn::Safetensors& file) {
  std::string bytes;
  sinter::nn::serialize_safetensors(file.tensors, file.metadata, [&](std::span<const std::byte> piece) {
    bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  });
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  sinter::nn::Safetensors file;
  try {
    file = sinter::nn::parse_safetensors(std::as_bytes(std::span(data, size)), "fuzz.safetensors");
  } catch (const sinter::IoError&) {
    return 0;
  } catch (const sinter::Unsupported&) {
    return 0;
  }
  const std::string once = serialize(file);
  const std::string twice =
      serialize(sinter::nn::parse_safetensors(std::as_bytes(std::span(once)), "again.safetensors"));
  if (once != twice) std::abort();
  try {
    const auto metadata = sinter::nn::find_model_metadata(file.metadata, "fuzz.safetensors");
    if (metadata && sinter::nn::find_model_metadata(to_safetensors_metadata(*metadata), "again") != metadata)
      std::abort();
  } catch (const sinter::IoError&) {
    return 0;
  }
  return 0;
}
