// The recipe of docs/train_insightface.md, "The recipe of another program": sixteen of its steps as PyTorch
// makes them (tests/reference/generate_insightface.py), how its weights begin, and the order of its data.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nn/device_test_support.h>
#include <nn/reference_support.h>

#include <sinter/core/comm/communicator.h>
#include <sinter/core/runtime/random.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/slice/slice.h>

#include "train_insightface/data.h"
#include "train_insightface/model.h"

namespace train_insightface {
namespace {

using namespace sinter;
using sinter::testing::Reference;

constexpr int64_t kClasses = 10, kSize = 32, kBatch = 20, kBatches = 4, kEpochs = 4;
constexpr int64_t kSteps = kEpochs * kBatches, kEarly = 2;

/// The options of the page's command line, with smaller data.
Options recipe(Device device) {
  std::istringstream line(
      "train_insightface --synthetic 10 --image-size 32 --backbone iresnet18 --batch 20 --epochs 4 --lr 0.05 "
      "--schedule one-cycle --cycle-momentum --init pytorch --train-features-weight --margin-gradient exact "
      "--clip-of all --precision f32");
  std::vector<std::string> words{std::istream_iterator<std::string>(line), {}};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  Options options;
  EXPECT_EQ(parse_options(static_cast<int>(argv.size()), argv.data(), options), std::nullopt);
  complete(options, device);
  return options;
}

std::string stored_name(const std::string& name) {
  return "insightface." + (name.starts_with("backbone.") ? name.substr(9) : name);
}

/// The weights of the generator's model.
void fill(const FaceModel& model) {
  for (const nn::Parameter& parameter : model.parameters()) {
    const std::string name = stored_name(parameter.name());
    const Shape shape = parameter.canonical_shape();
    if (name.ends_with("prelu.weight")) {
      parameter.assign(sinter::testing::reference_values(name, shape, {.scale = 0.25, .base = 0.25}));
    } else if (name == "insightface.head.weight") {
      parameter.assign(sinter::testing::reference_values(name, shape, {.scale = 0.015625}));
    } else {
      parameter.assign(sinter::testing::reference_parameter(name, shape));
    }
  }
}

struct Faces {
  Tensor images;
  std::vector<int64_t> labels;
};

/// Images of identities, each with its own grain: (N, 3, kSize, kSize), on the CPU.
Faces reference_faces() {
  const int64_t count = kBatch * kBatches, pixels = 3 * kSize * kSize;
  Faces faces;
  const uint64_t seed = sinter::testing::reference_seed("insightface.labels");
  for (int64_t i = 0; i < count; ++i)
    faces.labels.push_back(sinter::testing::reference_word(seed, i) % kClasses);
  const Tensor people =
      sinter::testing::reference_values("insightface.people", {kClasses, 3, kSize, kSize}, {.scale = 0.5});
  faces.images = sinter::testing::reference_values("insightface.grain", {count, 3, kSize, kSize});
  for (int64_t i = 0; i < count; ++i) {
    const float* const person = people.data<float>() + faces.labels[static_cast<size_t>(i)] * pixels;
    for (int64_t p = 0; p < pixels; ++p) faces.images.data<float>()[i * pixels + p] += person[p];
  }
  return faces;
}

/// The trainer's own parts, put together as it does.
struct Parts {
  explicit Parts(Device device)
      : options(recipe(device)),
        ranks(Communicator::join(ProcessEnvironment{})),
        centres(make_centres(options, kClasses, *ranks)),
        model(make_backbone(options), centres.head()),
        optimizer(make_optimizer(options, model)),
        scaler(nn::GradScaler::options_for(compute_dtype(options))),
        schedule(sinter::examples::make_schedule(options, kBatches)) {
    fill(model);
    centres.to(device);
    model.to(device);
    const auto step = [this](std::span<const Tensor> inputs) {
      return std::vector<Tensor>{model(inputs[0], inputs[1])};
    };
    job = std::make_unique<nn::TrainJob>(
        model, *optimizer, step, nn::TrainJobOptions{.max_grad_norm = options.clip, .scaler = &scaler});
    model.train();
    const bool is_channels_last = *options.layout == Layout::kNHWC;
    const Shape shape = is_channels_last ? Shape{kBatch, kSize, kSize, 3} : Shape{kBatch, 3, kSize, kSize};
    const TensorSpec specs[] = {{shape, DType::kFloat32, device}, {{kBatch}, DType::kInt64, device}};
    job->prepare(specs);
  }

