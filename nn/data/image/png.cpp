#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <png.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/image/exif.h>
#include <sinter/nn/data/image/png.h>

namespace sinter::nn::data {
namespace {

constexpr std::array<uint8_t, 8> kSignature = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
// Chunks that say nothing of the pixels as they are stored. Sound files hold odd ones, colour profiles above
// all, of which libpng would warn.
constexpr const char kPassedOver[] =
    "bKGD\0cHRM\0gAMA\0hIST\0iCCP\0iTXt\0oFFs\0pCAL\0pHYs\0sBIT\0sCAL\0sPLT\0sRGB\0tEXt\0tIME\0zTXt";
constexpr int kPassedOverCount = sizeof kPassedOver / 5;
constexpr png_uint_32 kMostExtent = 1 << 20;
constexpr png_alloc_size_t kMostChunkBytes = 1 << 23;

// As in jpeg.cpp: libpng's errors jump to the functions below that call setjmp, which hold nothing that must
// be destroyed and no local that changes after it; all state lives here.
struct Decoder {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::jmp_buf jump{};
  char message[256] = {};
  bool out_of_memory = false;
  const uint8_t* bytes = nullptr;
  size_t size = 0;
  size_t at = 0;
  int passes = 1;

  Decoder() = default;
  ~Decoder() { png_destroy_read_struct(&png, &info, nullptr); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
};

[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  auto& decoder = *static_cast<Decoder*>(png_get_error_ptr(png));
  std::snprintf(decoder.message, sizeof decoder.message, "%s", message);
  std::longjmp(decoder.jump, 1);
}

png_voidp take_memory(png_structp png, png_alloc_size_t bytes) {
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) static_cast<Decoder*>(png_get_mem_ptr(png))->out_of_memory = true;
  return memory;
}
void give_memory(png_structp, png_voidp memory) {
  std::free(memory);
}

void on_read(png_structp png, png_bytep to, size_t count) {
  auto& decoder = *static_cast<Decoder*>(png_get_io_ptr(png));
  if (decoder.size - decoder.at < count) png_error(png, "the file is cut short");
  std::memcpy(to, decoder.bytes + decoder.at, count);
  decoder.at += count;
}

// Reads up to the pixels. False: see `message`.
bool read_header(Decoder& decoder) {
  if (setjmp(decoder.jump) != 0) return false;
  decoder.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &decoder, on_error, on_error, &decoder,
                                         take_memory, give_memory);
  if (decoder.png == nullptr) {
    decoder.out_of_memory = true;
    return false;
  }
  decoder.info = png_create_info_struct(decoder.png);
  if (decoder.info == nullptr) {
    decoder.out_of_memory = true;
    return false;
  }
  png_set_read_fn(decoder.png, &decoder, on_read);
  png_set_user_limits(decoder.png, kMostExtent, kMostExtent);
  png_set_chunk_malloc_max(decoder.png, kMostChunkBytes);
  png_set_keep_unknown_chunks(decoder.png, PNG_HANDLE_CHUNK_NEVER,
                              reinterpret_cast<png_const_bytep>(kPassedOver), kPassedOverCount);
  png_read_info(decoder.png, decoder.info);
  return true;
}

// Asks for 8 bits a value: gray, gray with alpha, RGB or RGBA. False: see `message`.
bool set_output(Decoder& decoder) {
  if (setjmp(decoder.jump) != 0) return false;
  png_set_expand(decoder.png);
  png_set_scale_16(decoder.png);
  decoder.passes = png_set_interlace_handling(decoder.png);
  png_read_update_info(decoder.png, decoder.info);
  return true;
}

// Decodes all rows into `pixels`, `stride` bytes apart, to the end of the file. False: see `message`.
bool read_rows(Decoder& decoder, uint8_t* pixels, size_t stride) {
  if (setjmp(decoder.jump) != 0) return false;
  const png_uint_32 height = png_get_image_height(decoder.png, decoder.info);
  for (int pass = 0; pass < decoder.passes; ++pass) {
    for (png_uint_32 y = 0; y < height; ++y) png_read_row(decoder.png, pixels + stride * y, nullptr);
  }
  png_read_end(decoder.png, decoder.info);
  return true;
}

[[noreturn]] void fail(const Decoder& decoder, const std::string& name) {
  if (decoder.out_of_memory) throw_error<OutOfMemory>("[png] {}: no memory to decode", name);
  throw_error<IoError>("[png] {}: damaged or no PNG, up to byte {}: {}", name, decoder.at, decoder.message);
}

void check_size(const Decoder& decoder, const std::string& name, const DecodeOptions& options) {
  const int64_t height = png_get_image_height(decoder.png, decoder.info);
  const int64_t width = png_get_image_width(decoder.png, decoder.info);
  if (height * width > options.max_pixels) {
    throw_error<IoError>("[png] {}: expected at most {} pixels but the image has {} x {}", name,
                         options.max_pixels, height, width);
  }
  // So few bytes cannot hold so many pixels: nothing is allocated for them. Source: RFC 1951; at best a byte
  // of deflate stands for 258 * 4.
  constexpr int64_t kMostPacked = 1032;
  const auto packed = static_cast<int64_t>(png_get_rowbytes(decoder.png, decoder.info)) * height;
  if (packed / kMostPacked > static_cast<int64_t>(decoder.size)) {
    throw_error<IoError>("[png] {}: expected the pixels of {} x {} but the file has only {} bytes", name,
                         height, width, decoder.size);
  }
}

// Takes the alpha, the last channel, out: the image over white.
void lay_over_white(Image& image) {
  const int64_t channels = image.channels - 1;
  const size_t count = image.pixels.size() / static_cast<size_t>(image.channels);
  const uint8_t* from = image.pixels.data();
  uint8_t* to = image.pixels.data();
  for (size_t i = 0; i < count; ++i, from += channels + 1, to += channels) {
    const int alpha = from[channels];
    for (int64_t c = 0; c < channels; ++c)
      to[c] = static_cast<uint8_t>((from[c] * alpha + 255 * (255 - alpha) + 127) / 255);
  }
  image.reshape(image.height, image.width, channels);
}

int stored_orientation(const Decoder& decoder) {
  png_uint_32 size = 0;
  png_bytep tiff = nullptr;
  if (png_get_eXIf_1(decoder.png, decoder.info, &size, &tiff) == 0 || tiff == nullptr) return 1;
  std::vector<uint8_t> payload = {'E', 'x', 'i', 'f', 0, 0};
  payload.insert(payload.end(), tiff, tiff + size);
  return exif_orientation(payload);
}

}  // namespace

