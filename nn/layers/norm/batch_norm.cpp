#include <sinter/core/graph/host_effect.h>
#include <sinter/core/op/call_tracer.h>
#include <sinter/nn/layers/norm/batch_norm.h>
#include <sinter/nn/module/layer_support_internal.h>
#include <sinter/nn/parallel/sync_batch_norm.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/sync_batch_norm/sync_batch_norm.h>

namespace sinter::nn {

BatchNorm::BatchNorm(const char* tag, int rank, int64_t channels, const BatchNormOptions& options)
    : tag_(tag), rank_(rank), options_(options) {
  SINTER_CHECK(channels > 0, "[{}] expected a positive number of channels but got {}", tag, channels);
  const VariableOptions norm{.keep_float32 = true};
  weight = parameter("weight", Tensor::full({channels}, 1.0), norm);
  bias = parameter("bias", Tensor::zeros({channels}), norm);
  running_mean = buffer("running_mean", Tensor::zeros({channels}), norm);
  running_var = buffer("running_var", Tensor::full({channels}, 1.0), norm);
  num_batches_tracked =
      buffer("num_batches_tracked", Tensor::scalar(int64_t{0}), {.on_host = true, .optional = true});
  rank == 4 ? works_in(options.layout) : starts_in(options.layout);
  describe(fmt::format("{}", channels));
}

Tensor BatchNorm::forward(const Tensor& x) const {
  if (rank_ == 4) check_batch(tag_, x);
  SINTER_CHECK(x.rank() == rank_, "[{}] expected input of rank {} but got shape {}", tag_, rank_, x.shape());
  if (rank_ == 4) check_channels(tag_, x, weight.shape()[0], layout());
  const bool is_training = training();
  SINTER_CHECK(
      !is_training || options_.momentum || call_tracer() == nullptr,
      "[{}] a cumulative average (without momentum) weighs each batch by a number that the host counts, "
      "which a job cannot repeat; give a momentum, or train eagerly",
      tag_);
  const auto cumulative = [&] {
    return is_training ? 1.0 / static_cast<double>(*num_batches_tracked.tensor().data<int64_t>() + 1) : 1.0;
  };
  const double momentum = options_.momentum ? *options_.momentum : cumulative();
  const Communicator* const ranks = is_training ? SyncBatchNormScope::ranks() : nullptr;
  const Tensor y = ranks != nullptr
                       ? ops::sync_batch_norm(
                             x, weight, bias, running_mean, running_var,
                             {.epsilon = options_.epsilon, .momentum = momentum, .layout = layout()}, *ranks)
                       : ops::batch_norm(x, weight, bias, running_mean, running_var,
                                         {.epsilon = options_.epsilon,
                                          .momentum = momentum,
                                          .training = is_training,
                                          .layout = layout()});
  if (is_training) {
    const auto count_batch = [count = num_batches_tracked.tensor()] {
      ++*count.data<int64_t>();
      count.storage()->bump_version();
    };
    host_effect(running_mean.tensor(), count_batch, num_batches_tracked.tensor());
  }
  return y;
}

BatchNorm1d::BatchNorm1d(int64_t channels, const BatchNormOptions& options)
    : BatchNorm("batch_norm1d", 2, channels, options) {}

BatchNorm2d::BatchNorm2d(int64_t channels, const BatchNormOptions& options)
    : BatchNorm("batch_norm2d", 4, channels, options) {}

}  // namespace sinter::nn
