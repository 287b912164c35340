// Jobs on empty tensors: batches without images, and random numbers for no elements.
#include <sinter/core/runtime/random.h>
#include <sinter/nn/job/infer_job.h>
#include <sinter/nn/layers/conv2d.h>
#include <sinter/nn/layers/linear.h>
#include <sinter/nn/layers/norm/group_norm.h>
#include <sinter/nn/layers/pool.h>
#include <sinter/nn/layers/simple.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/concat/concat.h>
#include <sinter/ops/dropout/dropout.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/slice/slice.h>

#include "common/error_message.h"
#include "nn/job/job_test_support.h"

namespace sinter::nn {
namespace {

using namespace testing;

/// Dropout of the first so many rows, then of the others, then of none.
struct PartDropout : Module {
  explicit PartDropout(int64_t first_rows) : rows(first_rows) {}
  Tensor forward(const Tensor& x) const override {
    const Tensor y = linear(x);
    const Tensor first = drop(ops::slice(y, 0, 0, rows));
    const Tensor rest = drop(ops::slice(y, 0, rows, x.shape()[0]));
    const Tensor none = drop(ops::slice(y, 0, 0, 0));
    return ops::concat({first, rest, none}, 0);
  }
  Linear linear = child("linear", Linear(3, 5));
  Dropout drop = child("drop", Dropout(0.5));
  int64_t rows;
};

TEST(EmptyJob, DropoutOfNothingDrawsNothing) {
  for (const int64_t rows : {0, 2, 4}) {
    SCOPED_TRACE(rows);
    manual_seed(3);
    const PartDropout eager(rows);
    manual_seed(3);
    const PartDropout traced(rows);
    SGD eager_sgd(eager.parameters()), traced_sgd(traced.parameters());
    const auto loss = [](const PartDropout& model, const Tensor& x) {
      return ops::mean(ops::square(model(x)));
    };
    TrainJob job(traced, traced_sgd,
                 [&](std::span<const Tensor> inputs) { return std::vector{loss(traced, inputs[0])}; },
                 {.passes = {.without = {"all"}}});
    const Tensor x = Tensor::full({4, 3}, 0.5);
    std::vector<Tensor> expected, actual;
    manual_seed(11);
    for (int step = 0; step < 3; ++step) {
      const Tensor value = loss(eager, x);
      expected.push_back(value.detach());
      eager_sgd.zero_grad();
      backward(value);
      eager_sgd.step(0.1);
    }
    const uint64_t drawn = default_generator().key().offset;
    manual_seed(11);
    const std::vector<Tensor> inputs{x};
    for (int step = 0; step < 3; ++step) actual.push_back(job.step(inputs, 0.1));
    EXPECT_EQ(default_generator().key().offset, drawn);
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(expected[i], actual[i])) << i;
    EXPECT_EQ(differences(eager.state(), traced.state()), "");
  }
}

TEST(EmptyJob, DropoutOfNothingInInference) {
  const PartDropout model(2);
  const auto always = [](std::span<const Tensor> x) { return std::vector{ops::dropout(x[0], 0.5) * 2.0}; };
  InferJob job(model, always);
  const std::vector<Tensor> inputs{Tensor::zeros({0, 3})};
  EXPECT_EQ(job.run(inputs)[0].shape(), (Shape{0, 3}));
}

// Whose generator it is makes no difference where nothing is drawn; elsewhere a job cannot advance it.
TEST(EmptyJob, OnlyADrawOfSomethingNeedsTheThreadsGenerator) {
  const PartDropout model(2);
  Generator own(99);
  const auto with_own = [&](std::span<const Tensor> x) {
    return std::vector{ops::dropout(x[0], 0.5, own) * 2.0};
  };
  const auto run = [&](int64_t rows) {
    InferJob job(model, with_own);
    const std::vector<Tensor> inputs{Tensor::zeros({rows, 3})};
    job.run(inputs);
  };
  run(0);
  EXPECT_NE(test::message_of([&] { run(1); }).find("draws random numbers from a generator of its own"),
            std::string::npos);
}

struct ImageNetwork : Module {
  explicit ImageNetwork(Layout images)
      : layout(images),
        convolution(child("convolution", Conv2d(3, 6, 3, {.padding = 1, .layout = images}))),
        norm(child("norm", BatchNorm2d(6, {.layout = images}))),
        side(child("side", Conv2d(6, 6, 1, {.layout = images}))),
        other_norm(child("other_norm", BatchNorm2d(6, {.layout = images}))),
        groups(child("groups", GroupNorm(2, 6, {.layout = images}))),
        slopes(child("slopes", PReLU(6, {.layout = images}))),
        pool(child("pool", MaxPool2d(2, {.stride = 2, .layout = images}))),
        global(child("global", GlobalAvgPool2d(images))) {}
  Tensor forward(const Tensor& x) const override {
    const Tensor a = ops::relu(norm(convolution(x)));
    const Tensor b = ops::relu(other_norm(side(a)) + a);
    return drop(last(global(slopes(groups(pool(b))))));
  }
  Layout layout;
  Conv2d convolution;
  BatchNorm2d norm;
  Conv2d side;
  BatchNorm2d other_norm;
  GroupNorm groups;
  PReLU slopes;
  MaxPool2d pool;
  GlobalAvgPool2d global;
  Linear last = child("last", Linear(6, 4));
  Dropout drop = child("drop", Dropout(0.25));
};

TEST(EmptyJob, ABatchWithoutImages) {
  for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
    for (const auto precision : {std::optional<DType>(), std::optional(DType::kBFloat16)}) {
      manual_seed(5);
      const ImageNetwork model(layout);
      const Shape shape = layout == Layout::kNCHW ? Shape{0, 3, 6, 6} : Shape{0, 6, 6, 3};
      const Tensor x = Tensor::zeros(shape);
      InferJob infer(model, {.precision = precision, .layout = Layout::kNHWC, .passes = {.verify = true}});
      EXPECT_EQ(infer(x).shape(), (Shape{0, 4}));
      model.norm.eval();
      model.other_norm.eval();
      SGD sgd(model.parameters());
      const auto loss = [&](std::span<const Tensor> inputs) {
        return std::vector{ops::sum(ops::square(model(inputs[0])))};
      };
      TrainJob job(
          model, sgd, loss,
          {.precision = precision, .layout = Layout::kNHWC, .passes = {.verify = true}, .memory_limit = 0});
      const State before = model.state();
      State kept;
      for (const auto& [name, tensor] : before) kept[name] = tensor.clone();
      const std::vector<Tensor> inputs{x};
      for (int step = 0; step < 2; ++step) EXPECT_EQ(job.step(inputs, 0.1).item(), 0.0);
      EXPECT_EQ(differences(kept, model.state()), "");
      if (precision) continue;
      // Statistics of nothing are the same, whatever they are.
      manual_seed(5);
      const ImageNetwork twin(layout);
      twin.other_norm.eval();
      {
        const NoGrad no_grad;
        twin(x);
      }
      model.norm.train();
      job.step(inputs, 0.0);
      EXPECT_EQ(differences(twin.state(), model.state()), "");
    }
  }
}

}  // namespace
}  // namespace sinter::nn
