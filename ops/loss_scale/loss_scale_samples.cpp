#include <algorithm>
#include <cmath>

#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/loss_scale/loss_scale.h>

namespace sinter::ops {
namespace {

OpSample make_loss_scale(SampleMaker& maker) {
  LossScaleOptions options;
  options.max_norm = maker.pick({0.0, 0.5, 3.0});
  options.growth = maker.pick({1.0, 2.0, 1.5});
  options.backoff = maker.pick({1.0, 0.5, 0.25});
  options.growth_interval = maker.integer(1, 4);
  options.min_scale = maker.pick({1.0, 16.0});
  const double norm =
      maker.chance(0.4) ? maker.pick({double{INFINITY}, double{NAN}}) : std::exp(maker.uniform(-10.0, 10.0));
  OpSample sample{{Tensor::scalar(norm), Tensor(), Tensor()}, options};
  if (maker.chance(0.8)) {
    // The last one cannot double.
    sample.inputs[1] = Tensor::scalar(maker.pick({0.5f, 1.0f, 24.0f, 65536.0f, 0x1p127f}));
    sample.inputs[2] = maker.indices({3}, 0, 3);
  }
  return sample;
}

std::vector<ReferenceTensor> loss_scale_reference(const OpSample& sample) {
  const auto& options = sample.attributes.as<LossScaleOptions>();
  const bool has_state = sample.inputs[1].defined();
  const double norm = sample.inputs[0].item(), scale = has_state ? sample.inputs[1].item() : 1.0;
  ReferenceTensor factor((Shape()));
  factor[0] = std::isfinite(norm) ? 1.0 / scale : NAN;
  if (std::isfinite(norm) && options.max_norm > 0 && norm / scale + 1e-6 > options.max_norm) {
    factor[0] *= options.max_norm / (norm / scale + 1e-6);
  }
  if (!has_state) return {factor};
  ReferenceTensor next = reference_of(sample.inputs[1]), counts = reference_of(sample.inputs[2]);
  if (std::isfinite(norm)) {
    counts[1] = 0;
    if (++counts[0] >= static_cast<double>(options.growth_interval)) {
      counts[0] = 0;
      if (std::isfinite(static_cast<float>(scale * options.growth))) next[0] = scale * options.growth;
    }
  } else {
    counts[0] = 0;
    ++counts[1];
    ++counts[2];
    if (scale > options.min_scale) next[0] = std::max(options.min_scale, scale * options.backoff);
  }
  return {factor, next, counts};
}

}  // namespace

void register_loss_scale_samples(SampleRegistry& registry);
void register_loss_scale_samples(SampleRegistry& registry) {
  registry.add({.op = "loss_scale",
                .make = make_loss_scale,
                .reference = loss_scale_reference,
                .dtypes = {DType::kFloat32},
                .check_gradient = false});
}

}  // namespace sinter::ops
