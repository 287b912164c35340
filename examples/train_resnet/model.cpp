#include "model.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/core.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/models/resnet_names.h>

namespace train_resnet {

using namespace sinter;
using nn::data::Dataset;

namespace {

/// Height and width of the network's input.
std::pair<int64_t, int64_t> input_size(const Options& options, const nn::data::Image& image) {
  if (options.image_size > 0) return {options.image_size, options.image_size};
  return {image.height, image.width};
}

bool has_small_stem(int64_t height) {
  return height <= 64;
}

/// The size of an axis of a tensor of the state; 0 where it has none.
int64_t extent(const nn::State& state, const char* name, int64_t axis) {
  const auto found = state.find(name);
  return found == state.end() || found->second.rank() <= axis ? 0
                                                              : found->second.shape()[static_cast<int>(axis)];
}

}  // namespace

nn::ResNet make_model(const Options& options, const Dataset& train) {
  const nn::data::Image image = train.get(0).image;
  return nn::make_resnet(options.model, {.classes = train.num_classes(),
                                         .in_channels = image.channels,
                                         .layout = *options.layout,
                                         .small_stem = has_small_stem(input_size(options, image).first),
                                         .zero_init_residual = options.network.zero_init_residual,
                                         .stochastic_depth = options.network.drop_path});
}

nn::ModelMetadata describe_model(const Options& options, const Dataset& train,
                                 const nn::data::Normalization& normalization) {
  nn::ModelMetadata metadata = examples::describe_data(train);
  const nn::data::Image image = train.get(0).image;
  std::tie(metadata.height, metadata.width) = input_size(options, image);
  metadata.task = "image-classification";
  metadata.model = options.model;
  metadata.options = {{"classes", fmt::format("{}", train.num_classes())},
                      {"in_channels", fmt::format("{}", image.channels)}};
  if (!nn::is_cifar_resnet(options.model))
    metadata.options["small_stem"] = has_small_stem(metadata.height) ? "true" : "false";
  metadata.channels = image.channels;
  if (options.image_size > 0) {
    metadata.resize = "shorter_side";
    metadata.resize_size = test_resize(options);
  }
  metadata.mean = normalization.mean;
  metadata.std = normalization.std;
  return metadata;
}

void adopt(const examples::WeightsFile& weights, Options& options) {
  const std::string model = nn::recognise_resnet(weights.state);
  if (!model.empty() && !options.is_given("--model")) options.model = model;
  if (weights.metadata && !options.is_given("--image-size"))
    options.image_size = weights.metadata->resize == "shorter_side" ? weights.metadata->height : 0;
}

void check_weights(const std::string& source, const nn::State& state, const nn::ModelMetadata& now) {
  const std::string model = nn::recognise_resnet(state);
  if (!model.empty() && model != now.model) {
    throw Error(fmt::format("{}: these are weights of a {}, --model says {}", source, model, now.model));
  }
  const int64_t classes = extent(state, "fc.bias", 0),
                channels = std::max(extent(state, "conv1.weight", 1), extent(state, "conv1.0.weight", 1));
  if (classes > 0 && classes != static_cast<int64_t>(now.classes.size())) {
    throw Error(fmt::format("{}: these are weights with {} classes, the data has {}", source, classes,
                            now.classes.size()));
  }
  if (channels > 0 && channels != now.channels) {
    throw Error(fmt::format("{}: these are weights for images of {} channels, the data's have {}", source,
                            channels, now.channels));
  }
}

}  // namespace train_resnet
