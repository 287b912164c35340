#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <png.h>

#include <sinter/core/base/error.h>
#include <sinter/core/file_system/file_system.h>
#include <sinter/nn/data/image/exif.h>
#include <sinter/nn/data/image/files/plain_png.h>
#include <sinter/nn/data/image/files/png.h>
#include <sinter/nn/data/image/files/png_chunk.h>

namespace sinter::nn::data {
namespace {

void append_be32(uint32_t value, std::vector<uint8_t>& bytes) {
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<uint8_t>(value >> shift));
}

// What a file has for libpng: the chunks that its pixels depend on and no other, so that none of the others
// makes it refuse a file, whatever they hold. In order, but tRNS comes last before the pixels, cut to what it
// can mean.
class Essence {
 public:
  Essence(std::span<const uint8_t> file, const std::string& name) : name_(name) {
    stream.reserve(file.size());
    append(file.first(kPngSignature.size()));
    std::span<const uint8_t> rest = file.subspan(kPngSignature.size());
    while (const std::optional<PngChunk> chunk = first_png_chunk(rest)) {
      rest = rest.subspan(chunk->whole.size());
      take(*chunk);
      if (chunk->type() == "IEND") return;
    }
    append(rest);  // damage, for libpng to find
  }

  std::vector<uint8_t> stream;
  int orientation = 1;

 private:
  void append(std::span<const uint8_t> bytes) { stream.insert(stream.end(), bytes.begin(), bytes.end()); }

  void take(const PngChunk& chunk) {
    const std::string_view type = chunk.type();
    if (type == "IHDR" && chunk.payload().size() > 9) colour_type_ = chunk.payload()[9];
    if (type == "IDAT" && !std::exchange(has_pixels_, true)) append_transparency();
    const bool has_palette = colour_type_ == PNG_COLOR_TYPE_PALETTE;
    if (type == "PLTE") colours_ = chunk.payload().size() / 3;
    if (type == "PLTE" && !has_palette) return;  // a suggestion, to those who lack colours
    if (chunk.is_critical()) append(chunk.whole);
    if (type == "tRNS") take_transparency(chunk);
    // A file has one eXIf chunk: of several none is believed.
    if (type == "eXIf" && chunk.is_sound())
      orientation = std::exchange(has_exif_, true) ? 1 : tiff_orientation(chunk.payload());
  }

  // It is of the pixels, so that its damage is theirs.
  void take_transparency(const PngChunk& chunk) {
    if (has_pixels_ || (colour_type_ & PNG_COLOR_MASK_ALPHA) != 0) return;  // it means nothing there
    if (!chunk.is_sound()) throw_error<IoError>("[png] {}: damaged: the checksum of tRNS is wrong", name_);
    transparency_ = chunk.payload();
  }

  // An alpha for each of the first colours, or one colour, in 16 bits a value, that is transparent.
  void append_transparency() {
    if (transparency_.empty()) return;
    const size_t most = colour_type_ == PNG_COLOR_TYPE_PALETTE ? colours_
                        : colour_type_ == PNG_COLOR_TYPE_GRAY  ? 2
                                                               : 6;
    transparency_ = transparency_.first(std::min(most, transparency_.size()));
    append_be32(static_cast<uint32_t>(transparency_.size()), stream);
    const size_t type_at = stream.size();
    constexpr uint8_t kType[] = {'t', 'R', 'N', 'S'};
    append(kType);
    append(transparency_);
    append_be32(extend_crc32(0, std::as_bytes(std::span(stream).subspan(type_at))), stream);
  }

