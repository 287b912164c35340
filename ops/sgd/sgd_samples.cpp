#include <sinter/ops/common/op_samples.h>
#include <sinter/ops/sgd/sgd.h>

namespace sinter::ops {
namespace {

OpSample make_sgd_step(SampleMaker& maker) {
  SgdOptions options;
  options.momentum = maker.pick({0.0, 0.9, 0.9});
  options.nesterov = options.momentum > 0 && maker.chance(0.4);
  options.dampening = options.nesterov ? 0.0 : maker.pick({0.0, 0.3});
  options.weight_decay = maker.pick({0.0, 0.05});
  options.first_step = maker.chance(0.3);
  const Tensor learning_rate = Tensor::scalar(maker.uniform(0.01, 0.5));
  OpSample sample{{}, options};
  for (int64_t slots = maker.integer(1, 4); slots > 0; --slots) {
    const Shape shape = maker.shape(static_cast<int>(maker.integer(0, 3)));
    const Tensor momentum = options.momentum != 0 ? maker.tensor(shape) : Tensor();
    for (const Tensor& input : {maker.tensor(shape), maker.tensor(shape), momentum, learning_rate}) {
      sample.inputs.push_back(input);
    }
  }
  return sample;
}

std::vector<ReferenceTensor> sgd_step_reference(const OpSample& sample) {
  const auto& options = sample.attributes.as<SgdOptions>();
  std::vector<ReferenceTensor> changed;
  for (size_t slot = 0; slot < sample.inputs.size(); slot += 4) {
    ReferenceTensor parameter = reference_of(sample.inputs[slot]);
    const ReferenceTensor gradient = reference_of(sample.inputs[slot + 1]);
    const bool has_momentum = options.momentum != 0;
    ReferenceTensor buffer = has_momentum ? reference_of(sample.inputs[slot + 2]) : parameter;
    const double rate = sample.inputs[slot + 3].item();
    for (int64_t i = 0; i < parameter.shape.numel(); ++i) {
      double step = gradient[i] + options.weight_decay * parameter[i];
      if (has_momentum) {
        if (options.first_step) {
          buffer[i] = step;
        } else {
          buffer[i] = options.momentum * buffer[i] + (1 - options.dampening) * step;
        }
        step = options.nesterov ? step + options.momentum * buffer[i] : buffer[i];
      }
      parameter[i] -= rate * step;
    }
    changed.push_back(parameter);
    if (has_momentum) changed.push_back(buffer);
  }
  return changed;
}

}  // namespace

void register_sgd_samples(SampleRegistry& registry);
void register_sgd_samples(SampleRegistry& registry) {
  registry.add(
      {.op = "sgd_step", .make = make_sgd_step, .reference = sgd_step_reference, .check_gradient = false});
}

}  // namespace sinter::ops
