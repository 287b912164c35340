// The check of class weights that losses share.
#pragma once

#include <sinter/core/base/error.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::nn {

/// Throws InvalidArgument unless `weight` is (classes) of `dtype`.
inline void check_class_weights(const char* tag, const Tensor& weight, int64_t classes, DType dtype) {
  SINTER_CHECK(weight.shape() == Shape{classes} && weight.dtype() == dtype,
               "[{}] expected class weights {} ({},) but got {} {}", tag, dtype, classes, weight.dtype(),
               weight.shape());
}

}  // namespace sinter::nn
