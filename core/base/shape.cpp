#include <algorithm>

#include <sinter/core/base/checked.h>
#include <sinter/core/base/shape.h>

namespace sinter {

Shape::Shape(std::span<const int64_t> extents) {
  SINTER_CHECK(extents.size() <= static_cast<size_t>(kMaxRank), "[shape] expected at most {} axes but got {}",
               kMaxRank, extents.size());
  rank_ = static_cast<int>(extents.size());
  // The product is checked over the non-zero extents, so that (2^40, 2^40, 0) is refused too: reshapes of it
  // could not be represented.
  int64_t product = 1;
  bool empty = false;
  for (size_t i = 0; i < extents.size(); ++i) {
    const int64_t extent = extents[i];
    SINTER_CHECK(extent >= 0, "[shape] expected extents >= 0 but axis {} has {}", i, extent);
    extents_[i] = extent;
    if (extent == 0) {
      empty = true;
      continue;
    }
    SINTER_CHECK(product <= kMaxElements / extent, "[shape] the number of elements exceeds 2^59");
    product *= extent;
  }
  numel_ = empty ? 0 : product;
}

int64_t Shape::count(int first, int last) const {
  int64_t product = 1;
  for (int i = first; i < last; ++i) product *= extents_[static_cast<size_t>(i)];
  return product;
}

Shape Shape::with(int axis, int64_t extent) const {
  std::array<int64_t, kMaxRank> extents = extents_;
  extents[static_cast<size_t>(axis)] = extent;
  return Shape(std::span<const int64_t>(extents.data(), static_cast<size_t>(rank_)));
}

Shape Shape::without(int axis) const {
  std::array<int64_t, kMaxRank> extents{};
  auto out = std::copy(begin(), begin() + axis, extents.begin());
  std::copy(begin() + axis + 1, end(), out);
  return Shape(std::span<const int64_t>(extents.data(), static_cast<size_t>(rank_ - 1)));
}

Shape Shape::inserted(int axis, int64_t extent) const {
  std::array<int64_t, kMaxRank + 1> extents{};
  auto out = std::copy(begin(), begin() + axis, extents.begin());
  *out++ = extent;
  std::copy(begin() + axis, end(), out);
  return Shape(std::span<const int64_t>(extents.data(), static_cast<size_t>(rank_ + 1)));
}

bool Shape::operator==(const Shape& other) const {
  return rank_ == other.rank_ && std::equal(begin(), end(), other.begin());
}

std::string to_string(const Shape& shape) {
  std::string text = "(";
  for (int i = 0; i < shape.rank(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  if (shape.rank() == 1) text += ",";
  return text + ")";
}

int normalize_axis(int64_t axis, int rank, const char* tag) {
  SINTER_CHECK(axis >= -rank && axis < rank, "[{}] axis {} is out of range for a tensor of rank {}", tag,
               axis, rank);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Shape broadcast_shapes(const Shape& a, const Shape& b, const char* tag) {
  const int rank = std::max(a.rank(), b.rank());
  std::array<int64_t, kMaxRank> extents{};
  for (int i = 1; i <= rank; ++i) {
    const int64_t x = i <= a.rank() ? a[-i] : 1;
    const int64_t y = i <= b.rank() ? b[-i] : 1;
    SINTER_CHECK(x == y || x == 1 || y == 1, "[{}] shapes {} and {} cannot be broadcast together", tag, a, b);
    extents[static_cast<size_t>(rank - i)] = x == 1 ? y : x;
  }
  return Shape(std::span<const int64_t>(extents.data(), static_cast<size_t>(rank)));
}

}  // namespace sinter
