// IntList: a few integers, such as axes or extents, from one number or several.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include <sinter/core/base/shape.h>

namespace sinter {

/// What functions take that want axes, or extents of which one may be -1: `x.sum(1)`, `x.sum({0, -1})`,
/// `x.reshape({2, -1})`, `x.reshape(y.shape())`. At most kMaxRank integers, held in place.
class IntList {
 public:
  IntList() = default;
  template <std::integral T>
  IntList(T one) : values_{static_cast<int64_t>(one)}, size_(1) {}  // NOLINT: meant to convert
  IntList(std::initializer_list<int64_t> values) : IntList(std::span(values.begin(), values.size())) {}
  IntList(const std::vector<int64_t>& values) : IntList(std::span(values)) {}  // NOLINT: meant to convert
  IntList(const Shape& shape) : IntList(shape.extents()) {}                    // NOLINT: meant to convert
  /// Throws InvalidArgument for more than kMaxRank integers.
  explicit IntList(std::span<const int64_t> values) : size_(values.size()) {
    SINTER_CHECK(values.size() <= values_.size(), "[tensor] expected at most {} integers but got {}",
                 kMaxRank, values.size());
    for (size_t i = 0; i < size_; ++i) values_[i] = values[i];
  }

  std::span<const int64_t> values() const { return {values_.data(), size_}; }
  std::vector<int64_t> to_vector() const {
    return {values_.begin(), values_.begin() + static_cast<int>(size_)};
  }

 private:
  std::array<int64_t, kMaxRank> values_{};
  size_t size_ = 0;
};

}  // namespace sinter
