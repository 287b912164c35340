#include <algorithm>
#include <cmath>

#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/optimizer/optimizer.h>

namespace sinter::ops {
namespace {

/// A buffer's elements; one that the options do not ask for is not there.
struct Range {
  double low = -2.0, high = 2.0;
  bool present = true;
};

/// Some slots whose learning rate is below `most_rate`, beside which a number in `moving` stands if one
/// moves.
OpSample make_slots(SampleMaker& maker, const Attributes& options, double most_rate, bool moves, Range moving,
                    const std::vector<Range>& buffers, int64_t most_step) {
  const double rate = maker.uniform(0.01, most_rate);
  const Tensor learning_rate =
      moves ? Tensor::from_values({rate, maker.uniform(moving.low, moving.high)}, {2}) : Tensor::scalar(rate);
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
    const bool is_zero = maker.chance(0.05), is_flat = maker.chance(0.05);
    sample.inputs.push_back(is_zero ? Tensor::zeros(shape, dtype) : cast(maker.tensor(shape), dtype));
    sample.inputs.push_back(is_flat ? Tensor::zeros(shape, maker.dtype()) : maker.tensor(shape));
    for (const Range& range : buffers) {
      sample.inputs.push_back(range.present ? cast(maker.tensor(shape, range.low, range.high), dtype)
                                            : Tensor());
    }
    const Tensor step = most_step > 0 ? Tensor::scalar(maker.integer(1, most_step)) : Tensor();
    for (const Tensor& input : {is_mixed ? maker.tensor(shape) : Tensor(), learning_rate, step, factor}) {
      sample.inputs.push_back(input);
    }
  }
  return sample;
}

/// A slot in double precision; `gradient` has its factor.
struct ReferenceSlot {
  ReferenceTensor parameter, gradient;
  std::vector<ReferenceTensor> buffers;
  std::vector<double> rates;
  double step = 0.0;  ///< 0 for none
};

/// What a call changes, if `update(slot)` changes parameter and buffers of one.
template <class F>
std::vector<ReferenceTensor> update_slots(const OpSample& sample, size_t buffers, F update) {
  std::vector<ReferenceTensor> changed;
  for (size_t first = 0; first < sample.inputs.size(); first += buffers + 6) {
    const Tensor *inputs = &sample.inputs[first], *tail = inputs + 2 + buffers;
    ReferenceSlot slot{reference_of(inputs[0]), reference_of(inputs[1]), {}, tail[1].to_vector<double>()};
    for (size_t i = 0; i < buffers; ++i) {
      slot.buffers.push_back(inputs[2 + i].defined() ? reference_of(inputs[2 + i]) : slot.parameter);
    }
    if (tail[2].defined()) slot.step = tail[2].item();
    const double factor = tail[3].defined() ? tail[3].item() : 1.0;
    for (double& value : slot.gradient.values) value *= factor;
    if (std::isfinite(factor)) update(slot);
    changed.push_back(slot.parameter);
    for (size_t i = 0; i < buffers; ++i) {
      if (inputs[2 + i].defined()) changed.push_back(slot.buffers[i]);
    }
    if (tail[0].defined()) changed.push_back(std::isfinite(factor) ? slot.parameter : reference_of(tail[0]));
  }
  return changed;
}

double norm_of(const ReferenceTensor& tensor) {
  double sum = 0.0;
  for (const double value : tensor.values) sum += value * value;
  return std::sqrt(sum);
}

// ---- SGD

OpSample make_sgd_step(SampleMaker& maker) {
  update::SGDStep options;
  options.momentum = maker.pick({0.0, 0.9, 0.9});
  options.nesterov = options.momentum > 0 && maker.chance(0.4);
  options.dampening = options.nesterov ? 0.0 : maker.pick({0.0, 0.3});
  options.weight_decay = maker.pick({0.0, 0.05});
  options.maximize = maker.chance(0.2);
  options.moving_momentum = options.momentum > 0 && maker.chance(0.3);
  return make_slots(maker, options, 0.5, options.moving_momentum, {0.5, 0.99},
                    {{.present = options.momentum != 0}}, maker.pick({0, 3, 3}));
}

std::vector<ReferenceTensor> sgd_step_reference(const OpSample& sample) {
  const auto& options = sample.attributes.as<update::SGDStep>();
  return update_slots(sample, 1, [&](ReferenceSlot& slot) {
    ReferenceTensor &parameter = slot.parameter, &buffer = slot.buffers[0];
    const double momentum = options.moving_momentum ? slot.rates[1] : options.momentum;
    for (int64_t i = 0; i < parameter.shape.numel(); ++i) {
      double step = (options.maximize ? -1.0 : 1.0) * slot.gradient[i] + options.weight_decay * parameter[i];
      if (options.momentum != 0) {
        if (slot.step == 1.0) {
          buffer[i] = step;
        } else {
          buffer[i] = momentum * buffer[i] + (1 - options.dampening) * step;
        }
        step = options.nesterov ? step + momentum * buffer[i] : buffer[i];
      }
      parameter[i] -= slot.rates[0] * step;
    }
  });
}

// ---- AdamW

OpSample make_adamw_step(SampleMaker& maker) {
  update::AdamWStep options;
  options.beta1 = maker.pick({0.9, 0.5});
  options.beta2 = maker.pick({0.999, 0.9});
  options.epsilon = maker.pick({1e-8, 1e-3});
  options.weight_decay = maker.pick({0.0, 0.05});
  options.decoupled = maker.chance(0.6);
  options.amsgrad = maker.chance(0.4);
  options.maximize = maker.chance(0.2);
  options.moving_beta1 = maker.chance(0.3);
  // A square well above 0: near it, the quotient is too steep for the rounding of the 16-bit dtypes.
  return make_slots(maker, options, 0.2, options.moving_beta1, {0.5, 0.95},
                    {{}, {0.1, 1.0}, {0.1, 1.0, options.amsgrad}}, 20);
}

std::vector<ReferenceTensor> adamw_step_reference(const OpSample& sample) {
  const auto& options = sample.attributes.as<update::AdamWStep>();
  return update_slots(sample, 3, [&](ReferenceSlot& slot) {
    ReferenceTensor &parameter = slot.parameter, &mean = slot.buffers[0], &square = slot.buffers[1],
                    &largest = slot.buffers[2];
    const double rate = slot.rates[0], beta1 = options.moving_beta1 ? slot.rates[1] : options.beta1;
    for (int64_t i = 0; i < parameter.shape.numel(); ++i) {
      double g = options.maximize ? -slot.gradient[i] : slot.gradient[i];
      if (options.decoupled) {
        parameter[i] -= rate * options.weight_decay * parameter[i];
      } else {
        g += options.weight_decay * parameter[i];
      }
      mean[i] = beta1 * mean[i] + (1 - beta1) * g;
      square[i] = options.beta2 * square[i] + (1 - options.beta2) * g * g;
      const double mean_hat = mean[i] / (1 - std::pow(beta1, slot.step));
      largest[i] = options.amsgrad ? std::max(largest[i], square[i]) : square[i];
      const double square_hat = largest[i] / (1 - std::pow(options.beta2, slot.step));
      parameter[i] -= rate * mean_hat / (std::sqrt(square_hat) + options.epsilon);
    }
  });
}

// ---- RMSprop

OpSample make_rmsprop_step(SampleMaker& maker) {
  update::RMSpropStep options;
  options.alpha = maker.pick({0.99, 0.5});
  options.epsilon = maker.pick({1e-8, 1e-3});
  options.momentum = maker.pick({0.0, 0.9});
  options.weight_decay = maker.pick({0.0, 0.05});
  options.centered = maker.chance(0.4);
  options.maximize = maker.chance(0.2);
  // A square well above the mean's, for the same reason.
  return make_slots(maker, options, 0.2, false, {},
                    {{0.5, 1.5}, {-0.2, 0.2, options.centered}, {.present = options.momentum != 0}}, 0);
}

std::vector<ReferenceTensor> rmsprop_step_reference(const OpSample& sample) {
  const auto& options = sample.attributes.as<update::RMSpropStep>();
  return update_slots(sample, 3, [&](ReferenceSlot& slot) {
    ReferenceTensor &parameter = slot.parameter, &square = slot.buffers[0], &mean = slot.buffers[1],
                    &buffer = slot.buffers[2];
    for (int64_t i = 0; i < parameter.shape.numel(); ++i) {
      const double g =
          (options.maximize ? -1.0 : 1.0) * slot.gradient[i] + options.weight_decay * parameter[i];
      square[i] = options.alpha * square[i] + (1 - options.alpha) * g * g;
      double variance = square[i];
      if (options.centered) {
        mean[i] = options.alpha * mean[i] + (1 - options.alpha) * g;
        variance -= mean[i] * mean[i];
      }
      double step = g / (std::sqrt(variance) + options.epsilon);
      if (options.momentum != 0) step = buffer[i] = options.momentum * buffer[i] + step;
      parameter[i] -= slot.rates[0] * step;
    }
  });
}

// ---- LARS

OpSample make_lars_step(SampleMaker& maker) {
  update::LARSStep options;
  options.momentum = maker.pick({0.0, 0.9, 0.9});
  options.weight_decay = maker.pick({0.0, 0.05});
  options.trust_coefficient = maker.pick({0.02, 1.0});
  options.epsilon = maker.pick({0.0, 1e-3});
  options.nesterov = maker.chance(0.4);
  options.adapts = maker.chance(0.8);
  options.moving_momentum = maker.chance(0.3);
  return make_slots(maker, options, 0.5, options.moving_momentum, {0.5, 0.99}, {{}}, 0);
}

std::vector<ReferenceTensor> lars_step_reference(const OpSample& sample) {
  const auto& options = sample.attributes.as<update::LARSStep>();
  return update_slots(sample, 1, [&](ReferenceSlot& slot) {
    ReferenceTensor &parameter = slot.parameter, &buffer = slot.buffers[0];
    const double momentum = options.moving_momentum ? slot.rates[1] : options.momentum;
    const double size = norm_of(parameter), slope = norm_of(slot.gradient);
    double ratio = 1.0;
    if (options.adapts && size > 0 && slope > 0)
      ratio = options.trust_coefficient * size / (slope + options.weight_decay * size + options.epsilon);
    for (int64_t i = 0; i < parameter.shape.numel(); ++i) {
      const double g = ratio * (slot.gradient[i] + options.weight_decay * parameter[i]);
      buffer[i] = momentum * buffer[i] + g;
      parameter[i] -= slot.rates[0] * (options.nesterov ? g + momentum * buffer[i] : buffer[i]);
    }
  });
}

// ---- LAMB

OpSample make_lamb_step(SampleMaker& maker) {
  update::LAMBStep options;
  options.beta1 = maker.pick({0.9, 0.5});
  options.beta2 = maker.pick({0.999, 0.9});
  options.epsilon = maker.pick({1e-6, 1e-3});
  options.weight_decay = maker.pick({0.0, 0.05});
  options.adapts = maker.chance(0.8);
  options.moving_beta1 = maker.chance(0.3);
  // Averages well away from 0, where a quotient of norms, or with a square, is too steep for the rounding of
  // the 16-bit dtypes.
  return make_slots(maker, options, 0.2, options.moving_beta1, {0.5, 0.95}, {{2.0, 3.0}, {0.5, 1.0}}, 20);
}

std::vector<ReferenceTensor> lamb_step_reference(const OpSample& sample) {
  const auto& options = sample.attributes.as<update::LAMBStep>();
  return update_slots(sample, 2, [&](ReferenceSlot& slot) {
    ReferenceTensor &parameter = slot.parameter, &mean = slot.buffers[0], &square = slot.buffers[1];
    const double beta1 = options.moving_beta1 ? slot.rates[1] : options.beta1;
    ReferenceTensor direction(parameter.shape);
    for (int64_t i = 0; i < parameter.shape.numel(); ++i) {
      mean[i] = beta1 * mean[i] + (1 - beta1) * slot.gradient[i];
      square[i] = options.beta2 * square[i] + (1 - options.beta2) * slot.gradient[i] * slot.gradient[i];
      const double mean_hat = mean[i] / (1 - std::pow(beta1, slot.step));
      const double square_hat = square[i] / (1 - std::pow(options.beta2, slot.step));
      direction[i] =
          mean_hat / (std::sqrt(square_hat) + options.epsilon) + options.weight_decay * parameter[i];
    }
    const double size = norm_of(parameter), length = norm_of(direction);
    const double ratio = options.adapts && size > 0 && length > 0 ? size / length : 1.0;
    for (int64_t i = 0; i < parameter.shape.numel(); ++i)
      parameter[i] -= slot.rates[0] * ratio * direction[i];
  });
}

}  // namespace

void register_optimizer_samples(SampleRegistry& registry);
void register_optimizer_samples(SampleRegistry& registry) {
  // Momenta, averages and updates add numbers of either sign: terms of about 1.
  const auto add = [&](const char* op, auto make, auto reference) {
    registry.add(
        {.op = op, .make = make, .reference = reference, .term_size = unit_terms, .check_gradient = false});
  };
  add("sgd_step", make_sgd_step, sgd_step_reference);
  add("adamw_step", make_adamw_step, adamw_step_reference);
  add("rmsprop_step", make_rmsprop_step, rmsprop_step_reference);
  add("lars_step", make_lars_step, lars_step_reference);
  add("lamb_step", make_lamb_step, lamb_step_reference);
}

}  // namespace sinter::ops
