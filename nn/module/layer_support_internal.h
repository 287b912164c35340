// What layers say of themselves and check of their inputs.
#pragma once

#include <string>

#include <sinter/core/base/size2d.h>
#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::nn {

/// Throws InvalidArgument if `x` has rank 3, as an image without a batch has, and says how to give it one.
/// Whatever else is wrong is left to others.
void check_batch(const char* tag, const Tensor& x);

/// Throws InvalidArgument if images `x` (rank 4) lack `channels` where `layout` has them but have them where
/// the other layout has, and says how to set one layout for a whole model. Whatever else is wrong is left to
/// the op.
void check_channels(const char* tag, const Tensor& x, int64_t channels, Layout layout);

/// x as ops::reshape gives it.
Tensor reshaped(const Tensor& x, const Shape& shape);

/// "3x3".
std::string to_string(Size2d size);
std::string to_string(const Padding2d& padding);

}  // namespace sinter::nn
