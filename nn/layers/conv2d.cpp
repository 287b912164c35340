#include <sinter/core/runtime/random.h>
#include <sinter/nn/init.h>
#include <sinter/nn/layers/conv2d.h>
#include <sinter/ops/conv2d/conv2d.h>

namespace sinter::nn {

Conv2d::Conv2d(int64_t in_channels, int64_t out_channels, const Conv2dOptions& options) : options_(options) {
  SINTER_CHECK(options.groups > 0, "[conv2d] expected groups > 0 but got {}", options.groups);
  SINTER_CHECK(
      in_channels > 0 && in_channels % options.groups == 0 && out_channels > 0 &&
          out_channels % options.groups == 0,
      "[conv2d] expected channel counts that are positive multiples of {} groups but got {} in, {} out",
      options.groups, in_channels, out_channels);
  const auto [height, width] = options.kernel;
  SINTER_CHECK(height > 0 && width > 0, "[conv2d] expected a kernel of positive size but got {} x {}", height,
               width);
  const Shape shape{out_channels, in_channels / options.groups, height, width};
  Generator& generator = default_generator();
  weight = parameter("weight", init::default_weight(shape, generator), {.layout = options.layout});
  if (options.bias) bias = parameter("bias", init::default_bias(shape, generator));
}

Tensor Conv2d::forward(const Tensor& x) const {
  return ops::conv2d(x, weight, bias,
                     {.stride = options_.stride,
                      .padding = options_.padding,
                      .dilation = options_.dilation,
                      .groups = options_.groups,
                      .layout = options_.layout});
}

}  // namespace sinter::nn
