// The attributes of topk and its gradient, which their kernels read.
#pragma once

#include <cstdint>

#include <sinter/core/op/attributes.h>

namespace sinter::ops {

struct TopKAttributes {
  int64_t k = 1;
  int64_t axis = -1;

  bool operator==(const TopKAttributes&) const = default;
  template <class Self = TopKAttributes>
  static constexpr auto fields() {
    return std::tuple(field("k", &Self::k), field("axis", &Self::axis));
  }
};

struct TopKGradAttributes {
  int64_t extent = 1;  ///< of the axis in the input of topk
  int64_t axis = -1;

  bool operator==(const TopKGradAttributes&) const = default;
  template <class Self = TopKGradAttributes>
  static constexpr auto fields() {
    return std::tuple(field("extent", &Self::extent), field("axis", &Self::axis));
  }
};

}  // namespace sinter::ops
