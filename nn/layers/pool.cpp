#include <sinter/nn/layers/pool.h>
#include <sinter/ops/pool/pool.h>

namespace sinter::nn {
namespace {

ops::PoolOptions op_options(const Pool2dOptions& options) {
  return {.kernel = options.kernel,
          .stride = options.stride.value_or(options.kernel),
          .padding = options.padding,
          .layout = options.layout,
          .ceil_mode = options.ceil_mode,
          .count_include_pad = options.count_include_pad};
}

}  // namespace

Tensor MaxPool2d::forward(const Tensor& x) const {
  return ops::max_pool2d(x, op_options(options_));
}
Tensor AvgPool2d::forward(const Tensor& x) const {
  return ops::avg_pool2d(x, op_options(options_));
}
Tensor GlobalAvgPool2d::forward(const Tensor& x) const {
  return ops::global_avg_pool2d(x, layout_);
}

}  // namespace sinter::nn
