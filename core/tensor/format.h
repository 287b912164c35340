// Tensors in words.
#pragma once

#include <iosfwd>
#include <string>

#include <sinter/core/tensor/tensor.h>

namespace sinter {

struct TensorFormat {
  int precision = 4;         ///< digits of a floating-point number that count
  int64_t threshold = 1000;  ///< tensors with more elements are abridged
  int64_t edge = 3;          ///< elements shown at either end of each axis of an abridged tensor
};

/// The spec and the values, in nested brackets, from any device:
///   float32 (2, 3) on cpu
///   [[     1,    0.5,     -2],
///    [ 1e-05,    nan,      3]]
/// A large tensor shows the ends of each axis only, and only those are copied from its device. "undefined
/// tensor" for an undefined one. Waits for the device.
std::string to_string(const Tensor& tensor, const TensorFormat& format = {});

std::ostream& operator<<(std::ostream& stream, const Tensor& tensor);

}  // namespace sinter

template <>
struct fmt::formatter<sinter::Tensor> : sinter::detail::TextFormatter {
  template <class Context>
  auto format(const sinter::Tensor& tensor, Context& context) const {
    return write(sinter::to_string(tensor), context);
  }
};
