#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <span>
#include <utility>
#include <vector>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include <sinter/core/base/error.h>
#include <sinter/nn/data/sample/frame.h>
#include <sinter/ops/crop_images/crop_images_math.h>

namespace sinter::nn::data {
namespace {

constexpr double kFarthest = 1e9;  // of what is shown, in pixels: whole numbers up to there are exact

bool is_whole(double value) {
  return value == std::floor(value) && std::abs(value) <= kFarthest;
}

void check_picture(const Frame& frame, const char* what, int64_t height, int64_t width) {
  SINTER_CHECK(static_cast<double>(height) == frame.picture_height() &&
                   static_cast<double>(width) == frame.picture_width(),
               "[frame] expected {} of {} x {}, which the frame is of, but got {} x {}", what,
               frame.picture_height(), frame.picture_width(), height, width);
}

void flip_rows(Image& image) {
  const auto bytes = static_cast<size_t>(image.width * image.channels);
  for (int64_t y = 0; y < image.height / 2; ++y)
    std::swap_ranges(image.row(y), image.row(y) + bytes, image.row(image.height - 1 - y));
}

void turn_over(const Frame& frame, Image& image) {
  if (frame.mirrored()) flip_horizontal(image);
  if (frame.flipped()) flip_rows(image);
}

detail::SampleView view_of(const Image& image) {
  return {image.height, image.width, image.channels, image.pixels.data()};
}

void copy_pixel(const uint8_t* row, int64_t x, int64_t channels, uint8_t* to) {
  if (x < 0) {
    std::memset(to, 0, static_cast<size_t>(channels));
  } else {
    std::memcpy(to, row + x * channels, static_cast<size_t>(channels));
  }
}

/// A window that reaches over the edges and is resampled: first the whole pixels around it are laid out.
void show_beyond(const Frame& frame, const Image& image, Image& out) {
  const Box& box = frame.box();
  const auto top = static_cast<int64_t>(std::floor(box.top)),
             left = static_cast<int64_t>(std::floor(box.left));
  const auto bottom = static_cast<int64_t>(std::ceil(box.top + box.height));
  const auto right = static_cast<int64_t>(std::ceil(box.left + box.width));
  Frame around(image.height, image.width);
  around.set_border(frame.border());
  around.crop(top, left, {bottom - top, right - left});
  Image laid_out;
  show(around, image, laid_out);
  resize(laid_out,
         {box.top - static_cast<double>(top), box.left - static_cast<double>(left), box.height, box.width},
         frame.height(), frame.width(), out, frame.filter());
}

/// Pixels [index[0]] and [index[1]] of an axis, -1 for black, and the share of the second.
struct Blend {
  int64_t index[2];
  float share;
};

Blend blend_at(double at, int64_t extent, ops::PadMode border) {
  const double from_centre = at - 0.5, below = std::floor(from_centre);
  const auto first = static_cast<int64_t>(below);
  Blend blend{{first, first + 1}, static_cast<float>(from_centre - below)};
  // Within half a pixel of a black border the nearest pixel stands for it.
  const bool inside = at >= 0 && at < static_cast<double>(extent);
  for (int64_t& index : blend.index) {
    index = border == ops::PadMode::kConstant && inside ? std::clamp<int64_t>(index, 0, extent - 1)
                                                        : ops::border_source(index, extent, border);
  }
  if (border == ops::PadMode::kConstant && !inside) blend.index[0] = blend.index[1] = -1;
  return blend;
}

void show_turned(const Frame& frame, const Image& image, Image& out) {
  const auto [a, b, c, d, e, f] = frame.affine();
  out.reshape(frame.height(), frame.width(), image.channels);
  uint8_t* to = out.pixels.data();
  for (int64_t y = 0; y < frame.height(); ++y) {
    for (int64_t x = 0; x < frame.width(); ++x, to += image.channels) {
      const double px = static_cast<double>(x) + 0.5, py = static_cast<double>(y) + 0.5;
      const Blend column = blend_at(a * px + b * py + c, image.width, frame.border());
      const Blend row = blend_at(d * px + e * py + f, image.height, frame.border());
      if (column.index[0] < 0 || row.index[0] < 0) {
        std::memset(to, 0, static_cast<size_t>(image.channels));
        continue;
      }
      const uint8_t *const upper = image.row(row.index[0]), *const lower = image.row(row.index[1]);
      for (int64_t channel = 0; channel < image.channels; ++channel) {
        const auto mix = [&](const uint8_t* line) {
          const auto left = static_cast<float>(line[column.index[0] * image.channels + channel]);
          const auto right = static_cast<float>(line[column.index[1] * image.channels + channel]);
          return left + (right - left) * column.share;
        };
        const float above = mix(upper), value = above + (mix(lower) - above) * row.share;
        to[channel] = static_cast<uint8_t>(value + 0.5f);
      }
    }
  }
}

/// The row or column of a mask that is seen at a place; -1: none.
int64_t mask_source(double at, int64_t extent, ops::PadMode border) {
  const auto pixel = static_cast<int64_t>(std::clamp(std::floor(at), -kFarthest, kFarthest));
  return ops::border_source(pixel, extent, border);
}

template <class T>
void show_turned_mask(const Frame& frame, const Image& mask, T* out) {
  const auto [a, b, c, d, e, f] = frame.affine();
  for (int64_t y = 0; y < frame.height(); ++y) {
    for (int64_t x = 0; x < frame.width(); ++x, ++out) {
      const double px = static_cast<double>(x) + 0.5, py = static_cast<double>(y) + 0.5;
      const int64_t column = mask_source(a * px + b * py + c, mask.width, frame.border());
      const int64_t row = mask_source(d * px + e * py + f, mask.height, frame.border());
      *out = row < 0 || column < 0 ? static_cast<T>(kMaskIgnore) : static_cast<T>(mask.row(row)[column]);
    }
  }
}

/// The columns of a mask that a row of what is shown takes, -1 for none.
class MaskColumns {
 public:
  MaskColumns(const Frame& frame, int64_t mask_width) {
    const auto [a, b, c, d, e, f] = frame.affine();
    for (int64_t x = 0; x < frame.width(); ++x)
      all_.push_back(mask_source(a * (static_cast<double>(x) + 0.5) + c, mask_width, frame.border()));
    if (std::ranges::min(all_) >= 0 && mask_width >= kReach && frame.width() % kLanes == 0) group(mask_width);
  }

