#include <algorithm>

#include <fmt/ranges.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/models/resnet_names.h>

namespace sinter::nn {
namespace {

using Blocks = std::vector<int64_t>;

/// What distinguishes a network from the others, beside its blocks.
struct Traits {
  int64_t groups = 1;
  int64_t width_per_group = 64;
  bool is_d = false;  // deep_stem and Shortcut::kAveragePool
  bool squeeze_excite = false;

  bool operator==(const Traits&) const = default;
};

struct Row {
  std::string name;
  bool bottleneck;
  Blocks blocks;
  Traits traits = {};

  bool is_cifar() const { return blocks.size() == 3; }
};

const std::vector<Row>& rows() {
  static const Blocks k18 = {2, 2, 2, 2}, k50 = {3, 4, 6, 3}, k101 = {3, 4, 23, 3}, k152 = {3, 8, 36, 3};
  static const std::vector<Row> all = {
      {"resnet20", false, {3, 3, 3}},
      {"resnet32", false, {5, 5, 5}},
      {"resnet44", false, {7, 7, 7}},
      {"resnet56", false, {9, 9, 9}},
      {"resnet110", false, {18, 18, 18}},
      {"resnet18", false, k18},
      {"resnet34", false, k50},
      {"resnet50", true, k50},
      {"resnet101", true, k101},
      {"resnet152", true, k152},
      {"resnext50_32x4d", true, k50, {.groups = 32, .width_per_group = 4}},
      {"resnext101_32x8d", true, k101, {.groups = 32, .width_per_group = 8}},
      {"resnext101_64x4d", true, k101, {.groups = 64, .width_per_group = 4}},
      {"wide_resnet50_2", true, k50, {.width_per_group = 128}},
      {"wide_resnet101_2", true, k101, {.width_per_group = 128}},
      {"resnet18d", false, k18, {.is_d = true}},
      {"resnet34d", false, k50, {.is_d = true}},
      {"resnet50d", true, k50, {.is_d = true}},
      {"resnet101d", true, k101, {.is_d = true}},
      {"seresnet18", false, k18, {.squeeze_excite = true}},
      {"seresnet34", false, k50, {.squeeze_excite = true}},
      {"seresnet50", true, k50, {.squeeze_excite = true}},
      {"seresnet101", true, k101, {.squeeze_excite = true}},
  };
  return all;
}

const Row& row_of(const std::string& name) {
  const auto found = std::ranges::find(rows(), name, &Row::name);
  SINTER_CHECK(found != rows().end(), "[resnet] expected one of {} but got \"{}\"",
               fmt::join(resnet_names(), ", "), name);
  return *found;
}

/// The extents of a state's tensor; empty if it has none of that name.
Blocks extents(const State& state, const std::string& name) {
  const auto found = state.find(name);
  if (found == state.end()) return {};
  const Shape shape = found->second.shape();
  return {shape.begin(), shape.end()};
}

/// How many blocks each stage has, by their first convolutions.
Blocks blocks_of(const State& state) {
  Blocks blocks;
  for (size_t stage = 1;; ++stage) {
    int64_t count = 0;
    while (state.contains(fmt::format("layer{}.{}.conv1.weight", stage, count))) ++count;
    if (count == 0) return blocks;
    blocks.push_back(count);
  }
}

Traits traits_of(const State& state) {
  Traits traits;
  const Blocks grouped = extents(state, "layer1.0.conv2.weight"),
               last = extents(state, "layer1.0.conv3.weight");
  if (grouped.size() == 4 && last.size() == 4 && grouped[1] > 0 && last[0] >= 4) {
    traits.groups = grouped[0] / grouped[1];
    // The weight is (groups * channels of a group, channels of a group, 3, 3); `width` is a quarter of the
    // block's channels.
    traits.width_per_group = grouped[1] * 64 / (last[0] / 4);
  }
  traits.is_d =
      state.contains("conv1.0.weight") && extents(state, "layer2.0.downsample.1.weight").size() == 4;
  traits.squeeze_excite = state.contains("layer1.0.se.fc1.weight");
  return traits;
}

}  // namespace

const std::vector<std::string>& resnet_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Row& row : rows()) all.push_back(row.name);
    return all;
  }();
  return names;
}

bool is_cifar_resnet(const std::string& name) {
  return row_of(name).is_cifar();
}

ResNet make_resnet(const std::string& name, const ResNetOptions& options) {
  const Row& row = row_of(name);
  ResNetOptions all = options;
  if (row.is_cifar()) {
    all.small_stem = true;
    all.width = 16;
  }
  if (row.traits.groups != 1 || row.traits.width_per_group != 64) {
    all.groups = row.traits.groups;
    all.width_per_group = row.traits.width_per_group;
  }
  if (row.traits.is_d) {
    all.deep_stem = true;
    all.shortcut = Shortcut::kAveragePool;
  }
  if (row.traits.squeeze_excite) all.squeeze_excite = true;
  return ResNet({row.bottleneck, row.blocks}, all);
}

std::string recognise_resnet(const State& state) {
  const Blocks blocks = blocks_of(state);
  const bool bottleneck = state.contains("layer1.0.conv3.weight");
  // Blocks of an IResNet have a third norm, but no third convolution.
  if (bottleneck != state.contains("layer1.0.bn3.weight")) return "";
  const Traits traits = traits_of(state);
  const auto found = std::ranges::find_if(rows(), [&](const Row& row) {
    return row.blocks == blocks && row.bottleneck == bottleneck && row.traits == traits;
  });
  return found == rows().end() ? "" : found->name;
}

}  // namespace sinter::nn
