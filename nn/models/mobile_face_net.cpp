#include <algorithm>
#include <string>

#include <sinter/core/runtime/random.h>
#include <sinter/nn/init/init.h>
#include <sinter/nn/layers/activation.h>
#include <sinter/nn/layers/conv2d.h>
#include <sinter/nn/layers/linear.h>
#include <sinter/nn/layers/norm/batch_norm.h>
#include <sinter/nn/layers/simple.h>
#include <sinter/nn/models/mobile_face_net.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/operators.h>

namespace sinter::nn {
namespace {

constexpr int64_t kLast = 512;  // channels of the last maps, whatever the scale

/// A filter and what it changes.
struct Filter {
  int64_t in, out, kernel = 1, stride = 1, groups = 1;
  bool same = true;  ///< padded so that, but for the stride, the image keeps its size
  bool keep_float32 = false;
};

Sequential make_chain(const Filter& filter, bool activated, Layout layout) {
  Sequential chain(Conv2d(filter.in, filter.out, filter.kernel,
                          {.stride = filter.stride,
                           .padding = filter.same ? filter.kernel / 2 : 0,
                           .groups = filter.groups,
                           .bias = false,
                           .layout = layout,
                           .keep_float32 = filter.keep_float32}),
                   BatchNorm2d(filter.out, {.layout = layout}));
  if (activated) chain.add(PReLU(filter.out, {.layout = layout}));
  return chain;
}

/// A chain in a member "layers", as InsightFace nests them.
class Block : public Module {
 public:
  explicit Block(const Sequential& chain) : layers_(child("layers", chain)) {}
  Tensor forward(const Tensor& x) const override { return layers_(x); }

 private:
  Sequential layers_;
};

Block conv_block(const Filter& filter, Layout layout) {
  return Block(make_chain(filter, true, layout));
}
Block linear_block(const Filter& filter, Layout layout) {
  return Block(make_chain(filter, false, layout));
}

/// Widens to `middle` channels, filters each of them, and narrows to `out`.
class DepthWise : public Module {
 public:
  DepthWise(int64_t in, int64_t middle, int64_t out, int64_t stride, bool residual, Layout layout)
      : residual_(residual),
        layers_(child(
            "layers",
            Sequential(
                conv_block({.in = in, .out = middle}, layout),
                conv_block({.in = middle, .out = middle, .kernel = 3, .stride = stride, .groups = middle},
                           layout),
                linear_block({.in = middle, .out = out}, layout)))) {}

  Tensor forward(const Tensor& x) const override { return residual_ ? x + layers_(x) : layers_(x); }

 private:
  bool residual_;
  Sequential layers_;
};

Block residuals(int64_t count, int64_t channels, int64_t middle, Layout layout) {
  Sequential chain;
  for (int64_t i = 0; i < count; ++i) chain.add(DepthWise(channels, middle, channels, 1, true, layout));
  return Block(chain);
}

const MobileFaceNetOptions& checked(const std::vector<int64_t>& blocks, const MobileFaceNetOptions& options) {
  SINTER_CHECK(blocks.size() == 4 && std::ranges::all_of(blocks, [](int64_t count) { return count > 0; }),
               "[mobile_face_net] expected four parts, and at least one block in each");
  SINTER_CHECK(
      options.dimensions > 0 && options.in_channels > 0 && options.scale > 0,
      "[mobile_face_net] expected positive numbers but got {} dimensions, {} input channels, scale {}",
      options.dimensions, options.in_channels, options.scale);
  const auto [height, width] = options.image_size;
  SINTER_CHECK(std::min(height, width) > 96 && std::max(height, width) <= 112,
               "[mobile_face_net] expected images with sides from 97 to 112 but got {}x{}", height, width);
  return options;
}

Sequential body(const std::vector<int64_t>& blocks, const MobileFaceNetOptions& options) {
  const Layout layout = options.layout;
  const int64_t narrow = 64 * options.scale, wide = 128 * options.scale;
  Sequential layers;
  layers.add(conv_block({.in = options.in_channels, .out = narrow, .kernel = 3, .stride = 2}, layout));
  if (blocks[0] == 1) {
    layers.add(conv_block({.in = narrow, .out = narrow, .kernel = 3, .groups = 64}, layout));
  } else {
    layers.add(residuals(blocks[0], narrow, 128, layout));
  }
  layers.add(DepthWise(narrow, 128, narrow, 2, false, layout));
  layers.add(residuals(blocks[1], narrow, 128, layout));
  layers.add(DepthWise(narrow, 256, wide, 2, false, layout));
  layers.add(residuals(blocks[2], wide, 256, layout));
  layers.add(DepthWise(wide, 512, wide, 2, false, layout));
  layers.add(residuals(blocks[3], wide, 256, layout));
  return layers;
}

/// The last map to embeddings.
Block head(const MobileFaceNetOptions& options) {
  return Block(Sequential(
      linear_block(
          {.in = kLast, .out = kLast, .kernel = 7, .groups = kLast, .same = false, .keep_float32 = true},
          options.layout),
      Flatten(options.layout), Linear(kLast, options.dimensions, {.bias = false, .keep_float32 = true}),
      BatchNorm1d(options.dimensions)));
}

}  // namespace

MobileFaceNet::MobileFaceNet(const std::vector<int64_t>& blocks, const MobileFaceNetOptions& options)
    : layers(child("layers", body(blocks, checked(blocks, options)))),
      conv_sep(child("conv_sep",
                     AnyModule(conv_block({.in = 128 * options.scale, .out = kLast, .keep_float32 = true},
                                          options.layout)))),
      features(child("features", AnyModule(head(options)))),
      first_weight_(layers.parameters().front()),
      options_(options) {
  for (const Parameter& parameter : parameters()) {
    const Shape shape = parameter.canonical_shape();
    if (shape.rank() > 1)
      parameter.assign(init::kaiming_normal(shape, default_generator(), {.fan = init::Fan::kOut}));
  }
}

Tensor MobileFaceNet::forward(const Tensor& x) const {
  const auto [height, width] = options_.image_size;
  const bool is_channels_last = layout() == Layout::kNHWC;
  const Shape image = is_channels_last ? Shape{height, width, options_.in_channels}
                                       : Shape{options_.in_channels, height, width};
  SINTER_CHECK(
      x.rank() == 4 && x.shape().without(0) == image,
      "[mobile_face_net] expected images of {} channels and size {}x{} in layout {} but got shape {}",
      options_.in_channels, height, width, to_string(layout()), x.shape());
  SINTER_CHECK(is_float(x.dtype()), "[mobile_face_net] expected images of a floating-point dtype but got {}",
               x.dtype());
  return features(conv_sep(layers(ops::cast(x, first_weight_.tensor().dtype()))));
}

MobileFaceNet mobile_face_net(const MobileFaceNetOptions& options) {
  return MobileFaceNet({1, 4, 6, 2}, options);
}
MobileFaceNet mobile_face_net_large(const MobileFaceNetOptions& options) {
  MobileFaceNetOptions wider = options;
  wider.scale *= 2;
  return MobileFaceNet({2, 8, 12, 4}, wider);
}

}  // namespace sinter::nn
