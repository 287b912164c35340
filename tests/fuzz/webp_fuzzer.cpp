// Any bytes as a WebP whose first letters and length are right, so that what lies behind them is reached: an
// image of the size that it claims, or an IoError. The first byte chooses the options.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/image/files/webp.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sinter::nn::data;
  if (size == 0) return 0;
  const DecodeOptions options = {
      .channels = (*data & 1) != 0 ? 3 : 1, .apply_orientation = (*data & 2) != 0, .max_pixels = 1 << 16};
  std::vector<uint8_t> webp(data + 1, data + size);
  if (webp.size() < 12) webp.resize(12);
  const uint8_t head[] = {'R', 'I', 'F', 'F'}, format[] = {'W', 'E', 'B', 'P'};
  std::copy(std::begin(head), std::end(head), webp.begin());
  std::copy(std::begin(format), std::end(format), webp.begin() + 8);
  const size_t length = webp.size() - 8;
  for (size_t i = 0; i < 4; ++i) webp[4 + i] = static_cast<uint8_t>(length >> (8 * i));
  try {
    Image image;
    decode_webp(webp, "fuzz", options, image);
    if (image.channels != options.channels || image.height * image.width > options.max_pixels) std::abort();
    if (image.pixels.size() != static_cast<size_t>(image.height * image.width * image.channels)) std::abort();
  } catch (const sinter::IoError&) {
  }
  return 0;
}
