// The attributes of argmax, which its kernels read.
#pragma once

#include <cstdint>

#include <sinter/core/op/attributes.h>

namespace sinter::ops {

struct ArgmaxAttributes {
  int64_t axis = -1;
  bool keep_dims = false;

  bool operator==(const ArgmaxAttributes&) const = default;
  static constexpr auto fields() {
    return std::tuple(field("axis", &ArgmaxAttributes::axis),
                      field("keep_dims", &ArgmaxAttributes::keep_dims));
  }
};

}  // namespace sinter::ops
