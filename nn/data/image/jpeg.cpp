#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/image/exif.h>
#include <sinter/nn/data/image/jpeg.h>

// jpeglib.h uses FILE and size_t without declaring them, and jerror.h builds on it.
// clang-format off
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

namespace sinter::nn::data {
namespace {

constexpr unsigned kExifMarkerLength = 0xFFFF;

// libjpeg reports an error by a function that must not return. Throwing through its C frames is undefined, so
// errors jump (longjmp) to the two functions below that call setjmp. Those hold no object with a destructor
// and no local that changes after setjmp; all state lives in this struct, which the caller owns.
struct Decoder {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf jump{};
  char message[JMSG_LENGTH_MAX] = {};
  bool out_of_memory = false;
  bool in_header = true;  // before the first scan
  int max_scans = 0;
  // What is wanted of the output.
  JDIMENSION first_row = 0, end_row = 0, first_column = 0, columns = 0;
  bool to_end = true;  // damage behind these rows is to be found

  Decoder() = default;
  ~Decoder() { jpeg_destroy_decompress(&info); }  // safe at any point, also before the creation
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  static Decoder& of(j_common_ptr common) { return *static_cast<Decoder*>(common->client_data); }
};

[[noreturn]] void on_error(j_common_ptr common) {
  Decoder& decoder = Decoder::of(common);
  decoder.out_of_memory = common->err->msg_code == JERR_OUT_OF_MEMORY;
  common->err->format_message(common, decoder.message);
  std::longjmp(decoder.jump, 1);
}

// Whether a warning says nothing of the pixels, as they can be meant in one way only.
bool is_of_metadata(const Decoder& decoder, int code) {
  const bool is_odd_header = code == JWRN_ADOBE_XFORM || code == JWRN_BOGUS_ICC || code == JWRN_JFIF_MAJOR ||
                             code == JWRN_NOT_SEQUENTIAL;
  // Between markers something may be left over; behind a scan it means that not all of that was understood.
  return is_odd_header || (code == JWRN_EXTRANEOUS_DATA && decoder.in_header);
}

void on_message(j_common_ptr common, int level) {
  if (level >= 0 || is_of_metadata(Decoder::of(common), common->err->msg_code)) return;  // no warning
  on_error(common);
}

void on_output(j_common_ptr) {}

void on_progress(j_common_ptr common) {
  Decoder& decoder = Decoder::of(common);
  if (decoder.info.input_scan_number <= decoder.max_scans) return;
  std::snprintf(decoder.message, sizeof decoder.message, "more than %d scans", decoder.max_scans);
  std::longjmp(decoder.jump, 1);
}

// Starts the decoder and reads up to the first scan. False: see `message`.
bool read_header(Decoder& decoder, const uint8_t* bytes, unsigned long size) {
  decoder.info.err = jpeg_std_error(&decoder.errors);
  decoder.errors.error_exit = on_error;
  decoder.errors.emit_message = on_message;
  decoder.errors.output_message = on_output;
  decoder.info.client_data = &decoder;
  if (setjmp(decoder.jump) != 0) return false;
  jpeg_create_decompress(&decoder.info);
  decoder.info.progress = &decoder.progress;
  decoder.progress.progress_monitor = on_progress;
  jpeg_save_markers(&decoder.info, JPEG_APP0 + 1, kExifMarkerLength);
  jpeg_mem_src(&decoder.info, bytes, size);
  jpeg_read_header(&decoder.info, TRUE);
  decoder.in_header = false;
  return true;
}

// Fixes the output size after the scale was set. False: see `message`.
bool scale_output(Decoder& decoder, unsigned denominator) {
  decoder.info.scale_num = 1;
  decoder.info.scale_denom = denominator;
  if (setjmp(decoder.jump) != 0) return false;
  jpeg_calc_output_dimensions(&decoder.info);
  return true;
}

void read_rows_until(Decoder& decoder, JDIMENSION end, uint8_t* pixels, size_t stride) {
  const auto components = static_cast<size_t>(decoder.info.output_components);
  while (decoder.info.output_scanline < end) {
    JSAMPROW row = pixels + stride * decoder.info.output_scanline + components * decoder.first_column;
    jpeg_read_scanlines(&decoder.info, &row, 1);
  }
}

// Decodes what is wanted into `pixels`, where all rows would lie, `stride` bytes apart. False: see `message`.
bool read_rows(Decoder& decoder, uint8_t* pixels, size_t stride) {
  if (setjmp(decoder.jump) != 0) return false;
  jpeg_start_decompress(&decoder.info);
  const JDIMENSION height = decoder.info.output_height;
  if (decoder.columns < decoder.info.output_width)
    jpeg_crop_scanline(&decoder.info, &decoder.first_column, &decoder.columns);
  if (decoder.first_row > 0) jpeg_skip_scanlines(&decoder.info, decoder.first_row);
  read_rows_until(decoder, decoder.end_row, pixels, stride);
  // libjpeg looks at the rest of the file only where rows of it are read.
  const JDIMENSION at = decoder.info.output_scanline, left = decoder.to_end ? 1 : 0;
  if (at + left < height) jpeg_skip_scanlines(&decoder.info, height - at - left);
  read_rows_until(decoder, height, pixels, stride);
  jpeg_finish_decompress(&decoder.info);
  return true;
}

[[noreturn]] void fail(const Decoder& decoder, const std::string& name) {
  if (decoder.out_of_memory) throw_error<OutOfMemory>("[jpeg] {}: no memory to decode", name);
  throw_error<IoError>("[jpeg] {}: damaged or no JPEG: {}", name, decoder.message);
}

int stored_orientation(const Decoder& decoder) {
  for (const jpeg_marker_struct* marker = decoder.info.marker_list; marker != nullptr;
       marker = marker->next) {
    if (marker->marker != JPEG_APP0 + 1) continue;
    const int orientation = exif_orientation({marker->data, marker->data_length});
    if (orientation != 1) return orientation;
  }
  return 1;
}

// Multiplies ink out. Files with an Adobe marker store the inverse of the ink, as Photoshop does.
void cmyk_to_rgb(Image& image, bool inverted, const std::string& name) {
  if (image.channels != 4) throw_error<InternalError>("[jpeg] {}: expected CMYK pixels", name);
  const size_t count = image.pixels.size() / 4;
  const uint8_t mask = inverted ? 0 : 255;
  for (size_t i = 0; i < count; ++i) {
    const uint8_t* ink = &image.pixels[4 * i];
    const int key = ink[3] ^ mask;
    uint8_t rgb[3];
    for (int c = 0; c < 3; ++c) rgb[c] = static_cast<uint8_t>(((ink[c] ^ mask) * key + 127) / 255);
    std::memcpy(&image.pixels[3 * i], rgb, 3);
  }
  image.reshape(image.height, image.width, 3);
}

void check_size(const Decoder& decoder, const std::string& name, const DecodeOptions& options) {
  const int64_t height = decoder.info.image_height, width = decoder.info.image_width;
  if (height * width > options.max_pixels) {
    throw_error<IoError>("[jpeg] {}: expected at most {} pixels but the image has {} x {}", name,
                         options.max_pixels, height, width);
  }
}

// What is wanted, by the upright image's extents.
DecodeHint choose_reduction(const Decoder& decoder, bool transposed, const DecodeHintFunction& reduction) {
  if (!reduction) return 1;
  const int64_t height = decoder.info.image_height, width = decoder.info.image_width;
  const DecodeHint chosen = transposed ? reduction(width, height) : reduction(height, width);
  SINTER_CHECK(chosen.by == 1 || chosen.by == 2 || chosen.by == 4 || chosen.by == 8,
               "[jpeg] expected a reduction of 1, 2, 4 or 8 but got {}", chosen.by);
  return chosen;
}

// Sets what is to be read of the output, whose size is known.
void choose_window(Decoder& decoder, const DecodeHint& reduction, bool can_crop) {
  const int64_t height = decoder.info.output_height, width = decoder.info.output_width;
  // Chroma at an edge is interpolated with its neighbours: some columns more make those that are wanted
  // exact.
  constexpr int64_t kMoreColumns = 4;
  PixelWindow window{0, 0, height, width};
  if (reduction.window && can_crop) {
    window.top = std::clamp<int64_t>(reduction.window->top, 0, height - 1);
    window.bottom = std::clamp<int64_t>(reduction.window->bottom, window.top + 1, height);
    window.left =
        std::clamp<int64_t>(reduction.window->left, kMoreColumns, width + kMoreColumns - 1) - kMoreColumns;
    window.right = std::clamp<int64_t>(reduction.window->right, window.left + 1, width);
    window.right = std::min(window.right + kMoreColumns, width);
  }
  decoder.first_row = static_cast<JDIMENSION>(window.top);
  decoder.end_row = static_cast<JDIMENSION>(window.bottom);
  decoder.first_column = static_cast<JDIMENSION>(window.left);
  decoder.columns = static_cast<JDIMENSION>(window.right - window.left);
  decoder.to_end = !reduction.is_sound;
}

}  // namespace

bool is_jpeg(std::span<const uint8_t> bytes) {
  return bytes.size() >= 3 && bytes[0] == 0xFF && bytes[1] == 0xD8 && bytes[2] == 0xFF;
}

void decode_jpeg(std::span<const uint8_t> bytes, const std::string& name, const DecodeOptions& options,
                 const DecodeHintFunction& reduction, Image& image) {
  SINTER_CHECK(options.channels == 1 || options.channels == 3, "[jpeg] expected 1 or 3 channels but got {}",
               options.channels);
  SINTER_CHECK(options.max_pixels > 0 && options.max_scans > 0,
               "[jpeg] expected limits > 0 but got {} pixels and {} scans", options.max_pixels,
               options.max_scans);
  if (!is_jpeg(bytes))
    throw_error<IoError>("[jpeg] {}: expected a file that starts with 0xff 0xd8 0xff", name);
  Decoder decoder;
  decoder.max_scans = options.max_scans;
  if (!read_header(decoder, bytes.data(), bytes.size())) fail(decoder, name);
  check_size(decoder, name, options);
  const int orientation = options.apply_orientation ? stored_orientation(decoder) : 1;

  jpeg_decompress_struct& info = decoder.info;
  const bool cmyk = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  info.out_color_space = cmyk ? JCS_CMYK : options.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  const DecodeHint chosen = choose_reduction(decoder, orientation >= 5, reduction);
  if (!scale_output(decoder, static_cast<unsigned>(chosen.by))) fail(decoder, name);
  choose_window(decoder, chosen, orientation == 1 && !cmyk && jpeg_has_multiple_scans(&info) == FALSE);

  image.reshape(info.output_height, info.output_width, cmyk ? 4 : options.channels);
  if (!read_rows(decoder, image.pixels.data(), static_cast<size_t>(image.width * image.channels)))
    fail(decoder, name);
  if (cmyk) {
    cmyk_to_rgb(image, info.saw_Adobe_marker != FALSE, name);
    convert_channels(image, options.channels);
  }
  orient(image, orientation);
}

}  // namespace sinter::nn::data
