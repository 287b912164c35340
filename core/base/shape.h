// The extents of a dense, row-major tensor.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include <sinter/core/base/error.h>

namespace sinter {

/// The most axes a tensor can have.
inline constexpr int kMaxRank = 8;

/// The extents of a tensor, outermost axis first. A value of fixed size that never allocates, so that kernels
/// can take it by copy. Extents are >= 0; a shape of rank 0 has one element.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> extents) : Shape(std::span(extents.begin(), extents.size())) {}
  /// Throws InvalidArgument for more than kMaxRank axes, a negative extent, or a product beyond 2^59.
  explicit Shape(std::span<const int64_t> extents);

  int rank() const { return rank_; }
  /// The number of elements: the product of all extents.
  int64_t numel() const { return numel_; }
  /// Extent of `axis`; negative axes count from the back. Unchecked: use normalize_axis on user input.
  int64_t operator[](int axis) const { return extents_[static_cast<size_t>(axis < 0 ? axis + rank_ : axis)]; }

  const int64_t* begin() const { return extents_.data(); }
  const int64_t* end() const { return extents_.data() + rank_; }
  std::span<const int64_t> extents() const { return {begin(), end()}; }

  /// Elements of the axes [first, last): the product of their extents, 1 if there are none.
  int64_t count(int first, int last) const;
  /// Elements from one index of `axis` to the next.
  int64_t stride(int axis) const { return count(axis + 1, rank_); }

  /// This shape with the extent of `axis` replaced, with `axis` removed, or with an axis inserted before
  /// `axis`.
  Shape with(int axis, int64_t extent) const;
  Shape without(int axis) const;
  Shape inserted(int axis, int64_t extent) const;

  bool operator==(const Shape& other) const;

 private:
  std::array<int64_t, kMaxRank> extents_{};
  int64_t numel_ = 1;
  int rank_ = 0;
};

/// "(2, 3, 4)", "()" for a scalar.
std::string to_string(const Shape& shape);

/// Maps an axis in [-rank, rank) to [0, rank). Throws InvalidArgument, tagged, for any other.
int normalize_axis(int64_t axis, int rank, const char* tag);

/// The common shape under NumPy's broadcasting rules. Throws InvalidArgument, tagged, if there is none.
Shape broadcast_shapes(const Shape& a, const Shape& b, const char* tag);

}  // namespace sinter

template <>
struct fmt::formatter<sinter::Shape> : sinter::detail::TextFormatter {
  template <class Context>
  auto format(const sinter::Shape& shape, Context& context) const {
    return write(sinter::to_string(shape), context);
  }
};
