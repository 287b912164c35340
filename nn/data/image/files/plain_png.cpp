// All pixels are unpacked at once, and rows then unfiltered in place, many bytes at a time. Source: W3C,
// "Portable Network Graphics (PNG) Specification", https://www.w3.org/TR/png-3/#9Filters.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#ifdef __AVX2__
#include <immintrin.h>
#endif
#ifdef SINTER_WITH_LIBDEFLATE
#include <libdeflate.h>
#else
#include <zlib.h>
#endif

#include <sinter/nn/data/image/files/plain_png.h>
#include <sinter/nn/data/image/files/png_chunk.h>

namespace sinter::nn::data {
namespace {

constexpr unsigned kGray = 0, kPalette = 3;  // types of colour

/// What a PNG says of itself, and its pixels' packed bytes.
struct PlainPng {
  int64_t height = 0, width = 0;
  unsigned depth = 0, type = 0;
  size_t colours = 0;  ///< of the palette
  std::span<const uint8_t> packed;

  size_t row_bytes() const { return (static_cast<size_t>(width) * depth + 7) / 8; }
  size_t raw_bytes() const { return static_cast<size_t>(height) * (row_bytes() + 1); }
};

bool read_header(const PngChunk& chunk, PlainPng& png) {
  const std::span<const uint8_t> header = chunk.payload();
  if (chunk.type() != "IHDR" || header.size() != 13 || !chunk.is_sound()) return false;
  png.width = load_be32(&header[0]);
  png.height = load_be32(&header[4]);
  png.depth = header[8];
  png.type = header[9];
  const bool has_methods_of_their_own = header[10] != 0 || header[11] != 0 || header[12] != 0;
  return !has_methods_of_their_own && png.width > 0 && png.width <= kMostPngExtent && png.height > 0 &&
         png.height <= kMostPngExtent;
}

bool is_taken(const PlainPng& png, const DecodeOptions& options, size_t file_bytes) {
  return options.stored_values && (png.type == kGray || png.type == kPalette) &&
         std::has_single_bit(png.depth) && png.depth <= 8 && png.height * png.width <= options.max_pixels &&
         png.raw_bytes() / static_cast<size_t>(kMostPngPacked) <= file_bytes;
}

/// The chunks in their order. `joined` holds the pixels' bytes where they are in several.
bool read_chunks(std::span<const uint8_t> rest, const DecodeOptions& options, std::vector<uint8_t>& joined,
                 PlainPng& png) {
  const size_t file_bytes = rest.size();
  rest = rest.subspan(kPngSignature.size());
  std::optional<PngChunk> chunk = first_png_chunk(rest);
  const auto next = [&] {
    rest = rest.subspan(chunk->whole.size());
    chunk = first_png_chunk(rest);
    return chunk && chunk->is_sound() && chunk->payload().size() <= kMostPngChunkBytes;
  };
  if (!chunk || !read_header(*chunk, png) || !is_taken(png, options, file_bytes) || !next()) return false;
  if (png.type == kPalette) {
    const size_t bytes = chunk->payload().size();
    png.colours = bytes / 3;
    const bool fits = bytes % 3 == 0 && png.colours > 0 && png.colours <= size_t{1} << png.depth;
    if (chunk->type() != "PLTE" || !fits || !next()) return false;
  }
  if (chunk->type() != "IDAT") return false;
  png.packed = chunk->payload();
  if (!next()) return false;
  if (chunk->type() == "IDAT") {
    joined.assign(png.packed.begin(), png.packed.end());
    do {
      const std::span<const uint8_t> more = chunk->payload();
      joined.insert(joined.end(), more.begin(), more.end());
    } while (next() && chunk->type() == "IDAT");
    png.packed = joined;
  }
  return chunk && chunk->type() == "IEND" && chunk->payload().empty() && chunk->is_sound();
}

/// Unpacks a zlib stream that holds at least as much as `raw`. False unless it has just that, and its
/// checksum.
bool unpack(std::span<const uint8_t> packed, std::span<uint8_t> raw) {
  // libpng looks back no further than the window that the stream asks for; what is used here does.
  const bool reaches_all =
      !packed.empty() && (packed[0] >= 0x78 || raw.size() <= size_t{256} << (packed[0] >> 4));
  if (!reaches_all) return false;
#ifdef SINTER_WITH_LIBDEFLATE
  struct Free {
    void operator()(libdeflate_decompressor* decompressor) const {
      libdeflate_free_decompressor(decompressor);
    }
  };
  thread_local const std::unique_ptr<libdeflate_decompressor, Free> decompressor(
      libdeflate_alloc_decompressor());
  return decompressor != nullptr &&
         libdeflate_zlib_decompress(decompressor.get(), packed.data(), packed.size(), raw.data(), raw.size(),
                                    nullptr) == LIBDEFLATE_SUCCESS;
#else
  uLongf count = raw.size();
  return uncompress(raw.data(), &count, packed.data(), packed.size()) == Z_OK && count == raw.size();
#endif
}

/// Each byte adds to the one left of it. `to` may lie before `from` in the same memory, here and below.
void add_left(const uint8_t* from, uint8_t* to, size_t count) {
  uint8_t left = 0;
  size_t x = 0;
#ifdef __AVX2__
  __m128i lefts = _mm_setzero_si128();
  for (; x + sizeof lefts <= count; x += sizeof lefts) {
    __m128i sums = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + x));  // of 1, 2, 4, 8, 16 bytes
    sums = _mm_add_epi8(sums, _mm_slli_si128(sums, 1));
    sums = _mm_add_epi8(sums, _mm_slli_si128(sums, 2));
    sums = _mm_add_epi8(sums, _mm_slli_si128(sums, 4));
    sums = _mm_add_epi8(sums, _mm_slli_si128(sums, 8));
    sums = _mm_add_epi8(sums, lefts);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + x), sums);
    lefts = _mm_shuffle_epi8(sums, _mm_set1_epi8(15));  // the last one, in each
    left = to[x + sizeof lefts - 1];
  }
