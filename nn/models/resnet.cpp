#include <algorithm>
#include <numeric>
#include <string>

#include <sinter/core/runtime/random.h>
#include <sinter/nn/init/init.h>
#include <sinter/nn/layers/activation.h>
#include <sinter/nn/layers/conv2d.h>
#include <sinter/nn/layers/pool.h>
#include <sinter/nn/models/resnet.h>
#include <sinter/nn/models/resnet_names.h>
#include <sinter/nn/models/squeeze_excite.h>
#include <sinter/nn/module/layer_support_internal.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/pad/pad.h>
#include <sinter/ops/pool/pool.h>

namespace sinter::nn {
namespace {

constexpr int64_t kBottleneckExpansion = 4;

/// A convolution as all of these networks have them: no bias, output of the input's size divided by the
/// stride.
Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride, Layout layout, int64_t groups = 1) {
  return Conv2d(in, out, kernel,
                {.stride = stride, .padding = kernel / 2, .groups = groups, .bias = false, .layout = layout});
}

/// Every stride-th pixel, between zero channels.
class PaddingShortcut : public Module {
 public:
  PaddingShortcut(int64_t in, int64_t out, int64_t stride, Layout layout)
      : before_((out - in) / 2), after_(out - in - before_), stride_(stride) {
    works_in(layout);
  }

  Tensor forward(const Tensor& x) const override {
    const Tensor subsampled = ops::avg_pool2d(x, 1, {.stride = stride_, .layout = layout()});
    std::vector<std::array<int64_t, 2>> padding(4, {0, 0});
    padding[layout() == Layout::kNCHW ? 1 : 3] = {before_, after_};
    return ops::pad(subsampled, padding);
  }

 private:
  int64_t before_, after_, stride_;
};

AnyModule shortcut(int64_t in, int64_t out, int64_t stride, const ResNetOptions& options) {
  if (in == out && stride == 1) return Identity();
  if (options.shortcut == Shortcut::kPadding) return PaddingShortcut(in, out, stride, options.layout);
  const BatchNorm2d norm(out, {.layout = options.layout});
  if (options.shortcut == Shortcut::kProjection)
    return Sequential(conv(in, out, 1, stride, options.layout), norm);
  const AnyModule pool =
      stride == 1
          ? AnyModule(Identity())
          : AnyModule(AvgPool2d(
                2,
                {.stride = stride, .layout = options.layout, .ceil_mode = true, .count_include_pad = false}));
  return Sequential(pool, conv(in, out, 1, 1, options.layout), norm);
}

AnyModule stem(const ResNetOptions& options) {
  const Layout layout = options.layout;
  const int64_t stride = options.small_stem ? 1 : 2, half = options.width / 2;
  if (!options.deep_stem)
    return conv(options.in_channels, options.width, options.small_stem ? 3 : 7, stride, layout);
  return Sequential(conv(options.in_channels, half, 3, stride, layout), BatchNorm2d(half, {.layout = layout}),
                    ReLU(), conv(half, half, 3, 1, layout), BatchNorm2d(half, {.layout = layout}), ReLU(),
                    conv(half, options.width, 3, 1, layout));
}

AnyModule squeeze_excite(int64_t channels, const ResNetOptions& options) {
  return SqueezeExcite(channels, {.layout = options.layout});
}

AnyModule stochastic_depth(double p, const ResNetOptions& options) {
  return StochasticDepth(p, options.stochastic_depth_mode);
}

/// Channels within the bottlenecks of a stage.
int64_t inner_width(int64_t width, const ResNetOptions& options) {
  return width * options.width_per_group / 64 * options.groups;
}

class BasicBlock : public Module {
 public:
  BasicBlock(int64_t in, int64_t width, int64_t stride, double drop, const ResNetOptions& options)
      : conv1_(child("conv1", conv(in, width, 3, stride, options.layout))),
        bn1_(child("bn1", BatchNorm2d(width, {.layout = options.layout}))),
        conv2_(child("conv2", conv(width, width, 3, 1, options.layout))),
        bn2_(child("bn2", BatchNorm2d(width, {.layout = options.layout}))),
        se_(options.squeeze_excite ? child("se", squeeze_excite(width, options)) : Identity()),
        downsample_(child("downsample", shortcut(in, width, stride, options))),
        drop_(drop > 0.0 ? child("drop_path", stochastic_depth(drop, options)) : Identity()) {
    if (options.zero_init_residual) bn2_.weight.assign(init::constant({width}, 0.0));
  }

  Tensor forward(const Tensor& x) const override {
    const Tensor y = ops::relu(bn1_(conv1_(x)));
    return ops::relu(drop_(se_(bn2_(conv2_(y)))) + downsample_(x));
  }

