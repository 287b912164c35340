// The attributes of fill_, which its kernels read.
#pragma once

#include <sinter/core/op/attributes.h>

namespace sinter::ops {

struct FillAttributes {
  double value = 0.0;

  bool operator==(const FillAttributes&) const = default;
  static constexpr auto fields() { return std::tuple(field("value", &FillAttributes::value)); }
};

}  // namespace sinter::ops
