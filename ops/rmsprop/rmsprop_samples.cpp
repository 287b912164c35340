#include <cmath>

#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/rmsprop/rmsprop.h>

namespace sinter::ops {
namespace {

OpSample make_rmsprop_step(SampleMaker& maker) {
  RmsPropOptions options;
  options.alpha = maker.pick({0.99, 0.5});
  options.epsilon = maker.pick({1e-8, 1e-3});
  options.momentum = maker.pick({0.0, 0.9});
  options.weight_decay = maker.pick({0.0, 0.05});
  options.centered = maker.chance(0.4);
  options.maximize = maker.chance(0.2);
  const Tensor learning_rate = Tensor::scalar(maker.uniform(0.01, 0.2));
  const Tensor factor =
      maker.chance(0.5) ? Tensor::scalar(maker.pick({1.0f, 0.25f, -0.0f, INFINITY, NAN})) : Tensor();
  OpSample sample{{}, options};
  for (int64_t slots = maker.integer(1, 4); slots > 0; --slots) {
    const Shape shape = maker.shape(static_cast<int>(maker.integer(0, 3)));
    // Parameters of the dtype under test, or float32 ones whose gradients and working copies have it.
    const bool is_mixed = is_half(maker.dtype()) && maker.chance(0.5);
    const DType dtype = is_mixed ? DType::kFloat32 : maker.dtype();
    // A square well above the mean's: near it, the quotient is too steep for the rounding of the 16-bit
    // dtypes.
    for (const Tensor& input :
         {cast(maker.tensor(shape), dtype), maker.tensor(shape), cast(maker.tensor(shape, 0.5, 1.5), dtype),
          options.centered ? cast(maker.tensor(shape, -0.2, 0.2), dtype) : Tensor(),
          options.momentum != 0 ? cast(maker.tensor(shape), dtype) : Tensor(),
          is_mixed ? maker.tensor(shape) : Tensor(), learning_rate, Tensor(), factor}) {
      sample.inputs.push_back(input);
    }
  }
  return sample;
}

std::vector<ReferenceTensor> rmsprop_step_reference(const OpSample& sample) {
  const auto& options = sample.attributes.as<RmsPropOptions>();
  std::vector<ReferenceTensor> changed;
  for (size_t slot = 0; slot < sample.inputs.size(); slot += 9) {
    const Tensor *inputs = &sample.inputs[slot], &working = inputs[5];
    const bool has_momentum = options.momentum != 0;
    ReferenceTensor parameter = reference_of(inputs[0]);
    const ReferenceTensor gradient = reference_of(inputs[1]);
    ReferenceTensor square = reference_of(inputs[2]);
    ReferenceTensor mean = options.centered ? reference_of(inputs[3]) : parameter;
    ReferenceTensor buffer = has_momentum ? reference_of(inputs[4]) : parameter;
    const double rate = inputs[6].item();
    const double factor = inputs[8].defined() ? inputs[8].item() : 1.0;
    for (int64_t i = 0; i < parameter.shape.numel() && std::isfinite(factor); ++i) {
      const double g =
          (options.maximize ? -factor : factor) * gradient[i] + options.weight_decay * parameter[i];
      square[i] = options.alpha * square[i] + (1 - options.alpha) * g * g;
      double variance = square[i];
      if (options.centered) {
        mean[i] = options.alpha * mean[i] + (1 - options.alpha) * g;
        variance -= mean[i] * mean[i];
      }
      double step = g / (std::sqrt(variance) + options.epsilon);
      if (has_momentum) step = buffer[i] = options.momentum * buffer[i] + step;
      parameter[i] -= rate * step;
    }
    changed.insert(changed.end(), {parameter, square});
    if (options.centered) changed.push_back(mean);
    if (has_momentum) changed.push_back(buffer);
    if (working.defined()) changed.push_back(std::isfinite(factor) ? parameter : reference_of(working));
  }
  return changed;
}

}  // namespace

void register_rmsprop_samples(SampleRegistry& registry);
void register_rmsprop_samples(SampleRegistry& registry) {
  // Averages and updates add numbers of either sign.
  registry.add({.op = "rmsprop_step",
                .make = make_rmsprop_step,
                .reference = rmsprop_step_reference,
                .term_size = unit_terms,
                .check_gradient = false});
}

}  // namespace sinter::ops
