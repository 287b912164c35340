#include <algorithm>
#include <cmath>

#include <sinter/ops/adamw/adamw.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/samples/op_samples.h>

namespace sinter::ops {
namespace {

OpSample make_adamw_step(SampleMaker& maker) {
  AdamWOptions options;
  options.beta1 = maker.pick({0.9, 0.5});
  options.beta2 = maker.pick({0.999, 0.9});
  options.epsilon = maker.pick({1e-8, 1e-3});
  options.weight_decay = maker.pick({0.0, 0.05});
  options.decoupled = maker.chance(0.6);
  options.amsgrad = maker.chance(0.4);
  options.maximize = maker.chance(0.2);
  options.moving_beta1 = maker.chance(0.3);
  const double rate = maker.uniform(0.01, 0.2);
  const Tensor learning_rate = options.moving_beta1
                                   ? Tensor::from_values({rate, maker.uniform(0.5, 0.95)}, {2})
                                   : Tensor::scalar(rate);
  const Tensor factor =
      maker.chance(0.5) ? Tensor::scalar(maker.pick({1.0f, 0.25f, -0.0f, INFINITY, NAN})) : Tensor();
  OpSample sample{{}, options};
  for (int64_t slots = maker.integer(1, 4); slots > 0; --slots) {
    const Shape shape = maker.shape(static_cast<int>(maker.integer(0, 3)));
    // Parameters of the dtype under test, or float32 ones whose gradients and working copies have it.
    const bool is_mixed = is_half(maker.dtype()) && maker.chance(0.5);
    const DType dtype = is_mixed ? DType::kFloat32 : maker.dtype();
    // A square well above 0: near it, the quotient is too steep for the rounding of the 16-bit dtypes.
    for (const Tensor& input : {cast(maker.tensor(shape), dtype), maker.tensor(shape),
                                cast(maker.tensor(shape), dtype), cast(maker.tensor(shape, 0.1, 1.0), dtype),
                                options.amsgrad ? cast(maker.tensor(shape, 0.1, 1.0), dtype) : Tensor(),
                                is_mixed ? maker.tensor(shape) : Tensor(), learning_rate,
                                Tensor::scalar(maker.integer(1, 20)), factor}) {
      sample.inputs.push_back(input);
    }
  }
  return sample;
}

std::vector<ReferenceTensor> adamw_step_reference(const OpSample& sample) {
  const auto& options = sample.attributes.as<AdamWOptions>();
  std::vector<ReferenceTensor> changed;
  for (size_t slot = 0; slot < sample.inputs.size(); slot += 9) {
    const Tensor *inputs = &sample.inputs[slot], &working = inputs[5];
    ReferenceTensor parameter = reference_of(inputs[0]);
    const ReferenceTensor gradient = reference_of(inputs[1]);
    ReferenceTensor mean = reference_of(inputs[2]);
    ReferenceTensor square = reference_of(inputs[3]);
    ReferenceTensor largest = options.amsgrad ? reference_of(inputs[4]) : square;
    const std::vector<double> rates = inputs[6].to_vector<double>();
    const double rate = rates[0], beta1 = options.moving_beta1 ? rates[1] : options.beta1;
    const double step = inputs[7].item();
    const double factor = inputs[8].defined() ? inputs[8].item() : 1.0;
    for (int64_t i = 0; i < parameter.shape.numel() && std::isfinite(factor); ++i) {
      double g = (options.maximize ? -factor : factor) * gradient[i];
      if (options.decoupled) {
        parameter[i] -= rate * options.weight_decay * parameter[i];
      } else {
        g += options.weight_decay * parameter[i];
      }
      mean[i] = beta1 * mean[i] + (1 - beta1) * g;
      square[i] = options.beta2 * square[i] + (1 - options.beta2) * g * g;
      const double mean_hat = mean[i] / (1 - std::pow(beta1, step));
      largest[i] = options.amsgrad ? std::max(largest[i], square[i]) : square[i];
      const double square_hat = largest[i] / (1 - std::pow(options.beta2, step));
      parameter[i] -= rate * mean_hat / (std::sqrt(square_hat) + options.epsilon);
    }
    changed.insert(changed.end(), {parameter, mean, square});
    if (options.amsgrad) changed.push_back(largest);
    if (working.defined()) changed.push_back(std::isfinite(factor) ? parameter : reference_of(working));
  }
  return changed;
}

}  // namespace

void register_adamw_samples(SampleRegistry& registry);
void register_adamw_samples(SampleRegistry& registry) {
  // Momenta and updates add numbers of either sign.
  registry.add({.op = "adamw_step",
                .make = make_adamw_step,
                .reference = adamw_step_reference,
                .term_size = unit_terms,
                .check_gradient = false});
}

}  // namespace sinter::ops
