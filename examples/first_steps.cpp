// First steps: a small network learns to tell two intertwined spirals apart, op by op, and then once more
// with all ops of a step made one job.
//
// Expected result, twice, after about a second on a CPU:
//   step   100: loss ...
//   ...
//   step   600: loss 0.00...
//   accuracy on fresh points: 99 % or more
// The program fails if the accuracy is below that.
#include <cmath>
#include <cstdio>
#include <exception>
#include <numbers>
#include <vector>

#include <sinter/autograd/backward.h>
#include <sinter/nn/nn.h>
#include <sinter/ops/activation/activation.h>

using sinter::Generator;
using sinter::Tensor;
namespace nn = sinter::nn;

// A network is a struct: its layers are registered under the names that they have in files.
struct SpiralNet : nn::Module {
  nn::Linear first = child("first", nn::Linear(2, 64));
  nn::Linear second = child("second", nn::Linear(64, 64));
  nn::Linear last = child("last", nn::Linear(64, 2));

  Tensor forward(const Tensor& x) const override {
    return last(sinter::ops::relu(second(sinter::ops::relu(first(x)))));
  }
};

struct Batch {
  Tensor points;  // (count, 2), float32
  Tensor labels;  // (count), int64: which spiral
};

// Points on two spirals of one and a half turns, the second half a turn behind the first, with a little
// noise.
Batch make_spirals(int64_t count, Generator& generator) {
  std::vector<float> points;
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t label = i % 2;
    const double radius = std::sqrt(generator.uniform());
    const double angle = (3.0 * radius + static_cast<double>(label)) * std::numbers::pi;
    points.push_back(static_cast<float>(radius * std::cos(angle) + 0.01 * generator.normal()));
    points.push_back(static_cast<float>(radius * std::sin(angle) + 0.01 * generator.normal()));
    labels.push_back(label);
  }
  return {Tensor::from_values(points, {count, 2}), Tensor::from_values(labels, {count})};
}

constexpr int64_t kSteps = 600;

/// Trains a network, and gives the share of fresh points that it then tells right.
double train(bool with_job) {
  sinter::manual_seed(1);  // decides the initial weights
  Generator generator(2);  // decides the points

  const SpiralNet model;
  const nn::CrossEntropyLoss loss_function;
  nn::AdamW optimizer(model.parameters(), {.weight_decay = 1e-4});
  const nn::CosineSchedule schedule{.base = 0.01, .steps = kSteps};
  nn::TrainJob job(model, loss_function, optimizer);  // makes nothing before its first step

  for (int64_t step = 0; step < kSteps; ++step) {
    const Batch batch = make_spirals(256, generator);
    Tensor loss;
    if (with_job) {
      // The code above runs once, to be traced; from then on a step is one program.
      loss = job.step(batch.points, batch.labels, schedule(step));
    } else {
      loss = loss_function(model(batch.points), batch.labels);
      optimizer.zero_grad();
      sinter::backward(loss);  // leaves the gradient of every parameter in its grad()
      optimizer.step(schedule(step));
    }
    if ((step + 1) % 100 == 0) std::printf("step %5d: loss %.4f\n", static_cast<int>(step + 1), loss.item());
  }

  model.eval();
  const sinter::NoGrad no_grad;  // nothing below is recorded for a backward pass
  const Batch test = make_spirals(1000, generator);
  const double accuracy = static_cast<double>(nn::top_k_correct(model(test.points), test.labels)) / 1000;
  std::printf("accuracy on fresh points: %.1f %%\n", 100 * accuracy);
  return accuracy;
}

int main() try {
  std::printf("op by op\n");
  const double eager = train(false);
  std::printf("the same steps as a job\n");
  const double job = train(true);
  return eager >= 0.99 && job >= 0.99 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "first_steps: %s\n", error.what());
  return 1;
}