 private:
  Conv2d conv1_;
  BatchNorm2d bn1_;
  Conv2d conv2_;
  BatchNorm2d bn2_;
  AnyModule se_;
  AnyModule downsample_;
  AnyModule drop_;
};

class Bottleneck : public Module {
 public:
  Bottleneck(int64_t in, int64_t width, int64_t stride, double drop, const ResNetOptions& options)
      : out_(kBottleneckExpansion * width),
        inner_(inner_width(width, options)),
        conv1_(child("conv1", conv(in, inner_, 1, 1, options.layout))),
        bn1_(child("bn1", BatchNorm2d(inner_, {.layout = options.layout}))),
        conv2_(child("conv2", conv(inner_, inner_, 3, stride, options.layout, options.groups))),
        bn2_(child("bn2", BatchNorm2d(inner_, {.layout = options.layout}))),
        conv3_(child("conv3", conv(inner_, out_, 1, 1, options.layout))),
        bn3_(child("bn3", BatchNorm2d(out_, {.layout = options.layout}))),
        se_(options.squeeze_excite ? child("se", squeeze_excite(out_, options)) : Identity()),
        downsample_(child("downsample", shortcut(in, out_, stride, options))),
        drop_(drop > 0.0 ? child("drop_path", stochastic_depth(drop, options)) : Identity()) {
    if (options.zero_init_residual) bn3_.weight.assign(init::constant({out_}, 0.0));
  }

  Tensor forward(const Tensor& x) const override {
    Tensor y = ops::relu(bn1_(conv1_(x)));
    y = ops::relu(bn2_(conv2_(y)));
    return ops::relu(drop_(se_(bn3_(conv3_(y)))) + downsample_(x));
  }

 private:
  int64_t out_, inner_;
  Conv2d conv1_;
  BatchNorm2d bn1_;
  Conv2d conv2_;
  BatchNorm2d bn2_;
  Conv2d conv3_;
  BatchNorm2d bn3_;
  AnyModule se_;
  AnyModule downsample_;
  AnyModule drop_;
};

int64_t expansion(const ResNetArchitecture& architecture) {
  return architecture.bottleneck ? kBottleneckExpansion : 1;
}

/// The options, after a look at everything that the initialisers of members rely on.
const ResNetOptions& checked(const ResNetArchitecture& architecture, const ResNetOptions& options) {
  SINTER_CHECK(!architecture.blocks.empty() &&
                   std::ranges::all_of(architecture.blocks, [](int64_t count) { return count > 0; }),
               "[resnet] expected at least one stage, and at least one block in each");
  SINTER_CHECK(options.classes > 0 && options.in_channels > 0 && options.width > 0,
               "[resnet] expected positive numbers but got {} classes, {} input channels, width {}",
               options.classes, options.in_channels, options.width);
  SINTER_CHECK(
      options.groups > 0 && inner_width(options.width, options) > 0,
      "[resnet] expected groups of at least one channel but got {} groups, {} channels per group at a "
      "width of 64, width {}",
      options.groups, options.width_per_group, options.width);
  SINTER_CHECK(architecture.bottleneck || (options.groups == 1 && options.width_per_group == 64),
               "[resnet] expected basic blocks without groups but got {} groups of {} channels",
               options.groups, options.width_per_group);
  SINTER_CHECK(!options.deep_stem || options.width % 2 == 0,
               "[resnet] expected an even width for a deep stem but got {}", options.width);
  SINTER_CHECK(options.stochastic_depth >= 0.0 && options.stochastic_depth < 1.0,
               "[resnet] expected a probability of stochastic depth in [0, 1) but got {}",
               options.stochastic_depth);
  return options;
}

ResNet cifar_resnet(int64_t blocks_per_stage, const CifarResNetOptions& options) {
  return ResNet({.bottleneck = false, .blocks = {blocks_per_stage, blocks_per_stage, blocks_per_stage}},
                {.classes = options.classes,
                 .in_channels = options.in_channels,
                 .width = options.width,
                 .layout = options.layout,
                 .small_stem = true,
                 .zero_init_residual = options.zero_init_residual,
                 .shortcut = options.shortcut});
}

int64_t feature_count(const ResNetArchitecture& architecture, const ResNetOptions& options) {
  const auto last_stage = static_cast<int64_t>(architecture.blocks.size()) - 1;
  return (options.width << last_stage) * expansion(architecture);
}

}  // namespace

