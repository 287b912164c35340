// Cases of whole networks.
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/random.h>
#include <sinter/nn/layers/activation.h>
#include <sinter/nn/layers/conv_transpose2d.h>
#include <sinter/nn/layers/norm/group_norm.h>
#include <sinter/nn/layers/pool.h>
#include <sinter/nn/layers/upsample.h>
#include <sinter/nn/models/iresnet.h>
#include <sinter/nn/models/mobile_face_net.h>
#include <sinter/nn/models/resnet.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/concat/concat.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/prelu/prelu.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>

#include "nn/export/onnx_cases.h"

namespace sinter::nn::testing {
namespace {

constexpr int64_t kN = OnnxCase::kBatch;

/// Two levels, one enlarged by a transposed convolution and one by an Upsample.
struct UNet : Module {
  explicit UNet(Layout layout) : layout_(layout) {}

  Tensor forward(const Tensor& x) const override {
    const Tensor a = ops::relu(norm1(down1(x)));
    const Tensor b = ops::relu(norm2(down2(pool(a))));
    const Tensor c = bottom(pool(b));
    const int64_t axis = layout_ == Layout::kNCHW ? 1 : -1;
    const Tensor d = ops::relu(up2(ops::concat({enlarge(c), b}, axis)));
    return head(ops::concat({up1(d), a}, axis));
  }

  Layout layout_;
  Conv2d down1 = conv("down1", 3, 8, 3);
  BatchNorm2d norm1 = child("norm1", BatchNorm2d(8, {.layout = layout_}));
  Conv2d down2 = conv("down2", 8, 16, 3);
  BatchNorm2d norm2 = child("norm2", BatchNorm2d(16, {.layout = layout_}));
  MaxPool2d pool = child("pool", MaxPool2d(2, {.layout = layout_}));
  Conv2d bottom = conv("bottom", 16, 16, 3);
  Upsample enlarge =
      child("enlarge", Upsample({.scale = 2, .mode = ops::UpsampleMode::kBilinear, .layout = layout_}));
  Conv2d up2 = conv("up2", 32, 16, 3);
  ConvTranspose2d up1 = child("up1", ConvTranspose2d(16, 8, 2, {.stride = 2, .layout = layout_}));
  Conv2d head = conv("head", 16, 2, 1);

 private:
  Conv2d conv(const char* name, int64_t from, int64_t to, int64_t kernel) {
    return child(name, Conv2d(from, to, kernel, {.padding = kernel / 2, .layout = layout_}));
  }
};

/// A parameter that is repeated for every element of the batch, and one that is read in two shapes.
struct ClassToken : Module {
  Tensor forward(const Tensor& x) const override {
    const Tensor tokens = ops::broadcast_to(token, {x.shape()[0], 1, 6});
    const Tensor y = ops::prelu(ops::concat({tokens, x}, 1), slope);
    return ops::flatten(y * ops::reshape(slope, {4, 1}), 1);
  }

