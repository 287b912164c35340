// GradScaler: skipped steps, the scale against PyTorch's, clipping, errors, and its state.
#include <cmath>

#include <sinter/autograd/backward.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/reduce/reduce.h>

#include "nn/device_test_support.h"
#include "nn/nn_test_support.h"

namespace sinter::nn {
namespace {

using testing::bits_of;
using testing::floats;
using testing::message_of;
using testing::working_copies;

class GradScalerTest : public testing::OnEachDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, GradScalerTest, ::testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                         testing::device_name);

struct Net : Module {
  Linear first = child("first", Linear(4, 8));
  BatchNorm1d norm = child("norm", BatchNorm1d(8));
  Linear second = child("second", Linear(8, 3));
  Tensor forward(const Tensor& x) const override { return second(ops::relu(norm(first(x)))); }
};

Net mixed_net(Device device, DType dtype = DType::kFloat16) {
  Net net;
  net.to(device);
  net.to_mixed(dtype);
  return net;
}

/// A gradient of ones in the dtype that arrives at each parameter, times `size`.
void set_gradients(const Module& module, double size) {
  for (const Parameter& parameter : module.parameters()) {
    const TensorSpec& spec = parameter.tensor().spec();
    parameter.tensor().set_grad(Tensor::full(spec.shape, size, spec.dtype, spec.device));
  }
}

/// Overwrites one element of a gradient.
void spoil(const Parameter& parameter, double value) {
  const TensorSpec spec = parameter.grad().spec();
  const Tensor host = parameter.grad().to(Device::cpu()).detach();
  Tensor changed = Tensor::full(spec.shape, 1.0, spec.dtype);
  dispatch_float(spec.dtype, "test", [&]<class T> {
    std::copy_n(host.data<T>(), spec.shape.numel(), changed.data<T>());
    changed.data<T>()[spec.shape.numel() - 1] = static_cast<T>(value);
  });
  parameter.tensor().set_grad(changed.to(spec.device));
}

std::string error_of(const GradScaler& scaler, const Optimizer& optimizer) {
  try {
    scaler.check(optimizer);
  } catch (const InvalidArgument&) {
    return "an InvalidArgument";
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_P(GradScalerTest, InfinityOrNanInAnyGradientChangesNothingButTheScale) {
  const Net net = mixed_net(device());
  SGD sgd(parameter_groups(net, {}, {.decay_vectors = false}),
          {.momentum = 0.9, .weight_decay = 0.05, .nesterov = true});
  GradScaler scaler({.initial_scale = 0x1p20});
  set_gradients(net, 1.0);
  scaler.step(sgd, 0.1);
  const auto model = bits_of(net.state()), working = bits_of(working_copies(net)),
             state = bits_of(sgd.state());
  double scale = 0x1p20;
  for (const double bad : {double{INFINITY}, -double{INFINITY}, double{NAN}}) {
    for (const Parameter& parameter : net.parameters()) {
      SCOPED_TRACE(fmt::format("{} in {}", bad, parameter.name()));
      set_gradients(net, 1.0);
      spoil(parameter, bad);
      scaler.step(sgd, 0.1, {.max_grad_norm = 3.0});
      EXPECT_EQ(bits_of(net.state()), model);
      EXPECT_EQ(bits_of(working_copies(net)), working);
      EXPECT_EQ(bits_of(sgd.state()), state);
      scale = std::max(scale / 2, 1.0);
      EXPECT_EQ(scaler.scale(), scale);
    }
  }
  EXPECT_EQ(scaler.consecutive_skips(), 18);
  set_gradients(net, 1.0);
  scaler.step(sgd, 0.1);
  EXPECT_NE(bits_of(net.state()), model) << "a good step does change it";
  EXPECT_EQ(scaler.consecutive_skips(), 0);
  EXPECT_EQ(scaler.skipped(), 18);
}

TEST_P(GradScalerTest, ASkippedFirstStepLeavesNoTrace) {
  const Net skipped = mixed_net(device()), plain = mixed_net(device());
  plain.load_state(skipped.state());
  GradScaler first({.initial_scale = 1024.0}), second({.initial_scale = 512.0});
  AdamW a(skipped.parameters()), b(plain.parameters());
  set_gradients(skipped, INFINITY);
  first.step(a, 0.1);
  EXPECT_TRUE(a.state().empty());
  set_gradients(skipped, 512.0);
  first.step(a, 0.1);
  set_gradients(plain, 512.0);
  second.step(b, 0.1);
  EXPECT_EQ(bits_of(skipped.state()), bits_of(plain.state()));
  EXPECT_EQ(bits_of(a.state()), bits_of(b.state()));
}

TEST_P(GradScalerTest, TheScaleFollowsPyTorchs) {
  const Net net = mixed_net(device());
  SGD sgd(net.parameters());
  GradScaler scaler({.initial_scale = 1024.0, .growth_interval = 3});
  // tests/reference/nn_values.py, with bad steps 0, 5, 9 and 10.
  const std::vector<double> expected{512,  512, 512, 1024, 1024, 512, 512, 512,
                                     1024, 512, 256, 256,  256,  512, 512, 512};
  for (size_t step = 0; step < expected.size(); ++step) {
    const bool is_bad = step == 0 || step == 5 || step == 9 || step == 10;
    set_gradients(net, is_bad ? INFINITY : 1.0);
    scaler.step(sgd, 0.1);
    EXPECT_EQ(scaler.scale(), expected[step]) << "step " << step;
  }
}

TEST_P(GradScalerTest, ScaledGradientsGiveTheStepOfUnscaledOnes) {
  // Powers of two scale without rounding, so the two ways agree to the last bit.
  const Net scaled = mixed_net(device()), plain = mixed_net(device());
  plain.load_state(scaled.state());
  const SGDOptions options{.momentum = 0.9, .weight_decay = 0.05};
  SGD a(scaled.parameters(), options), b(plain.parameters(), options);
  GradScaler scaler({.initial_scale = 256.0}), none(GradScaler::options_for(DType::kBFloat16));
  for (int step = 0; step < 3; ++step) {
    set_gradients(scaled, 256.0 * (step + 1));
    set_gradients(plain, step + 1);
    scaler.step(a, 0.1, {.max_grad_norm = 4.0});
    none.step(b, 0.1, {.max_grad_norm = 4.0});
  }
  EXPECT_EQ(bits_of(scaled.state()), bits_of(plain.state()));
  EXPECT_EQ(bits_of(a.state()), bits_of(b.state()));
  // The norm of the gradients is above 4: parameters moved by the clipped ones.
  const Tensor bias = plain.first.bias.master();
  EXPECT_EQ(b.state().at("step.first.bias").item(), 3);
  EXPECT_EQ(bias.dtype(), DType::kFloat32);
}

TEST_P(GradScalerTest, GroupsThatAreNotClippedKeepTheirGradients) {
  // With a scale of a power of two both parts agree to the last bit with an optimiser of their own.
  const Net net = mixed_net(device()), own = mixed_net(device());
  own.load_state(net.state());
  const auto parts = [](const Net& n) {
    std::pair<std::vector<Parameter>, std::vector<Parameter>> found;
    for (const Parameter& p : n.parameters())
      (p.name().starts_with("second") ? found.second : found.first).push_back(p);
    return found;
  };
  const auto [clipped, others] = parts(net);
  const auto [own_clipped, own_others] = parts(own);
  const SGDOptions options{.momentum = 0.9, .weight_decay = 0.05};
  SGD sgd({{.parameters = clipped}, {.parameters = others, .clip = false}}, options);
  SGD first(own_clipped, options), second(own_others, options);
  GradScaler scaler({.initial_scale = 256.0});
  GradScaler first_scaler(scaler.options()), second_scaler(scaler.options());
  for (int step = 0; step < 3; ++step) {
    set_gradients(net, 256.0 * (step + 1));
    set_gradients(own, 256.0 * (step + 1));
    scaler.step(sgd, 0.1, {.max_grad_norm = 4.0});
    first_scaler.step(first, 0.1, {.max_grad_norm = 4.0});
    second_scaler.step(second, 0.1);
  }
  const auto near = [](const Tensor& a, const Tensor& b) {  // one factor is rounded at another place
    const std::vector<float> x = a.to_vector<float>(), y = b.to_vector<float>();
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], 1e-6 * (1.0 + std::abs(x[i])));
  };
  for (size_t i = 0; i < clipped.size(); ++i) near(clipped[i].canonical(), own_clipped[i].canonical());
  for (size_t i = 0; i < others.size(); ++i) {
    EXPECT_EQ(bits_of(others[i].canonical()), bits_of(own_others[i].canonical())) << others[i].name();
  }
  EXPECT_EQ(scaler.skipped(), 0);
  // A bad gradient of either part skips the step for both.
  const auto before = bits_of(net.state());
  for (const Parameter& bad : {clipped.front(), others.front()}) {
    set_gradients(net, 256.0);
    spoil(bad, INFINITY);
    scaler.step(sgd, 0.1, {.max_grad_norm = 4.0});
    EXPECT_EQ(bits_of(net.state()), before) << bad.name();
  }
  EXPECT_EQ(scaler.skipped(), 2);
  EXPECT_EQ(scaler.scale(), 64.0);
  // Without a limit, and where only one part has gradients, there is nothing to tell apart.
  set_gradients(net, 64.0);
  scaler.step(sgd, 0.1);
  for (const Parameter& parameter : clipped) parameter.tensor().set_grad({});
  scaler.step(sgd, 0.1, {.max_grad_norm = 1e-9});
  EXPECT_NE(bits_of(net.state()), before);
}

TEST_P(GradScalerTest, SmallGradientsSurviveThroughTheScale) {
  // 1e-7 is below half of float16's smallest number, 5.96e-8 apart: without a scale a third of it is lost; a
  // gradient of 1e-8 is lost altogether.
  const auto step = [&](const GradScalerOptions& options) {
    Net net = mixed_net(device());
    net.second.bias.assign(Tensor::zeros({3}));
    SGD sgd(net.parameters());
    GradScaler scaler(options);
    const Tensor loss = ops::sum(ops::cast(net.second.bias.tensor(), DType::kFloat32) * 1e-8);
    backward(scaler.scale(loss));
    EXPECT_EQ(net.second.bias.grad().dtype(), DType::kFloat16);
    scaler.step(sgd, 1.0);
    return static_cast<double>(net.second.bias.master().to_vector<float>()[0]);
  };
  EXPECT_EQ(step(GradScaler::options_for(DType::kBFloat16)), 0.0);
  EXPECT_NEAR(step(GradScaler::options_for(DType::kFloat16)), -1e-8, 1e-11);
}

TEST_P(GradScalerTest, WithoutAScaleTheLossIsItself) {
  GradScaler scaler(GradScaler::options_for(DType::kBFloat16));
  const Tensor loss = Tensor::scalar(2.0f, device());
  EXPECT_TRUE(scaler.scale(loss).is_same(loss));
  const Net net = mixed_net(device(), DType::kBFloat16);
  SGD sgd(net.parameters());
  const auto before = bits_of(net.state());
  for (int step = 1; step <= 19; ++step) {
    set_gradients(net, 1.0);
    spoil(net.norm.weight, NAN);
    scaler.step(sgd, 0.1);
    EXPECT_EQ(error_of(scaler, sgd), "") << "step " << step;
  }
  EXPECT_EQ(bits_of(net.state()), before);
  EXPECT_EQ(scaler.scale(), 1.0);
  scaler.step(sgd, 0.1);
  EXPECT_EQ(
      error_of(scaler, sgd),
      "[grad_scaler] the last 20 steps were skipped: the gradient of 'norm.weight' is not finite; try a "
      "smaller learning rate");
}

TEST_P(GradScalerTest, CheckNamesWhatIsNotFinite) {
  const Net net = mixed_net(device());
  SGD sgd(net.parameters());
  GradScaler scaler({.initial_scale = 8.0, .max_consecutive_skips = 3});
  const auto bad_step = [&] {
    set_gradients(net, 1.0);
    spoil(net.first.weight, INFINITY);
    spoil(net.norm.bias, NAN);
    scaler.step(sgd, 0.1);
  };
  EXPECT_EQ(error_of(scaler, sgd), "");
  bad_step();
  bad_step();
  EXPECT_EQ(error_of(scaler, sgd), "");
  bad_step();
  EXPECT_EQ(
      error_of(scaler, sgd),
      "[grad_scaler] the last 3 steps were skipped, down to a loss scale of 1: 2 of 6 gradients are not "
      "finite, from 'first.weight' to 'norm.bias'; try a smaller learning rate");
  sgd.zero_grad();
  EXPECT_NE(error_of(scaler, sgd).find("the gradients were cleared"), std::string::npos);
  set_gradients(net, 1.0);
  scaler.step(sgd, 0.1);
  EXPECT_EQ(error_of(scaler, sgd), "");
  bad_step();
  EXPECT_EQ(error_of(scaler, sgd), "");
  bad_step();
  EXPECT_EQ(
      error_of(scaler, sgd),
      "[grad_scaler] the last 2 steps were skipped, down to a loss scale of 1: 2 of 6 gradients are not "
      "finite, from 'first.weight' to 'norm.bias'; try a smaller learning rate")
      << "at the smallest scale two are enough";
}

TEST_P(GradScalerTest, ARefusedStepLeavesTheScale) {
  const Net net = mixed_net(device());
  SGD sgd(net.parameters());
  GradScaler scaler({.initial_scale = 4.0, .growth_interval = 1});
  set_gradients(net, 4.0);
  const auto before = bits_of(scaler.state());
  EXPECT_EQ(message_of([&] { scaler.step(sgd, -1.0); }),
            "[sgd] expected a finite learning rate >= 0 but got -1");
  EXPECT_EQ(bits_of(scaler.state()), before);
  EXPECT_TRUE(sgd.state().empty());
  scaler.step(sgd, 0.1);
  EXPECT_EQ(scaler.scale(), 8.0);
}

TEST_P(GradScalerTest, StateRoundTrips) {
  const Net net = mixed_net(device());
  SGD sgd(net.parameters());
  GradScaler scaler({.initial_scale = 1024.0}), other;
  for (const double size : {double{INFINITY}, 1.0, double{NAN}, double{NAN}}) {
    set_gradients(net, size);
    scaler.step(sgd, 0.1);
  }
  other.load_state(scaler.state());
  EXPECT_EQ(bits_of(other.state()), bits_of(scaler.state()));
  EXPECT_EQ(other.scale(), 128.0);
  EXPECT_EQ(other.consecutive_skips(), 2);
  EXPECT_EQ(other.skipped(), 3);
  other.step(sgd, 0.1);  // moves to the device of the gradients
  EXPECT_EQ(other.skipped(), 4);
}

TEST(GradScalerOptionsTest, MistakesAreNamed) {
  const auto with = [](const GradScalerOptions& options) {
    return message_of([&] { GradScaler scaler(options); });
  };
  EXPECT_EQ(with({.initial_scale = 0.5}),
            "[grad_scaler] expected 0 < min_scale <= initial_scale, finite, but got 1 and 0.5");
  EXPECT_EQ(with({.growth = 0.5}), "[grad_scaler] expected a growth >= 1 but got 0.5");
  EXPECT_EQ(with({.backoff = 1.0}), "[grad_scaler] expected a backoff in (0, 1) but got 1");
  EXPECT_EQ(with({.growth_interval = 0}), "[grad_scaler] expected a growth_interval > 0 but got 0");
  EXPECT_EQ(with({.max_consecutive_skips = 0}), "[grad_scaler] expected max_consecutive_skips > 0 but got 0");
  GradScaler scaler;
  const Net net;
  SGD sgd(net.parameters());
  EXPECT_EQ(message_of([&] { scaler.step(sgd, 0.1); }),
            "[grad_norm] none of the 6 parameters has a gradient");
  set_gradients(net, 1.0);
  EXPECT_EQ(message_of([&] { scaler.step(sgd, 0.1, {.max_grad_norm = -1.0}); }),
            "[grad_scaler] expected a clip >= 0 but got -1");
  State state = scaler.state();
  state["scale"] = Tensor::scalar(-1.0f);
  EXPECT_EQ(message_of([&] { scaler.load_state(state); }), "[grad_scaler] expected a scale > 0 but got -1");
  state.erase("scale");
  EXPECT_EQ(message_of([&] { scaler.load_state(state); }),
            "[grad_scaler] expected a state of 4 values but got 3");
  state["size"] = Tensor::scalar(1.0f);
  EXPECT_EQ(message_of([&] { scaler.load_state(state); }),
            "[grad_scaler] expected a float32 scalar 'scale' in the state");
  EXPECT_EQ(scaler.scale(), 65536.0);
}

}  // namespace
}  // namespace sinter::nn
