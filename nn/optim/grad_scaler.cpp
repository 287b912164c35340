#include <algorithm>
#include <array>
#include <cmath>

#include <sinter/core/op/node.h>
#include <sinter/nn/optim/grad_scaler.h>
#include <sinter/nn/parallel/data_parallel.h>
#include <sinter/ops/all_reduce/all_reduce.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/loss_scale/loss_scale.h>
#include <sinter/ops/unary/unary.h>

namespace sinter::nn {
namespace {

constexpr std::array kCountNames = {"good_steps", "consecutive_skips", "skipped"};

Tensor scalar_of(const State& state, const std::string& name, DType dtype) {
  const auto found = state.find(name);
  SINTER_CHECK(found != state.end() && found->second.defined() && found->second.dtype() == dtype &&
                   found->second.rank() == 0,
               "[grad_scaler] expected a {} scalar '{}' in the state", dtype, name);
  return found->second;
}

/// The parameters of the groups that are clipped, or those of the others.
std::vector<Parameter> parameters_by_clip(const Optimizer& optimizer, bool clip) {
  std::vector<Parameter> found;
  for (const ParameterGroup& group : optimizer.groups()) {
    if (group.clip == clip) found.insert(found.end(), group.parameters.begin(), group.parameters.end());
  }
  return found;
}

bool has_gradient(const std::vector<Parameter>& parameters) {
  return std::ranges::any_of(parameters,
                             [](const Parameter& parameter) { return parameter.grad().defined(); });
}

/// The norm of the gradients of `parameters`, of which those that are apart count on all ranks.
Tensor norm_over_ranks(const std::vector<Parameter>& parameters, const ScaledStepOptions& options) {
  if (options.communicator == nullptr || options.communicator->size() == 1 || options.sharded.empty())
    return grad_norm(parameters);
  const std::vector<Parameter> shared = exclude(parameters, options.sharded);
  const std::vector<Parameter> own = exclude(parameters, shared);
  if (!has_gradient(own)) return grad_norm(parameters);
  const Tensor squares = ops::bucketed_all_reduce(ops::square(grad_norm(own)), *options.communicator);
  return ops::sqrt(has_gradient(shared) ? ops::add(squares, ops::square(grad_norm(shared))) : squares);
}

/// Which parameters have a gradient that is not finite, in words. One after the other: this is for errors.
std::string describe_bad_gradients(const std::vector<Parameter>& parameters) {
  std::vector<std::string> bad;
  size_t gradients = 0;
  for (const Parameter& parameter : parameters) {
    if (!parameter.grad().defined()) continue;
    ++gradients;
    if (!std::isfinite(grad_norm({parameter}).item())) bad.push_back(parameter.name());
  }
  if (bad.empty()) return "the gradients were cleared or have changed since";
  if (bad.size() == 1) return fmt::format("the gradient of '{}' is not finite", bad.front());
  return fmt::format("{} of {} gradients are not finite, from '{}' to '{}'", bad.size(), gradients,
                     bad.front(), bad.back());
}

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options) : options_(options) {
  SINTER_CHECK(options.min_scale > 0.0 && options.initial_scale >= options.min_scale &&
                   std::isfinite(static_cast<float>(options.initial_scale)),
               "[grad_scaler] expected 0 < min_scale <= initial_scale, finite, but got {} and {}",
               options.min_scale, options.initial_scale);
  SINTER_CHECK(options.growth >= 1.0 && std::isfinite(options.growth),
               "[grad_scaler] expected a growth >= 1 but got {}", options.growth);
  SINTER_CHECK(options.backoff > 0.0 && options.backoff < 1.0,
               "[grad_scaler] expected a backoff in (0, 1) but got {}", options.backoff);
  SINTER_CHECK(options.growth_interval > 0, "[grad_scaler] expected a growth_interval > 0 but got {}",
               options.growth_interval);
  SINTER_CHECK(options.max_consecutive_skips > 0,
               "[grad_scaler] expected max_consecutive_skips > 0 but got {}", options.max_consecutive_skips);
  scale_ = Tensor::scalar(options.enabled ? static_cast<float>(options.initial_scale) : 1.0f);
  counts_ = Tensor::zeros({static_cast<int64_t>(kCountNames.size())}, DType::kInt64);
}

void GradScaler::move_to(Device device) {
  scale_ = scale_.to(device);
  counts_ = counts_.to(device);
}

std::vector<Tensor> GradScaler::tensors_on(Device device) {
  move_to(device);
  return {scale_, counts_};
}

bool GradScaler::owns(const std::vector<Tensor>& tensors) const {
  return tensors.size() == 2 && scale_.is_same(tensors[0]) && counts_.is_same(tensors[1]);
}

Tensor GradScaler::scale(const Tensor& loss) {
  if (!options_.enabled) return loss;
  move_to(loss.device());
  return ops::mul(loss, ops::cast(scale_, loss.dtype()));
}

void GradScaler::step(Optimizer& optimizer, double learning_rate, const ScaledStepOptions& options) {
  SINTER_CHECK(options.max_grad_norm >= 0.0, "[grad_scaler] expected a clip >= 0 but got {}",
               options.max_grad_norm);
  const NoGrad no_grad;
  const std::vector<Parameter> clipped = parameters_by_clip(optimizer, true);
  const std::vector<Parameter> others = parameters_by_clip(optimizer, false);
  // Without two kinds of gradients one factor does for all.
  const bool limits = options.max_grad_norm > 0.0 && has_gradient(clipped);
  const bool differ = limits && has_gradient(others);
  const Tensor norm = norm_over_ranks(differ ? clipped : optimizer.parameters(), options);
  move_to(norm.device());
  ops::LossScaleOptions update{
      .max_norm = limits && !differ ? options.max_grad_norm : 0.0, .growth = 1.0, .backoff = 1.0};
  if (options_.enabled) {
    update.growth = options_.growth;
    update.backoff = options_.backoff;
    update.growth_interval = options_.growth_interval;
    update.min_scale = options_.min_scale;
  }
  optimizer.step_with(learning_rate, [&] {
    if (!differ) {
      const Tensor factor = ops::update::loss_scale(norm, {scale_, counts_}, update);
      return Optimizer::Factors{factor, factor};
    }
    // The sum is finite if both norms are. What takes the scale out, or is NaN, goes for all; the limit is
    // that of the clipped gradients without their scale. The scale changes last: until then memory may run
    // out, and the step be made again.
    const Tensor both = ops::add(norm, norm_over_ranks(others, options));
    const Tensor inverse = ops::reciprocal(scale_);
    const Tensor unscaled = ops::mul(norm, ops::cast(inverse, DType::kFloat64));
    const Tensor none_or_nan = ops::cast(ops::affine(both, 0.0, 0.0), DType::kFloat32);
    const Tensor limit = ops::update::clip_factor(unscaled, options.max_grad_norm);
    const Tensor clipped_factor = ops::add(ops::mul(inverse, limit), none_or_nan);
    return Optimizer::Factors{clipped_factor, ops::update::loss_scale(both, {scale_, counts_}, update)};
  });
}

void GradScaler::check(const Optimizer& optimizer) const {
  const int64_t in_a_row = consecutive_skips();
  if (in_a_row == 0) return;
  const double present = scale();
  // The first step may have been skipped at twice the smallest scale, but not the second.
  const bool at_floor = options_.enabled && present <= options_.min_scale && in_a_row > 1;
  if (in_a_row < options_.max_consecutive_skips && !at_floor) return;
  throw Error(fmt::format("[grad_scaler] the last {} skipped{}: {}; try a smaller learning rate",
                          in_a_row == 1 ? "step was" : fmt::format("{} steps were", in_a_row),
                          options_.enabled ? fmt::format(", down to a loss scale of {}", present) : "",
                          describe_bad_gradients(optimizer.parameters())));
}

double GradScaler::scale() const {
  return scale_.item();
}
int64_t GradScaler::consecutive_skips() const {
  return counts_.to_vector<int64_t>()[1];
}
int64_t GradScaler::skipped() const {
  return counts_.to_vector<int64_t>()[2];
}

State GradScaler::state() const {
  State state{{"scale", Tensor::scalar(static_cast<float>(scale_.item()))}};
  const std::vector<int64_t> counts = counts_.to_vector<int64_t>();
  for (size_t i = 0; i < counts.size(); ++i) state[kCountNames[i]] = Tensor::scalar(counts[i]);
  return state;
}

void GradScaler::load_state(const State& state) {
  SINTER_CHECK(state.size() == 1 + kCountNames.size(),
               "[grad_scaler] expected a state of {} values but got {}", 1 + kCountNames.size(),
               state.size());
  const double present = scalar_of(state, "scale", DType::kFloat32).item();
  SINTER_CHECK(std::isfinite(present) && present > 0.0, "[grad_scaler] expected a scale > 0 but got {}",
               present);
  std::vector<int64_t> counts;
  for (const char* name : kCountNames) {
    counts.push_back(scalar_of(state, name, DType::kInt64).to_vector<int64_t>()[0]);
    SINTER_CHECK(counts.back() >= 0, "[grad_scaler] expected {} >= 0 but got {}", name, counts.back());
  }
  const Tensor scale = Tensor::scalar(static_cast<float>(present), scale_.device());
  counts_ = Tensor::from_values(counts, counts_.shape(), counts_.device());
  scale_ = scale;
}

}  // namespace sinter::nn
