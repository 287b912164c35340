// The attributes of argmax, which its kernels read.
#pragma once

#include <cstdint>

#include <sinter/core/op/attributes.h>

namespace sinter::ops {

struct ArgmaxAttributes {
  int64_t axis = -1;
  bool keep_dims = false;

  bool operator==(const ArgmaxAttributes&) const = default;
  template <class Self = ArgmaxAttributes>
  static constexpr auto fields() {
    return std::tuple(field("axis", &Self::axis), field("keep_dims", &Self::keep_dims));
  }
};

}  // namespace sinter::ops
