// Conversion between dtypes.
#pragma once

#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// x with every element converted to `dtype`; x itself if it has that dtype already. Between floating-point
/// dtypes the nearest value (ties to even), with a gradient. To integers the fraction is cut off, values
/// beyond the range give the nearest end of it, and NaN gives 0; integers to narrower integers wrap around.
/// To bool: whether x is not 0.
Tensor cast(const Tensor& x, DType dtype);

}  // namespace sinter::ops