ResNet::ResNet(const ResNetArchitecture& architecture, const ResNetOptions& options)
    : conv1(child("conv1", stem(checked(architecture, options)))),
      bn1(child("bn1", BatchNorm2d(options.width, {.layout = options.layout}))),
      fc(Linear(feature_count(architecture, options), options.classes)),
      options_(options) {
  const int64_t last = std::accumulate(architecture.blocks.begin(), architecture.blocks.end(), int64_t{-1});
  int64_t channels = options.width, block = 0;
  for (size_t stage = 0; stage < architecture.blocks.size(); ++stage) {
    const int64_t width = options.width << stage;
    Sequential blocks;
    for (int64_t i = 0; i < architecture.blocks[stage]; ++i) {
      const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      const double drop =
          block == 0 ? 0.0
                     : options.stochastic_depth * static_cast<double>(block) / static_cast<double>(last);
      ++block;
      if (architecture.bottleneck) {
        blocks.add(Bottleneck(channels, width, stride, drop, options));
      } else {
        blocks.add(BasicBlock(channels, width, stride, drop, options));
      }
      channels = width * expansion(architecture);
    }
    stages.push_back(child("layer" + std::to_string(stage + 1), blocks));
  }
  child("fc", fc);
  for (const Parameter& parameter : parameters()) {
    if (parameter.tensor().rank() != 4) continue;
    parameter.assign(
        init::kaiming_normal(parameter.canonical_shape(), default_generator(), {.fan = init::Fan::kOut}));
  }
}

Tensor ResNet::before_stages(const Tensor& x) const {
  const bool is_channels_last = layout() == Layout::kNHWC;
  check_batch("resnet", x);
  SINTER_CHECK(x.rank() == 4 && x.size(is_channels_last ? 3 : 1) == options_.in_channels,
               "[resnet] expected images of {} channels in layout {} but got shape {}", options_.in_channels,
               to_string(layout()), x.shape());
  SINTER_CHECK(is_float(x.dtype()), "[resnet] expected images of a floating-point dtype but got {}",
               x.dtype());
  // Images of any floating-point dtype: those of a loader need not know what the model computes in.
  Tensor y = ops::relu(bn1(conv1(ops::cast(x, fc.weight.tensor().dtype()))));
  if (!options_.small_stem) {
    y = ops::max_pool2d(y, 3, {.stride = 2, .padding = 1, .layout = layout()});
  }
  return y;
}

Tensor ResNet::features(const Tensor& x) const {
  Tensor y = before_stages(x);
  for (const Sequential& stage : stages) y = stage(y);
  return ops::global_avg_pool2d(y, {.layout = layout()});
}

std::vector<Tensor> ResNet::feature_maps(const Tensor& x) const {
  std::vector<Tensor> maps;
  Tensor y = before_stages(x);
  for (const Sequential& stage : stages) maps.push_back(y = stage(y));
  return maps;
}

Tensor ResNet::forward(const Tensor& x) const {
  return fc(features(x));
}

ResNet resnet18(const ResNetOptions& options) {
  return make_resnet("resnet18", options);
}
ResNet resnet34(const ResNetOptions& options) {
  return make_resnet("resnet34", options);
}
ResNet resnet50(const ResNetOptions& options) {
  return make_resnet("resnet50", options);
}
ResNet resnet101(const ResNetOptions& options) {
  return make_resnet("resnet101", options);
}
ResNet resnet152(const ResNetOptions& options) {
  return make_resnet("resnet152", options);
}
ResNet resnext50_32x4d(const ResNetOptions& options) {
  return make_resnet("resnext50_32x4d", options);
}
ResNet resnext101_32x8d(const ResNetOptions& options) {
  return make_resnet("resnext101_32x8d", options);
}
ResNet resnext101_64x4d(const ResNetOptions& options) {
  return make_resnet("resnext101_64x4d", options);
}
ResNet wide_resnet50_2(const ResNetOptions& options) {
  return make_resnet("wide_resnet50_2", options);
}
ResNet wide_resnet101_2(const ResNetOptions& options) {
  return make_resnet("wide_resnet101_2", options);
}
ResNet resnet18d(const ResNetOptions& options) {
  return make_resnet("resnet18d", options);
}
ResNet resnet34d(const ResNetOptions& options) {
  return make_resnet("resnet34d", options);
}
ResNet resnet50d(const ResNetOptions& options) {
  return make_resnet("resnet50d", options);
}
ResNet resnet101d(const ResNetOptions& options) {
  return make_resnet("resnet101d", options);
}
ResNet seresnet18(const ResNetOptions& options) {
  return make_resnet("seresnet18", options);
}
ResNet seresnet34(const ResNetOptions& options) {
  return make_resnet("seresnet34", options);
}
ResNet seresnet50(const ResNetOptions& options) {
  return make_resnet("seresnet50", options);
}
ResNet seresnet101(const ResNetOptions& options) {
  return make_resnet("seresnet101", options);
}

ResNet resnet20(const CifarResNetOptions& options) {
  return cifar_resnet(3, options);
}
ResNet resnet32(const CifarResNetOptions& options) {
  return cifar_resnet(5, options);
}
ResNet resnet44(const CifarResNetOptions& options) {
  return cifar_resnet(7, options);
}
ResNet resnet56(const CifarResNetOptions& options) {
  return cifar_resnet(9, options);
}
ResNet resnet110(const CifarResNetOptions& options) {
  return cifar_resnet(18, options);
}

}  // namespace sinter::nn
