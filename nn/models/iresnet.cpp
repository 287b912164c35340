#include <algorithm>
#include <cmath>
#include <string>

#include <sinter/core/runtime/random.h>
#include <sinter/nn/init/init.h>
#include <sinter/nn/models/iresnet.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/operators.h>

namespace sinter::nn {
namespace {

Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride, Layout layout) {
  return Conv2d(in, out, kernel, {.stride = stride, .padding = kernel / 2, .bias = false, .layout = layout});
}

BatchNorm2d norm(int64_t channels, Layout layout) {
  return BatchNorm2d(channels, {.layout = layout});
}

AnyModule shortcut(int64_t in, int64_t out, int64_t stride, Layout layout) {
  if (in == out && stride == 1) return Identity();
  return Sequential(conv(in, out, 1, stride, layout), norm(out, layout));
}

class IResNetBlock : public Module {
 public:
  IResNetBlock(int64_t in, int64_t out, int64_t stride, Layout layout)
      : bn1_(child("bn1", norm(in, layout))),
        conv1_(child("conv1", conv(in, out, 3, 1, layout))),
        bn2_(child("bn2", norm(out, layout))),
        prelu_(child("prelu", PReLU(out, {.layout = layout}))),
        conv2_(child("conv2", conv(out, out, 3, stride, layout))),
        bn3_(child("bn3", norm(out, layout))),
        downsample_(child("downsample", shortcut(in, out, stride, layout))) {}

  Tensor forward(const Tensor& x) const override {
    const Tensor y = prelu_(bn2_(conv1_(bn1_(x))));
    return bn3_(conv2_(y)) + downsample_(x);
  }

 private:
  BatchNorm2d bn1_;
  Conv2d conv1_;
  BatchNorm2d bn2_;
  PReLU prelu_;
  Conv2d conv2_;
  BatchNorm2d bn3_;
  AnyModule downsample_;
};

/// The options, after a look at everything that the initialisers of members rely on.
const IResNetOptions& checked(const std::vector<int64_t>& blocks, const IResNetOptions& options) {
  SINTER_CHECK(!blocks.empty() && std::ranges::all_of(blocks, [](int64_t count) { return count > 0; }),
               "[iresnet] expected at least one stage, and at least one block in each");
  SINTER_CHECK(options.dimensions > 0 && options.in_channels > 0 && options.width > 0,
               "[iresnet] expected positive numbers but got {} dimensions, {} input channels, width {}",
               options.dimensions, options.in_channels, options.width);
  SINTER_CHECK(options.init_std >= 0.0 && std::isfinite(options.init_std),
               "[iresnet] expected a deviation >= 0 but got {}", options.init_std);
  SINTER_CHECK(options.image_size.height > 0 && options.image_size.width > 0,
               "[iresnet] expected images of a positive size but got {}x{}", options.image_size.height,
               options.image_size.width);
  return options;
}

int64_t last_width(const std::vector<int64_t>& blocks, const IResNetOptions& options) {
  return options.width << (blocks.size() - 1);
}

/// What the fully connected layer sees of an image.
int64_t flat_size(const std::vector<int64_t>& blocks, const IResNetOptions& options) {
  auto [height, width] = options.image_size;
  for (size_t stage = 0; stage < blocks.size(); ++stage) {
    height = (height + 1) / 2;
    width = (width + 1) / 2;
  }
  return last_width(blocks, options) * height * width;
}

}  // namespace

IResNet::IResNet(const std::vector<int64_t>& blocks, const IResNetOptions& options)
    : conv1(child("conv1", conv(checked(blocks, options).in_channels, options.width, 3, 1, options.layout))),
      bn1(child("bn1", norm(options.width, options.layout))),
      prelu(child("prelu", PReLU(options.width, {.layout = options.layout}))),
      bn2(norm(last_width(blocks, options), options.layout)),
      flatten(options.layout),
      dropout(options.dropout),
      fc(flat_size(blocks, options), options.dimensions, {.keep_float32 = true}),
      features(options.dimensions),
      options_(options) {
  int64_t channels = options.width;
  for (size_t stage = 0; stage < blocks.size(); ++stage) {
    const int64_t width = options.width << stage;
    Sequential chain;
    for (int64_t i = 0; i < blocks[stage]; ++i) {
      chain.add(IResNetBlock(channels, width, i == 0 ? 2 : 1, options.layout));
      channels = width;
    }
    stages.push_back(child("layer" + std::to_string(stage + 1), chain));
  }
  child("bn2", bn2);
  child("flatten", flatten);
  child("dropout", dropout);
  child("fc", fc);
  child("features", features);
  features.weight.tensor().set_requires_grad(false);
  for (const Parameter& parameter : parameters()) {
    if (parameter.tensor().rank() != 4 || options.init_std == 0.0) continue;
    parameter.assign(init::normal(parameter.canonical_shape(), 0.0, options.init_std, default_generator()));
  }
}

Tensor IResNet::forward(const Tensor& x) const {
  const auto [height, width] = options_.image_size;
  const bool is_channels_last = layout() == Layout::kNHWC;
  const Shape image = is_channels_last ? Shape{height, width, options_.in_channels}
                                       : Shape{options_.in_channels, height, width};
  SINTER_CHECK(x.rank() == 4 && x.shape().without(0) == image,
               "[iresnet] expected images of {} channels and size {}x{} in layout {} but got shape {}",
               options_.in_channels, height, width, to_string(layout()), x.shape());
  SINTER_CHECK(is_float(x.dtype()), "[iresnet] expected images of a floating-point dtype but got {}",
               x.dtype());
  // Images of any floating-point dtype: those of a loader need not know what the model computes in.
  Tensor y = prelu(bn1(conv1(ops::cast(x, conv1.weight.tensor().dtype()))));
  for (const Sequential& stage : stages) y = stage(y);
  return features(fc(dropout(flatten(bn2(y)))));
}

IResNet iresnet18(const IResNetOptions& options) {
  return IResNet({2, 2, 2, 2}, options);
}
IResNet iresnet34(const IResNetOptions& options) {
  return IResNet({3, 4, 6, 3}, options);
}
IResNet iresnet50(const IResNetOptions& options) {
  return IResNet({3, 4, 14, 3}, options);
}
IResNet iresnet100(const IResNetOptions& options) {
  return IResNet({3, 13, 30, 3}, options);
}
IResNet iresnet200(const IResNetOptions& options) {
  return IResNet({6, 26, 60, 6}, options);
}

}  // namespace sinter::nn
