#include <png.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/image/files/encode_png.h>

namespace sinter::nn::data {

void encode_png(const Image& image, std::vector<uint8_t>& bytes) {
  constexpr int64_t kMost = 65'500;
  SINTER_CHECK(image.is_whole() && (image.channels == 1 || image.channels == 3) && image.height <= kMost &&
                   image.width <= kMost,
               "[png] expected an image of 1 or 3 channels and up to {} pixels a side but got {} x {} x {}",
               kMost, image.height, image.width, image.channels);
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  header.width = static_cast<png_uint_32>(image.width);
  header.height = static_cast<png_uint_32>(image.height);
  header.format = image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(header);
  bytes.resize(size);
  const int written =
      png_image_write_to_memory(&header, bytes.data(), &size, 0, image.pixels.data(), 0, nullptr);
  SINTER_ASSERT(written != 0, "[png] cannot encode: {}", static_cast<const char*>(header.message));
  bytes.resize(size);
}

}  // namespace sinter::nn::data
