#include <cmath>

#include <sinter/core/runtime/random.h>
#include <sinter/nn/init/init.h>
#include <sinter/nn/layers/conv_transpose2d.h>
#include <sinter/nn/module/layer_support_internal.h>
#include <sinter/ops/conv2d/conv2d.h>
#include <sinter/ops/operators.h>

namespace sinter::nn {
namespace {

constexpr int64_t kLargestOption = 1 << 20;  // far beyond images, far from overflow

void check_pair(const char* name, Size2d pair, int64_t least) {
  for (const int64_t value : {pair.height, pair.width}) {
    SINTER_CHECK(value >= least && value <= kLargestOption,
                 "[conv_transpose2d] expected {} from {} to {} but got {}", name, least, kLargestOption,
                 to_string(pair));
  }
}

int64_t output_extent(int64_t input, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation,
                      int64_t output_padding) {
  return (input - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1;
}

}  // namespace

ConvTranspose2d::ConvTranspose2d(int64_t in_channels, int64_t out_channels, Size2d kernel,
                                 const ConvTranspose2dOptions& options)
    : kernel_(kernel), options_(options) {
  const int64_t groups = options.groups;
  SINTER_CHECK(groups > 0, "[conv_transpose2d] expected groups > 0 but got {}", groups);
  SINTER_CHECK(in_channels > 0 && in_channels % groups == 0 && out_channels > 0 && out_channels % groups == 0,
               "[conv_transpose2d] expected channel counts that are positive multiples of {} groups but got "
               "{} in, {} out",
               groups, in_channels, out_channels);
  check_pair("a kernel", kernel, 1);
  check_pair("a stride", options.stride, 1);
  check_pair("a dilation", options.dilation, 1);
  check_pair("a padding", options.padding, 0);
  check_pair("an output padding", options.output_padding, 0);
  SINTER_CHECK(options.output_padding.height < options.stride.height &&
                   options.output_padding.width < options.stride.width,
               "[conv_transpose2d] expected an output padding less than the stride but got {} for {}",
               to_string(options.output_padding), to_string(options.stride));
  const Shape shape{in_channels, out_channels / groups, kernel.height, kernel.width};
  Generator& generator = default_generator();
  weight = parameter("weight", init::default_weight(shape, generator), {.layout = options.layout});
  if (options.bias) {
    const double bound = 1.0 / std::sqrt(static_cast<double>(init::fan(shape, init::Fan::kIn)));
    bias = parameter("bias", init::uniform({out_channels}, -bound, bound, generator));
  }
  works_in(options.layout);
  std::string text = fmt::format("{}, {}, kernel {}", in_channels, out_channels, to_string(kernel));
  if (options.stride != Size2d(1)) text += ", stride " + to_string(options.stride);
  if (options.padding != Size2d(0)) text += ", padding " + to_string(options.padding);
  if (options.output_padding != Size2d(0)) text += ", output padding " + to_string(options.output_padding);
  describe(std::move(text));
}

Tensor ConvTranspose2d::forward(const Tensor& x) const {
  const bool is_first = layout() == Layout::kNCHW;
  const int64_t in_channels = weight.shape()[0];
  check_batch("conv_transpose2d", x);
  check_channels("conv_transpose2d", x, in_channels, layout());
  SINTER_CHECK(x.rank() == 4 && x.shape()[is_first ? 1 : 3] == in_channels,
               "[conv_transpose2d] expected images of {} channels in {} but got shape {}", in_channels,
               to_string(layout()), x.shape());
  const int height_axis = is_first ? 2 : 1;
  const Size2d &kernel = kernel_, &stride = options_.stride, &padding = options_.padding;
  const int64_t height = output_extent(x.shape()[height_axis], kernel.height, stride.height, padding.height,
                                       options_.dilation.height, options_.output_padding.height);
  const int64_t width = output_extent(x.shape()[height_axis + 1], kernel.width, stride.width, padding.width,
                                      options_.dilation.width, options_.output_padding.width);
  SINTER_CHECK(height > 0 && width > 0,
               "[conv_transpose2d] a padding of {} leaves nothing of the output for an input of shape {}",
               to_string(padding), x.shape());
  // It is the gradient of the convolution that goes from its output to its input.
  const Tensor y = ops::vjp::conv2d_input(x, weight, {height, width},
                                          {.stride = stride,
                                           .padding = padding,
                                           .dilation = options_.dilation,
                                           .groups = options_.groups,
                                           .layout = layout()});
  if (!bias.defined()) return y;
  const int64_t channels = bias.shape()[0];
  return y + reshaped(bias, is_first ? Shape{channels, 1, 1} : Shape{channels});
}

}  // namespace sinter::nn
