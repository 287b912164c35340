// Jobs over many steps: memory, several graphs, turns with eager code, checkpoints, scalers and averages.
#include <cmath>
#include <functional>
#include <memory>

#include <sinter/core/base/log.h>
#include <sinter/core/runtime/random.h>
#include <sinter/nn/checkpoint/checkpoint.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/unary/unary.h>

#include "common/temporary_folder.h"
#include "nn/job/small_trainer.h"

namespace sinter::nn {
namespace {

using namespace testing;
using sinter::testing::TemporaryFolder;

/// Trains one eagerly and one by `by_job(step)`, on every device, and compares every loss and all that is
/// left.
void expect_alike(TrainerOptions options, int steps, const std::function<bool(int)>& by_job,
                  const std::function<Batch(int)>& batch_of) {
  const Deterministic deterministic;
  for (const Device device : devices_here()) {
    options.device = device;
    Trainer eager(options), other(options);
    for (int i = 0; i < steps; ++i) {
      const double rate = 0.1 / (1 + i);
      const Batch data = batch_of(i);
      const Tensor expected = eager.step(data, false, rate), got = other.step(data, by_job(i), rate);
      ASSERT_TRUE(same_bits(expected, got))
          << "step " << i << " on " << to_string(device) << ": " << expected.item() << " and " << got.item();
      ASSERT_EQ(differences(eager, other), "") << "behind step " << i << " on " << to_string(device);
    }
  }
}

// ---- memory and graphs

TEST(JobLife, ManyStepsOfChangingSizesLeaveMemoryFlat) {
  Trainer trainer({.job = {.max_graphs = 3}});
  const MemoryPool& pool = backend_of(Device::cpu()).memory_pool(0);
  size_t live = 0, reserved = 0;
  uint64_t allocations = 0;
  for (int i = 0; i < 2000; ++i) {
    // Three sizes in turn, a fourth one now and then, which throws a graph out.
    trainer.step(batch(i % 97 == 96 ? 5 : 2 + i % 3, i % 50), true, 1e-3);
    if (i == 400) {
      live = pool.stats().live_bytes;
      reserved = pool.stats().reserved_bytes;
      allocations = pool.stats().allocations;
    }
  }
  // At the same place of the cycle: 97 * 4 + 12 = 400 and 97 * 20 + 59 = 1999.
  EXPECT_LE(pool.stats().live_bytes, live + live / 10);
  EXPECT_LE(pool.stats().reserved_bytes, reserved + reserved / 4);
  EXPECT_GT(allocations, 0u);
  EXPECT_GT(trainer.job->compilations(), 3 + 2 * 19);
}

TEST(JobLife, StepsAllocateNothingButTheirInputs) {
  Trainer trainer;
  const Batch data = batch(4, 1);
  for (int i = 0; i < 3; ++i) trainer.step(data, true);
  const MemoryPool& pool = backend_of(Device::cpu()).memory_pool(0);
  const uint64_t before = pool.stats().allocations;
  for (int i = 0; i < 20; ++i) trainer.step(data, true);
  EXPECT_EQ(pool.stats().allocations, before);
}

TEST(JobLife, GraphsBeyondTheMostAreMadeAgainWithAReason) {
  Trainer trainer({.job = {.max_graphs = 2}});
  const auto step = [&](int64_t size) { trainer.step(batch(size, size), true); };
  for (const int64_t size : {2, 3, 2, 3}) step(size);
  EXPECT_EQ(trainer.job->compilations(), 2);
  step(4);  // throws the one for 2 out
  EXPECT_EQ(trainer.job->compilations(), 3);
  step(3);
  EXPECT_EQ(trainer.job->compilations(), 3);
  step(2);
  EXPECT_EQ(trainer.job->compilations(), 4);
  const std::string report = trainer.job->report();
  EXPECT_EQ(report.find("(4, 2, 5, 5)"), report.rfind("(4, 2, 5, 5)")) << "the one for 4 is gone: " << report;
  EXPECT_NE(
      report.find(
          "graph for float32 (2, 2, 5, 5), int64 (2,), made because of input 0 is float32 (2, 2, 5, 5) on "
          "cpu and was float32 (3, 2, 5, 5) on cpu"),
      std::string::npos)
      << report;
}

TEST(JobLife, OnlyGraphsThatComeBackAreWarnedOf) {
  Trainer trainer({.job = {.max_graphs = 1}});
  std::string warnings;
  log::set_sink([&](log::Level, std::string_view text) { warnings += text; });
  for (const int64_t size : {2, 3, 4, 5}) trainer.step(batch(size, size), true);
  EXPECT_EQ(warnings, "") << "each size comes once";
  for (const int64_t size : {4, 5}) trainer.step(batch(size, size), true);
  EXPECT_NE(warnings.find("graphs are made again and again"), std::string::npos);
  log::set_sink({});
}

TEST(JobLife, OtherReasonsForAnotherGraphAreTold) {
  Trainer trainer;
  const Batch data = batch(3, 1);
  trainer.step(data, true);
  EXPECT_NE(trainer.job->report().find("made because of the first step"), std::string::npos);
  trainer.model->norm.eval();
  trainer.step(data, true);
  EXPECT_NE(trainer.job->report().find("a mode of the model was switched"), std::string::npos);
  trainer.model->norm.train();
  trainer.step(data, true);
  EXPECT_EQ(trainer.job->compilations(), 2) << "the first graph fits again";
  trainer.sgd->set_momentum(0.5);
  trainer.step(data, true);
  EXPECT_EQ(trainer.job->compilations(), 3);
  EXPECT_NE(trainer.job->report().find("an option or the state of the optimiser was exchanged"),
            std::string::npos);
}

TEST(JobLife, AMomentumThatMovesMakesNoMoreGraphs) {
  const Deterministic deterministic;
  for (const Device device : devices_here()) {
    Trainer eager({.device = device}), with_job({.device = device});
    for (int i = 0; i < 6; ++i) {
      const Batch data = batch(3, i);
      for (Trainer* trainer : {&eager, &with_job}) {
        if (i > 0) trainer->sgd->set_momentum(0.9 - 0.1 * i);
        trainer->step(data, trainer == &with_job);
      }
    }
    EXPECT_EQ(differences(eager, with_job), "") << to_string(device);
    EXPECT_EQ(with_job.job->compilations(), 2) << with_job.job->report();
  }
}

TEST(JobLife, VerifiesPassesOnTheFirstStepOnly) {
  Trainer plain({.job = {}}), verified({.job = {.passes = {.verify = true}}});
  for (int i = 0; i < 3; ++i) {
    const Batch data = batch(3, i);
    EXPECT_TRUE(same_bits(plain.step(data, true), verified.step(data, true)));
  }
  EXPECT_EQ(differences(plain, verified), "");
  EXPECT_NE(verified.job->report().find(" calls, verified\n"), std::string::npos) << verified.job->report();
  EXPECT_EQ(plain.job->report().find("verified"), std::string::npos);
  // What was prepared without data is checked at its first step.
  Trainer prepared({.job = {.passes = {.verify = true}}});
  const Batch data = batch(3, 0);
  const TensorSpec specs[] = {data.x.spec(), data.y.spec()};
  prepared.job->prepare(specs);
  EXPECT_EQ(prepared.job->report().find("verified"), std::string::npos);
  for (int i = 0; i < 2; ++i) prepared.step(data, true);
  EXPECT_NE(prepared.job->report().find(" calls, verified\n"), std::string::npos) << prepared.job->report();
  EXPECT_NE(prepared.job->report().find("made because of its passes had not been checked"),
            std::string::npos);
  EXPECT_EQ(prepared.job->compilations(), 2);
}

// ---- turns with eager code

TEST(JobLife, EagerAndJobStepsTakeTurns) {
  const auto one_size = [](int i) { return batch(4, i); };
  const auto sizes = [](int i) { return batch(2 + i % 3, i); };
  const TrainerOptions all{.clip = 0.5, .averages = true};
  expect_alike(
      {}, 12, [](int i) { return i % 2 == 1; }, one_size);
  expect_alike(
      {}, 12, [](int i) { return i % 2 == 0; }, one_size);
  expect_alike(
      all, 15, [](int i) { return i % 5 != 2 && i != 0; }, sizes);
  expect_alike(
      all, 9, [](int) { return true; }, sizes);
}

TEST(JobLife, ALoadedStateIsFollowed) {
  // Loading overwrites in place or exchanges tensors: the job must notice either.
  Trainer eager, other;
  for (Trainer* trainer : {&eager, &other}) {
    for (int i = 0; i < 3; ++i) trainer->step(batch(4, i), trainer == &other);
  }
  const CheckpointData early = eager.save();
  for (Trainer* trainer : {&eager, &other}) {
    for (int i = 3; i < 5; ++i) trainer->step(batch(4, i), trainer == &other);
    trainer->load(early);
    for (int i = 5; i < 8; ++i) trainer->step(batch(4, i), trainer == &other);
  }
  EXPECT_EQ(differences(eager, other), "");
}

/// A weight that gradients reach on three ways, whose sum depends on the order of its terms.
struct WeightOfManyUses : Module {
  Parameter weight = parameter("weight", floats({4}, 3));
  Tensor forward(const Tensor& x) const override {
    const Tensor first = x * weight, second = ops::relu(weight * 3.0) * x;
    return first + second + ops::square(x) * (weight * weight * 0.1);
  }
};

TEST(JobLife, SeriesOfCallsAddGradientsInTheOrderOfEagerCode) {
  const WeightOfManyUses eager, traced;
  SGD eager_sgd(eager.parameters(), {.momentum = 0.9}), job_sgd(traced.parameters(), {.momentum = 0.9});
  const MSELoss loss;
  TrainJob job(traced, loss, job_sgd, {.accumulate = 3, .passes = {.without = {"all"}}});
  for (int i = 0; i < 9; ++i) {
    const Tensor x = floats({5, 4}, i), y = floats({5, 4}, 50 + i);
    if (i % 3 == 0) eager_sgd.zero_grad();
    const Tensor value = loss(eager(x), y);
    backward(value * (1.0 / 3.0));
    if (i % 3 == 2) eager_sgd.step(0.1);
    EXPECT_TRUE(same_bits(value, job.step(x, y, 0.1))) << i;
  }
  EXPECT_EQ(testing::differences(eager.state(), traced.state()), "");
  EXPECT_EQ(testing::differences(eager_sgd.state(), job_sgd.state()), "");
}

// ---- checkpoints

TEST(JobLife, ACheckpointDoesNotKnowWhoMadeIt) {
  for (const DType working : {DType::kFloat32, DType::kFloat16}) {
    const TrainerOptions options{.working = working, .clip = 0.7, .averages = true};
    const auto data = [&](int i) { return batch(3, i, working); };
    Trainer whole(options), first(options);
    for (int i = 0; i < 5; ++i) {
      whole.step(data(i), false);
      first.step(data(i), true);
    }
    const TemporaryFolder folder;
    CheckpointFolder checkpoints(folder.path());
    checkpoints.save(first.save());
    for (int i = 5; i < 10; ++i) whole.step(data(i), false);
    for (const bool by_job : {false, true}) {
      Trainer resumed(options);
      resumed.load(checkpoints.load_latest()->data);
      for (int i = 5; i < 10; ++i) resumed.step(data(i), by_job);
      EXPECT_EQ(differences(whole, resumed), "")
          << to_string(working) << (by_job ? ", by a job" : ", eagerly");
    }
  }
}

// ---- scaler, clipping, averages, and steps that are skipped

TEST(JobLife, ScaledStepsOfMixedModelsAreThoseOfEagerCode) {
  for (const double clip : {0.0, 0.3}) {
    const TrainerOptions options{.working = DType::kFloat16, .clip = clip, .averages = true};
    expect_alike(
        options, 12, [](int) { return true; }, [](int i) { return batch(4, i, DType::kFloat16); });
    expect_alike(
        options, 12, [](int i) { return i % 3 != 0; }, [](int i) { return batch(4, i, DType::kFloat16); });
  }
}

TEST(JobLife, ScalesThatOverflowSkipStepsAlike) {
  const TrainerOptions options{.working = DType::kFloat16, .initial_scale = 1e9, .averages = true};
  Trainer trainer(options);
  for (int i = 0; i < 20; ++i) trainer.step(batch(4, i, DType::kFloat16), true);
  EXPECT_GT(trainer.scaler->skipped(), 2);
  EXPECT_LT(trainer.scaler->skipped(), 20);
  expect_alike(
      options, 20, [](int) { return true; }, [](int i) { return batch(4, i, DType::kFloat16); });
}

TEST(JobLife, GradientsThatAreNotFiniteSkipStepsAlike) {
  const auto data = [](DType dtype) {
    return [dtype](int i) {
      Batch given = batch(4, i, dtype);
      if (i == 2 || i == 3) {
        given.x = ops::cast(Tensor::full({4, 2, 5, 5}, i == 2 ? INFINITY : NAN), dtype);
      }
      return given;
    };
  };
  // Clipping makes a norm that is not finite skip the step, without a scaler too.
  expect_alike(
      {.clip = 0.5, .averages = true}, 6, [](int) { return true; }, data(DType::kFloat32));
  expect_alike(
      {.working = DType::kFloat16, .clip = 0.5, .averages = true}, 6, [](int) { return true; },
      data(DType::kFloat16));
  Trainer trainer({.clip = 0.5});
  for (int i = 0; i < 2; ++i) trainer.step(data(DType::kFloat32)(i), true);
  const State weights = trainer.model->conv.state(), momenta = trainer.sgd->state();
  trainer.step(data(DType::kFloat32)(2), true);
  EXPECT_EQ(testing::differences(weights, trainer.model->conv.state()), "");
  EXPECT_EQ(testing::differences(momenta, trainer.sgd->state()), "");
}

// ---- what is refused leaves everything as it was

struct AsksForValues : Module {
  Linear first = child("first", Linear(4, 3));
  Dropout drop = child("drop", Dropout(0.5));
  Tensor forward(const Tensor& x) const override {
    const Tensor y = drop(first(x));
    return y.to_vector<float>()[0] > 0.0f ? y : ops::relu(y);
  }
};

TEST(JobLife, ARefusedTraceChangesNothing) {
  const AsksForValues model;
  SGD sgd(model.parameters(), {.momentum = 0.9});
  TrainJob job(model, CrossEntropyLoss{}, sgd);
  const State before = model.state();
  manual_seed(5);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(
        message_of([&] {
          job.step(floats({2, 4}, 1), labels(2, 3, 1), 0.1);
        }),
        "[tensor] the value of a traced tensor is known only when the job runs: the output of dropout in "
        "drop, "
        "float32 (2, 3) on cpu, was asked for its value (by item(), data() or the like) while the job was "
        "traced; compute with ops, or do it outside of the job");
  }
  EXPECT_EQ(default_generator().key().offset, 0u);
  EXPECT_EQ(testing::differences(before, model.state()), "");
  EXPECT_EQ(job.compilations(), 0);
  EXPECT_EQ(job.report(), "no step yet\n");
  EXPECT_EQ(message_of([&] { job.program(); }), "[train_job] there is no program before the first step");
  // Eager code goes on as ever.
  EXPECT_EQ(model(floats({2, 4}, 1)).shape(), (Shape{2, 3}));
}

struct NormWithoutMomentum : Module {
  Linear first = child("first", Linear(4, 3));
  BatchNorm1d norm = child("norm", BatchNorm1d(3, {.momentum = std::nullopt}));
  Tensor forward(const Tensor& x) const override { return norm(first(x)); }
};

TEST(JobLife, ANormWithoutMomentumIsRefusedInTraining) {
  const NormWithoutMomentum model;
  SGD sgd(model.parameters());
  TrainJob job(model, CrossEntropyLoss{}, sgd);
  const auto step = [&] { return job.step(floats({4, 4}, 1), labels(4, 3, 1), 0.1); };
  EXPECT_EQ(
      message_of(step),
      "[batch_norm1d] a cumulative average (without momentum) weighs each batch by a number that the host "
      "counts, which a job cannot repeat; give a momentum, or train eagerly");
  model.norm.eval();
  EXPECT_TRUE(std::isfinite(step().item()));
}

TEST(JobLife, OptionsOutOfRangeAreRefused) {
  const SmallNet model;
  SGD sgd(model.parameters());
  EXPECT_EQ(message_of([&] { TrainJob(model, CrossEntropyLoss{}, sgd, {.max_grad_norm = -1.0}); }),
            "[train_job] expected a clip >= 0 but got -1");
  EXPECT_EQ(message_of([&] { TrainJob(model, CrossEntropyLoss{}, sgd, {.max_graphs = 0}); }),
            "[train_job] expected max_graphs > 0 but got 0");
  SGD apart(std::vector<ParameterGroup>{{.parameters = model.parameters(), .clip = false}});
  EXPECT_EQ(message_of([&] { TrainJob(model, CrossEntropyLoss{}, apart, {.max_grad_norm = 1.0}); }),
            "[train_job] a group of the optimiser is not to be clipped, which needs a scaler: give one with "
            "{.enabled = false}");
  GradScaler scaler({.enabled = false});
  TrainJob(model, CrossEntropyLoss{}, apart, {.max_grad_norm = 1.0, .scaler = &scaler})
      .step(batch(3, 1).x, batch(3, 1).y, 0.1);
  TrainJob job(model, CrossEntropyLoss{.reduction = Reduction::kNone}, sgd);
  EXPECT_EQ(message_of([&] { job.step(batch(3, 1).x, batch(3, 1).y, 0.1); }),
            "[train_job] expected a loss of one element but got float32 (3,) on cpu");
  EXPECT_EQ(message_of([&] { job.step({batch(3, 1).x}, 0.1); }), "[train_job] expected 2 inputs but got 1");
  EXPECT_EQ(message_of([&] { job.step(Tensor(), batch(3, 1).y, 0.1); }), "[train_job] input 0 is undefined");
}

/// Scales by a number that host code reads.
struct HostRead : Module {
  explicit HostRead(std::function<double(const Tensor&)> reads) : read(std::move(reads)) {}
  Tensor forward(const Tensor& x) const override { return x * read(number); }
  Buffer number = buffer("number", Tensor::full({1}, 2.0));
  std::function<double(const Tensor&)> read;
};

TEST(JobLife, HostCodeCannotReadWhatMayChange) {
  const auto message = [](const std::function<double(const Tensor&)>& read) {
    const HostRead model(read);
    InferJob job(model);
    return message_of([&] { job(floats({2}, 1)); });
  };
  const std::string expected =
      "[trace] the value of a parameter, a buffer or another tensor that the job changes was asked for (by "
      "item(), data() or the like) while the job was traced: float32 (1,) on cpu, which may hold something "
      "else "
      "in each run; compute with ops, or do it outside of the job";
  EXPECT_EQ(message([](const Tensor& t) { return t.item(); }), expected);
  EXPECT_EQ(message([](const Tensor& t) { return static_cast<double>(t.to_vector<float>()[0]); }), expected);
  EXPECT_EQ(message([](const Tensor& t) { return static_cast<double>(*t.data<float>()); }), expected);
  EXPECT_EQ(message([](const Tensor& t) { return std::stod(to_string(t)); }), expected);
}

TEST(JobLife, FollowsATensorThatHostCodeReads) {
  const Tensor scale = Tensor::full({1}, 2.0);
  const Sequential model(ReLU{});
  InferJob job(model, [&](const Tensor& x) { return model(x) * scale.item(); });
  const Tensor x = Tensor::full({2}, 1.0);
  for (const double value : {2.0, 5.0, 5.0}) {
    ops::fill_(scale, value);
    EXPECT_EQ(job(x).to_vector<float>(), std::vector<float>(2, static_cast<float>(value)));
  }
}

/// Adds how many batches its norm has seen.
struct CountingNorm : Module {
  Tensor forward(const Tensor& x) const override {
    return norm(x) * 0.0 + ops::cast(norm.num_batches_tracked, DType::kFloat32);
  }
  BatchNorm1d norm = child("norm", BatchNorm1d(2));
};

TEST(JobLife, SeesWhatTheHostCountsBetweenCalls) {
  const CountingNorm model;
  InferJob job(model);
  const Tensor x = floats({4, 2}, 1);
  for (int i = 1; i <= 3; ++i) {
    const NoGrad no_grad;
    model.train(true);
    model(x);
    model.train(false);
    EXPECT_EQ(job(x).to_vector<float>()[0], static_cast<float>(i));
  }
}

TEST(JobLife, AStepDoesNotReadWhatTheHostCountsInIt) {
  const CountingNorm model;
  SGD sgd(model.parameters(), {});
  TrainJob job(model, sgd, [&](const Tensor& x) { return ops::mean(model(x)); });
  EXPECT_EQ(
      message_of<InvalidArgument>([&] {
        job.step({floats({4, 2}, 1)}, 0.1);
      }),
      "[train_job] 'norm.num_batches_tracked' is a number that the host counts in each step, which ops of "
      "the step cannot read; count in a buffer of your own, with ops");
}

}  // namespace
}  // namespace sinter::nn