  template <class T>
  void take(const uint8_t* row, T* out) const {
#ifdef __AVX2__
    const bool is_aligned = reinterpret_cast<uintptr_t>(out) % (kLanes * sizeof(T)) == 0;
    if (is_aligned && !groups_.empty()) {
      for (const Group& group : groups_) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + group.from));
        store(_mm_shuffle_epi8(bytes, _mm_cvtsi32_si128(group.offsets)), out);
        out += kLanes;
      }
      return;
    }
#endif
    for (const int64_t column : all_) *out++ = column < 0 ? static_cast<T>(kMaskIgnore) : T{row[column]};
  }

 private:
  static constexpr int64_t kLanes = 4, kReach = 16;
  /// Four columns that lie within 16 bytes.
  struct Group {
    int64_t from;
    int32_t offsets;
  };

  void group(int64_t mask_width) {
    for (size_t x = 0; x < all_.size(); x += kLanes) {
      const auto [least, most] = std::ranges::minmax(std::span(all_).subspan(x, kLanes));
      Group group{std::min(least, mask_width - kReach), 0};
      if (most - group.from >= kReach) return groups_.clear();
      for (int lane = 0; lane < kLanes; ++lane)
        group.offsets |= static_cast<int32_t>(all_[x + static_cast<size_t>(lane)] - group.from) << 8 * lane;
      groups_.push_back(group);
    }
  }
#ifdef __AVX2__
  static void store(__m128i bytes, uint8_t* out) {
    const int32_t four = _mm_cvtsi128_si32(bytes);
    std::memcpy(out, &four, sizeof four);
  }
  // Past the caches: the batch is larger than they are.
  static void store(__m128i bytes, int64_t* out) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(out), _mm256_cvtepu8_epi64(bytes));
  }
#endif

  std::vector<int64_t> all_;
  std::vector<Group> groups_;  // none: columns are taken one by one
};

/// Upright, rows and columns are looked up apart, and the columns once for all rows.
template <class T>
void show_mask_as(const Frame& frame, const Image& mask, T* out) {
  check_picture(frame, "a mask", mask.height, mask.width);
  SINTER_CHECK(mask.channels == 1, "[frame] expected a mask of 1 channel but got {}", mask.channels);
  if (!frame.is_upright()) return show_turned_mask(frame, mask, out);
  const auto [a, b, c, d, e, f] = frame.affine();
  const auto source_row = [&, e = e, f = f](int64_t y) {
    return mask_source(e * (static_cast<double>(y) + 0.5) + f, mask.height, frame.border());
  };
  const MaskColumns columns(frame, mask.width);
  for (int64_t y = 0; y < frame.height(); ++y, out += frame.width()) {
    const int64_t row = source_row(y);
    if (row >= 0) {
      columns.take(mask.row(row), out);
    } else {
      std::fill_n(out, frame.width(), static_cast<T>(kMaskIgnore));
    }
  }
#ifdef __AVX2__
  _mm_sfence();  // before another thread is told
#endif
}

}  // namespace

