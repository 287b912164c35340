#include <csetjmp>
#include <cstdio>
#include <cstdlib>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/image/encode_jpeg.h>

// jpeglib.h uses FILE and size_t without declaring them.
// clang-format off
#include <jpeglib.h>
// clang-format on

namespace sinter::nn::data {
namespace {

// As in jpeg.cpp: libjpeg's errors jump to write(), which holds nothing that must be destroyed.
struct Encoder {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  std::jmp_buf jump{};
  char message[JMSG_LENGTH_MAX] = {};
  unsigned char* bytes = nullptr;
  unsigned long size = 0;

  Encoder() = default;
  ~Encoder() {
    jpeg_destroy_compress(&info);
    std::free(bytes);
  }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;
};

[[noreturn]] void on_error(j_common_ptr common) {
  auto& encoder = *static_cast<Encoder*>(common->client_data);
  common->err->format_message(common, encoder.message);
  std::longjmp(encoder.jump, 1);
}

void on_message(j_common_ptr, int) {}

// False: see `message`.
bool write(Encoder& encoder, const Image& image, int quality) {
  jpeg_compress_struct& info = encoder.info;
  info.err = jpeg_std_error(&encoder.errors);
  encoder.errors.error_exit = on_error;
  encoder.errors.emit_message = on_message;
  info.client_data = &encoder;
  if (setjmp(encoder.jump) != 0) return false;
  jpeg_create_compress(&info);
  jpeg_mem_dest(&info, &encoder.bytes, &encoder.size);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.input_components = static_cast<int>(image.channels);
  info.in_color_space = image.channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, quality, TRUE);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = const_cast<JSAMPROW>(image.row(info.next_scanline));  // libjpeg only reads it
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  return true;
}

}  // namespace

void encode_jpeg(const Image& image, int quality, std::vector<uint8_t>& bytes) {
  constexpr int64_t kMostExtent = JPEG_MAX_DIMENSION;
  SINTER_CHECK(image.is_whole() && (image.channels == 1 || image.channels == 3) &&
                   image.height <= kMostExtent && image.width <= kMostExtent,
               "[jpeg] expected 1 to {} pixels a side in 1 or 3 channels but got {} x {} x {}", kMostExtent,
               image.height, image.width, image.channels);
  SINTER_CHECK(quality >= 1 && quality <= 100, "[jpeg] expected a quality from 1 to 100 but got {}", quality);
  Encoder encoder;
  if (!write(encoder, image, quality)) throw_error<OutOfMemory>("[jpeg] cannot encode: {}", encoder.message);
  bytes.assign(encoder.bytes, encoder.bytes + encoder.size);
}

}  // namespace sinter::nn::data
