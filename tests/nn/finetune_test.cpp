// What fine-tuning takes: frozen parts of a model, and groups of parameters by their names; eager and in
// jobs.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sinter/autograd/backward.h>
#include <sinter/core/runtime/random.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/reduce/reduce.h>

#include "nn/device_test_support.h"
#include "nn/job/job_test_support.h"
#include "nn/nn_test_support.h"

namespace sinter::nn {
namespace {

using testing::bits_of;
using testing::floats;
using testing::message_of;

std::vector<std::string> names_of(const ParameterGroup& group) {
  std::vector<std::string> names;
  for (const Parameter& parameter : group.parameters) names.push_back(parameter.name());
  return names;
}

TEST(FreezeTest, TakesAPartOutOfTrainingUntilItIsThawed) {
  const Sequential model(Conv2d(1, 2, 3), BatchNorm2d(2), ReLU(), Flatten(), Linear(2 * 4 * 4, 3));
  model.freeze("0.");
  model.freeze("1.");
  model.train();
  const State before = model.state();
  const auto gradients = [&] {
    model.zero_grad();
    backward(ops::sum(model(floats({4, 1, 6, 6}, 0))));
    std::vector<std::string> names;
    for (const Parameter& parameter : model.parameters()) {
      if (parameter.grad().defined()) names.push_back(parameter.name());
    }
    return names;
  };
  EXPECT_EQ(gradients(), (std::vector<std::string>{"4.weight", "4.bias"}));
  EXPECT_EQ(bits_of(model.state()), bits_of(before)) << "a frozen norm keeps its statistics";
  EXPECT_TRUE(model.training());

  model.unfreeze("1.");  // in the mode that train() gave it
  EXPECT_EQ(gradients(), (std::vector<std::string>{"1.weight", "1.bias", "4.weight", "4.bias"}));
  EXPECT_NE(bits_of(model.state()), bits_of(before));
  EXPECT_EQ(model.state().at("1.num_batches_tracked").item(), 1);
  model.eval();
  model.unfreeze();
  const State settled = model.state();
  EXPECT_EQ(gradients().size(), 6u);
  EXPECT_EQ(bits_of(model.state()), bits_of(settled)) << "evaluation is a mode of its own";
}

TEST(FreezeTest, TakesBeginningsOfNames) {
  const ResNet model = resnet20({.classes = 3, .width = 2});
  model.freeze();
  model.unfreeze("fc.");
  for (const Parameter& parameter : model.parameters())
    EXPECT_EQ(parameter.tensor().requires_grad(), parameter.name().starts_with("fc.")) << parameter.name();
  model.unfreeze("layer3.2.conv1.weight");
  EXPECT_TRUE(model.parameters().at(0).tensor().requires_grad() == false);
  int64_t learning = 0;
  for (const Parameter& parameter : model.parameters())
    learning += parameter.tensor().requires_grad() ? 1 : 0;
  EXPECT_EQ(learning, 3);
  EXPECT_EQ(message_of([&] { model.freeze("layer4."); }),
            "[module] expected the beginning of names of the module to freeze but got 'layer4.'");
  EXPECT_EQ(message_of([&] { model.unfreeze("FC."); }),
            "[module] expected the beginning of names of the module to unfreeze but got 'FC.'");
}

TEST(FreezeTest, LeavesAloneWhatNeverLearned) {
  const IResNet model = iresnet18({.dimensions = 4});  // whose last norm has a weight of 1
  const auto learning = [&] {
    std::vector<bool> flags;
    for (const Parameter& parameter : model.parameters()) flags.push_back(parameter.tensor().requires_grad());
    return flags;
  };
  const std::vector<bool> before = learning();
  EXPECT_EQ(std::ranges::count(before, false), 1);
  model.freeze();
  EXPECT_EQ(std::ranges::count(learning(), true), 0);
  model.unfreeze();
  EXPECT_EQ(learning(), before);
}

TEST(FreezeTest, StaysWithCopiesAndDropsGradients) {
  const Sequential model(Linear(2, 3), Linear(3, 1));
  backward(ops::sum(model(floats({2, 2}, 0))));
  model.freeze("0.");
  EXPECT_FALSE(model.parameters()[0].grad().defined()) << "a step would still apply it";
  EXPECT_TRUE(model.parameters()[2].grad().defined());
  const Sequential copy = clone(model);
  EXPECT_FALSE(copy.parameters()[0].tensor().requires_grad());
  copy.unfreeze();
  EXPECT_TRUE(copy.parameters()[0].tensor().requires_grad());
  EXPECT_FALSE(model.parameters()[0].tensor().requires_grad());
}

TEST(FreezeTest, AnEvalModeCannotWakeIt) {
  const BatchNorm2d norm(2);
  norm.freeze();
  EXPECT_FALSE(norm.training());
  { const EvalMode eval(norm); }
  norm.train();
  EXPECT_FALSE(norm.training());
  norm.unfreeze();
  EXPECT_TRUE(norm.training());
}

TEST(ParameterGroupsTest, TheFirstRuleThatFitsCounts) {
  const Sequential model(Conv2d(3, 4, 3), BatchNorm2d(4), PReLU(4), Flatten(), Linear(4, 2));
  const auto groups = parameter_groups(model, {{.prefix = "4.b", .lr_scale = 3.0},
                                               {.prefix = "4.", .weight_decay = 0.5, .clip = false},
                                               {.prefix = "1.", .lr_scale = 0.0}});
  ASSERT_EQ(groups.size(), 4u);
  EXPECT_EQ(names_of(groups[0]), std::vector<std::string>{"4.bias"});
  EXPECT_EQ(groups[0].lr_scale, 3.0);
  EXPECT_EQ(names_of(groups[1]), std::vector<std::string>{"4.weight"});
  EXPECT_EQ(groups[1].weight_decay, 0.5);
  EXPECT_FALSE(groups[1].clip);
  EXPECT_EQ(names_of(groups[2]), (std::vector<std::string>{"1.weight", "1.bias"}));
  EXPECT_EQ(names_of(groups[3]), (std::vector<std::string>{"0.weight", "0.bias", "2.weight"}));
  EXPECT_EQ(groups[3].lr_scale, 1.0);
  EXPECT_FALSE(groups[3].weight_decay.has_value());
  EXPECT_EQ(
      message_of([&] {
        parameter_groups(model, {{}, {.prefix = "4."}});
      }),
      "[parameter_groups] expected parameters for the rule of '4.' but none is left whose name begins so");
  EXPECT_EQ(
      message_of([&] { parameter_groups(model, {{.prefix = "head."}}); }),
      "[parameter_groups] expected parameters for the rule of 'head.' but none is left whose name begins "
      "so");
}

TEST(ParameterGroupsTest, VectorsAreSpared) {
  const Sequential model(Conv2d(3, 4, 3), BatchNorm2d(4), PReLU(4), Flatten(), Linear(4, 2));
  const auto groups = parameter_groups(model, {}, {.decay_vectors = false});
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(names_of(groups[0]), (std::vector<std::string>{"0.weight", "4.weight"}));
  EXPECT_EQ(names_of(groups[1]),
            (std::vector<std::string>{"0.bias", "1.weight", "1.bias", "2.weight", "4.bias"}));
  EXPECT_FALSE(groups[0].weight_decay.has_value());
  EXPECT_EQ(groups[1].weight_decay, 0.0);
  const auto ruled = parameter_groups(model, {{.prefix = "4.", .lr_scale = 2.0, .weight_decay = 0.1}},
                                      {.decay_vectors = false});
  ASSERT_EQ(ruled.size(), 4u);
  EXPECT_EQ(ruled[0].weight_decay, 0.1);
  EXPECT_EQ(names_of(ruled[1]), std::vector<std::string>{"4.bias"});
  EXPECT_EQ(ruled[1].weight_decay, 0.0);
  EXPECT_EQ(ruled[1].lr_scale, 2.0);
}

TEST(ParameterGroupsTest, RatesFallLayerByLayer) {
  const auto rules = layer_decay({{"conv1.", "bn1."}, {"layer1."}, {"fc."}}, 0.5);
  ASSERT_EQ(rules.size(), 4u);
  const std::vector<std::pair<std::string, double>> expected = {
      {"conv1.", 0.25}, {"bn1.", 0.25}, {"layer1.", 0.5}, {"fc.", 1.0}};
  for (size_t i = 0; i < rules.size(); ++i)
    EXPECT_EQ(std::pair(rules[i].prefix, rules[i].lr_scale), expected[i]);
  EXPECT_EQ(message_of([] { layer_decay({{"fc."}}, 0.0); }),
            "[layer_decay] expected a decay in (0, 1] but got 0");
}

TEST(OptimizerSkipTest, SkippedParametersStartAfresh) {
  const Linear small(2, 3), large(2, 4);
  const auto train = [](const Linear& layer, Optimizer& optimizer) {
    backward(ops::sum(layer(floats({2, 2}, 1))));
    optimizer.step(0.1);
  };
  SGD sgd(small.parameters(), {.momentum = 0.9}), other(large.parameters(), {.momentum = 0.9});
  train(small, sgd);
  train(large, other);
  EXPECT_TRUE(message_of([&] { other.load_state(sgd.state()); }).find("2 mismatched") != std::string::npos);
  other.load_state(sgd.state(), {.skip = {"weight", "bias"}});
  EXPECT_TRUE(other.state().empty());
}

/// A trunk of convolutions and norms, and a head.
struct Net : Module {
  Conv2d conv = child("conv", Conv2d(3, 4, 3, {.padding = 1, .bias = false}));
  BatchNorm2d norm = child("norm", BatchNorm2d(4));
  Conv2d second = child("second", Conv2d(4, 4, 3, {.padding = 1, .bias = false}));
  BatchNorm2d second_norm = child("second_norm", BatchNorm2d(4));
  Linear head = child("head", Linear(4, 3));
  Tensor forward(const Tensor& x) const override {
    const Tensor features = ops::relu(second_norm(second(ops::relu(norm(conv(x))))));
    return head(ops::mean(features, {2, 3}));
  }
};

struct Kind {
  const char* name;
  bool job;
  std::optional<DType> precision = {};
  int accumulate = 1;
  bool adam = false;
};

/// A run whose trunk is frozen for its first steps, and whose groups have rates of their own.
class Training {
 public:
  Training(const Kind& kind, Device device) : kind_(kind) {
    manual_seed(3);
    model = std::make_unique<Net>();
    model->to(device);
    if (kind.precision) model->to_mixed(*kind.precision);
    const auto groups = parameter_groups(*model,
                                         {{.prefix = "head.", .lr_scale = 2.0},
                                          {.prefix = "conv.", .lr_scale = 0.25},
                                          {.prefix = "norm.", .lr_scale = 0.25},
                                          {.lr_scale = 0.5}},
                                         {.decay_vectors = false});
    if (kind.adam) {
      optimizer = std::make_unique<AdamW>(groups, AdamWOptions{.weight_decay = 0.05});
    } else {
      optimizer = std::make_unique<SGD>(groups, SGDOptions{.momentum = 0.9, .weight_decay = 1e-2});
    }
    ema = std::make_unique<EMA>(*model, EMAOptions{.decay = 0.9});
    device_ = device;
    if (kind.job) {
      job_ = std::make_unique<TrainJob>(*model, CrossEntropyLoss{}, *optimizer,
                                        TrainJobOptions{.precision = kind.precision,
                                                        .max_grad_norm = 5.0,
                                                        .ema = ema.get(),
                                                        .accumulate = kind.accumulate});
    }
  }

