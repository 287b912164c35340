#include <algorithm>
#include <vector>

#include <sinter/nn/models/squeeze_excite.h>
#include <sinter/nn/module/layer_support_internal.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/pool/pool.h>
#include <sinter/ops/reshape/reshape.h>

namespace sinter::nn {
namespace {

int64_t squeezed_channels(int64_t channels, const SqueezeExciteOptions& options) {
  SINTER_CHECK(channels > 0 && options.squeezed >= 0,
               "[squeeze_excite] expected a positive number of channels, and none that is negative between "
               "the convolutions, but got {} and {}",
               channels, options.squeezed);
  if (options.squeezed > 0) return options.squeezed;
  return std::max<int64_t>(8, (channels + 64) / 128 * 8);  // of channels / 16, the nearest multiple of 8
}

}  // namespace

SqueezeExcite::SqueezeExcite(int64_t channels, const SqueezeExciteOptions& options)
    : fc1(child("fc1",
                Conv2d(channels, squeezed_channels(channels, options), 1, {.layout = options.layout}))),
      fc2(child("fc2",
                Conv2d(squeezed_channels(channels, options), channels, 1, {.layout = options.layout}))) {}

Tensor SqueezeExcite::forward(const Tensor& x) const {
  check_batch("squeeze_excite", x);
  SINTER_CHECK(x.rank() == 4, "[squeeze_excite] expected images of rank 4 but got shape {}", x.shape());
  const Tensor mean = ops::global_avg_pool2d(x, {.layout = layout()});
  const int64_t images = mean.size(0), channels = mean.size(1);
  std::vector<int64_t> pixel{images, 1, 1, 1};
  pixel[layout() == Layout::kNHWC ? 3 : 1] = channels;
  return x * ops::sigmoid(fc2(ops::relu(fc1(ops::reshape(mean, pixel)))));
}

}  // namespace sinter::nn
