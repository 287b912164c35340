// What a job notices of the world around its graph: everything that would make the traced step another one is
// followed, or refused, never passed over.
#include <memory>

#include <sinter/core/runtime/random.h>
#include <sinter/nn/init/init.h>
#include <sinter/nn/job/infer_job.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/dropout/dropout.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/slice/slice.h>
#include <sinter/ops/unary/unary.h>

#include "nn/job/job_test_support.h"

namespace sinter::nn {
namespace {

using namespace testing;

const TrainJobOptions kPlain{.passes = {.without = {"all"}}};

struct Net : Module {
  Linear first = child("first", Linear(4, 6));
  BatchNorm1d norm = child("norm", BatchNorm1d(6));
  Linear last = child("last", Linear(6, 3));
  Tensor forward(const Tensor& x) const override { return last(ops::relu(norm(first(x)))); }
};

Tensor images(int64_t seed) {
  return floats({5, 4}, seed);
}
Tensor classes(int64_t seed) {
  return labels(5, 3, seed);
}

// ---- optimisers that users write

/// Reads its rate, its counts and its buffers with ops of its own before it writes anything.
class OwnOptimizer : public Optimizer {
 public:
  explicit OwnOptimizer(const std::vector<Parameter>& parameters)
      : Optimizer("own", {{.parameters = parameters}}, 0.0, {"velocity"}) {}