  void steps(int64_t from, int64_t to, int64_t frozen) {
    for (int64_t step = from; step < to; ++step) {
      if (step < frozen) {
        model->freeze();
        model->unfreeze("head.");
      } else {
        model->unfreeze();
      }
      model->train();
      for (int part = 0; part < kind_.accumulate; ++part)
        one(step * kind_.accumulate + part, part + 1 == kind_.accumulate);
    }
  }

  void one(int64_t batch, bool ends_step) {
    const Tensor x = floats({6, 3, 5, 5}, batch).to(device_);
    const Tensor y = Tensor::from_values<int64_t>({0, 1, 2, 0, 1, 2}, {6}).to(device_);
    if (job_ != nullptr) {
      job_->step(x, y, 0.05 / static_cast<double>(batch + 1));
      return;
    }
    optimizer->zero_grad();
    backward(CrossEntropyLoss{}((*model)(x), y));
    optimizer->step(0.05 / static_cast<double>(batch + 1),
                    clip_grad_norm(optimizer->parameters(), 5.0).factor);
    if (ends_step) ema->update();
  }

  void restore(const Training& other) {
    model->load_state(other.model->state());
    optimizer->load_state(other.optimizer->state());
    ema->load_state(other.ema->state());
  }

  std::unique_ptr<Net> model;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<EMA> ema;

