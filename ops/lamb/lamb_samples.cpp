#include <cmath>

#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/lamb/lamb.h>

namespace sinter::ops {
namespace {

OpSample make_lamb_step(SampleMaker& maker) {
  LambOptions options;
  options.beta1 = maker.pick({0.9, 0.5});
  options.beta2 = maker.pick({0.999, 0.9});
  options.epsilon = maker.pick({1e-6, 1e-3});
  options.weight_decay = maker.pick({0.0, 0.05});
  options.adapts = maker.chance(0.8);
  options.moving_beta1 = maker.chance(0.3);
  const double rate = maker.uniform(0.01, 0.2);
  const Tensor learning_rate = options.moving_beta1
                                   ? Tensor::from_values({rate, maker.uniform(0.5, 0.95)}, {2})
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
    // Averages well away from 0, where a quotient of norms, or with a square, is too steep for the rounding
    // of the 16-bit dtypes.
    for (const Tensor& input :
         {parameter, maker.tensor(shape), cast(maker.tensor(shape, 2.0, 3.0), dtype),
          cast(maker.tensor(shape, 0.5, 1.0), dtype), is_mixed ? maker.tensor(shape) : Tensor(),
          learning_rate, Tensor::scalar(maker.integer(1, 20)), factor}) {
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

std::vector<ReferenceTensor> lamb_step_reference(const OpSample& sample) {
  const auto& options = sample.attributes.as<LambOptions>();
  std::vector<ReferenceTensor> changed;
  for (size_t slot = 0; slot < sample.inputs.size(); slot += 8) {
    const Tensor *inputs = &sample.inputs[slot], &working = inputs[4];
    ReferenceTensor parameter = reference_of(inputs[0]);
    const ReferenceTensor gradient = reference_of(inputs[1]);
    ReferenceTensor mean = reference_of(inputs[2]), square = reference_of(inputs[3]);
    const std::vector<double> rates = inputs[5].to_vector<double>();
    const double beta1 = options.moving_beta1 ? rates[1] : options.beta1, step = inputs[6].item();
    const double factor = inputs[7].defined() ? inputs[7].item() : 1.0;
    if (std::isfinite(factor)) {
      ReferenceTensor direction(parameter.shape);
      for (int64_t i = 0; i < parameter.shape.numel(); ++i) {
        const double g = factor * gradient[i];
        mean[i] = beta1 * mean[i] + (1 - beta1) * g;
        square[i] = options.beta2 * square[i] + (1 - options.beta2) * g * g;
        const double mean_hat = mean[i] / (1 - std::pow(beta1, step));
        const double square_hat = square[i] / (1 - std::pow(options.beta2, step));
        direction[i] =
            mean_hat / (std::sqrt(square_hat) + options.epsilon) + options.weight_decay * parameter[i];
      }
      const double size = norm_of(parameter), length = norm_of(direction);
      const double ratio = options.adapts && size > 0 && length > 0 ? size / length : 1.0;
      for (int64_t i = 0; i < parameter.shape.numel(); ++i) parameter[i] -= rates[0] * ratio * direction[i];
    }
    changed.insert(changed.end(), {parameter, mean, square});
    if (working.defined()) changed.push_back(std::isfinite(factor) ? parameter : reference_of(working));
  }
  return changed;
}

}  // namespace

void register_lamb_samples(SampleRegistry& registry);
void register_lamb_samples(SampleRegistry& registry) {
  // Averages and updates add numbers of either sign.
  registry.add({.op = "lamb_step",
                .make = make_lamb_step,
                .reference = lamb_step_reference,
                .term_size = unit_terms,
                .check_gradient = false});
}

}  // namespace sinter::ops
