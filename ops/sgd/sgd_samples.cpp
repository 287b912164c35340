#include <cmath>

#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/sgd/sgd.h>

namespace sinter::ops {
namespace {

/// Parameters of the dtype under test, or float32 ones whose gradients and working copies have it.
DType parameter_dtype(SampleMaker& maker) {
  return is_half(maker.dtype()) && maker.chance(0.5) ? DType::kFloat32 : maker.dtype();
}

OpSample make_sgd_step(SampleMaker& maker) {
  SgdOptions options;
  options.momentum = maker.pick({0.0, 0.9, 0.9});
  options.nesterov = options.momentum > 0 && maker.chance(0.4);
  options.dampening = options.nesterov ? 0.0 : maker.pick({0.0, 0.3});
  options.weight_decay = maker.pick({0.0, 0.05});
  options.maximize = maker.chance(0.2);
  options.moving_momentum = options.momentum > 0 && maker.chance(0.3);
  const double rate = maker.uniform(0.01, 0.5);
  const Tensor learning_rate = options.moving_momentum
                                   ? Tensor::from_values({rate, maker.uniform(0.5, 0.99)}, {2})
                                   : Tensor::scalar(rate);
  const Tensor factor =
      maker.chance(0.5) ? Tensor::scalar(maker.pick({1.0f, 0.25f, -0.0f, INFINITY, NAN})) : Tensor();
  OpSample sample{{}, options};
  for (int64_t slots = maker.integer(1, 4); slots > 0; --slots) {
    const Shape shape = maker.chance(0.05) ? Shape{maker.integer(8000, 30000)}
                                           : maker.shape(static_cast<int>(maker.integer(0, 3)));
    const DType dtype = parameter_dtype(maker);
    const Tensor momentum = options.momentum != 0 ? cast(maker.tensor(shape), dtype) : Tensor();
    const Tensor working = dtype != maker.dtype() ? maker.tensor(shape) : Tensor();
    const Tensor step = maker.chance(0.7) ? Tensor::scalar(maker.integer(1, 3)) : Tensor();
    for (const Tensor& input : {cast(maker.tensor(shape), dtype), maker.tensor(shape), momentum, working,
                                learning_rate, step, factor}) {
      sample.inputs.push_back(input);
    }
  }
  return sample;
}

std::vector<ReferenceTensor> sgd_step_reference(const OpSample& sample) {
  const auto& options = sample.attributes.as<SgdOptions>();
  std::vector<ReferenceTensor> changed;
  for (size_t slot = 0; slot < sample.inputs.size(); slot += 7) {
    const Tensor *inputs = &sample.inputs[slot], &working = inputs[3], &step_count = inputs[5];
    ReferenceTensor parameter = reference_of(inputs[0]);
    const ReferenceTensor gradient = reference_of(inputs[1]);
    const bool has_momentum = options.momentum != 0;
    ReferenceTensor buffer = has_momentum ? reference_of(inputs[2]) : parameter;
    const std::vector<double> rates = inputs[4].to_vector<double>();
    const double rate = rates[0], momentum = options.moving_momentum ? rates[1] : options.momentum;
    const double factor = inputs[6].defined() ? inputs[6].item() : 1.0;
    const bool is_first = step_count.defined() && step_count.item() == 1.0;
    for (int64_t i = 0; i < parameter.shape.numel() && std::isfinite(factor); ++i) {
      double step =
          (options.maximize ? -1.0 : 1.0) * factor * gradient[i] + options.weight_decay * parameter[i];
      if (has_momentum) {
        if (is_first) {
          buffer[i] = step;
        } else {
          buffer[i] = momentum * buffer[i] + (1 - options.dampening) * step;
        }
        step = options.nesterov ? step + momentum * buffer[i] : buffer[i];
      }
      parameter[i] -= rate * step;
    }
    changed.push_back(parameter);
    if (has_momentum) changed.push_back(buffer);
    if (working.defined()) changed.push_back(std::isfinite(factor) ? parameter : reference_of(working));
  }
  return changed;
}

}  // namespace

void register_sgd_samples(SampleRegistry& registry);
void register_sgd_samples(SampleRegistry& registry) {
  // Momenta and updates add numbers of either sign.
  registry.add({.op = "sgd_step",
                .make = make_sgd_step,
                .reference = sgd_step_reference,
                .term_size = unit_terms,
                .check_gradient = false});
}

}  // namespace sinter::ops