 private:
  Kind kind_;
  Device device_;
  std::unique_ptr<TrainJob> job_;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {{"eager", false},
                                        {"job", true},
                                        {"adamw", true, {}, 1, true},
                                        {"bfloat16", true, DType::kBFloat16},
                                        {"accumulated", true, {}, 2}};
  return all;
}

State of_trunk(const State& state) {
  State trunk = state;
  std::erase_if(trunk, [](const auto& entry) { return entry.first.starts_with("head."); });
  return trunk;
}

class FinetuneTest : public testing::OnEachDevice {
  const testing::Deterministic deterministic_;  // bits are compared
};

TEST_P(FinetuneTest, AFrozenTrunkKeepsEveryBit) {
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    Training run(kind, device());
    const State before = run.model->state();
    run.steps(0, 4, 4);
    const State after = run.model->state();
    EXPECT_EQ(bits_of(of_trunk(after)), bits_of(of_trunk(before)));
    EXPECT_EQ(bits_of(of_trunk(run.ema->averaged_state())), bits_of(of_trunk(before)));
    EXPECT_NE(bits_of(after.at("head.weight")), bits_of(before.at("head.weight")));
    EXPECT_EQ(run.optimizer->state().at("step.conv.weight").item(), 0);
    EXPECT_EQ(run.optimizer->state().at("step.head.weight").item(), 4);
    run.steps(4, 5, 4);
    EXPECT_NE(bits_of(run.model->state().at("conv.weight")), bits_of(before.at("conv.weight")));
    EXPECT_NE(bits_of(run.model->state().at("norm.running_mean")), bits_of(before.at("norm.running_mean")));
    EXPECT_EQ(run.optimizer->state().at("step.conv.weight").item(), 1);
  }
}

TEST_P(FinetuneTest, ARunThatGoesOnIsTheOneThatWasNotStopped) {
  for (const Kind& kind : kinds()) {
    for (const int64_t stop : {2, 3, 5}) {  // before the trunk is thawed, then, and after
      SCOPED_TRACE(fmt::format("{}, stopped after {}", kind.name, stop));
      Training whole(kind, device()), first(kind, device());
      whole.steps(0, 6, 3);
      first.steps(0, stop, 3);
      Training second(kind, device());
      second.restore(first);
      second.steps(stop, 6, 3);
      EXPECT_EQ(bits_of(second.model->state()), bits_of(whole.model->state()));
      EXPECT_EQ(bits_of(second.optimizer->state()), bits_of(whole.optimizer->state()));
      EXPECT_EQ(bits_of(second.ema->averaged_state()), bits_of(whole.ema->averaged_state()));
    }
  }
}

TEST_P(FinetuneTest, JobsDoWhatEagerStepsDo) {
  Training eager(kinds()[0], device()), job(kinds()[1], device());
  eager.steps(0, 6, 3);
  job.steps(0, 6, 3);
  const State expected = eager.model->state(), got = job.model->state();
  for (const auto& [name, tensor] : expected) {
    if (!is_float(tensor.dtype())) continue;
    SCOPED_TRACE(name);
    testing::expect_near(got.at(name).to(Device::cpu()), tensor.to(Device::cpu()).to_vector<float>(), 1e-5);
  }
}

/// Without a norm's help: one step of plain SGD is the gradient times the group's own rate.
TEST_P(FinetuneTest, EachGroupHasItsRate) {
  for (const bool is_job : {false, true}) {
    const auto delta = [&](double scale) {
      manual_seed(5);
      const Sequential model(Linear(4, 5), Linear(5, 3));
      model.to(device());
      SGD sgd(parameter_groups(model, {{.prefix = "0.", .lr_scale = scale}}));
      const State before = model.state();
      const Tensor x = floats({6, 4}, 0).to(device()), y = Tensor::zeros({6}, DType::kInt64, device());
      std::unique_ptr<TrainJob> job;
      if (is_job) {
        job = std::make_unique<TrainJob>(model, CrossEntropyLoss{}, sgd);
        job->step(x, y, 0.0);  // the rate of the first step is no constant of the program
        job->step(x, y, 0.5);
      } else {
        backward(CrossEntropyLoss{}(model(x), y));
        sgd.step(0.5);
      }
      std::vector<std::vector<float>> moved;
      for (const char* name : {"0.weight", "1.weight"}) {
        const auto from = before.at(name).to(Device::cpu()).to_vector<float>(),
                   to = model.state().at(name).to(Device::cpu()).to_vector<float>();
        std::vector<float>& values = moved.emplace_back();
        for (size_t i = 0; i < from.size(); ++i) values.push_back(to[i] - from[i]);
      }
      return moved;
    };
    const auto whole = delta(1.0), tenth = delta(0.125), none = delta(0.0);
    for (size_t i = 0; i < whole[0].size(); ++i) {
      EXPECT_NEAR(tenth[0][i], 0.125 * whole[0][i], 1e-7);
      EXPECT_EQ(none[0][i], 0.0f);
    }
    EXPECT_EQ(tenth[1], whole[1]);
    EXPECT_GT(std::abs(whole[0][0]), 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, FinetuneTest, ::testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                         testing::device_name);

}  // namespace
}  // namespace sinter::nn
