// TrainJob::forecast: what is called exact differs from the pool's count by 0 bytes, for known networks and
// for random ones; what is called bounded is no less.
#include <set>

#include <sinter/core/memory/block_bytes.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/concat/concat.h>

#include "nn/job/random_job_support.h"

namespace sinter::nn {
namespace {

using namespace testing;

/// Bytes that live on a device, beside those that lived before.
class LiveBytes {
 public:
  explicit LiveBytes(Device device) : pool_(backend_of(device).memory_pool(device.index)) {}
  size_t now() const { return pool_.stats().live_bytes - before_; }
  size_t peak() const { return pool_.stats().peak_live_bytes - before_; }
  void reset_peak() { pool_.reset_peaks(); }

 private:
  MemoryPool& pool_;
  const size_t before_ = pool_.stats().live_bytes;
};

size_t state_of(const StepForecast& told) {
  return told.parameters.bytes + told.gradients.bytes + told.optimizer.bytes;
}

std::string text_of(const StepForecast& told) {
  std::string text;
  for (const auto& [name, part] : told.parts()) text += fmt::format("{} {}, ", name, part.bytes);
  return text;
}

/// Bytes of the parameters and buffers of a network whose dtypes nobody has changed.
/// What a network's parameters and buffers take on `device`; a norm's count of batches may be on the host.
size_t bytes_of(const ModuleBase& network, Device device) {
  std::set<const Storage*> storages;
  const auto add = [&](const Tensor& tensor) {
    if (tensor.device() == device) storages.insert(tensor.storage().get());
  };
  for (const Parameter& parameter : network.parameters()) add(parameter.tensor());
  for (const Buffer& buffer : network.buffers()) add(buffer.tensor());
  size_t bytes = 0;
  for (const Storage* storage : storages) bytes += pool_block_bytes(storage->bytes());
  return bytes;
}

/// Makes a batch and steps on it, as often as a series has calls, and once more; gives the peak of the last
/// step.
template <class MakeBatch>
size_t peak_of_steps(TrainJob& job, LiveBytes& live, int steps, const MakeBatch& make_batch) {
  for (int i = 0; i < steps; ++i) {
    const std::vector<Tensor> batch = make_batch(i);
    live.reset_peak();
    job.step(batch, 0.01);
  }
  return live.peak();
}

// ---- networks as users have them

struct Vgg : Module {
  Vgg(int64_t classes, Layout layout) : layout_(layout), last(child("last", Linear(32, classes))) {
    for (const auto& [from, to] : {std::pair<int64_t, int64_t>{3, 8}, {8, 16}, {16, 32}}) {
      convolutions.push_back(child(fmt::format("conv{}", to), Conv2d(from, to, 3, options())));
      norms.push_back(child(fmt::format("norm{}", to), BatchNorm2d(to, {.layout = layout})));
      slopes.push_back(child(fmt::format("prelu{}", to), PReLU(to, {.layout = layout})));
    }
  }
  Conv2dOptions options() const { return {.padding = 1, .bias = false, .layout = layout_}; }
  Tensor forward(const Tensor& x) const override {
    Tensor y = x;
    for (size_t i = 0; i < norms.size(); ++i) y = pool(slopes[i](norms[i](convolutions[i](y))));
    return last(all(y));
  }
  Layout layout_;
  std::vector<Conv2d> convolutions;
  std::vector<BatchNorm2d> norms;
  std::vector<PReLU> slopes;
  MaxPool2d pool = child("pool", MaxPool2d(2, {.layout = layout_}));
  GlobalAvgPool2d all = child("all", GlobalAvgPool2d(layout_));
  Linear last;
};

struct UNet : Module {
  UNet(int64_t classes, Layout layout)
      : layout_(layout), head(child("head", Conv2d(24, classes, 1, {.layout = layout}))) {}
  Tensor forward(const Tensor& x) const override {
    const Tensor a = ops::relu(norm1(down1(x)));
    const Tensor b = ops::relu(norm2(down2(pool(a))));
    return all(head(ops::concat({enlarge(b), a}, layout_ == Layout::kNCHW ? 1 : -1)));
  }
  Layout layout_;
  Conv2d down1 = child("down1", Conv2d(3, 8, 3, {.padding = 1, .layout = layout_}));
  BatchNorm2d norm1 = child("norm1", BatchNorm2d(8, {.layout = layout_}));
  Conv2d down2 = child("down2", Conv2d(8, 16, 3, {.padding = 1, .layout = layout_}));
  BatchNorm2d norm2 = child("norm2", BatchNorm2d(16, {.layout = layout_}));
  MaxPool2d pool = child("pool", MaxPool2d(2, {.layout = layout_}));
  Upsample enlarge = child("enlarge", Upsample({.scale = 2, .layout = layout_}));
  GlobalAvgPool2d all = child("all", GlobalAvgPool2d(layout_));
  Conv2d head;
};

constexpr int64_t kTold = 10;  // classes

/// A network of images to logits, by its name.
AnyModule make(const std::string& name) {
  const Layout layout = Layout::kNCHW;
  if (name == "resnet18") return resnet18({.classes = kTold, .width = 16, .small_stem = true});
  if (name == "resnet50") return resnet50({.classes = kTold, .width = 16});
  if (name == "resnext50") return resnext50_32x4d({.classes = kTold});
  if (name == "iresnet50") return iresnet50({.dimensions = kTold, .image_size = {32, 32}});
  if (name == "vgg") return Vgg(kTold, layout);
  return UNet(kTold, layout);
}

struct Told {
  std::string name;
  bool steps;  // also taken; else made ready
};

class Forecast : public ::testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (GetParam() == DeviceType::kCuda && !is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
    if (GetParam() == DeviceType::kCuda) settings::set_autotune(false);  // each shape is met once
  }
  Device device() const { return {GetParam(), 0}; }
};
INSTANTIATE_TEST_SUITE_P(Devices, Forecast, ::testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                         [](const auto& given) { return given.param == DeviceType::kCpu ? "Cpu" : "Cuda"; });

TEST_P(Forecast, OfKnownNetworksIsExactToTheByte) {
  int64_t compared = 0;
  for (const auto& [name, steps] : std::initializer_list<Told>{{"resnet18", true},
                                                               {"resnet50", false},
                                                               {"resnext50", false},
                                                               {"iresnet50", false},
                                                               {"vgg", true},
                                                               {"unet", true}}) {
    for (const std::optional<DType> precision : {std::optional<DType>(), std::optional(DType::kBFloat16)}) {
      for (const std::optional<size_t> limit : {std::optional<size_t>(), std::optional<size_t>(0)}) {
        if (!steps && precision.has_value() != limit.has_value()) continue;  // deep ones take long to make
        const int64_t size = compared % 2 == 0 ? 2 : 3;
        LiveBytes live(device());
        const AnyModule model = make(name);
        model.to(device());
        SGD sgd(model.parameters(), {.momentum = 0.9});
        TrainJob job(model, CrossEntropyLoss{}, sgd,
                     {.precision = precision, .layout = Layout::kNHWC, .memory_limit = limit});
        const DType dtype = precision.value_or(DType::kFloat32);
        const std::vector<TensorSpec> specs = {{{size, 3, 32, 32}, dtype, device()},
                                               {{size}, DType::kInt64, device()}};
        const StepForecast told = job.forecast(specs);
        const std::string what =
            fmt::format("{} {} limit {}: {}", name, dtype, limit.has_value(), text_of(told));
        EXPECT_TRUE(told.peak().exact) << what;
        EXPECT_EQ(live.now(), state_of(told)) << what;
        job.prepare(specs);
        const ProgramStats& stats = job.program().stats();
        EXPECT_EQ(told.calls, stats.calls) << what;
        const size_t copies = device().is_cpu() ? 0 : told.inputs.bytes / 2;
        EXPECT_EQ(live.now(), state_of(told) + told.arena.bytes + told.workspaces.bytes + copies) << what;
        if (!limit) {
          EXPECT_EQ(told.recomputed_calls, 0u) << what;
        } else if (name.find("res") != std::string::npos) {
          EXPECT_GT(told.recomputed_calls, 0u) << what;
        }
        ++compared;
        if (!steps) continue;
        const size_t peak = peak_of_steps(job, live, 3, [&](int i) {
          return std::vector<Tensor>{ops::cast(floats({size, 3, 32, 32}, i), dtype).to(device()),
                                     labels(size, kTold, i).to(device())};
        });
        EXPECT_EQ(peak, told.peak().bytes) << what;
      }
    }
  }
  EXPECT_EQ(compared, 18);
}

TEST_P(Forecast, OfRandomNetworksIsExactToTheByte) {
  const Deterministic deterministic;
  const int count = test::random_cases(200);
  for (int i = 0; i < count; ++i) {
    const Case c{random_seed() + static_cast<uint64_t>(i), DType::kFloat32, device()};
    try {
      LiveBytes live(device());
      const RandomNetwork network = make_network(c);
      // Masks that functions of the network hold, which are the caller's as long as the graph has products of
      // them alone.
      const size_t masks = live.now() - bytes_of(network, device());
      Training training = any_training(c.seed);
      if (c.seed % 5 == 0) training.accumulate = 3 + static_cast<int>(c.seed % 2);
      const auto optimizer = training.make_optimizer(network.parameters());
      std::unique_ptr<EMA> average;
      if (training.averages) average = std::make_unique<EMA>(network);
      TrainJob job(network, *optimizer,
                   [&](std::span<const Tensor> inputs) { return network(inputs[0], inputs[1]); },
                   {.layout = layout_of_case(c.seed),
                    .max_grad_norm = training.clip,
                    .ema = average.get(),
                    .accumulate = training.accumulate,
                    .memory_limit = c.seed % 2 == 0 ? kLeast : std::nullopt});
      std::vector<TensorSpec> specs;
      for (const Tensor& tensor : network.batch(c.seed)) specs.push_back(tensor.spec());
      const StepForecast told = job.forecast(specs);
      EXPECT_TRUE(told.peak().exact);
      const size_t peak = peak_of_steps(job, live, 2 * training.accumulate + 1, [&](int step) {
        return network.batch(c.seed + static_cast<uint64_t>(step));
      });
      EXPECT_EQ(peak, told.peak().bytes + masks) << text_of(told);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    if (HasFailure()) {
      ADD_FAILURE() << describe(c, {});
      return;
    }
  }
}

}  // namespace
}  // namespace sinter::nn
