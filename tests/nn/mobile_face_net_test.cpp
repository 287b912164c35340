// MobileFaceNet: InsightFace's names, counts and work, PyTorch's values
// (tests/reference/generate_mobile_face_net.py), layouts, precision, files.
#include <cmath>
#include <map>

#include <sinter/autograd/backward.h>
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/random.h>
#include <sinter/nn/loss/margin.h>
#include <sinter/nn/models/mobile_face_net.h>
#include <sinter/nn/summary/summary.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/permute/permute.h>

#include "nn/device_test_support.h"
#include "nn/nn_test_support.h"
#include "nn/reference_support.h"

namespace sinter::nn {
namespace {

using sinter::testing::Reference;
using sinter::testing::reference_parameter;
using sinter::testing::reference_values;
using sinter::testing::to_doubles;
using testing::floats;
using testing::message_of;

/// Names and shapes of arcface_torch's MobileFaceNet, by its layers.
class Expected {
 public:
  explicit Expected(const std::vector<int64_t>& blocks, int64_t scale) {
    const int64_t a = 64 * scale, b = 128 * scale;
    chain("layers.0", {a, 3, 3, 3}, true);
    if (blocks[0] == 1) {
      chain("layers.1", {a, a / 64, 3, 3}, true);
    } else {
      residuals("layers.1", blocks[0], a, 128);
    }
    depth_wise("layers.2", a, 128, a);
    residuals("layers.3", blocks[1], a, 128);
    depth_wise("layers.4", a, 256, b);
    residuals("layers.5", blocks[2], b, 256);
    depth_wise("layers.6", b, 512, b);
    residuals("layers.7", blocks[3], b, 256);
    chain("conv_sep", {512, b, 1, 1}, true);
    chain("features.layers.0", {512, 1, 7, 7}, false);
    shapes["features.layers.2.weight"] = {512, 512};
    norm("features.layers.3", 512);
  }

  std::map<std::string, Shape> shapes;

