// Any bytes behind "P5" or "P6": an image of the size that it claims, or an IoError. The first byte chooses
// the kind and the options.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/image/netpbm.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sinter::nn::data;
  if (size == 0) return 0;
  const DecodeOptions options = {.channels = (*data & 1) != 0 ? 3 : 1, .max_pixels = 1 << 20};
  std::vector<uint8_t> bytes(data, data + size);
  bytes[0] = 'P';
  bytes.insert(bytes.begin() + 1, (*data & 2) != 0 ? '5' : '6');
  try {
    Image image;
    decode_netpbm(bytes, "fuzz", options, image);
    if (image.channels != options.channels || image.height * image.width > options.max_pixels) std::abort();
    if (image.pixels.size() != static_cast<size_t>(image.height * image.width * image.channels)) std::abort();
  } catch (const sinter::IoError&) {
  }
  return 0;
}
