// Draws of the standard normal distribution, made where they are used.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include <sinter/core/op/attributes.h>
#include <sinter/core/runtime/random.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct RandomNormalAttributes {
  std::vector<int64_t> shape;
  DType dtype = DType::kFloat32;

  bool operator==(const RandomNormalAttributes&) const = default;
  template <class Self = RandomNormalAttributes>
  static constexpr auto fields() {
    return std::tuple(field("shape", &Self::shape), field("dtype", &Self::dtype));
  }
};

/// Independent draws of the standard normal distribution, in a floating-point dtype, on `device`; a job draws
/// anew in each step. Element i is the draw of Generator::normal() at the i-th block behind the generator's
/// place, up to rounding.
Tensor random_normal(const Shape& shape, DType dtype, Device device,
                     Generator& generator = default_generator());

namespace update {
/// The same with a key from random_key, on its device.
Tensor random_normal_with_key(const Tensor& key, const Shape& shape, DType dtype);
}  // namespace update

}  // namespace sinter::ops
