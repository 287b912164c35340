#include "run/model_files.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/checkpoint/pytorch/pytorch_file.h>
#include <sinter/nn/checkpoint/safetensors.h>

#include "common/console.h"
#include "common/text.h"

namespace sinter::examples {
namespace {

constexpr const char* kMetadata = "model_metadata";

/// A name from a file, for a message.
std::string shown(const std::string& name) {
  constexpr size_t kMostBytes = 80;
  std::string text = name.substr(0, kMostBytes);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

/// What a state lacks of a model's own, and has beyond it: three names at most.
std::string describe_faults(const nn::State& state, const nn::State& own) {
  constexpr size_t kMostNames = 3;
  std::vector<std::string> faults;
  for (const auto& [name, tensor] : own) {
    const auto found = state.find(name);
    if (found == state.end()) {
      if (!name.ends_with("num_batches_tracked"))
        faults.push_back(name + " is missing");  // load_state's rule
    } else if (found->second.shape() != tensor.shape()) {
      faults.push_back(fmt::format("{} has shape {}, not {}", name, found->second.shape(), tensor.shape()));
    }
  }
  for (const auto& [name, tensor] : state) {
    if (!own.contains(name)) faults.push_back("there is " + shown(name));
  }
  std::string text;
  for (size_t i = 0; i < std::min(faults.size(), kMostNames); ++i) text += (i == 0 ? "" : ", ") + faults[i];
  if (faults.size() > kMostNames) text += fmt::format(" and {} more", faults.size() - kMostNames);
  return text;
}

void say_of_data(const std::string& source) {
  say("{} does not say which classes and images it is of; those of the data are taken for them\n", source);
}

}  // namespace

std::string fingerprint_text(const nn::data::Dataset& data) {
  return fmt::format("{:016x}", data.fingerprint());
}

nn::ModelMetadata describe_data(const nn::data::Dataset& train) {
  nn::ModelMetadata metadata;
  metadata.classes.reserve(train.class_names().size());
  for (const std::string& name : train.class_names()) metadata.classes.push_back(nn::to_utf8(name));
  metadata.train_images = train.size();
  metadata.data_fingerprint = fingerprint_text(train);
  return metadata;
}

void write_metadata(const nn::ModelMetadata& metadata, nn::CheckpointData& data) {
  data.values[kMetadata] = nn::to_json(metadata);
}

std::optional<nn::ModelMetadata> read_metadata(const nn::LoadedCheckpoint& checkpoint, bool tells) {
  if (!checkpoint.data.values.contains(kMetadata)) {
    if (tells) say_of_data(checkpoint.folder.string());
    return std::nullopt;
  }
  return nn::parse_model_metadata(checkpoint.data.value<std::string>(kMetadata), checkpoint.folder.string());
}

void check_same_classes(const std::string& source, const nn::ModelMetadata& before,
                        const nn::ModelMetadata& now) {
  const std::string changes = nn::describe_class_changes(before.classes, now.classes);
  if (!changes.empty()) throw Error(fmt::format("{} is of other classes: {}", source, changes));
}

bool check_same_data(const std::string& source, const nn::ModelMetadata& before, const nn::ModelMetadata& now,
                     bool allowed) {
  if (before.classes.size() != now.classes.size()) check_same_classes(source, before, now);
  std::string changes = nn::describe_class_changes(before.classes, now.classes);
  const bool same =
      before.train_images == now.train_images && before.data_fingerprint == now.data_fingerprint;
  if (changes.empty() && before.train_images != now.train_images)
    changes = fmt::format("there were {}, there are {} now", counted(before.train_images, "image"),
                          now.train_images);
  if (changes.empty() && !same)
    changes = fmt::format("names, sizes or labels of the {} images are others", now.train_images);
  if (changes.empty()) return same;
  if (!allowed)
    throw Error(fmt::format("{} is of other data: {}; --change-recipe goes on with them", source, changes));
  say("changed data: {}\n", changes);
  return same;
}

void tell_how_read(const std::string& source, const nn::Weights& weights) {
  constexpr size_t kMostNames = 3;
  if (!weights.key.empty()) say("{}: its weights are those under '{}'\n", source, shown(weights.key));
  if (!weights.prefix.empty()) say("{}: '{}' is taken off its names\n", source, weights.prefix);
  if (weights.skipped.empty()) return;
  std::string names;
  for (size_t i = 0; i < std::min(weights.skipped.size(), kMostNames); ++i)
    names += (i == 0 ? "" : ", ") + shown(weights.skipped[i]);
  if (weights.skipped.size() > kMostNames)
    names += fmt::format(" and {} more", weights.skipped.size() - kMostNames);
  say("{}: beside its weights, passed over as they are no named tensors: {}\n", source, names);
}

namespace {

nn::Weights read_at(const std::string& path, const std::string& key) try {
  return nn::read_weights(path, {.key = key});
} catch (const InvalidArgument& error) {  // none there, more than one, or no file of PyTorch's
  throw Error(fmt::format("{}{}", key.empty() ? "" : "--key " + shown(key) + ": ", error.what()));
}

}  // namespace

std::optional<WeightsFormat> weights_format(const std::filesystem::path& path) {
  const std::string ending = path.extension();
  if (ending == ".safetensors") return WeightsFormat::kSafetensors;
  if (ending == ".pth" || ending == ".pt") return WeightsFormat::kPytorch;
  return std::nullopt;
}

std::string check_weights_name(const char* option, const std::filesystem::path& path) {
  if (!path.has_extension() || weights_format(path)) return {};
  return fmt::format("{}: expected a name that ends in .safetensors, .pth or .pt but got '{}'", option,
                     path.string());
}

void write_weights_file(const std::string& path, const nn::State& weights,
                        const nn::ModelMetadata& metadata) {
  const auto about = nn::to_safetensors_metadata(metadata);
  if (weights_format(path) == WeightsFormat::kPytorch) return nn::write_pytorch(path, weights, about);
  nn::write_safetensors(path, weights, about);
}

WeightsFile read_weights(const std::string& path, const std::string& key) {
  nn::Weights file = read_at(path, key);
  WeightsFile weights{.source = "--load-weights " + path,
                      .state = std::move(file.tensors),
                      .metadata = nn::find_model_metadata(file.metadata, path)};
  tell_how_read(weights.source, file);
  return weights;
}

void tell_of_data(const WeightsFile& weights) {
  if (!weights.metadata) say_of_data(weights.source);
}

std::vector<size_t> count_blocks(const nn::State& state) {
  constexpr std::string_view kLayer = "layer";
  std::vector<std::set<std::string>> blocks;
  for (const auto& [name, value] : state) {
    if (!name.starts_with(kLayer) || name.size() < 8 || name[5] < '1' || name[5] > '9' || name[6] != '.')
      continue;
    const auto stage = static_cast<size_t>(name[5] - '1');
    blocks.resize(std::max(blocks.size(), stage + 1));
    blocks[stage].insert(name.substr(7, name.find('.', 7) - 7));
  }
  std::vector<size_t> counts;
  for (const std::set<std::string>& stage : blocks) counts.push_back(stage.size());
  return counts;
}

void load_weights(const std::string& source, const nn::State& state, const nn::ModuleBase& model,
                  const std::optional<nn::ModelMetadata>& metadata) {
  try {
    model.load_state(state);
  } catch (const InvalidArgument&) {  // which lists all names, and tells callers of the library what to do
    const std::string faults = describe_faults(state, model.state());
    if (faults.empty()) throw;
    const std::string of =
        metadata && !metadata->model.empty() ? fmt::format(" (weights of {})", shown(metadata->model)) : "";
    throw Error(fmt::format("{}{} does not fit the model: {}", source, of, faults));
  }
}

void check_program(const nn::LoadedCheckpoint& checkpoint, const std::string& part,
                   const std::string& part_of_other, const char* other) {
  const auto& parts = checkpoint.data.tensors;
  if (!parts.contains(part) && parts.contains(part_of_other))
    throw Error(
        fmt::format("{} is a checkpoint of {}, which goes on with it", checkpoint.folder.string(), other));
}

}  // namespace sinter::examples