 private:
  void norm(const std::string& name, int64_t channels) {
    for (const char* part : {".weight", ".bias", ".running_mean", ".running_var"})
      shapes[name + part] = {channels};
    shapes[name + ".num_batches_tracked"] = {};
  }
  void chain(const std::string& name, const Shape& filter, bool activated) {
    shapes[name + ".layers.0.weight"] = filter;
    norm(name + ".layers.1", filter[0]);
    if (activated) shapes[name + ".layers.2.weight"] = {filter[0]};
  }
  void depth_wise(const std::string& name, int64_t in, int64_t middle, int64_t out) {
    chain(name + ".layers.0", {middle, in, 1, 1}, true);
    chain(name + ".layers.1", {middle, 1, 3, 3}, true);
    chain(name + ".layers.2", {out, middle, 1, 1}, false);
  }
  void residuals(const std::string& name, int64_t count, int64_t channels, int64_t middle) {
    for (int64_t i = 0; i < count; ++i)
      depth_wise(name + ".layers." + std::to_string(i), channels, middle, channels);
  }
};

TEST(MobileFaceNetTest, HasInsightFacesNamesShapesAndCounts) {
  const MobileFaceNet small = mobile_face_net(), large = mobile_face_net_large();
  EXPECT_EQ(small.parameter_count(), 2'059'520);
  EXPECT_EQ(large.parameter_count(), 6'314'880);
  const auto shapes = [](const MobileFaceNet& model) {
    std::map<std::string, Shape> found;
    for (const auto& [name, value] : model.state()) found[name] = value.shape();
    return found;
  };
  EXPECT_EQ(shapes(small), Expected({1, 4, 6, 2}, 2).shapes);
  EXPECT_EQ(shapes(large), Expected({2, 8, 12, 4}, 4).shapes);
  EXPECT_EQ(shapes(small).size(), 333u);
}

TEST(MobileFaceNetTest, MakesItsMultiplyAdds) {
  const Summary table = summary(mobile_face_net(), Shape{1, 3, 112, 112});
  EXPECT_NEAR(static_cast<double>(table.multiply_adds) / 1e9, 0.4375, 5e-5);
  EXPECT_EQ(table.frozen_parameters, 0) << "the weight of the last norm is trained";
}

TEST(MobileFaceNetTest, WeightsStartAsHeInitialisesThem) {
  manual_seed(1);
  const MobileFaceNet model = mobile_face_net();
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (parameter.rank() < 2 || parameter.numel() < 2000) continue;
    double squares = 0.0;
    for (const double value : to_doubles(parameter)) squares += value * value;
    const auto count = static_cast<double>(parameter.numel());
    const Shape& shape = parameter.shape();
    const double fan = static_cast<double>(shape[0] * (shape.rank() == 4 ? shape[2] * shape[3] : 1));
    const double deviation = std::sqrt(2.0 / fan);
    EXPECT_NEAR(std::sqrt(squares / count), deviation, 5 * deviation / std::sqrt(2 * count)) << name;
  }
}

TEST(MobileFaceNetTest, NamesWhatIsWrong) {
  const MobileFaceNet model = mobile_face_net({.dimensions = 4});
  EXPECT_EQ(
      message_of([&] {
        model(floats({2, 3, 96, 112}, 0));
      }),
      "[mobile_face_net] expected images of 3 channels and size 112x112 in layout NCHW but got shape (2, "
      "3, 96, 112)");
  EXPECT_EQ(message_of([&] {
              model(Tensor::zeros({2, 3, 112, 112}, DType::kUInt8));
            }),
            "[mobile_face_net] expected images of a floating-point dtype but got uint8");
  EXPECT_EQ(message_of([] { mobile_face_net({.image_size = 96}); }),
            "[mobile_face_net] expected images with sides from 97 to 112 but got 96x96");
  EXPECT_EQ(message_of([] {
              MobileFaceNet({1, 4, 6});
            }),
            "[mobile_face_net] expected four parts, and at least one block in each");
  EXPECT_EQ(message_of([] { mobile_face_net({.dimensions = 0}); }),
            "[mobile_face_net] expected positive numbers but got 0 dimensions, 3 input channels, scale 2");
}

// ---- PyTorch's values

/// Biases that shift what only norms read, through 1x1 convolutions: their gradient is 0 but for rounding.
bool is_shift_before_norms(const std::string& name) {
  return name.ends_with(".layers.2.layers.1.bias") || name == "features.layers.0.layers.1.bias";
}

/// Values by the formula of their names, as fill() of the script.
State reference_state(const Module& model) {
  State state = model.state();
  for (auto& [name, tensor] : state) {
    if (name.ends_with("num_batches_tracked")) {
      tensor = Tensor::scalar<int64_t>(3);
    } else if (tensor.rank() == 1 && name.ends_with("layers.2.weight")) {
      tensor = reference_values("mbf." + name, tensor.shape(), {.scale = 0.25, .base = 0.25});
    } else {
      tensor = reference_parameter("mbf." + name, tensor.shape());
    }
  }
  return state;
}

Tensor in_layout(const Tensor& nchw, Layout layout, DType dtype) {
  const Tensor images = ops::cast(nchw, dtype);
  return (layout == Layout::kNHWC ? ops::permute(images, {0, 2, 3, 1}) : images).detach();
}

// float64: sums of up to some ten thousand terms through fifty layers, whose norms over few elements enlarge
// what rounding leaves.
constexpr double kTolerance = 1e-10;

TEST(MobileFaceNetReference, ATrainingStepWithItsHead) {
  const Reference reference("mobile_face_net_float64");
  const MobileFaceNet model = mobile_face_net({.dimensions = 16, .layout = Layout::kNHWC});
  const MarginHead head(16, 10, {.margin = CombinedMargin{.scale = 8, .gradient = MarginGradient::kExact}});
  model.load_state(reference_state(model));
  head.weight.assign(reference_values("mbf.head.weight", {10, 16}));
  model.to(DType::kFloat64);
  head.to(DType::kFloat64);
  const Tensor images = in_layout(reference_values("mbf.images", {4, 3, 112, 112}, {.scale = 2.0}),
                                  Layout::kNHWC, DType::kFloat64);
  const Tensor embeddings = model(images);
  reference.expect_near("embeddings", embeddings, kTolerance);
  const Tensor loss = head(embeddings, Tensor::from_values(std::vector<int64_t>{1, 7, 3, 0}, {4}));
  reference.expect_near("loss", loss, kTolerance);
  backward(loss);
  for (const Parameter& parameter : model.parameters()) {
    if (is_shift_before_norms(parameter.name())) {
      for (const double value : to_doubles(parameter.grad())) ASSERT_LE(std::abs(value), 1e-12);
      continue;
    }
    reference.expect_digest("grad." + parameter.name(), "mbf." + parameter.name(),
                            parameter.to_canonical(parameter.grad()), kTolerance);
  }
  for (const auto& [name, buffer] : model.named_buffers()) {
    if (buffer.rank() == 1) reference.expect_digest("buffer." + name, "mbf." + name, buffer, kTolerance);
  }
  model.eval();
  const NoGrad no_grad;
  const Tensor evaluated = model(images);
  reference.expect_near("eval_embeddings", evaluated, kTolerance);
  EXPECT_EQ(reference.used(), reference.size());

  const MobileFaceNet other = mobile_face_net({.dimensions = 16, .layout = Layout::kNCHW});
  other.load_state(model.state());
  other.to(DType::kFloat64);
  other.eval();
  const Tensor nchw =
      ops::cast(reference_values("mbf.images", {4, 3, 112, 112}, {.scale = 2.0}), DType::kFloat64);
  // load_state rounds through float32 what a float64 model has learnt: statistics.
  reference.expect_near("eval_embeddings", other(nchw.detach()), 1e-5);
}

class MobileFaceNetOnDevice : public testing::OnEachDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, MobileFaceNetOnDevice,
                         ::testing::Values(DeviceType::kCpu, DeviceType::kCuda), testing::device_name);

