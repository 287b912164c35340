// Padding around a tensor.
#pragma once

#include <array>
#include <string_view>
#include <tuple>
#include <vector>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// Where the new elements come from. For the row "a b c d" padded by two on both sides:
enum class PadMode : uint8_t {
  kConstant,   ///< v v a b c d v v
  kReflect,    ///< c b a b c d c b
  kReplicate,  ///< a a a b c d d d
};

/// "constant", "reflect" or "replicate".
std::string_view to_string(PadMode mode);

struct PadAttributes {
  std::vector<std::array<int64_t, 2>> padding;  ///< of every axis: elements before and after
  PadMode mode = PadMode::kConstant;
  double value = 0.0;  ///< of the new elements under kConstant
  bool operator==(const PadAttributes&) const = default;
  template <class Self = PadAttributes>
  static constexpr auto fields() {
    return std::tuple(field("padding", &Self::padding), field("mode", &Self::mode),
                      field("value", &Self::value));
  }
};

struct PadOptions {
  PadMode mode = PadMode::kConstant;
  double value = 0.0;  ///< of the new elements under kConstant
};

/// x with padding[i] = {before, after} new elements around axis i; one pair per axis of x. Any dtype.
/// Throws InvalidArgument for negative amounts, under kReflect unless they are smaller than the axis, and
/// under kReplicate if a padded axis is empty.
Tensor pad(const Tensor& x, std::vector<std::array<int64_t, 2>> padding, const PadOptions& options = {});

namespace vjp {
/// The gradient of pad: every element of dx is the sum of the elements of dy that pad copied from it.
Tensor pad(const Tensor& dy, std::vector<std::array<int64_t, 2>> padding, PadMode mode = PadMode::kConstant);
}  // namespace vjp

}  // namespace sinter::ops
