// Four folders of pictures in several formats, colours and sizes, for pages that speak of such:
// mixed_pictures <folder>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <png.h>
#include <webp/encode.h>

#include <sinter/nn/data/image/encode_jpeg.h>
#include <sinter/nn/data/image/files/encode_png.h>

namespace {

namespace fs = std::filesystem;
using sinter::nn::data::Image;

/// How dark a point is, of a picture of class `kind` whose marks are `pace` pixels apart.
bool is_dark(int kind, int64_t y, int64_t x, int64_t pace) {
  if (kind == 0) return y / pace % 2 == 0;                 // lying stripes
  if (kind == 1) return x / pace % 2 == 0;                 // standing ones
  if (kind == 2) return (y / pace + x / pace) % 2 == 0;    // a chequered board
  return (y - 24) * (y - 24) + (x - 20) * (x - 20) < 150;  // a disc
}

/// `channels`: 1 grey, 3 RGB, 4 RGB over an alpha that is not all opaque.
Image draw(int kind, int number, int64_t channels) {
  Image image;
  image.reshape(36 + number % 5 * 4, 40 + number % 7 * 3, channels);
  const uint8_t light[4] = {static_cast<uint8_t>(200 + number), 230, static_cast<uint8_t>(250 - 2 * number),
                            255};
  const uint8_t dark[4] = {static_cast<uint8_t>(30 + 3 * number), static_cast<uint8_t>(70 - number), 60, 200};
  for (int64_t y = 0; y < image.height; ++y) {
    for (int64_t x = 0; x < image.width; ++x) {
      const uint8_t* const colour = is_dark(kind, y, x, 5 + number % 3) ? dark : light;
      std::copy_n(colour, channels, image.row(y) + x * channels);
    }
  }
  return image;
}

void write(const fs::path& path, const uint8_t* bytes, size_t size) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes), static_cast<std::streamsize>(size));
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

void write_png_with_alpha(const fs::path& path, const Image& image) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = PNG_FORMAT_RGBA;
  if (png_image_write_to_file(&png, path.c_str(), 0, image.pixels.data(), 0, nullptr) == 0)
    throw std::runtime_error("cannot write " + path.string());
}

void write_webp(const fs::path& path, const Image& image) {
  uint8_t* bytes = nullptr;
  const size_t size =
      WebPEncodeLosslessRGB(image.pixels.data(), static_cast<int>(image.width),
                            static_cast<int>(image.height), static_cast<int>(3 * image.width), &bytes);
  write(path, bytes, size);
  WebPFree(bytes);
}

void write_picture(const fs::path& folder, int kind, int number) {
  const std::string name = "picture" + std::to_string(number);
  std::vector<uint8_t> bytes;
  switch (number % 5) {
    case 0:
      sinter::nn::data::encode_jpeg(draw(kind, number, 3), 95, bytes);
      return write(folder / (name + ".jpg"), bytes.data(), bytes.size());
    case 1:
      sinter::nn::data::encode_png(draw(kind, number, 3), bytes);
      return write(folder / (name + ".png"), bytes.data(), bytes.size());
    case 2:
      sinter::nn::data::encode_png(draw(kind, number, 1), bytes);
      return write(folder / (name + "_grey.png"), bytes.data(), bytes.size());
    case 3:
      return write_png_with_alpha(folder / (name + "_alpha.png"), draw(kind, number, 4));
    default:
      return write_webp(folder / (name + ".webp"), draw(kind, number, 3));
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) throw std::runtime_error("usage: mixed_pictures <folder>");
  const char* const classes[] = {"lying", "standing", "chequered", "disc"};
  for (int kind = 0; kind < 4; ++kind) {
    const fs::path folder = fs::path(argv[1]) / classes[kind];
    fs::create_directories(folder);
    for (int number = 0; number < 20; ++number) write_picture(folder, kind, number);
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "mixed_pictures: %s\n", error.what());
  return 1;
}