  Parameter token = parameter("token", case_values({1, 1, 6}, -1.0, 1.0, 1));
  Parameter slope = parameter("slope", case_values({4}, -1.0, 1.0, 2));
};

/// Norms as after training: none is the identity.
void make_trained(const ModuleBase& model) {
  int64_t seed = 100;
  const auto set = [&](const Tensor& tensor, double low, double high) {
    const Tensor values = case_values(tensor.shape(), low, high, ++seed);
    ops::copy_(tensor, ops::cast(values, tensor.dtype()));
  };
  const NoGrad no_grad;
  for (const Parameter& parameter : model.parameters()) {
    if (parameter.tensor().rank() == 1) set(parameter.tensor(), 0.5, 1.0);
  }
  for (const Buffer& buffer : model.buffers()) {
    if (buffer.name().ends_with("running_mean")) set(buffer.tensor(), -0.5, 0.5);
    if (buffer.name().ends_with("running_var")) set(buffer.tensor(), 0.5, 1.5);
  }
}

template <class Model>
OnnxCase network(std::string name, const Shape& input, std::function<Model()> make_model) {
  OnnxCase result{std::move(name), {{input, DType::kFloat32, {}}}, {}};
  result.make = [make_model](CaseNumbers numbers) {
    manual_seed(1);
    auto model = std::make_shared<Model>(make_model());
    make_trained(*model);
    if (numbers != CaseNumbers::kFloat) model->to(DType::kFloat16);
    if (numbers == CaseNumbers::kHalfInFloat) model->to(DType::kFloat32);
    return CaseModel{model,
                     [model](std::span<const Tensor> x) { return std::vector<Tensor>{(*model)(x[0])}; }};
  };
  return result;
}

OnnxCase channels_last(OnnxCase given) {
  given.layout = Layout::kNHWC;
  return given;
}

}  // namespace

std::vector<OnnxCase> onnx_network_cases(bool large) {
  const Shape small{kN, 3, 32, 32}, small_last{kN, 32, 32, 3};
  const auto cifar = [](Layout layout) {
    return [layout] { return resnet20({.width = 8, .layout = layout}); };
  };
  const auto u_net = [](Layout layout) { return [layout] { return UNet(layout); }; };
  std::vector<OnnxCase> cases{
      network<ResNet>("cifar_resnet20", small, cifar(Layout::kNCHW)),
      channels_last(network<ResNet>("cifar_resnet20_nhwc", small_last, cifar(Layout::kNHWC))),
      network<ResNet>(
          "cifar_resnet20_padding", small,
          [] { return resnet20({.width = 8, .layout = Layout::kNCHW, .shortcut = Shortcut::kPadding}); }),
      network<ResNet>("narrow_resnet18", {kN, 3, 64, 64},
                      [] { return resnet18({.classes = 10, .width = 8, .layout = Layout::kNCHW}); }),
      network<ResNet>("narrow_resnet50", {kN, 3, 64, 64},
                      [] { return resnet50({.classes = 10, .width = 8, .layout = Layout::kNCHW}); }),
      network<ResNet>("narrow_resnext50", {kN, 3, 64, 64},
                      [] { return resnext50_32x4d({.classes = 10, .width = 16, .layout = Layout::kNCHW}); }),
      channels_last(network<ResNet>(
          "narrow_resnext50_nhwc", {kN, 64, 64, 3},
          [] { return resnext50_32x4d({.classes = 10, .width = 16, .layout = Layout::kNHWC}); })),
      network<ResNet>("narrow_wide_resnet50", {kN, 3, 64, 64},
                      [] { return wide_resnet50_2({.classes = 10, .width = 8, .layout = Layout::kNCHW}); }),
      network<ResNet>("narrow_resnet18d", {kN, 3, 70, 83},
                      [] { return resnet18d({.classes = 10, .width = 8, .layout = Layout::kNCHW}); }),
      channels_last(
          network<ResNet>("narrow_resnet50d_nhwc", {kN, 70, 83, 3},
                          [] { return resnet50d({.classes = 10, .width = 8, .layout = Layout::kNHWC}); })),
      network<ResNet>("narrow_seresnet18", {kN, 3, 64, 64},
                      [] {
                        return seresnet18(
                            {.classes = 10, .width = 8, .layout = Layout::kNCHW, .stochastic_depth = 0.2});
                      }),
      channels_last(
          network<ResNet>("narrow_seresnet50_nhwc", {kN, 64, 64, 3},
                          [] { return seresnet50({.classes = 10, .width = 8, .layout = Layout::kNHWC}); })),
      channels_last(network<IResNet>(
          "narrow_iresnet18_nhwc", {kN, 48, 48, 3},
          [] {
            return iresnet18({.dimensions = 32, .image_size = 48, .width = 8, .layout = Layout::kNHWC});
          })),
      network<MobileFaceNet>("mobile_face_net", {kN, 3, 112, 112},
                             [] { return mobile_face_net({.dimensions = 32, .layout = Layout::kNCHW}); }),
      network<ClassToken>("class_token", {kN, 3, 6}, [] { return ClassToken(); }),
      network<UNet>("u_net", {kN, 3, 16, 24}, u_net(Layout::kNCHW)),
      channels_last(network<UNet>("u_net_nhwc", {kN, 16, 24, 3}, u_net(Layout::kNHWC)))};
  if (!large) return cases;
  cases.push_back(
      network<ResNet>("resnet18", {kN, 3, 224, 224}, [] { return resnet18({.layout = Layout::kNCHW}); }));
  cases.push_back(channels_last(network<ResNet>("resnet50_nhwc", {kN, 224, 224, 3},
                                                [] { return resnet50({.layout = Layout::kNHWC}); })));
  cases.push_back(
      network<ResNet>("cifar_resnet56", small, [] { return resnet56({.layout = Layout::kNCHW}); }));
  cases.push_back(
      network<IResNet>("iresnet18", {kN, 3, 112, 112}, [] { return iresnet18({.layout = Layout::kNCHW}); }));
  cases.push_back(channels_last(network<IResNet>("iresnet50_nhwc", {kN, 112, 112, 3},
                                                 [] { return iresnet50({.layout = Layout::kNHWC}); })));
  return cases;
}

}  // namespace sinter::nn::testing
