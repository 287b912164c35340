// Size2d: a height and a width.
#pragma once

#include <array>
#include <cstdint>

namespace sinter::nn {

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

}  // namespace sinter::nn