Frame::Frame(int64_t height, int64_t width)
    : picture_height_(static_cast<double>(height)),
      picture_width_(static_cast<double>(width)),
      height_(height),
      width_(width),
      box_{0, 0, static_cast<double>(height), static_cast<double>(width)} {
  SINTER_CHECK(height > 0 && width > 0, "[frame] expected a picture of at least 1 x 1 but got {} x {}",
               height, width);
}

void Frame::crop(int64_t top, int64_t left, Size2d size) {
  crop(Box{static_cast<double>(top), static_cast<double>(left), static_cast<double>(size.height),
           static_cast<double>(size.width)},
       size);
}

void Frame::crop(const Box& window, Size2d size) {
  SINTER_CHECK(window.height > 0 && window.width > 0 && size.height > 0 && size.width > 0,
               "[frame] expected a window with an area but got {} x {} as {} x {} pixels", window.height,
               window.width, size.height, size.width);
  if (turned_) {
    compose({window.width / static_cast<double>(size.width), 0, window.left, 0,
             window.height / static_cast<double>(size.height), window.top});
  } else {
    const double rows = box_.height / static_cast<double>(height_);
    const double columns = box_.width / static_cast<double>(width_);
    const double height = window.height * rows, width = window.width * columns;
    const double top = window.top * rows, left = window.left * columns;
    box_.top = flipped_ ? box_.top + box_.height - top - height : box_.top + top;
    box_.left = mirrored_ ? box_.left + box_.width - left - width : box_.left + left;
    box_.height = height;
    box_.width = width;
  }
  height_ = size.height;
  width_ = size.width;
}

void Frame::resize(Size2d size) {
  SINTER_CHECK(size.height > 0 && size.width > 0, "[frame] expected a size of at least 1 x 1 but got {} x {}",
               size.height, size.width);
  if (turned_) {
    compose({static_cast<double>(width_) / static_cast<double>(size.width), 0, 0, 0,
             static_cast<double>(height_) / static_cast<double>(size.height), 0});
  }
  height_ = size.height;
  width_ = size.width;
}

void Frame::flip_horizontal() {
  mirrored_ = !mirrored_;
  if (turned_) compose({-1, 0, static_cast<double>(width_), 0, 1, 0});
}

void Frame::flip_vertical() {
  flipped_ = !flipped_;
  if (turned_) compose({1, 0, 0, 0, -1, static_cast<double>(height_)});
}

void Frame::rotate(double degrees) {
  if (degrees == 0) return;
  SINTER_CHECK(std::isfinite(degrees), "[frame] expected an angle but got {}", degrees);
  // Rounded, so that a quarter turn leads to the pixels' centres and not beside the picture.
  const auto rounded = [](double value) { return std::round(value * 1e15) / 1e15; };
  const double angle = degrees * std::numbers::pi / 180;
  const double cos = rounded(std::cos(angle)), sin = rounded(std::sin(angle));
  const double x = static_cast<double>(width_) / 2, y = static_cast<double>(height_) / 2;
  if (!turned_) turned_ = affine();
  compose({cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y});
}

void Frame::compose(const std::array<double, 6>& inner) {
  const auto [a, b, c, d, e, f] = *turned_;
  const auto [ia, ib, ic, id, ie, jf] = inner;
  turned_ = {a * ia + b * id, a * ib + b * ie, a * ic + b * jf + c,
             d * ia + e * id, d * ib + e * ie, d * ic + e * jf + f};
}

bool Frame::is_exact() const {
  return is_upright() && box_.height == static_cast<double>(height_) &&
         box_.width == static_cast<double>(width_) && is_whole(box_.top) && is_whole(box_.left);
}

std::array<double, 6> Frame::affine() const {
  if (turned_) return *turned_;
  const double columns = box_.width / static_cast<double>(width_);
  const double rows = box_.height / static_cast<double>(height_);
  return {mirrored_ ? -columns : columns,
          0,
          mirrored_ ? box_.left + box_.width : box_.left,
          0,
          flipped_ ? -rows : rows,
          flipped_ ? box_.top + box_.height : box_.top};
}

