// The attributes of the ops that name a shape, which their kernels read; ReduceAttributes stands in reduce.h.
#pragma once

#include <cstdint>
#include <vector>

#include <sinter/core/op/attributes.h>

namespace sinter::ops {

/// Of sum_to and broadcast_to.
struct ShapeAttributes {
  std::vector<int64_t> shape;

  bool operator==(const ShapeAttributes&) const = default;
  static constexpr auto fields() { return std::tuple(field("shape", &ShapeAttributes::shape)); }
};

}  // namespace sinter::ops