  const std::string& name_;
  int colour_type_ = 0;
  size_t colours_ = 0;
  bool has_pixels_ = false, has_exif_ = false;
  std::span<const uint8_t> transparency_;
};

// As in jpeg.cpp: libpng's errors jump to the functions below that call setjmp, which hold nothing that must
// be destroyed and no local that changes after it; all state lives here.
struct Decoder {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::jmp_buf jump{};
  char message[256] = {};
  bool out_of_memory = false;
  std::vector<uint8_t> stream;  // what libpng gets to see
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

// Of the chunks that libpng gets to see, a warning means that pixels are damaged; but not what is left over
// when all of them are there.
void on_warning(png_structp png, png_const_charp message) {
  const bool is_surplus = std::strstr(message, "Extra compressed data") != nullptr ||
                          std::strstr(message, "Too much image data") != nullptr;
  if (!is_surplus) on_error(png, message);
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
  if (decoder.stream.size() - decoder.at < count) png_error(png, "the file is cut short");
  std::memcpy(to, &decoder.stream[decoder.at], count);
  decoder.at += count;
}

// Reads up to the pixels. False: see `message`.
bool read_header(Decoder& decoder) {
  if (setjmp(decoder.jump) != 0) return false;
  decoder.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &decoder, on_error, on_warning, &decoder,
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
  png_set_user_limits(decoder.png, kMostPngExtent, kMostPngExtent);
  png_set_chunk_malloc_max(decoder.png, kMostPngChunkBytes);
  png_read_info(decoder.png, decoder.info);
  return true;
}

// Asks for 8 bits a value: gray, gray with alpha, RGB or RGBA; or what is stored, a byte a value. False: see
// `message`.
bool set_output(Decoder& decoder, bool stored_values) {
  if (setjmp(decoder.jump) != 0) return false;
  if (stored_values) {
    png_set_packing(decoder.png);
  } else {
    png_set_expand(decoder.png);
    png_set_scale_16(decoder.png);
  }
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
  throw_error<IoError>("[png] {}: damaged or no PNG: {}", name, decoder.message);
}

void check_size(const Decoder& decoder, const std::string& name, const DecodeOptions& options) {
  const int64_t height = png_get_image_height(decoder.png, decoder.info);
  const int64_t width = png_get_image_width(decoder.png, decoder.info);
  if (height * width > options.max_pixels) {
    throw_error<IoError>("[png] {}: expected at most {} pixels but the image has {} x {}", name,
                         options.max_pixels, height, width);
  }
  const auto packed = static_cast<int64_t>(png_get_rowbytes(decoder.png, decoder.info)) * height;
  if (packed / kMostPngPacked > static_cast<int64_t>(decoder.stream.size())) {
    throw_error<IoError>("[png] {}: expected the pixels of {} x {} but the file has only {} bytes", name,
                         height, width, decoder.stream.size());
  }
}

void check_stored_values(const Decoder& decoder, const std::string& name) {
  const int type = png_get_color_type(decoder.png, decoder.info);
  const int bits = png_get_bit_depth(decoder.png, decoder.info);
  const bool has_classes = (type == PNG_COLOR_TYPE_GRAY || type == PNG_COLOR_TYPE_PALETTE) && bits <= 8;
  if (has_classes) return;
  const char* const kind =
      type == PNG_COLOR_TYPE_GRAY || type == PNG_COLOR_TYPE_GRAY_ALPHA ? "gray" : "in colours";
  throw_error<IoError>(
      "[png] {}: expected a mask, gray or with a palette, of at most 8 bits a pixel, but got one "
      "{}{} of {} bits",
      name, kind, (type & PNG_COLOR_MASK_ALPHA) != 0 ? " with alpha" : "", bits);
}

void decode_with_libpng(std::vector<uint8_t> stream, const std::string& name, const DecodeOptions& options,
                        Image& image) {
  Decoder decoder;
  decoder.stream = std::move(stream);
  if (!read_header(decoder)) fail(decoder, name);
  check_size(decoder, name, options);
  if (options.stored_values) check_stored_values(decoder, name);
  if (!set_output(decoder, options.stored_values)) fail(decoder, name);

  image.reshape(png_get_image_height(decoder.png, decoder.info),
                png_get_image_width(decoder.png, decoder.info), png_get_channels(decoder.png, decoder.info));
  const auto stride = static_cast<size_t>(image.width * image.channels);
  if (png_get_rowbytes(decoder.png, decoder.info) != stride)
    throw_error<InternalError>("[png] {}: expected rows of {} bytes", name, stride);
  if (!read_rows(decoder, image.pixels.data(), stride)) fail(decoder, name);
  if (image.channels % 2 == 0) lay_over_white(image);
}

}  // namespace

bool is_png(std::span<const uint8_t> bytes) {
  return bytes.size() >= kPngSignature.size() &&
         std::equal(kPngSignature.begin(), kPngSignature.end(), bytes.begin());
}

void decode_png(std::span<const uint8_t> bytes, const std::string& name, const DecodeOptions& options,
                Image& image) {
  SINTER_CHECK(options.channels == 1 || options.channels == 3, "[png] expected 1 or 3 channels but got {}",
               options.channels);
  SINTER_CHECK(options.max_pixels > 0, "[png] expected a limit > 0 but got {} pixels", options.max_pixels);
  if (!is_png(bytes)) throw_error<IoError>("[png] {}: expected a file that starts with 0x89 PNG", name);
  Essence essence(bytes, name);
  if (!decode_plain_png(essence.stream, options, image)) {
    decode_with_libpng(std::move(essence.stream), name, options, image);
  }
  convert_channels(image, options.channels);
  if (options.apply_orientation) orient(image, essence.orientation);
}

}  // namespace sinter::nn::data
