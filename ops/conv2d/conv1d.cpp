#include <sinter/core/base/error.h>
#include <sinter/ops/conv2d/conv1d.h>
#include <sinter/ops/conv2d/conv2d.h>
#include <sinter/ops/reshape/reshape.h>

namespace sinter::ops {

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv1dOptions& options) {
  SINTER_CHECK(x.rank() == 3 && weight.rank() == 3,
               "[conv1d] expected x (N, C, L) and weight (O, C/groups, K) but got shapes {} and {}",
               x.shape(), weight.shape());
  return squeeze(conv2d(unsqueeze(x, 2), unsqueeze(weight, 2), bias,
                        {.stride = {1, options.stride},
                         .padding = {0, options.padding},
                         .dilation = {1, options.dilation},
                         .groups = options.groups}),
                 2);
}

}  // namespace sinter::ops
