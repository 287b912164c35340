// The network of the speed run, and how its rates change.
#pragma once

#include <cstdint>
#include <vector>

#include <sinter/nn/nn.h>

#include "speedrun/options.h"

namespace speedrun {

/// Patches of 2 x 2 pixels, whitened (nn::init::whitening_filters make `whiten.weight`), then three blocks of
/// convolution, max-pooling, norm, GELU, convolution, norm, GELU, and a linear layer: images of 32 x 32
/// pixels in colour to logits (N, classes).
struct Network : sinter::nn::Module {
  Network(const Options& options, int64_t classes, sinter::Device device = {});
  sinter::Tensor forward(const sinter::Tensor& x) const override;

  sinter::nn::Conv2d whiten;
  sinter::nn::Sequential blocks;
  sinter::nn::Linear head;
};

/// The norms' biases learn 64 times as fast as the rest. The loss is a sum over the batch, and so the rates
/// are small; they are meant for batches of 1,024.
std::vector<sinter::nn::ParameterGroup> groups(const Network& network, const Options& options);

/// Up in a straight line over the first 23 % of the steps, then down.
double learning_rate(int64_t step, int64_t steps);

/// At first the network goes its own way, later its average holds it, and it ends as the average.
double decay_of_lookahead(int64_t done, int64_t steps);

}  // namespace speedrun
