// The CUDA kernels of PReLU's two files.
#pragma once

#include <sinter/core/op/registry.h>
#include <sinter/ops/common/channel_view.h>
#include <sinter/ops/prelu/prelu.h>

namespace sinter::ops {

/// x by the slopes that `alpha` has for it; one channel if it has one element.
inline ChannelView prelu_view(const Shape& x, const Shape& alpha, Layout layout) {
  if (alpha.numel() == 1) return {.outer = 1, .channels = 1, .inner = x.numel()};
  const bool last = x.rank() <= 2 || layout == Layout::kNHWC;
  return channel_view(x, last ? x.rank() - 1 : 1);
}

void register_prelu_grad_cuda(OpRegistry& registry);

}  // namespace sinter::ops
