#include <sinter/nn/layers/batch_norm.h>
#include <sinter/ops/batch_norm/batch_norm.h>

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
}

Tensor BatchNorm::forward(const Tensor& x) const {
  SINTER_CHECK(x.rank() == rank_, "[{}] expected input of rank {} but got shape {}", tag_, rank_, x.shape());
  const bool is_training = training();
  const Tensor y = ops::batch_norm(x, weight, bias, running_mean, running_var,
                                   {.epsilon = options_.epsilon,
                                    .momentum = options_.momentum,
                                    .training = is_training,
                                    .layout = options_.layout});
  if (is_training) ++*num_batches_tracked.tensor().data<int64_t>();
  return y;
}

BatchNorm1d::BatchNorm1d(int64_t channels, const BatchNormOptions& options)
    : BatchNorm("batch_norm1d", 2, channels, options) {}

BatchNorm2d::BatchNorm2d(int64_t channels, const BatchNormOptions& options)
    : BatchNorm("batch_norm2d", 4, channels, options) {}

}  // namespace sinter::nn
