#include "model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include <sinter/core/base/error.h>
#include <sinter/core/text/printable.h>
#include <sinter/nn/data/normalize.h>
#include <sinter/nn/models/iresnet.h>
#include <sinter/nn/models/mobile_face_net.h>
#include <sinter/nn/models/resnet_names.h>
#include <sinter/nn/optim/parameter_groups.h>

#include "run/model_files.h"

namespace train_insightface {

using namespace sinter;

namespace {

struct Backbone {
  const char* name;
  nn::IResNet (*make)(const nn::IResNetOptions&);
  std::array<size_t, 4> blocks;
};

struct MobileBackbone {
  const char* name;
  nn::MobileFaceNet (*make)(const nn::MobileFaceNetOptions&);
  const char* own;  // a parameter that the other ones do not have, or in another shape
};

constexpr Backbone kBackbones[] = {{"iresnet18", nn::iresnet18, {2, 2, 2, 2}},
                                   {"iresnet34", nn::iresnet34, {3, 4, 6, 3}},
                                   {"iresnet50", nn::iresnet50, {3, 4, 14, 3}},
                                   {"iresnet100", nn::iresnet100, {3, 13, 30, 3}},
                                   {"iresnet200", nn::iresnet200, {6, 26, 60, 6}}};

constexpr MobileBackbone kMobileBackbones[] = {
    {"mbf", nn::mobile_face_net, "layers.1.layers.0.weight"},
    {"mbf_large", nn::mobile_face_net_large, "layers.1.layers.0.layers.0.layers.0.weight"}};

/// The name of the backbone that a state is of, by its blocks or names; empty for none.
std::string recognise_backbone(const nn::State& state) {
  for (const MobileBackbone& backbone : kMobileBackbones) {
    if (state.contains("conv_sep.layers.0.weight") && state.contains(backbone.own)) return backbone.name;
  }
  const std::vector<size_t> blocks = examples::count_blocks(state);
  const auto found = std::ranges::find(kBackbones, blocks, [](const Backbone& backbone) {
    return std::vector<size_t>(backbone.blocks.begin(), backbone.blocks.end());
  });
  return found == std::end(kBackbones) ? "" : found->name;
}

/// The model that weights are of which are no backbone's, as they say or their names do; empty for none.
std::string other_model(const examples::WeightsFile& weights) {
  const nn::State& state = weights.state;
  if (state.contains("features.weight") || state.contains("conv_sep.layers.0.weight")) return {};
  if (!weights.metadata) return nn::recognise_resnet(state);
  const std::string& model = weights.metadata->model;
  const auto is_it = [&](const auto& backbone) { return backbone.name == model; };
  return std::ranges::any_of(kBackbones, is_it) || std::ranges::any_of(kMobileBackbones, is_it) ? "" : model;
}

/// Makes --dims, --width and --image-size those of the weights, as far as shapes say, wherever the command
/// line says nothing.
void adopt_shapes(const nn::State& state, Options& options) {
  const auto last = state.find("features.layers.2.weight");  // of a MobileFaceNet
  if (last != state.end() && last->second.rank() == 2 && !options.is_given("--dims"))
    options.dims = last->second.size(0);
  const auto fc = state.find("fc.weight");
  if (fc == state.end() || fc->second.rank() != 2) return;
  if (!options.is_given("--dims")) options.dims = fc->second.size(0);
  const auto stem = state.find("conv1.weight");
  if (stem != state.end() && stem->second.rank() == 4 && !options.is_given("--width"))
    options.width = stem->second.size(0);
  // Maps of a sixteenth of the image's side.
  const int64_t maps = 8 * options.width;
  const auto side = static_cast<int64_t>(
      std::llround(std::sqrt(static_cast<double>(fc->second.size(1)) / static_cast<double>(maps))));
  if (!options.is_given("--image-size") && side * side * maps == fc->second.size(1) &&
      (options.image_size + 15) / 16 != side)
    options.image_size = side * 16;
}

}  // namespace

nn::AnyModule make_backbone(const Options& options) {
  for (const MobileBackbone& mobile : kMobileBackbones) {
    if (options.backbone == mobile.name)
      return mobile.make(
          {.dimensions = options.dims, .image_size = options.image_size, .layout = *options.layout});
  }
  const auto found =
      std::ranges::find(kBackbones, options.backbone, [](const Backbone& b) { return std::string(b.name); });
  const nn::IResNet backbone = found->make({.dimensions = options.dims,
                                            .image_size = options.image_size,
                                            .width = options.width,
                                            .dropout = options.dropout,
                                            .init_std = options.init == "pytorch" ? 0.0 : 0.1,
                                            .layout = *options.layout});
  if (options.train_features_weight) backbone.features.weight.tensor().set_requires_grad(true);
  return backbone;
}

nn::PartialFC make_centres(const Options& options, int64_t classes, const Communicator& ranks) {
  return nn::PartialFC(options.dims, classes,
                       {.head = {.margin = *margin_of(options),
                                 .sub_centres = options.sub_centres,
                                 .keep_float32 = options.head_precision == "f32"},
                        .sample_rate = options.sample_rate,
                        .min_classes = *options.batch * options.accumulate,
                        .seed = options.seed,
                        .communicator = &ranks});
}

std::vector<nn::ParameterGroup> parameter_groups(const Options& options, const FaceModel& model) {
  std::vector<nn::Parameter> all = nn::add_prefix("backbone.", model.backbone.parameters());
  const std::vector<nn::Parameter> head = nn::add_prefix("head.", model.head.parameters());
  all.insert(all.end(), head.begin(), head.end());
  return nn::parameter_groups(
      all, {{.prefix = "backbone."}, {.prefix = "head.", .clip = options.clip_of == "all"}},
      {.decay_vectors = options.decay_norms});
}

std::unique_ptr<nn::Optimizer> make_optimizer(const Options& options, const FaceModel& model) {
  return examples::make_optimizer(options, parameter_groups(options, model));
}

nn::ModelMetadata without_many_names(nn::ModelMetadata data) {
  constexpr size_t kMost = 1'000'000;
  if (data.classes.size() > kMost || nn::are_numbers(data.classes)) data.classes.clear();
  return data;
}

nn::ModelMetadata describe_model(const Options& options, nn::ModelMetadata metadata) {
  metadata.task = "image-feature-extraction";
  metadata.model = options.backbone;
  metadata.options = {{"dimensions", fmt::format("{}", options.dims)},
                      {"image_size", fmt::format("{}", options.image_size)},
                      {"in_channels", "3"}};
  if (options.width != 64) metadata.options["width"] = fmt::format("{}", options.width);
  metadata.height = metadata.width = options.image_size;
  metadata.channels = 3;
  metadata.resize = "exact";
  const nn::data::Normalization normalization = nn::data::symmetric_normalization();
  metadata.mean.assign(3, normalization.mean.front());
  metadata.std.assign(3, normalization.std.front());
  return metadata;
}

examples::WeightsFile read_weights(const std::filesystem::path& path, Options& options) {
  examples::WeightsFile weights =
      examples::read_weights(path.string(), path == options.load_weights ? options.key : std::string());
  if (const std::string other = other_model(weights); !other.empty()) {
    throw Error(fmt::format("{}: these are weights of the model {}, which is no backbone for faces",
                            weights.source, escape_name(other)));
  }
  const std::string backbone = recognise_backbone(weights.state);
  if (!backbone.empty() && !options.is_given("--backbone")) options.backbone = backbone;
  if (!backbone.empty() && options.backbone != backbone) {
    throw Error(fmt::format("{}: these are weights of an {}, --backbone says {}", weights.source, backbone,
                            options.backbone));
  }
  if (weights.metadata && !options.is_given("--image-size")) options.image_size = weights.metadata->height;
  adopt_shapes(weights.state, options);
  return weights;
}

}  // namespace train_insightface
