// Limits values to an interval.
#pragma once

#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

/// min(max(x, low), high), element by element; NaN stays NaN. Any dtype but bool; the bounds may be infinite,
/// and for integers they are narrowed to the whole numbers between them. Throws InvalidArgument unless low <=
/// high.
Tensor clip(const Tensor& x, double low, double high);

/// The gradient of clip: dy where low <= x <= high, else 0.
Tensor clip_grad(const Tensor& x, const Tensor& dy, double low, double high);

}  // namespace sinter::ops