// With u the roundoff of float16: some fifty layers round one after the other, and norms keep the size of
// what they pass on, so that errors add up as independent ones: sqrt(2 * 50) u, and twice that is allowed.
TEST_P(MobileFaceNetOnDevice, EmbeddingsAreFloat32InMixedPrecisionAndClose) {
  manual_seed(3);
  const MobileFaceNet exact = mobile_face_net({.dimensions = 16, .layout = Layout::kNHWC});
  const MobileFaceNet mixed = clone(exact);
  for (const MobileFaceNet& model : {exact, mixed}) model.to(device());
  mixed.to_mixed(DType::kFloat16);
  const Tensor images = floats({4, 112, 112, 3}, 5).to(device());
  const Tensor found = mixed(images);
  EXPECT_EQ(found.dtype(), DType::kFloat32);
  // The last maps: the norms behind them are over four values each, which may lie next to each other.
  const Tensor map = mixed.layers(ops::cast(images, DType::kFloat16)), wanted = exact.layers(images);
  EXPECT_EQ(map.dtype(), DType::kFloat16);
  EXPECT_EQ(mixed.state().at("conv_sep.layers.0.weight").dtype(), DType::kFloat32);
  for (const Parameter& parameter : mixed.parameters()) {
    const bool kept = parameter.name().starts_with("conv_sep") || parameter.name().starts_with("features");
    if (parameter.tensor().rank() < 2) continue;
    EXPECT_EQ(parameter.is_mixed(), !kept) << parameter.name();
  }
  const std::vector<double> a = to_doubles(map.to(Device::cpu())), b = to_doubles(wanted.to(Device::cpu()));
  double difference = 0.0, norm = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  EXPECT_LE(std::sqrt(difference / norm), 2 * std::sqrt(100.0) * 0x1p-11);
  backward(found, {.gradient = Tensor::full(found.shape(), 1.0, DType::kFloat32, device())});
  for (const Parameter& parameter : mixed.parameters())
    EXPECT_TRUE(parameter.grad().defined()) << parameter.name();
}

}  // namespace
}  // namespace sinter::nn
