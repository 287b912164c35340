#include <cmath>

#include <sinter/ops/adamw/adamw.h>
#include <sinter/ops/common/op_samples.h>

namespace sinter::ops {
namespace {

OpSample make_adamw_step(SampleMaker& maker) {
  AdamWOptions options;
  options.beta1 = maker.pick({0.9, 0.5});
  options.beta2 = maker.pick({0.999, 0.9});
  options.epsilon = maker.pick({1e-8, 1e-3});
  options.weight_decay = maker.pick({0.0, 0.05});
  options.decoupled = maker.chance(0.6);
  const Tensor learning_rate = Tensor::scalar(maker.uniform(0.01, 0.2));
  const Tensor step = Tensor::scalar(maker.integer(1, 20));
  OpSample sample{{}, options};
  for (int64_t slots = maker.integer(1, 4); slots > 0; --slots) {
    const Shape shape = maker.shape(static_cast<int>(maker.integer(0, 3)));
    // A square well above 0: near it, the quotient is too steep for the rounding of the 16-bit dtypes.
    for (const Tensor& input : {maker.tensor(shape), maker.tensor(shape), maker.tensor(shape),
                                maker.tensor(shape, 0.1, 1.0), learning_rate, step}) {
      sample.inputs.push_back(input);
    }
  }
  return sample;
}

std::vector<ReferenceTensor> adamw_step_reference(const OpSample& sample) {
  const auto& options = sample.attributes.as<AdamWOptions>();
  std::vector<ReferenceTensor> changed;
  for (size_t slot = 0; slot < sample.inputs.size(); slot += 6) {
    ReferenceTensor parameter = reference_of(sample.inputs[slot]);
    const ReferenceTensor gradient = reference_of(sample.inputs[slot + 1]);
    ReferenceTensor mean = reference_of(sample.inputs[slot + 2]);
    ReferenceTensor square = reference_of(sample.inputs[slot + 3]);
    const double rate = sample.inputs[slot + 4].item(), step = sample.inputs[slot + 5].item();
    for (int64_t i = 0; i < parameter.shape.numel(); ++i) {
      double g = gradient[i];
      if (options.decoupled) {
        parameter[i] -= rate * options.weight_decay * parameter[i];
      } else {
        g += options.weight_decay * parameter[i];
      }
      mean[i] = options.beta1 * mean[i] + (1 - options.beta1) * g;
      square[i] = options.beta2 * square[i] + (1 - options.beta2) * g * g;
      const double mean_hat = mean[i] / (1 - std::pow(options.beta1, step));
      const double square_hat = square[i] / (1 - std::pow(options.beta2, step));
      parameter[i] -= rate * mean_hat / (std::sqrt(square_hat) + options.epsilon);
    }
    changed.insert(changed.end(), {parameter, mean, square});
  }
  return changed;
}

}  // namespace

void register_adamw_samples(SampleRegistry& registry);
void register_adamw_samples(SampleRegistry& registry) {
  registry.add({.op = "adamw_step",
                .make = make_adamw_step,
                .reference = adamw_step_reference,
                .check_gradient = false});
}

}  // namespace sinter::ops