#endif
  for (; x < count; ++x) left = to[x] = static_cast<uint8_t>(from[x] + left);
}

void add_average(const uint8_t* from, const uint8_t* above, uint8_t* to, size_t count) {
  uint8_t left = 0;
  for (size_t x = 0; x < count; ++x) left = to[x] = static_cast<uint8_t>(from[x] + (left + above[x]) / 2);
}

/// Adds the one of left, above and the corner between them that is nearest to left + above - corner. In most
/// of a mask that is simple, for eight bytes at once.
void add_paeth(const uint8_t* from, const uint8_t* above, uint8_t* to, size_t count) {
  uint8_t left = 0, corner = 0;
  const auto add_bytes = [&](size_t begin, size_t end) {
    for (size_t x = begin; x < end; ++x) {
      const int to_left = std::abs(above[x] - corner), to_above = std::abs(left - corner);
      const int to_corner = std::abs(left + above[x] - 2 * corner);
      const int nearest = to_left <= to_above && to_left <= to_corner ? left
                          : to_above <= to_corner                     ? above[x]
                                                                      : corner;
      left = to[x] = static_cast<uint8_t>(from[x] + nearest);
      corner = above[x];
    }
  };
  using Word = uint64_t;
  constexpr Word kOfEach = 0x0101010101010101u;  // times a byte
  const auto load = [](const uint8_t* bytes) {
    Word word = 0;
    std::memcpy(&word, bytes, sizeof word);
    return word;
  };
  size_t x = 0;
  for (; x + sizeof(Word) <= count; x += sizeof(Word)) {
    if (load(from + x) == 0) {
      Word word = load(above + x);
      const bool is_above = left == corner;  // and again for the next byte
      if (is_above || word == kOfEach * corner) {
        if (!is_above) word = kOfEach * left;
        std::memcpy(to + x, &word, sizeof word);
        left = to[x + sizeof(Word) - 1];
        corner = above[x + sizeof(Word) - 1];
        continue;
      }
    }
    add_bytes(x, x + sizeof(Word));
  }
  add_bytes(x, count);
}

void add_above(const uint8_t* from, const uint8_t* above, uint8_t* to, size_t count) {
  constexpr size_t kBlock = 32;
  size_t x = 0;
  for (; x + kBlock <= count; x += kBlock) {
    uint8_t sums[kBlock];  // so that memory that overlaps does not keep it from being vectors
    for (size_t i = 0; i < kBlock; ++i) sums[i] = static_cast<uint8_t>(from[x + i] + above[x + i]);
    std::memcpy(to + x, sums, kBlock);
  }
  for (; x < count; ++x) to[x] = static_cast<uint8_t>(from[x] + above[x]);
}

/// Rows that begin with the number of their filter become rows without, from the start of `bytes`. False: an
/// unknown filter.
bool unfilter_rows(const PlainPng& png, uint8_t* bytes) {
  const size_t count = png.row_bytes();
  const std::vector<uint8_t> black(count);
  const uint8_t *from = bytes, *above = black.data();
  uint8_t* to = bytes;
  for (int64_t y = 0; y < png.height; ++y, from += count + 1, above = to, to += count) {
    switch (*from) {
      case 0:
        std::memmove(to, from + 1, count);
        break;
      case 1:
        add_left(from + 1, to, count);
        break;
      case 2:
        add_above(from + 1, above, to, count);
        break;
      case 3:
        add_average(from + 1, above, to, count);
        break;
      case 4:
        add_paeth(from + 1, above, to, count);
        break;
      default:
        return false;
    }
  }
  return true;
}

/// Several pixels a byte, the first in the highest bits, become a byte each: from the back, for they need
/// more room.
void spread_bits(const PlainPng& png, uint8_t* bytes) {
  const size_t width = static_cast<size_t>(png.width), depth = png.depth;
  const unsigned most = (1u << depth) - 1;
  for (auto y = static_cast<size_t>(png.height); y-- > 0;) {
    for (size_t x = width; x-- > 0;) {
      const unsigned byte = bytes[y * png.row_bytes() + x * depth / 8];
      bytes[y * width + x] = static_cast<uint8_t>(byte >> (8 - depth - x * depth % 8) & most);
    }
  }
}

}  // namespace

bool decode_plain_png(std::span<const uint8_t> stream, const DecodeOptions& options, Image& image) {
  PlainPng png;
  std::vector<uint8_t> joined;
  if (!read_chunks(stream, options, joined, png)) return false;
  const auto pixels = static_cast<size_t>(png.height * png.width);
  image.pixels.resize(std::max(pixels, png.raw_bytes()));
  if (!unpack(png.packed, std::span(image.pixels).first(png.raw_bytes()))) return false;
  if (!unfilter_rows(png, image.pixels.data())) return false;
  if (png.depth < 8) spread_bits(png, image.pixels.data());
  image.reshape(png.height, png.width, 1);
  const bool is_short = png.type == kPalette && png.colours < size_t{1} << png.depth;
  return !is_short || std::ranges::max(image.pixels) < png.colours;
}

}  // namespace sinter::nn::data
