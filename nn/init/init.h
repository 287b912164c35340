// Initial values of parameters. Every function returns a float32 tensor on the CPU in canonical layout
// ((out, in) or (out, in/groups, height, width)) and computes in float64.
#pragma once

#include <sinter/core/runtime/random.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::nn::init {

/// Which way the variance of the signal is kept: forward (inputs per output) or backward (outputs per input).
enum class Fan { kIn, kOut };

/// Inputs per output (rank >= 2: everything but axis 0), or outputs per input (axis 0 times the filter's
/// size). Throws InvalidArgument for a rank below 2.
int64_t fan(const Shape& shape, Fan mode);

/// The gain after a rectifier whose slope below zero is `negative_slope`: sqrt(2 / (1 + slope^2)).
double rectifier_gain(double negative_slope = 0.0);

Tensor constant(const Shape& shape, double value);
/// Uniform in [low, high).
Tensor uniform(const Shape& shape, double low, double high, Generator& generator);
Tensor normal(const Shape& shape, double mean, double deviation, Generator& generator);

struct KaimingOptions {
  Fan fan = Fan::kIn;
  double negative_slope =
      0.0;  ///< of the rectifier behind the layer; sqrt(5) gives PyTorch's default for layers
};

/// Normal with deviation gain / sqrt(fan), or uniform with that deviation (within gain * sqrt(3 / fan)).
/// Source: K. He et al., "Delving deep into rectifiers", ICCV 2015.
Tensor kaiming_normal(const Shape& shape, Generator& generator, const KaimingOptions& options = {});
Tensor kaiming_uniform(const Shape& shape, Generator& generator, const KaimingOptions& options = {});

/// Normal with variance 2 gain^2 / (fan in + fan out), or uniform with that variance.
/// Source: X. Glorot, Y. Bengio, "Understanding the difficulty of training deep feedforward networks",
/// AISTATS 2010.
Tensor xavier_normal(const Shape& shape, Generator& generator, double gain = 1.0);
Tensor xavier_uniform(const Shape& shape, Generator& generator, double gain = 1.0);

/// PyTorch's defaults for linear and convolution layers, both uniform within 1 / sqrt(fan in):
/// the weight, and the bias that goes with a weight of shape `weight_shape`.
Tensor default_weight(const Shape& weight_shape, Generator& generator);
Tensor default_bias(const Shape& weight_shape, Generator& generator);

/// Filters (out, in, height, width) that hand their input on: filter i, for i < min(out, in), is 1 for
/// channel i in the middle (height / 2, width / 2) and 0 elsewhere. Those behind them, where out > in, are
/// drawn as by default_weight. As torch.nn.init.dirac_ on the first `in` filters. Source: S. Zagoruyko, N.
/// Komodakis, "DiracNets: training very deep neural networks without skip-connections", 2017. Throws
/// InvalidArgument for another rank.
Tensor dirac(const Shape& shape, Generator& generator);

}  // namespace sinter::nn::init
