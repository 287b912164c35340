// The steps that random networks are made of.
#include <algorithm>

#include <sinter/autograd/backward.h>
#include <sinter/nn/layers/activation.h>
#include <sinter/nn/layers/conv2d.h>
#include <sinter/nn/layers/conv_transpose2d.h>
#include <sinter/nn/layers/norm/batch_norm.h>
#include <sinter/nn/layers/norm/group_norm.h>
#include <sinter/nn/layers/pool.h>
#include <sinter/nn/layers/simple.h>
#include <sinter/nn/layers/upsample.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/concat/concat.h>
#include <sinter/ops/conv2d/conv2d.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/l2_normalize/l2_normalize.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/pad/pad.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/slice/slice.h>
#include <sinter/ops/softmax/softmax.h>
#include <sinter/ops/unary/unary.h>

#include "nn/job/network_builder.h"
#include "nn/job/random_modules.h"

namespace sinter::nn::testing {

void NetworkBuilder::step() {
  using Member = void (NetworkBuilder::*)();
  static constexpr Member kSteps[] = {&NetworkBuilder::plain_convolution,
                                      &NetworkBuilder::plain_convolution,
                                      &NetworkBuilder::convolution_norm,
                                      &NetworkBuilder::convolution_norm,
                                      &NetworkBuilder::norm,
                                      &NetworkBuilder::norm,
                                      &NetworkBuilder::activation,
                                      &NetworkBuilder::activation,
                                      &NetworkBuilder::residual,
                                      &NetworkBuilder::residual,
                                      &NetworkBuilder::residual,
                                      &NetworkBuilder::two_of_a_shape,
                                      &NetworkBuilder::pool,
                                      &NetworkBuilder::stem,
                                      &NetworkBuilder::stem,
                                      &NetworkBuilder::concat,
                                      &NetworkBuilder::upsample,
                                      &NetworkBuilder::dropout,
                                      &NetworkBuilder::cut_gradient,
                                      &NetworkBuilder::twice,
                                      &NetworkBuilder::running_shift,
                                      &NetworkBuilder::standardized,
                                      &NetworkBuilder::gate,
                                      &NetworkBuilder::row_sum,
                                      &NetworkBuilder::same_again,
                                      &NetworkBuilder::change_layout,
                                      &NetworkBuilder::through_reshape,
                                      &NetworkBuilder::normalize,
                                      &NetworkBuilder::pad,
                                      &NetworkBuilder::constants,
                                      &NetworkBuilder::other_norm,
                                      &NetworkBuilder::transposed,
                                      &NetworkBuilder::changing_step,
                                      &NetworkBuilder::changing_step,
                                      &NetworkBuilder::unused};
  (this->*kSteps[maker_.integer(0, std::size(kSteps) - 1)])();
}

size_t NetworkBuilder::convolution(size_t v, int64_t channels, bool keeps_size) {
  const Image in = images_[v];
  Image out{channels, in.height, in.width, in.layout};
  Size2d kernel;
  Conv2dOptions options{.bias = maker_.chance(0.5), .layout = in.layout};
  if (keeps_size) {
    kernel = maker_.chance(0.5) ? 3 : 1;
    options.padding = kernel.height / 2;
  } else {
    kernel = {maker_.integer(1, 3), maker_.integer(1, 3)};
    options.stride = {maker_.integer(1, 2), maker_.integer(1, 2)};
    options.padding = {maker_.integer(0, 2), maker_.integer(0, 2)};
    if (maker_.chance(0.2)) ++options.padding.bottom, ++options.padding.right;
    options.dilation = maker_.chance(0.2) ? 2 : 1;
    const auto extent = [](int64_t size, int64_t side, int64_t stride, int64_t padding, int64_t dilation) {
      return (size + padding - dilation * (side - 1) - 1) / stride + 1;
    };
    if (in.height < 5 || in.width < 5) options.padding = 2, options.stride = 1;
    out.height = extent(in.height, kernel.height, options.stride.height,
                        options.padding.top + options.padding.bottom, options.dilation.height);
    out.width = extent(in.width, kernel.width, options.stride.width,
                       options.padding.left + options.padding.right, options.dilation.width);
  }
  if (maker_.chance(0.2)) {
    options.groups = in.channels;  // one filter, or several, for each channel
    out.channels = in.channels * maker_.integer(1, 2);
    if (keeps_size) out.channels = channels % in.channels == 0 ? channels : (options.groups = 1, channels);
  }
  return apply(
      v, out,
      fmt::format("Conv2d({} to {}, kernel {}x{}, stride {}x{}, groups {})", in.channels, out.channels,
                  kernel.height, kernel.width, options.stride.height, options.stride.width, options.groups),
      Conv2d(in.channels, out.channels, kernel, options));
}

void NetworkBuilder::plain_convolution() {
  convolution(any(), maker_.integer(1, 7), false);
}

void NetworkBuilder::convolution_norm() {
  activate(batch_norm(convolution(any(), maker_.integer(1, 7), maker_.chance(0.5))));
}

size_t NetworkBuilder::batch_norm(size_t v) {
  const Image image = images_[v];
  return apply(v, image, "BatchNorm2d",
               BatchNorm2d(image.channels, {.epsilon = norm_epsilon(), .layout = image.layout}));
}

void NetworkBuilder::norm() {
  activate(batch_norm(any()));
}

size_t NetworkBuilder::activate(size_t v) {
  const Image image = images_[v];
  switch (maker_.integer(0, 4)) {
    case 0:
      return v;
    case 1:
    case 2:
      return add(image, fmt::format("relu of v{}", v),
                 [=](const auto& values) { return ops::relu(values[v]); });
    case 3:
      return apply(v, image, "PReLU of channels", PReLU(image.channels, {.layout = image.layout}));
    default:
      return apply(v, image, "PReLU", PReLU(1, {.layout = image.layout}));
  }
}

void NetworkBuilder::activation() {
  const size_t v = any();
  switch (maker_.integer(0, 7)) {
    case 0:
      apply(v, images_[v], "SiLU", SiLU());
      break;
    case 1:
      apply(v, images_[v], "Tanh", Tanh());
      break;
    case 2:
      apply(v, images_[v], "GELU", GELU());
      break;
    case 3:
      apply(v, images_[v], "Hardswish", Hardswish());
      break;
    case 4:
      apply(v, images_[v], "Sigmoid", Sigmoid());
      break;
    default:
      activate(v);
  }
}

/// A new value of v's shape.
size_t NetworkBuilder::branch(size_t v) {
  size_t branch = convolution(v, images_[v].channels, true);
  if (maker_.chance(0.5)) branch = batch_norm(branch);
  return branch;
}

size_t NetworkBuilder::sum(size_t a, size_t b) {
  if (maker_.chance(0.5)) std::swap(a, b);
  return add(images_[a], fmt::format("v{} + v{}", a, b),
             [=](const auto& values) { return values[a] + values[b]; });
}

void NetworkBuilder::residual() {
  const size_t v = any();
  const size_t norm_of_branch = batch_norm(activate(branch(v)));
  const size_t total =
      sum(norm_of_branch, maker_.chance(0.3) ? batch_norm(convolution(v, images_[v].channels, true)) : v);
  activate(total);
}

void NetworkBuilder::two_of_a_shape() {
  const size_t a = any(), b = alike(a);
  switch (maker_.integer(0, 4)) {
    case 0:
      add(images_[a], fmt::format("v{} * v{}", a, b),
          [=](const auto& values) { return values[a] * values[b]; });
      break;
    case 1:
      add(images_[a], fmt::format("v{} - v{}", a, b),
          [=](const auto& values) { return values[a] - values[b]; });
      break;
    case 2:
      add(images_[a], fmt::format("maximum of v{} and v{}", a, b),
          [=](const auto& values) { return ops::maximum(values[a], values[b]); });
      break;
    default:
      activate(sum(a, b));
  }
}

void NetworkBuilder::pool() {
  const size_t v = any();
  const Size2d kernel{maker_.integer(2, 3), maker_.integer(2, 3)};
  const Size2d stride{maker_.integer(1, 2), maker_.integer(1, 2)};
  pool_by(v, kernel, stride, maker_.chance(0.5));
}

void NetworkBuilder::pool_by(size_t v, Size2d kernel, Size2d stride, bool is_max) {
  Image image = images_[v];
  if (image.height < 3 || image.width < 3) return;
  const Pool2dOptions options{.stride = stride,
                              .padding = maker_.integer(0, 1),
                              .layout = image.layout,
                              .count_include_pad = maker_.chance(0.5)};
  image.height =
      (image.height + options.padding.top + options.padding.bottom - kernel.height) / options.stride.height +
      1;
  image.width =
      (image.width + options.padding.left + options.padding.right - kernel.width) / options.stride.width + 1;
  if (is_max) {
    apply(v, image, "MaxPool2d", MaxPool2d(kernel, options));
  } else {
    apply(v, image, "AvgPool2d", AvgPool2d(kernel, options));
  }
}

/// As networks begin.
void NetworkBuilder::stem() {
  const size_t v = batch_norm(any());
  const size_t y = add(images_[v], fmt::format("relu of v{}", v),
                       [=](const auto& values) { return ops::relu(values[v]); });
  const Size2d kernel{maker_.integer(2, 3), maker_.integer(2, 3)};
  pool_by(y, kernel, maker_.chance(0.8) ? 2 : 1, /*is_max=*/true);
}

void NetworkBuilder::concat() {
  const size_t a = any(), b = alike(a);
  Image image = images_[a];
  image.channels *= 2;
  if (image.channels > 12) return;
  const int axis = channel_axis(image);
  add(image, fmt::format("concat of v{} and v{}", a, b), [=](const auto& values) {
    return ops::concat({values[a], values[b]}, axis);
  });
}

void NetworkBuilder::upsample() {
  const size_t v = any();
  Image image = images_[v];
  image.height = maker_.integer(4, 8);
  image.width = maker_.integer(4, 8);
  const auto mode = maker_.pick({UpsampleMode::kNearest, UpsampleMode::kBilinear});
  apply(v, image, "Upsample",
        Upsample({.size = Size2d{image.height, image.width}, .mode = mode, .layout = image.layout}));
}

void NetworkBuilder::dropout() {
  const size_t v = any();
  apply(v, images_[v], "Dropout", Dropout(0.25));
}

void NetworkBuilder::cut_gradient() {
  const size_t v = any();
  if (maker_.chance(0.5)) {
    const size_t cut = add(images_[v], fmt::format("v{} detached", v), [=](const auto& values) {
      const Tensor once = ops::tanh(values[v].detach());
      return once * ops::tanh(values[v].detach());
    });
    sum(v, cut);
    return;
  }
  const PReLU prelu = network_.child(fmt::format("m{}", modules_++), PReLU());
  const size_t cut = add(images_[v], fmt::format("PReLU of v{} while NoGrad", v), [=](const auto& values) {
    const NoGrad no_grad;
    return prelu(values[v]);
  });
  sum(cut, v);
}

void NetworkBuilder::twice() {
  const size_t v = any();
  const Image image = images_[v];
  const auto call_twice = [&](const std::string& text, auto module) {
    const std::string name = fmt::format("m{}", modules_++);
    const auto member = network_.child(name, std::move(module));
    const size_t once = add(image, fmt::format("{} = {} of v{}", name, text, v),
                            [=](const auto& values) { return member(values[v]); });
    const size_t again = activate(once);
    add(image, fmt::format("{} again, of v{}", name, again),
        [=](const auto& values) { return member(values[again]); });
  };
  if (maker_.chance(0.5)) {
    call_twice("Conv2d", Conv2d(image.channels, image.channels, 3, {.padding = 1, .layout = image.layout}));
  } else {
    call_twice("BatchNorm2d",
               BatchNorm2d(image.channels, {.epsilon = norm_epsilon(), .layout = image.layout}));
  }
}

void NetworkBuilder::running_shift() {
  const size_t v = any();
  const RunningShift shift =
      network_.child(fmt::format("m{}", modules_++), RunningShift(maker_.chance(0.5), network_.dtype_));
  const size_t once = add(images_[v], fmt::format("running shift of v{}", v),
                          [=](const auto& values) { return shift(values[v]); });
  if (maker_.chance(0.5)) {
    add(images_[v], fmt::format("the same running shift of v{}", v),
        [=](const auto& values) { return shift(values[v]); });
    sum(once, images_.size() - 1);
  }
}

void NetworkBuilder::standardized() {
  const size_t v = any();
  Image image = images_[v];
  if (image.height < 3 || image.width < 3) return;
  const int64_t channels = maker_.integer(1, 5);
  const StandardizedConv2d convolution(Tensor::zeros({channels, image.channels, 2, 2}, network_.dtype_),
                                       image.layout);
  image = {channels, image.height - 1, image.width - 1, image.layout};
  apply(v, image, "standardized convolution", convolution);
}

void NetworkBuilder::gate() {
  const size_t v = any();
  apply(v, images_[v], "Gate", Gate(images_[v].channels, images_[v].layout));
}

/// The first image is added to all: a view of a value that is read beside it.
void NetworkBuilder::row_sum() {
  const size_t v = any();
  const bool first = maker_.chance(0.5);
  add(images_[v], fmt::format("v{} and its first image, added", v), [=](const auto& values) {
    const Tensor row = ops::slice(values[v], 0, 0, 1);
    return first ? row + values[v] : values[v] + row;
  });
}

/// Equal calls.
void NetworkBuilder::same_again() {
  const size_t v = any();
  const bool grows = maker_.chance(0.5);
  const auto run = [=](const auto& values) {
    return grows ? ops::softplus(values[v]) : ops::relu(values[v]);
  };
  const size_t a = add(images_[v], fmt::format("{} of v{}", grows ? "softplus" : "relu", v), run);
  const size_t b = add(images_[v], "the same again", run);
  sum(a, b);
}

void NetworkBuilder::change_layout() {
  const size_t v = any();
  const Image image = images_[v];
  const Layout other = image.layout == Layout::kNCHW ? Layout::kNHWC : Layout::kNCHW;
  apply(v, {image.channels, image.height, image.width, other}, "ChangeLayout",
        ChangeLayout(image.layout, other));
}

void NetworkBuilder::through_reshape() {
  const size_t v = any();
  const Shape shape = shape_of(images_[v]);
  add(images_[v], fmt::format("relu of v{} as rows", v), [=](const auto& values) {
    const Tensor rows = ops::relu(ops::reshape(values[v], {shape[0], -1}));
    return ops::reshape(rows, {shape[0], shape[1], shape[2], shape[3]});
  });
}

void NetworkBuilder::normalize() {
  const size_t v = any();
  // Of one channel nothing is left but its sign, and norms of what is constant are nothing but roundings.
  if (images_[v].channels == 1) return;
  const int axis = channel_axis(images_[v]);
  if (maker_.chance(0.5)) {
    add(images_[v], fmt::format("softmax of v{}", v),
        [=](const auto& values) { return ops::softmax(values[v], axis); });
  } else {
    add(images_[v], fmt::format("v{} of length 1", v),
        [=](const auto& values) { return ops::l2_normalize(values[v] + 0.5, axis); });
  }
}

void NetworkBuilder::pad() {
  const size_t v = any();
  Image image = images_[v];
  if (image.height > 8 || image.width > 8) return;
  ++image.height;
  image.width += 2;
  const bool first = image.layout == Layout::kNCHW;
  add(image, fmt::format("v{} padded", v), [=](const auto& values) {
    return first ? ops::pad(values[v], {{0, 0}, {0, 0}, {1, 0}, {1, 1}})
                 : ops::pad(values[v], {{0, 0}, {1, 0}, {1, 1}, {0, 0}});
  });
}

/// A mask that is made from nothing but shapes, and one that the model brings along.
void NetworkBuilder::constants() {
  const size_t v = any();
  const Shape shape = shape_of(images_[v]);
  const Tensor mask = maker_.tensor(Shape{shape[1], 1, shape[3]}, 0.5, 1.5).to(network_.device_);
  add(images_[v], fmt::format("v{} times constants", v), [=](const auto& values) {
    const Tensor two = ops::full(Shape{1, shape[1], shape[2], 1}, 1.25, mask.dtype(), mask.device());
    return values[v] * (mask * mask) * two;
  });
}

void NetworkBuilder::other_norm() {
  const size_t v = any();
  const Image image = images_[v];
  apply(v, image, "GroupNorm",
        GroupNorm(maker_.chance(0.5) ? 1 : image.channels, image.channels,
                  {.epsilon = norm_epsilon(), .layout = image.layout}));
}

void NetworkBuilder::transposed() {
  const size_t v = any();
  const Image image = images_[v];
  if (image.height > 6 || image.width > 6) return;
  const int64_t channels = maker_.integer(1, 4), stride = maker_.integer(1, 2);
  apply(v, {channels, (image.height - 1) * stride + 2, (image.width - 1) * stride + 2, image.layout},
        "ConvTranspose2d",
        ConvTranspose2d(image.channels, channels, 2, {.stride = stride, .layout = image.layout}));
}

void NetworkBuilder::unused() {
  const size_t v = any();
  add(images_[v], fmt::format("exp of v{}, which nobody reads", v),
      [=](const auto& values) { return ops::exp(values[v] * 0.1), values[v] * 0.5; });
}

}  // namespace sinter::nn::testing