 protected:
  void update(std::span<Slot* const> slots, const UpdateOptions& options) override {
    const Tensor rate = ops::cast(options.learning_rate, DType::kFloat32);
    for (const Slot* slot : slots) {
      const Tensor count = ops::cast(slot->step, DType::kFloat32);
      const Tensor velocity = slot->buffers[0] * 0.9 + slot->parameter.grad() / count;
      const Tensor master = slot->parameter.master();
      ops::copy_(slot->buffers[0], velocity);
      ops::copy_(master, master - rate * velocity);
    }
  }
};

TEST(JobWatch, OptimizersOfUsersReadTheirStateAnewInEveryStep) {
  const auto train = [](bool by_job) {
    manual_seed(3);
    const Net model;
    OwnOptimizer optimizer(model.parameters());
    TrainJob job(model, CrossEntropyLoss{}, optimizer, kPlain);
    for (int i = 0; i < 4; ++i) {
      const double rate = 0.2 / (1 + i);
      if (by_job) {
        job.step(images(i), classes(i), rate);
      } else {
        optimizer.zero_grad();
        backward(CrossEntropyLoss{}(model(images(i)), classes(i)));
        optimizer.step(rate);
      }
    }
    return model.state();
  };
  EXPECT_EQ(differences(train(false), train(true)), "");
}

TEST(JobWatch, ALoadedAverageIsFollowed) {
  const auto train = [](bool by_job) {
    manual_seed(3);
    const Net model;
    SGD sgd(model.parameters());
    EMA ema(model, {.decay = 0.5});
    TrainJobOptions options = kPlain;
    options.ema = &ema;
    TrainJob job(model, CrossEntropyLoss{}, sgd, options);
    State early;
    for (int i = 0; i < 6; ++i) {
      if (i == 2) early = ema.state();
      if (i == 4) ema.load_state(early);
      if (by_job) {
        job.step(images(i), classes(i), 0.1);
      } else {
        sgd.zero_grad();
        backward(CrossEntropyLoss{}(model(images(i)), classes(i)));
        sgd.step(0.1);
        ema.update();
      }
    }
    return ema.state();
  };
  EXPECT_EQ(differences(train(false), train(true)), "");
}

// ---- random numbers

TEST(JobWatch, RandomNumbersThatNoStepCouldDrawAnewAreRefused) {
  const Net model;
  SGD sgd(model.parameters());
  manual_seed(7);
  auto own = std::make_shared<Generator>(7);
  TrainJob with_own(
      model, sgd,
      [&](std::span<const Tensor> in) {
        return std::vector<Tensor>{CrossEntropyLoss{}(model(ops::dropout(in[0], 0.5, *own)), in[1])};
      },
      kPlain);
  EXPECT_NE(message_of([&] {
              with_own.step({images(0), classes(0)}, 0.0);
            }).find("from a generator of its own"),
            std::string::npos);
  TrainJob with_noise(
      model, sgd,
      [&](std::span<const Tensor> in) {
        const Tensor noise = init::normal(in[0].shape(), 0.0, 1.0, default_generator());
        return std::vector<Tensor>{CrossEntropyLoss{}(model(in[0] + noise), in[1])};
      },
      kPlain);
  EXPECT_NE(message_of([&] {
              with_noise.step({images(0), classes(0)}, 0.0);
            }).find("drew random numbers on the host"),
            std::string::npos);
}

// ---- modules and tensors beside the model

TEST(JobWatch, ModulesOutsideOfTheModelAreWatched) {
  manual_seed(3);
  const Net teacher, student;
  for (const Parameter& parameter : teacher.parameters()) parameter.tensor().set_requires_grad(false);
  SGD sgd(student.parameters());
  const auto loss = [&](const Tensor& x) { return ops::mean(ops::square(student(x) - teacher(x))); };
  const auto expect_eager_loss = [&](TrainJob& job, int seed) {
    const Tensor x = images(seed);
    const State before = student.state(), teachers = teacher.state();
    const Tensor expected = loss(x).detach();
    student.load_state(before);
    teacher.load_state(teachers);
    EXPECT_TRUE(same_bits(job.step({x}, 0.1), expected)) << seed;
  };
  for (const bool with_passes : {false, true}) {
    TrainJob job(
        student, sgd, [&](std::span<const Tensor> in) { return std::vector<Tensor>{loss(in[0])}; },
        with_passes ? TrainJobOptions{} : kPlain);
    teacher.train();
    expect_eager_loss(job, 0);
    // A teacher that follows its student, as a mean teacher does.
    for (const Parameter& parameter : teacher.parameters()) ops::fill_(parameter.tensor(), 0.25);
    expect_eager_loss(job, 1);
    EXPECT_EQ(job.compilations(), 1) << "values are no reason for another graph";
    teacher.eval();
    expect_eager_loss(job, 2);
    EXPECT_EQ(job.compilations(), 2) << "a mode is";
  }
}

TEST(JobWatch, MembersThatAreReadWithoutACallAreWatched) {
  manual_seed(3);
  const Conv2d filters(2, 2, 3);
  filters.weight.set_requires_grad(false);
  const BatchNorm2d norm(2);
  const Linear model(2, 3);
  SGD sgd(model.parameters());
  const auto result = [&](const Tensor& x) {
    const Tensor weight = ops::cast(filters.weight, DType::kFloat32);
    Tensor scale = ops::mean(weight, {0, 2, 3}) + norm.running_mean;
    if (norm.training()) scale = scale * 2;
    return ops::sum(ops::square(model(x * scale)));
  };
  for (const bool with_passes : {false, true}) {
    const auto passes = with_passes ? TrainJobOptions().passes : kPlain.passes;
    InferJob infer(model, result, {.passes = passes});
    TrainJob train(model, sgd, result, {.passes = passes});
    int compilations = 0;
    const auto expect_eager = [&](const char* what, bool other_graph) {
      const Tensor x = floats({5, 2}, 4);
      compilations += other_graph ? 1 : 0;
      EXPECT_EQ(infer(x).item(), result(x).item()) << what;
      const State before = model.state();
      const double expected = result(x).item();
      EXPECT_EQ(train.step({x}, 0.1).item(), expected) << what;
      model.load_state(before);
      EXPECT_EQ(infer.compilations(), compilations) << what;
      EXPECT_EQ(train.compilations(), compilations) << what;
    };
    expect_eager("first", true);
    ops::fill_(norm.running_mean, 0.5);
    filters.weight.assign(ops::full({2, 2, 3, 3}, with_passes ? 0.3 : 0.7));
    expect_eager("values", false);
    filters.to(DType::kFloat16);
    expect_eager("converted", true);
    ops::fill_(filters.weight, 0.1);
    expect_eager("values of what was converted", false);
    filters.to(DType::kFloat32);
    expect_eager("back", true);
    norm.eval();
    expect_eager("mode", true);
    ops::fill_(norm.running_mean, 0.25);
    expect_eager("buffers", false);
    norm.train();
    expect_eager("mode again", false);
  }
}

TEST(JobWatch, TensorsThatWereTakenForConstantAreWatched) {
  const Net model;
  SGD sgd(model.parameters());
  const Tensor scale = Tensor::full({4}, 1.0);
  TrainJob job(
      model, sgd,
      [&](std::span<const Tensor> in) {
        return std::vector<Tensor>{CrossEntropyLoss{}(model(in[0] * ops::square(scale)), in[1])};
      },
      kPlain);
  for (int i = 0; i < 3; ++i) {
    ops::fill_(scale, 1.0 + i);
    const State before = model.state();
    const Tensor expected = CrossEntropyLoss{}(model(images(i) * ops::square(scale)), classes(i)).detach();
    model.load_state(before);
    EXPECT_TRUE(same_bits(job.step({images(i), classes(i)}, 0.1), expected)) << i;
  }
  EXPECT_NE(job.report().find("a tensor was changed that had been taken for a constant"), std::string::npos)
      << job.report();
}

TEST(JobWatch, WhatViewsShowIsReadWhenTheJobRuns) {
  const Net model;
  SGD sgd(model.parameters());
  const Tensor scales = Tensor::full({2, 2, 2}, 1.0);
  TrainJob job(
      model, sgd,
      [&](std::span<const Tensor> in) {
        const Tensor scale = ops::slice(ops::reshape(scales, {8}), 0, 4, 8);
        return std::vector<Tensor>{CrossEntropyLoss{}(model(in[0] * scale), in[1])};
      },
      kPlain);
  for (int i = 0; i < 3; ++i) {
    ops::fill_(scales, 1.0 + i);
    const State before = model.state();
    const Tensor expected =
        CrossEntropyLoss{}(model(images(i) * Tensor::full({4}, 1.0 + i)), classes(i)).detach();
    model.load_state(before);
    EXPECT_TRUE(same_bits(job.step({images(i), classes(i)}, 0.1), expected)) << i;
  }
  EXPECT_EQ(job.compilations(), 1) << job.report();
}

TEST(JobWatch, MembersThatAreAddedMakeAnotherGraph) {
  Sequential model;
  model.add(Linear(4, 4));
  InferJob infer(model);
  infer(images(0));
  model.add(Linear(4, 2));
  EXPECT_EQ(infer(images(0)).shape(), (Shape{5, 2}));
  EXPECT_NE(infer.report().find("converted or added"), std::string::npos) << infer.report();
}

// ---- what cannot be repeated

TEST(JobWatch, InputsThatAskForAGradientAreRefused) {
  const Net model;
  SGD sgd(model.parameters());
  TrainJob job(model, CrossEntropyLoss{}, sgd);
  const Linear before(4, 4);
  EXPECT_EQ(
      message_of([&] { job.step(before(images(0)), classes(0), 0.1); }),
      "[train_job] input 0 asks for a gradient, which no job gives: detach() it, or compute it within the "
      "job");
}

TEST(JobWatch, StateThatForwardAssignsIsRefused) {
  struct Remembers : Module {
    Linear last = child("last", Linear(4, 3));
    mutable Tensor state = Tensor::zeros({5, 4});
    Tensor forward(const Tensor& x) const override {
      state = ops::tanh(x + state);
      return last(state);
    }
  };
  const Remembers model;
  SGD sgd(model.parameters());
  TrainJob job(model, CrossEntropyLoss{}, sgd);
  const std::string message = message_of([&] { job.step(images(0), classes(0), 0.1); });
  EXPECT_TRUE(
      message.starts_with("[trace] the output of tanh, float32 (5, 4) on cpu, is still held by the code"))
      << message;
}

TEST(JobWatch, AJobWithinAJobIsRefused) {
  const Net model;
  SGD sgd(model.parameters());
  InferJob inner(model);
  TrainJob job(model, sgd, [&](std::span<const Tensor> in) {
    return std::vector<Tensor>{CrossEntropyLoss{}(inner(in[0]), in[1])};
  });
  EXPECT_EQ(message_of([&] {
              job.step({images(0), classes(0)}, 0.1);
            }),
            "[infer_job] a job cannot run while another job is traced: call the model itself there");
}

TEST(JobWatch, ALossThatTrainsNothingIsRefused) {
  const Net model, other;
  SGD sgd(other.parameters());
  TrainJob job(model, CrossEntropyLoss{}, sgd);
  EXPECT_EQ(message_of([&] { job.step(images(0), classes(0), 0.1); }),
            "[train_job] the loss depends on none of the optimiser's parameters: a step would train nothing");
}

TEST(JobWatch, NamesOfPassesAreCheckedAtOnce) {
  const Net model;
  SGD sgd(model.parameters());
  EXPECT_TRUE(message_of([&] {
                TrainJob(model, CrossEntropyLoss{}, sgd, {.passes = {.without = {"fuse"}}});
              }).starts_with("[passes] there is no pass 'fuse'"));
  EXPECT_TRUE(message_of([&] {
                InferJob(model, {.passes = {.without = {"fuse"}}});
              }).starts_with("[passes] there is no pass 'fuse'"));
}

// ---- steps that fail, series that end early, graphs that are done with

TEST(JobWatch, AFailedStepIsSeenByThoseBesideIt) {
  const Net model;
  SGD sgd(model.parameters());
  TrainJob job(model, CrossEntropyLoss{}, sgd);
  InferJob infer(model);
  const auto eager = [&] {
    const NoGrad no_grad;
    const EvalMode eval(model);
    return model(images(1)).to_vector<float>();
  };
  job.step(images(0), classes(0), 0.1);
  expect_near(infer(images(1)), eager(), 1e-6);
  const Tensor wrong = Tensor::from_values<int64_t>({0, 1, 2, 1, 3}, {5});  // there is no class 3
  EXPECT_NE(message_of([&] { job.step(images(2), wrong, 0.1); }), "no error");
  expect_near(infer(images(1)), eager(), 1e-6);
}

TEST(JobWatch, ASeriesCanBeginAnew) {
  manual_seed(3);
  const Net model;
  SGD sgd(model.parameters());
  TrainJobOptions options = kPlain;
  options.accumulate = 2;
  TrainJob job(model, CrossEntropyLoss{}, sgd, options);
  job.step(images(0), classes(0), 0.1);
  const State before = model.first.state();
  job.reset_accumulation();
  job.step(images(1), classes(1), 0.1);
  EXPECT_EQ(differences(before, model.first.state()), "") << "the first of a series updates nothing";
  job.step(images(2), classes(2), 0.1);
  EXPECT_NE(differences(before, model.first.state()), "");
  job.step(images(3), classes(3), 0.1);
  model.to(DType::kFloat64);
  EXPECT_NE(message_of([&] {
              job.step(ops::cast(images(4), DType::kFloat64), classes(4), 0.1);
            }).find("in the middle of the 2 calls that make one update"),
            std::string::npos);
}

TEST(JobWatch, GraphsOfTensorsThatAreGoneAreDropped) {
  const Net model;
  SGD sgd(model.parameters(), {.momentum = 0.9});
  TrainJob job(model, CrossEntropyLoss{}, sgd);
  job.step(images(0), classes(0), 0.1);
  const MemoryPool& pool = backend_of(Device::cpu()).memory_pool(0);
  const State state = sgd.state();
  size_t live = 0;
  for (int i = 0; i < 12; ++i) {
    sgd.load_state(state);
    job.step(images(i), classes(i), 0.1);
    if (i == 1) live = pool.stats().live_bytes;
  }
  EXPECT_EQ(pool.stats().live_bytes, live);
  const std::string report = job.report();
  EXPECT_EQ(report.find("graph for"), report.rfind("graph for")) << report;
}

TEST(JobWatch, AccumulationHasRoomForAllPartsOfItsSeries) {
  const Net model;
  SGD sgd(model.parameters());
  TrainJob job(model, CrossEntropyLoss{}, sgd, {.accumulate = 4, .max_graphs = 3});
  for (int i = 0; i < 48; ++i) {
    const int64_t size = 3 + i / 4 % 3;
    job.step(floats({size, 4}, i), labels(size, 3, i), 0.1);
  }
  EXPECT_EQ(job.compilations(), 9) << job.report();
}

}  // namespace
}  // namespace sinter::nn
