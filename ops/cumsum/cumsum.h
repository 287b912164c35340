// Sums of all elements so far.
#pragma once

#include <tuple>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct CumsumAttributes {
  int64_t axis = 0;
  bool reverse = false;  ///< of the elements from here to the end, which is the gradient
  bool operator==(const CumsumAttributes&) const = default;
  static constexpr auto fields() {
    return std::tuple(field("axis", &CumsumAttributes::axis), field("reverse", &CumsumAttributes::reverse));
  }
};

/// y[i] = x[0] + ... + x[i] along `axis`, from the back when negative. Floating-point dtypes stay (the 16-bit
/// ones add up in float32 and round once); integers and bool add up in int64. The order of summation depends
/// on the shape alone. Throws InvalidArgument for an axis out of range, as all are of rank 0.
Tensor cumsum(const Tensor& x, int64_t axis);

}  // namespace sinter::ops
