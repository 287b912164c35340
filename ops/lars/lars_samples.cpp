#include <cmath>

#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/lars/lars.h>

namespace sinter::ops {
namespace {

OpSample make_lars_step(SampleMaker& maker) {
  LarsOptions options;
  options.momentum = maker.pick({0.0, 0.9, 0.9});
  options.weight_decay = maker.pick({0.0, 0.05});
  options.trust_coefficient = maker.pick({0.02, 1.0});
  options.epsilon = maker.pick({0.0, 1e-3});
  options.nesterov = maker.chance(0.4);
  options.adapts = maker.chance(0.8);
  options.moving_momentum = maker.chance(0.3);
  const double rate = maker.uniform(0.01, 0.5);
  const Tensor learning_rate = options.moving_momentum
                                   ? Tensor::from_values({rate, maker.uniform(0.5, 0.99)}, {2})
                                   : Tensor::scalar(rate);
  const Tensor factor =
      maker.chance(0.5) ? Tensor::scalar(maker.pick({1.0f, 0.25f, -0.0f, INFINITY, NAN})) : Tensor();
  OpSample sample{{}, options};
  for (int64_t slots = maker.integer(1, 4); slots > 0; --slots) {
    // Now and then more than one block or piece of a kernel.
    const Shape shape = maker.chance(0.05) ? Shape{maker.integer(8000, 30000)}
                                           : maker.shape(static_cast<int>(maker.integer(0, 3)));
    // Parameters of the dtype under test, or float32 ones whose gradients and working copies have it.
    const bool is_mixed = is_half(maker.dtype()) && maker.chance(0.5);
    const DType dtype = is_mixed ? DType::kFloat32 : maker.dtype();
    const Tensor parameter =
        maker.chance(0.1) ? Tensor::zeros(shape, dtype) : cast(maker.tensor(shape), dtype);
    for (const Tensor& input :
         {parameter, maker.chance(0.1) ? Tensor::zeros(shape, maker.dtype()) : maker.tensor(shape),
          cast(maker.tensor(shape), dtype), is_mixed ? maker.tensor(shape) : Tensor(), learning_rate,
          Tensor(), factor}) {
      sample.inputs.push_back(input);
    }
  }
  return sample;
}

double norm_of(const ReferenceTensor& tensor) {
  double sum = 0.0;
  for (const double value : tensor.values) sum += value * value;
  return std::sqrt(sum);
}

std::vector<ReferenceTensor> lars_step_reference(const OpSample& sample) {
  const auto& options = sample.attributes.as<LarsOptions>();
  std::vector<ReferenceTensor> changed;
  for (size_t slot = 0; slot < sample.inputs.size(); slot += 7) {
    const Tensor *inputs = &sample.inputs[slot], &working = inputs[3];
    ReferenceTensor parameter = reference_of(inputs[0]), gradient = reference_of(inputs[1]);
    ReferenceTensor buffer = reference_of(inputs[2]);
    const std::vector<double> rates = inputs[4].to_vector<double>();
    const double momentum = options.moving_momentum ? rates[1] : options.momentum;
    const double factor = inputs[6].defined() ? inputs[6].item() : 1.0;
    if (std::isfinite(factor)) {
      for (double& value : gradient.values) value *= factor;
      const double size = norm_of(parameter), slope = norm_of(gradient);
      double ratio = 1.0;
      if (options.adapts && size > 0 && slope > 0)
        ratio = options.trust_coefficient * size / (slope + options.weight_decay * size + options.epsilon);
      for (int64_t i = 0; i < parameter.shape.numel(); ++i) {
        const double g = ratio * (gradient[i] + options.weight_decay * parameter[i]);
        buffer[i] = momentum * buffer[i] + g;
        parameter[i] -= rates[0] * (options.nesterov ? g + momentum * buffer[i] : buffer[i]);
      }
    }
    changed.insert(changed.end(), {parameter, buffer});
    if (working.defined()) changed.push_back(std::isfinite(factor) ? parameter : reference_of(working));
  }
  return changed;
}

}  // namespace

void register_lars_samples(SampleRegistry& registry);
void register_lars_samples(SampleRegistry& registry) {
  // Momenta and updates add numbers of either sign.
  registry.add({.op = "lars_step",
                .make = make_lars_step,
                .reference = lars_step_reference,
                .term_size = unit_terms,
                .check_gradient = false});
}

}  // namespace sinter::ops