  /// The loss before the step.
  double step(int64_t number, const Tensor& images, std::span<const int64_t> labels) {
    sinter::examples::set_momentum(options, kSteps, number, *optimizer);
    const Tensor rows = centres.sample(labels, *optimizer);
    const double loss = job->step(images, rows, schedule(number)).item();
    centres.update(*optimizer);
    return loss;
  }
  /// Of the last step, as the optimiser's kernels read them.
  std::vector<double> rate_and_momentum() const {
    for (const auto& [name, tensor] : optimizer->tensors()) {
      if (name == "learning_rate") return tensor.to_vector<double>();
    }
    return {};
  }

  Options options;
  std::shared_ptr<Communicator> ranks;
  nn::PartialFC centres;
  FaceModel model;
  std::unique_ptr<nn::Optimizer> optimizer;
  nn::GradScaler scaler;
  nn::Schedule schedule;
  std::unique_ptr<nn::TrainJob> job;
};

/// All images, in the layout of the parts.
Tensor images_for(const Parts& parts, const Faces& faces) {
  return *parts.options.layout == Layout::kNHWC ? ops::permute(faces.images, {0, 2, 3, 1}) : faces.images;
}

struct Batch {
  Tensor images;
  std::span<const int64_t> labels;
};

Batch batch_of(const Faces& faces, const Tensor& images, int64_t step) {
  const int64_t from = step % kBatches * kBatch;
  return {ops::slice(images, 0, from, from + kBatch),
          {faces.labels.data() + from, static_cast<size_t>(kBatch)}};
}

/// The largest error of a digest of the first steps' momenta, and whose it is.
std::pair<double, std::string> momenta_error(const Reference& reference, const Parts& parts) {
  const nn::State state = parts.optimizer->state();
  std::pair<double, std::string> worst{0.0, ""};
  for (const nn::Parameter& parameter : parts.model.parameters()) {
    const std::string name = "momentum." + parameter.name();
    worst = std::max(worst, {reference.digest_error(name, parameter.name(), state.at(name)), name});
  }
  return worst;
}

/// Moves every parameter by about a rounding.
void shake(const FaceModel& model, uint64_t seed) {
  const NoGrad no_grad;
  Generator generator(seed);
  for (const nn::Parameter& parameter : model.parameters()) {
    const Tensor values = parameter.tensor().detach();
    for (int64_t i = 0; i < values.numel(); ++i)
      values.data<float>()[i] *= 1.0f + 3e-7f * (2.0f * static_cast<float>(generator.uniform()) - 1.0f);
  }
}

/// Whether rounding alone can take the momenta of the first steps as far from PyTorch's as `error`: PReLU's
/// slope changes where a value is a rounding away from zero. Eight copies on the CPU that begin a rounding
/// aside have to show it.
bool is_rounding(const Reference& reference, const Faces& faces, double error) {
  double largest = 0.0;
  for (uint64_t copy = 1; copy <= 8; ++copy) {
    Parts parts(Device::cpu());
    shake(parts.model, copy);
    const Tensor images = images_for(parts, faces);
    for (int64_t step = 0; step < kEarly; ++step) {
      const Batch batch = batch_of(faces, images, step);
      parts.step(step, batch.images, batch.labels);
    }
    largest = std::max(largest, momenta_error(reference, parts).first);
    if (4 * largest >= error) return true;
  }
  ADD_FAILURE() << "rounding takes momenta " << largest << " apart, these are " << error << " apart";
  return false;
}

class TrainInsightfaceSteps : public nn::testing::OnEachDevice {};

TEST_P(TrainInsightfaceSteps, AreThoseOfPyTorch) {
  Parts parts(device());
  const Faces faces = reference_faces();
  const Tensor images = images_for(parts, faces).to(device());
  const Reference reference("insightface_float64");
  const std::vector<double> losses = reference["losses"].to_vector<double>();
  const std::vector<double> rates = reference["rates"].to_vector<double>();
  const std::vector<double> momenta = reference["momenta"].to_vector<double>();
  ASSERT_EQ(losses.size(), static_cast<size_t>(kSteps));
  ASSERT_GT(reference["norms"].to_vector<double>()[0], parts.options.clip);  // some steps are clipped
  double worst = 0.0;
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto at = static_cast<size_t>(step);
    const Batch batch = batch_of(faces, images, step);
    const double loss = parts.step(step, batch.images, batch.labels);
    const std::vector<double> moving = parts.rate_and_momentum();
    ASSERT_EQ(moving.size(), 2u);
    EXPECT_NEAR(moving[0], rates[at], 1e-12) << "step " << step;
    EXPECT_NEAR(moving[1], momenta[at], 1e-12) << "step " << step;
    // Rounding errors grow from step to step.
    EXPECT_NEAR(loss, losses[at], (step <= kEarly ? 1e-4 : 1e-3) * losses[0]) << "step " << step;
    worst = std::max(worst, std::abs(loss - losses[at]) / losses[0]);
    if (step + 1 != kEarly) continue;
    const auto [error, whose] = momenta_error(reference, parts);
    std::printf("largest error of a momentum: %.2g, of %s\n", error, whose.c_str());
    if (error > 1e-3) {
      EXPECT_TRUE(is_rounding(reference, faces, error)) << whose;
    }
  }
  std::printf("largest error of a loss, of the first one: %.2g\n", worst);
  const NoGrad no_grad;
  const nn::EvalMode eval(parts.model);
  const Tensor embeddings = parts.model.backbone(ops::slice(images, 0, 0, kBatch)).to(Device::cpu());
  reference.expect_near("embeddings", ops::cast(embeddings, DType::kFloat64), 5e-2);
  EXPECT_EQ(reference.used() + parts.model.parameters().size(), reference.size());  // digests are not counted
}

INSTANTIATE_TEST_SUITE_P(Devices, TrainInsightfaceSteps,
                         ::testing::Values(DeviceType::kCpu, DeviceType::kCuda), nn::testing::device_name);

/// Mean, deviation and largest magnitude.
struct Spread {
  double mean = 0.0, deviation = 0.0, largest = 0.0;
};

Spread spread_of(const Tensor& tensor) {
  const std::vector<double> values = sinter::testing::to_doubles(tensor);
  Spread spread;
  double squares = 0.0;
  for (const double value : values) {
    spread.mean += value / static_cast<double>(values.size());
    squares += value * value / static_cast<double>(values.size());
    spread.largest = std::max(spread.largest, std::abs(value));
  }
  spread.deviation = std::sqrt(std::max(0.0, squares - spread.mean * spread.mean));
  return spread;
}

TEST(TrainInsightfaceStart, IsThatOfPyTorch) {
  const Options options = recipe(Device::cpu());
  const nn::AnyModule backbone = make_backbone(options);
  const auto ranks = Communicator::join(ProcessEnvironment{});
  const Spread centres = spread_of(make_centres(options, 30, *ranks).head().weight.tensor());
  EXPECT_NEAR(centres.mean, 0.0, 4e-4);
  EXPECT_NEAR(centres.deviation, 0.01, 3e-4);
  for (const nn::Parameter& parameter : backbone.parameters()) {
    const Spread spread = spread_of(parameter.tensor());
    const Shape shape = parameter.canonical_shape();
    const std::string& name = parameter.name();
    const bool is_fc = name.starts_with("fc.");
    if (shape.rank() == 1 && !is_fc) {
      const double value = name.ends_with("prelu.weight") ? 0.25 : name.ends_with("weight") ? 1.0 : 0.0;
      EXPECT_EQ(spread.mean, value) << name;
      EXPECT_EQ(spread.largest, value) << name;
      continue;
    }
    // Uniform within one over the root of the inputs; the bias of a linear layer as its weight.
    const double bound = 1.0 / std::sqrt(static_cast<double>(is_fc ? 512 * 4 : shape.stride(0)));
    const double error = 5.0 * bound / std::sqrt(static_cast<double>(shape.numel()));
    EXPECT_LE(spread.largest, bound * (1.0 + 1e-6)) << name;
    EXPECT_GE(spread.largest, 0.98 * bound) << name;
    EXPECT_NEAR(spread.mean, 0.0, error) << name;
    EXPECT_NEAR(spread.deviation, bound / std::sqrt(3.0), error) << name;
  }
}

/// Images of 16 pixels a side, the left half white, the other black; the label is the number of the image.
class Numbered final : public nn::data::Dataset {
 public:
  static constexpr int64_t kCount = 250;

