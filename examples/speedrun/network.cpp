#include "speedrun/network.h"

#include <cmath>

#include <sinter/ops/reshape/reshape.h>

namespace speedrun {

using namespace sinter;

namespace {

nn::Conv2d conv(int64_t in, int64_t out, const Options& options) {
  const nn::Conv2d made(in, out, 3, {.padding = 1, .bias = false});
  if (options.with("identity")) made.weight.assign(nn::init::dirac({out, in, 3, 3}, default_generator()));
  return made;
}

nn::BatchNorm2d norm(int64_t channels) {
  const nn::BatchNorm2d made(channels, {.epsilon = 1e-12, .momentum = 0.4});
  made.weight.tensor().set_requires_grad(false);  // the next filters scale as well
  return made;
}

nn::Sequential block(int64_t in, int64_t out, const Options& options) {
  return nn::Sequential(conv(in, out, options), nn::MaxPool2d(2), norm(out), nn::GELU(),
                        conv(out, out, options), norm(out), nn::GELU());
}

}  // namespace

Network::Network(const Options& options, int64_t classes, Device device)
    : whiten(child("whiten", nn::Conv2d(3, 24, 2))),
      blocks(child("blocks",
                   nn::Sequential(nn::GELU(), block(24, options.width, options),
                                  block(options.width, 4 * options.width, options),
                                  block(4 * options.width, 4 * options.width, options), nn::MaxPool2d(3)))),
      head(child("head", nn::Linear(4 * options.width, classes, {.bias = false}))) {
  whiten.weight.tensor().set_requires_grad(!options.with("whitening"));
  whiten.bias.assign(Tensor::zeros({24}));
  to(device);
}

Tensor Network::forward(const Tensor& x) const {
  return head(ops::flatten(blocks(whiten(x)), 1)) / 9;
}

std::vector<nn::ParameterGroup> groups(const Network& network, const Options& options) {
  const double decay = 0.0153 / 11.5 * static_cast<double>(options.batch);
  const double faster = options.with("bias-rate") ? 64 : 1;
  nn::ParameterGroup biases{.parameters = {}, .lr_scale = faster, .weight_decay = decay / faster};
  nn::ParameterGroup others{.parameters = {}, .weight_decay = decay};
  for (const nn::Parameter& parameter : network.parameters()) {
    if (!parameter.tensor().requires_grad()) continue;
    const bool is_norm = parameter.name().starts_with("blocks") && parameter.name().ends_with("bias");
    (is_norm ? biases : others).parameters.push_back(parameter);
  }
  return {biases, others};
}

double learning_rate(int64_t step, int64_t steps) {
  const double highest = 11.5 / (1024 * (1 + 1 / (1 - 0.85)));
  const double at = static_cast<double>(step), all = static_cast<double>(steps),
               peak = std::floor(0.23 * all);
  return highest * (at < peak ? 0.2 + 0.8 * at / peak : 1 - 0.93 * (at - peak) / (all - peak));
}

double decay_of_lookahead(int64_t done, int64_t steps) {
  const double share = static_cast<double>(done) / static_cast<double>(steps);
  return done == steps ? 1.0 : std::pow(0.95, 5) * std::pow(share, 3);
}

}  // namespace speedrun
