// Size2d: a height and a width. Padding2d: what is added on the four sides of an image.
#pragma once

#include <array>
#include <cstdint>

namespace sinter {

/// A pair of extents for height and width; one number stands for both: `.kernel = 3`, `.kernel = {3, 5}`.
struct Size2d {
  int64_t height = 1;
  int64_t width = 1;

  constexpr Size2d() = default;
  constexpr Size2d(int64_t both) : height(both), width(both) {}  // NOLINT: meant to convert
  constexpr Size2d(int64_t h, int64_t w) : height(h), width(w) {}

  constexpr operator std::array<int64_t, 2>() const { return {height, width}; }  // NOLINT: what ops take
  constexpr bool operator==(const Size2d&) const = default;
};

/// Rows and columns added around an image. `.padding = 1`: on all sides; `.padding = {1, 2}`: one row above
/// and below, two columns left and right; `.padding = {0, 1, 0, 1}`: top, bottom, left, right.
struct Padding2d {
  int64_t top = 0;
  int64_t bottom = 0;
  int64_t left = 0;
  int64_t right = 0;

  constexpr Padding2d() = default;
  constexpr Padding2d(int64_t all) : Padding2d(all, all) {}  // NOLINT: meant to convert
  constexpr Padding2d(int64_t rows, int64_t columns) : Padding2d(rows, rows, columns, columns) {}
  constexpr Padding2d(Size2d size) : Padding2d(size.height, size.width) {}  // NOLINT: meant to convert
  constexpr Padding2d(int64_t t, int64_t b, int64_t l, int64_t r) : top(t), bottom(b), left(l), right(r) {}

  constexpr bool is_even() const { return top == bottom && left == right; }
  constexpr bool operator==(const Padding2d&) const = default;
};

/// The padding with which filters or windows of this size keep the height and width of an image at a stride
/// of 1; an odd one is larger below and to the right. PyTorch's padding="same".
constexpr Padding2d same_padding(Size2d kernel, Size2d dilation = 1) {
  const int64_t rows = dilation.height * (kernel.height - 1), columns = dilation.width * (kernel.width - 1);
  return {rows / 2, rows - rows / 2, columns / 2, columns - columns / 2};
}

}  // namespace sinter