bool is_png(std::span<const uint8_t> bytes) {
  return bytes.size() >= kSignature.size() && std::equal(kSignature.begin(), kSignature.end(), bytes.begin());
}

void decode_png(std::span<const uint8_t> bytes, const std::string& name, const DecodeOptions& options,
                Image& image) {
  SINTER_CHECK(options.channels == 1 || options.channels == 3, "[png] expected 1 or 3 channels but got {}",
               options.channels);
  SINTER_CHECK(options.max_pixels > 0, "[png] expected a limit > 0 but got {} pixels", options.max_pixels);
  if (!is_png(bytes)) throw_error<IoError>("[png] {}: expected a file that starts with 0x89 PNG", name);
  Decoder decoder;
  decoder.bytes = bytes.data();
  decoder.size = bytes.size();
  if (!read_header(decoder)) fail(decoder, name);
  check_size(decoder, name, options);
  if (!set_output(decoder)) fail(decoder, name);

  image.reshape(png_get_image_height(decoder.png, decoder.info),
                png_get_image_width(decoder.png, decoder.info), png_get_channels(decoder.png, decoder.info));
  const auto stride = static_cast<size_t>(image.width * image.channels);
  if (png_get_rowbytes(decoder.png, decoder.info) != stride)
    throw_error<InternalError>("[png] {}: expected rows of {} bytes", name, stride);
  if (!read_rows(decoder, image.pixels.data(), stride)) fail(decoder, name);
  if (image.channels % 2 == 0) lay_over_white(image);
  convert_channels(image, options.channels);
  if (options.apply_orientation) orient(image, stored_orientation(decoder));
}

}  // namespace sinter::nn::data