  int64_t size() const override { return kCount; }
  const std::vector<std::string>& class_names() const override { return names_; }
  void read(int64_t index, nn::data::Sample& sample, const nn::data::DecodeHintFunction&) const override {
    sample.label = index;
    sample.image.reshape(16, 16, 3);
    for (int64_t i = 0; i < 16 * 16 * 3; ++i)
      sample.image.pixels[static_cast<size_t>(i)] = i / 3 % 16 < 8 ? 255 : 0;
  }

 private:
  std::vector<std::string> names_ = std::vector<std::string>(kCount, "face");
};

TEST(TrainInsightfaceData, IsShuffledAndMirroredAnewInEachEpoch) {
  constexpr int64_t kEpochsHere = 40;
  Options options = recipe(Device::cpu());
  options.batch = 50;
  options.synthetic = 0;
  options.image_size = 16;
  options.seed = 3;
  const auto ranks = Communicator::join(ProcessEnvironment{});
  const auto faces = std::make_shared<Numbered>();
  nn::data::DataLoader loader(faces, train_loader_options(options, Device::cpu(), *faces, *ranks));
  ASSERT_EQ(loader.batches_per_epoch(), 5);
  std::set<std::vector<int64_t>> orders;
  std::map<int64_t, int64_t> mirrored;
  int64_t all_mirrored = 0;
  for (int64_t epoch = 0; epoch < kEpochsHere; ++epoch) {
    std::vector<int64_t> order;
    while (const std::optional<nn::data::Batch> batch = loader.next()) {
      const std::span<const int64_t> labels = batch->host_labels;
      const std::vector<float> values = batch->images.to_vector<float>();
      for (size_t i = 0; i < labels.size(); ++i) {
        const bool is_mirrored = values[i * 16 * 16 * 3] < 0.0f;
        mirrored[labels[i]] += is_mirrored ? 1 : 0;
        all_mirrored += is_mirrored ? 1 : 0;
        order.push_back(labels[i]);
      }
    }
    EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), static_cast<size_t>(Numbered::kCount));
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), static_cast<size_t>(kEpochsHere));
  // Binomial: 20 +- 3.2 of 40 for each image, and 5000 +- 50 of all.
  EXPECT_NEAR(static_cast<double>(all_mirrored), 5000.0, 250.0);
  double squares = 0.0;
  for (const auto& [label, count] : mirrored) squares += std::pow(static_cast<double>(count) - 20.0, 2.0);
  EXPECT_NEAR(squares / static_cast<double>(Numbered::kCount), 10.0, 4.0);
}

}  // namespace
}  // namespace train_insightface