void Frame::divide(int by) {
  SINTER_CHECK(is_upright(), "[frame] expected a frame that is not turned");
  for (double* const extent :
       {&picture_height_, &picture_width_, &box_.top, &box_.left, &box_.height, &box_.width})
    *extent /= by;
}

// The inside of a row is one copy; only pixels from beyond the edges are looked up one by one.
void copy_window(const detail::SampleView& image, const Frame& frame, uint8_t* out) {
  const auto top = static_cast<int64_t>(frame.box().top), left = static_cast<int64_t>(frame.box().left);
  const int64_t channels = image.channels, width = frame.width();
  const int64_t inside_begin = std::clamp<int64_t>(-left, 0, width);
  const int64_t inside_end = std::clamp<int64_t>(image.width - left, inside_begin, width);
  for (int64_t y = 0; y < frame.height(); ++y, out += width * channels) {
    const int64_t from_y = ops::border_source(y + top, image.height, frame.border());
    if (from_y < 0) {
      std::memset(out, 0, static_cast<size_t>(width * channels));
      continue;
    }
    const uint8_t* const from = image.pixels + from_y * image.width * channels;
    const auto look_up = [&](int64_t begin, int64_t end) {
      for (int64_t x = begin; x < end; ++x)
        copy_pixel(from, ops::border_source(x + left, image.width, frame.border()), channels,
                   out + x * channels);
    };
    look_up(0, inside_begin);
    if (inside_end > inside_begin) {
      std::memcpy(out + inside_begin * channels, from + (inside_begin + left) * channels,
                  static_cast<size_t>((inside_end - inside_begin) * channels));
    }
    look_up(inside_end, width);
  }
}

void show(const Frame& frame, const Image& image, Image& out) {
  check_picture(frame, "an image", image.height, image.width);
  if (!frame.is_upright()) return show_turned(frame, image, out);
  if (frame.is_exact()) {
    out.reshape(frame.height(), frame.width(), image.channels);
    copy_window(view_of(image), frame, out.pixels.data());
  } else {
    constexpr double kSlack = 1e-6;  // that resize() allows for
    const Box& box = frame.box();
    const bool inside = box.top >= -kSlack && box.left >= -kSlack &&
                        box.top + box.height <= frame.picture_height() + kSlack &&
                        box.left + box.width <= frame.picture_width() + kSlack;
    if (inside) {
      resize(image, box, frame.height(), frame.width(), out, frame.filter());
    } else {
      show_beyond(frame, image, out);
    }
  }
  turn_over(frame, out);
}

void show_mask(const Frame& frame, const Image& mask, uint8_t* out) {
  show_mask_as(frame, mask, out);
}

void show_mask(const Frame& frame, const Image& mask, int64_t* out) {
  show_mask_as(frame, mask, out);
}

void show_boxes(const Frame& frame, std::vector<ObjectBox>& boxes) {
  const auto [a, b, c, d, e, f] = frame.affine();
  const double determinant = a * e - b * d;
  const auto height = static_cast<double>(frame.height()), width = static_cast<double>(frame.width());
  std::erase_if(boxes, [&](ObjectBox& box) {
    double top = height, bottom = 0, left = width, right = 0;
    for (const double corner_y : {box.top, box.top + box.height}) {
      for (const double corner_x : {box.left, box.left + box.width}) {
        const double x = (e * (corner_x - c) - b * (corner_y - f)) / determinant;
        const double y = (a * (corner_y - f) - d * (corner_x - c)) / determinant;
        top = std::min(top, y);
        bottom = std::max(bottom, y);
        left = std::min(left, x);
        right = std::max(right, x);
      }
    }
    top = std::max(top, 0.0);
    left = std::max(left, 0.0);
    box = {top, left, std::min(bottom, height) - top, std::min(right, width) - left, box.label};
    return !(box.height > 0 && box.width > 0);
  });
}

void show(const Frame& frame, Sample& sample) {
  thread_local Image scratch;  // a buffer that is swapped with the parts of one sample after the other
  if (sample.image.height > 0) {
    show(frame, sample.image, scratch);
    std::swap(sample.image, scratch);
  }
  if (sample.mask.height > 0) {
    scratch.reshape(frame.height(), frame.width(), 1);
    show_mask(frame, sample.mask, scratch.pixels.data());
    std::swap(sample.mask, scratch);
  }
  show_boxes(frame, sample.boxes);
}

}  // namespace sinter::nn::data
