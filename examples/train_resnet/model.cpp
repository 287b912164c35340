#include "model.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/core.h>

#include <sinter/core/base/error.h>
#include <sinter/core/text/printable.h>
#include <sinter/nn/models/resnet_names.h>

#include "common/console.h"
#include "common/text.h"

namespace train_resnet {

using namespace sinter;
using nn::data::Dataset;

namespace {

/// Height and width of the network's input.
std::pair<int64_t, int64_t> input_size(const Options& options, const nn::data::Image& image) {
  if (options.image_size > 0) return {options.image_size, options.image_size};
  return {image.height, image.width};
}

bool has_small_stem(const Options& options, int64_t height) {
  return options.finetune.stem == "auto" ? height <= 64 : options.finetune.stem == "small";
}

/// The size of an axis of a tensor of the state; 0 where it has none.
int64_t extent(const nn::State& state, const char* name, int64_t axis) {
  const auto found = state.find(name);
  return found == state.end() || found->second.rank() <= axis ? 0
                                                              : found->second.shape()[static_cast<int>(axis)];
}

/// "imagenet" or "small", and how to tell of it; empty where weights leave it open.
std::pair<std::string, std::string> stem_of(const examples::WeightsFile& weights) {
  const int64_t side = extent(weights.state, "conv1.weight", 2);
  if (side == 7) return {"imagenet", "imagenet (7x7)"};
  if (side == 3) return {"small", "small (3x3)"};
  // Deep stems differ in their strides alone.
  if (!weights.metadata || !weights.metadata->options.contains("small_stem")) return {};
  const std::string own = weights.metadata->options.at("small_stem") == "true" ? "small" : "imagenet";
  return {own, own};
}

}  // namespace

nn::ResNet make_model(const Options& options, const Dataset& train) {
  const nn::data::Image image = train.get(0).image;
  return nn::make_resnet(options.model,
                         {.classes = train.num_classes(),
                          .in_channels = image.channels,
                          .layout = *options.layout,
                          .small_stem = has_small_stem(options, input_size(options, image).first),
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
    metadata.options["small_stem"] = has_small_stem(options, metadata.height) ? "true" : "false";
  metadata.channels = image.channels;
  if (options.image_size > 0) {
    metadata.resize = "shorter_side";
    metadata.resize_size = test_resize(options);
    metadata.interpolation = options.images.interpolation;
  }
  metadata.mean = normalization.mean;
  metadata.std = normalization.std;
  return metadata;
}

void find_model(examples::WeightsFile& weights) {
  if (!nn::recognise_resnet(weights.state).empty()) return;
  std::set<std::string> prefixes;
  for (const auto& [name, tensor] : weights.state) prefixes.insert(name.substr(0, name.find('.') + 1));
  for (const std::string& prefix : prefixes) {
    nn::State state = prefix.empty() ? nn::State() : nn::strip_prefix(prefix, weights.state);
    if (nn::recognise_resnet(state).empty()) continue;
    examples::say("{}: its weights are those whose names begin with '{}'\n", weights.source,
                  escape_name(prefix));
    weights.state = std::move(state);
    return;
  }
}

void check_metadata(const examples::WeightsFile& weights) {
  // Their blocks have the names of a ResNet's.
  const bool is_of_faces = weights.metadata ? weights.metadata->task == "image-feature-extraction"
                                            : weights.state.contains("features.weight") ||
                                                  weights.state.contains("conv_sep.layers.0.weight");
  if (is_of_faces) {
    const std::string model =
        weights.metadata ? "the model " + escape_name(weights.metadata->model) : "a backbone";
    throw Error(fmt::format("{}: these are weights of {} for faces, which train_insightface takes",
                            weights.source, model));
  }
  if (!weights.metadata) return;
  const nn::ModelMetadata& metadata = *weights.metadata;
  const int64_t own = image_channels(weights.state), channels = own > 0 ? own : metadata.channels;
  const auto count = static_cast<size_t>(channels);
  if (metadata.channels != channels || metadata.mean.size() != count || metadata.std.size() != count) {
    throw Error(fmt::format(
        "{}: its metadata are damaged: images of {}, {} and {}, for weights for images of {}", weights.source,
        examples::counted(metadata.channels, "channel"), examples::counted(metadata.mean.size(), "mean"),
        examples::counted(metadata.std.size(), "deviation"), channels));
  }
}

void adopt(const examples::WeightsFile& weights, Options& options) {
  const std::string model = nn::recognise_resnet(weights.state);
  if (!model.empty() && !options.is_given("--model")) options.model = model;
  if (weights.metadata && !options.is_given("--image-size"))
    options.image_size = weights.metadata->resize == "shorter_side" ? weights.metadata->height : 0;
  if (weights.metadata && !options.is_given("--interpolation"))
    options.images.interpolation = weights.metadata->interpolation;
  if (weights.metadata && !options.is_given("--test-crop") && weights.metadata->resize == "shorter_side" &&
      weights.metadata->height > 0 && weights.metadata->resize_size >= weights.metadata->height)
    options.test_crop =
        static_cast<double>(weights.metadata->height) / static_cast<double>(weights.metadata->resize_size);
}

void settle_stem(const std::optional<examples::WeightsFile>& weights, const Dataset& train,
                 Options& options) {
  std::string& stem = options.finetune.stem;
  if (nn::is_cifar_resnet(options.model)) {
    if (stem == "imagenet")
      throw Error(
          fmt::format("--stem imagenet is of resnet18 and larger; {} is for small images", options.model));
    return;
  }
  const auto [own, shown] = weights ? stem_of(*weights) : std::pair<std::string, std::string>();
  if (own.empty()) return;
  if (stem != "auto") {
    if (stem == own) return;
    throw Error(fmt::format("{}: these are weights with the stem {}, --stem says {}; --stem {} fits",
                            weights->source, shown, stem, own));
  }
  const int64_t height = input_size(options, train.get(0).image).first;
  if (has_small_stem(options, height) == (own == "small")) return;
  examples::say("{}: its stem is kept, {}; without weights images of {} would get the other\n",
                weights->source, shown, examples::counted(height, "pixel"));
  stem = own;
}

int64_t image_channels(const nn::State& state) {
  return std::max(extent(state, "conv1.weight", 1), extent(state, "conv1.0.weight", 1));
}

void check_weights(const std::string& source, const nn::State& state, const nn::ModelMetadata& now,
                   Classifier classifier) {
  const std::string model = nn::recognise_resnet(state);
  if (!model.empty() && model != now.model) {
    throw Error(fmt::format("{}: these are weights of a {}, --model says {}; --model {} fits", source, model,
                            now.model, model));
  }
  const int64_t classes = extent(state, "fc.bias", 0), channels = image_channels(state);
  const char* const help =
      classifier == Classifier::kTrained ? "; --new-head gives the model another classifier" : "";
  if (classifier != Classifier::kNew && !model.empty() && classes == 0)
    throw Error(
        fmt::format("{}: these are weights of a {} without its classifier, fc{}", source, model, help));
  if (classifier != Classifier::kNew && classes > 0 && classes != static_cast<int64_t>(now.classes.size())) {
    throw Error(fmt::format("{}: these are weights with {}, the data has {}{}", source,
                            examples::counted(classes, "class"), now.classes.size(), help));
  }
  if (channels > 0 && channels != now.channels) {
    throw Error(fmt::format("{}: these are weights for images of {}, the data's have {}", source,
                            examples::counted(channels, "channel"), now.channels));
  }
}

}  // namespace train_resnet
