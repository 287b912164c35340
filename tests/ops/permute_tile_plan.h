// Which tiles a permutation of tensors that begin with units is cut into.
#pragma once

#include <vector>

#include <sinter/ops/permute/permute_tiles_cuda.h>

namespace sinter::ops {

template <class T>
TileJob plan_of(const std::vector<int64_t>& extents, const std::vector<int>& axes) {
  return plan_tiles(plan_permute(Shape(extents), axes), sizeof(T), 0, 0);
}

}  // namespace sinter::ops
