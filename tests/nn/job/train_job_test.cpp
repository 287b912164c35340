// Jobs without rewrites give the bits of eager code.
#include <functional>

#include <sinter/core/runtime/random.h>
#include <sinter/core/runtime/settings.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/unary/unary.h>

#include "nn/job/job_test_support.h"

namespace sinter::nn {
namespace {

using namespace testing;

const TrainJobOptions kWithoutPasses{.passes = {.without = {"all"}}};

/// Trains two copies of a model, one eagerly and one by a job, and compares all losses and states.
template <class Model, class MakeOptimizer>
void expect_equal_training(const Model& model, MakeOptimizer make_optimizer, const Shape& image,
                           int64_t classes, int steps, const TrainJobOptions& options,
                           DType dtype = DType::kFloat32) {
  const Model eager = clone(model);
  const Model traced = clone(model);
  const auto eager_optimizer = make_optimizer(eager);
  const auto job_optimizer = make_optimizer(traced);
  const CrossEntropyLoss loss_function{.label_smoothing = 0.1};
  TrainJob job(traced, loss_function, *job_optimizer, options);
  const Device device = model.parameters().front().tensor().device();
  RandomKey eager_key{7, 0}, job_key{7, 0};
  for (int i = 0; i < steps; ++i) {
    const Tensor x = ops::cast(floats(image, i + 1).to(device), dtype);
    const Tensor y = labels(image[0], classes, i).to(device);
    const double rate = 0.05 / (1 + i);
    default_generator() = Generator(eager_key);
    eager_optimizer->zero_grad();
    const Tensor loss = loss_function(eager(x), y);
    backward(loss);
    eager_optimizer->step(rate);
    eager_key = default_generator().key();

    default_generator() = Generator(job_key);
    const Tensor job_loss = job.step(x, y, rate);
    job_key = default_generator().key();
    ASSERT_TRUE(same_bits(loss, job_loss))
        << "step " << i << ": " << loss.item() << " and " << job_loss.item();
    ASSERT_EQ(eager_key.offset, job_key.offset);
  }
  EXPECT_EQ(differences(eager.state(), traced.state()), "");
  EXPECT_EQ(differences(eager_optimizer->state(), job_optimizer->state()), "");
  EXPECT_EQ(job.compilations(), 1);
}

auto sgd_of(const SGDOptions& options = {.momentum = 0.9, .weight_decay = 5e-4}) {
  return [options](const auto& model) { return std::make_unique<SGD>(model.parameters(), options); };
}

TEST(TrainJob, DrawsForThePartOfEachStep) {
  const Dropout drop(0.5);
  const Linear layer(3, 3);
  SGD sgd(layer.parameters());
  const auto outputs = [&](const Tensor& x) {
    const Tensor dropped = drop(x);
    return std::vector<Tensor>{ops::mean(layer(dropped)), dropped};
  };
  TrainJob job(layer, sgd, outputs);
  const Tensor x = Tensor::full({8, 3}, 1.0);
  for (const auto& [part, parts] : {std::pair(0, 1), std::pair(1, 2), std::pair(0, 2), std::pair(0, 1)}) {
    SCOPED_TRACE(fmt::format("part {} of {}", part, parts));
    const RandomPartScope scope(part, parts);
    manual_seed(5);
    const Tensor eager = drop(x);
    const uint64_t behind = default_generator().key().offset;
    manual_seed(5);
    job.step({x}, 0.0);
    EXPECT_TRUE(same_bits(eager, job.outputs().front()));
    EXPECT_EQ(default_generator().key().offset, behind);
  }
}

TEST(TrainJob, TakesFunctionsOfTensorsAndOfSpans) {
  const Linear start(3, 2);
  const Tensor x = floats({4, 3}, 1), y = floats({4, 2}, 2);
  std::vector<State> states;
  const auto train = [&](const auto& make) {
    const Linear model = clone(start);
    SGD sgd(model.parameters());
    const auto loss = [&](const Tensor& in, const Tensor& target) {
      return ops::square(model(in) - target).mean();
    };
    TrainJob job(model, sgd, make(loss));
    EXPECT_GT(job.step(x, y, 0.1).item(), 0);
    EXPECT_EQ(message_of([&] { job.step({x}, 0.1); }).substr(0, 30), "[train_job] expected 2 inputs ");
    states.push_back(model.state());
    return job.outputs().size();
  };
  EXPECT_EQ(train([](const auto& loss) { return loss; }), 0u);
  EXPECT_EQ(train([](const auto& loss) {
              return [loss](const Tensor& in, const Tensor& target) {
                return std::vector{loss(in, target), in};
              };
            }),
            1u);
  EXPECT_EQ(train([](const auto& loss) {
              return [loss](std::span<const Tensor> in) {
                SINTER_CHECK(in.size() == 2, "[train_job] expected 2 inputs here");
                return loss(in[0], in[1]);
              };
            }),
            0u);
  for (const State& state : states) {
    EXPECT_EQ(state.at("weight").to_vector<float>(), states[0].at("weight").to_vector<float>());
    EXPECT_NE(state.at("weight").to_vector<float>(), start.state().at("weight").to_vector<float>());
  }
}

TEST(TrainJob, TrainsAResNetLikeEagerCode) {
  for (const Device device : devices_here()) {
    for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
      const ResNet model = resnet20({.classes = 10, .in_channels = 3, .width = 8, .layout = layout});
      model.to(device);
      const Shape image = layout == Layout::kNCHW ? Shape{4, 3, 16, 16} : Shape{4, 16, 16, 3};
      const Deterministic deterministic;
      expect_equal_training(model, sgd_of(), image, 10, 20, kWithoutPasses);
    }
  }
}

TEST(TrainJob, TrainsBottlenecksLikeEagerCode) {
  const ResNet model = resnet50({.classes = 7, .width = 8});
  expect_equal_training(model, sgd_of(), {2, 3, 64, 64}, 7, 20, kWithoutPasses);
}

struct Wide : Module {
  Linear first = child("first", Linear(12, 40));
  Dropout drop = child("drop", Dropout(0.3));
  LayerNorm norm = child("norm", LayerNorm(40));
  Linear second = child("second", Linear(40, 5));
  Tensor forward(const Tensor& x) const override { return second(drop(norm(ops::relu(drop(first(x)))))); }
};

TEST(TrainJob, DrawsTheRandomNumbersOfEagerCode) {
  expect_equal_training(Wide(), sgd_of(), {6, 12}, 5, 20, kWithoutPasses);
}

TEST(TrainJob, UpdatesLikeEveryOptimizer) {
  const auto adamw = [](const auto& model) {
    return std::make_unique<AdamW>(parameter_groups(model, {}, {.decay_vectors = false}),
                                   AdamWOptions{.amsgrad = true});
  };
  expect_equal_training(Wide(), adamw, {6, 12}, 5, 10, kWithoutPasses);
  const auto rmsprop = [](const auto& model) { return std::make_unique<RMSprop>(model.parameters()); };
  expect_equal_training(Wide(), rmsprop, {6, 12}, 5, 10, kWithoutPasses);
  expect_equal_training(Wide(), sgd_of({.momentum = 0.0}), {6, 12}, 5, 10, kWithoutPasses);
  const auto lars = [](const auto& model) {
    return std::make_unique<LARS>(parameter_groups(model, {}, {.decay_vectors = false}),
                                  LARSOptions{.weight_decay = 1e-4});
  };
  expect_equal_training(Wide(), lars, {6, 12}, 5, 10, kWithoutPasses);
  const auto lamb = [](const auto& model) {
    return std::make_unique<LAMB>(parameter_groups(model, {}, {.decay_vectors = false}));
  };
  expect_equal_training(Wide(), lamb, {6, 12}, 5, 10, kWithoutPasses);
}

/// Sums of gradients over several calls: the bits of eager code that divides the loss and lets gradients add
/// up.
TEST(TrainJob, AccumulatesLikeEagerCode) {
  const Wide eager;
  const Wide traced = clone(eager);
  SGD eager_sgd(eager.parameters(), {.momentum = 0.9}), job_sgd(traced.parameters(), {.momentum = 0.9});
  const CrossEntropyLoss loss_function;
  TrainJobOptions options = kWithoutPasses;
  options.accumulate = 3;
  TrainJob job(traced, loss_function, job_sgd, options);
  RandomKey eager_key{7, 0}, job_key{7, 0};
  for (int update = 0; update < 4; ++update) {
    const double rate = 0.1 / (1 + update);
    eager_sgd.zero_grad();
    for (int part = 0; part < 3; ++part) {
      const Tensor x = floats({6, 12}, 3 * update + part), y = labels(6, 5, part);
      default_generator() = Generator(eager_key);
      const Tensor loss = loss_function(eager(x), y);
      backward(ops::affine(loss, 1.0 / 3.0, 0.0));
      eager_key = default_generator().key();
      default_generator() = Generator(job_key);
      const State before = traced.state();
      EXPECT_TRUE(same_bits(job.step(x, y, rate), loss));
      if (part < 2) {
        EXPECT_EQ(differences(before, traced.state()), "") << "updated too early";
      }
      job_key = default_generator().key();
    }
    eager_sgd.step(rate);
    ASSERT_EQ(differences(eager.state(), traced.state()), "") << "update " << update;
  }
  EXPECT_EQ(job.compilations(), 3);  // the first call of a series, those between, the last
}

// freeze() takes a gradient, and what a series of calls has added up of it.
TEST(TrainJob, FreezesInTheMiddleOfASeriesLikeEagerCode) {
  for (const bool thaws : {false, true}) {
    const Wide eager;
    const Wide traced = clone(eager);
    SGD eager_sgd(eager.parameters(), {.momentum = 0.9}), job_sgd(traced.parameters(), {.momentum = 0.9});
    const CrossEntropyLoss loss_function;
    TrainJobOptions options = kWithoutPasses;
    options.accumulate = 2;
    TrainJob job(traced, loss_function, job_sgd, options);
    RandomKey eager_key{7, 0}, job_key{7, 0};
    const auto call = [&](int i) {
      const Tensor x = floats({6, 12}, i), y = labels(6, 5, i);
      default_generator() = Generator(eager_key);
      backward(ops::affine(loss_function(eager(x), y), 0.5, 0.0));
      eager_key = default_generator().key();
      default_generator() = Generator(job_key);
      job.step(x, y, 0.1);
      job_key = default_generator().key();
    };
    const std::string prefix = eager.parameters()[0].name();
    for (int update = 0; update < 3; ++update) {
      eager_sgd.zero_grad();
      call(2 * update);
      if (update == 1) {
        for (const Wide* model : {&eager, &traced}) {
          model->freeze(prefix);
          if (thaws) model->unfreeze(prefix);
        }
      }
      call(2 * update + 1);
      eager_sgd.step(0.1);
      ASSERT_EQ(differences(eager.state(), traced.state()), "") << "update " << update;
    }
  }
}

TEST(TrainJob, RefusesAStepWithoutGradients) {
  const Wide model;
  SGD sgd(model.parameters());
  TrainJob job(model, CrossEntropyLoss(), sgd, kWithoutPasses);
  job.step(floats({6, 12}, 1), labels(6, 5, 1), 0.1);
  const NoGrad no_grad;
  EXPECT_THROW(job.step(floats({6, 12}, 1), labels(6, 5, 1), 0.1), InvalidArgument);
}

TEST(TrainJob, RefusesWhatItCannotRepeat) {
  struct Net : Module {
    BatchNorm1d norm = child("norm", BatchNorm1d(4, {.momentum = std::nullopt}));
    Linear last = child("last", Linear(4, 2));
    Tensor forward(const Tensor& x) const override { return last(norm(x)); }
  };
  const Net model;
  SGD sgd(model.parameters(), {});
  TrainJob job(model, CrossEntropyLoss(), sgd);
  EXPECT_EQ(message_of([&] {
              job.step(floats({3, 4}, 1), labels(3, 2, 1), 0.1);
            }),
            "[batch_norm1d] a cumulative average (without momentum) weighs each batch by a number that the "
            "host counts, "
            "which a job cannot repeat; give a momentum, or train eagerly");
}

TEST(TrainJob, RefusesATensorThatForwardMakesAndChanges) {
  struct Net : Module {
    Linear last = child("last", Linear(4, 2));
    Tensor forward(const Tensor& x) const override {
      const Tensor sum = Tensor::zeros(x.shape());
      ops::copy_(sum, x);
      return last(sum);
    }
  };
  const Net model;
  SGD sgd(model.parameters(), {});
  TrainJob job(model, CrossEntropyLoss(), sgd);
  const std::string message = message_of([&] { job.step(floats({3, 4}, 1), labels(3, 2, 1), 0.1); });
  EXPECT_TRUE(
      message.starts_with("[trace] copy_ changes 'target' in place, a tensor of float32 (3, 4) on cpu"))
      << message;
}

}  // namespace
}  // namespace sinter::nn
