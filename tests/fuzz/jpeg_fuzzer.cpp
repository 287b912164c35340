// Feeds bytes to the image decoders (JPEG with EXIF, PGM, PPM). Whatever they are, they give an image of the
// size that they claim or an IoError, and what is a plain JPEG to those who look at its markers is one of
// that size to the decoder. The first byte chooses the options, the number of bytes a window.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/image/baseline_jpeg.h>
#include <sinter/nn/data/image/files/image_file.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sinter::nn::data;
  if (size == 0) return 0;
  const int choice = *data, place = static_cast<int>(size % 256);
  const std::span<const uint8_t> file(data + 1, size - 1);
  const DecodeOptions options = {
      .channels = (choice & 1) != 0 ? 3 : 1, .max_pixels = 1 << 20, .max_scans = 20};
  const DecodeHintFunction reduction = [&](int64_t height, int64_t width) {
    DecodeHint part = 1 << (choice >> 1 & 3);
    if ((choice & 8) == 0) return part;
    const int64_t top = height * (place & 3) / 4, left = width * (place >> 2 & 3) / 4;
    part.window = {top, left, top + height * (place >> 4 & 3) / 4, left + width * (place >> 6) / 4};
    part.is_sound = (choice & 16) != 0;
    return part;
  };
  try {
    Image image;
    decode_image(file, "fuzz", options, reduction, image);
    if (image.channels != options.channels || image.height * image.width > options.max_pixels) std::abort();
    if (image.pixels.size() != static_cast<size_t>(image.height * image.width * image.channels)) std::abort();
    const auto jpeg = read_baseline_jpeg(file);
    if (!jpeg || (choice >> 1 & 3) != 0) return 0;
    const bool turned = jpeg->orientation >= 5;
    if (image.height != (turned ? jpeg->width : jpeg->height)) std::abort();
    if (image.width != (turned ? jpeg->height : jpeg->width)) std::abort();
  } catch (const sinter::IoError&) {
  }
  return 0;
}
