// How a run is saved, and gone on with.
#include <algorithm>

#include <fmt/core.h>

#include "common/text.h"
#include "run/model_files.h"
#include "trainer.h"

namespace train_insightface {

using namespace sinter;

namespace {

constexpr std::string_view kCentres = ".head.weight";

/// Which buffer of the centres, or of a step's rows of them, an entry of the optimiser's state is: "momentum"
/// of "momentum.head.weight". Empty: none; counts of steps are one for all rows.
std::string buffer_of(const std::string& name, const Tensor& value) {
  const bool is_one = name.ends_with(kCentres) && value.rank() == 2;
  return is_one ? name.substr(0, name.size() - kCentres.size()) : std::string();
}

/// What accuracies are of.
std::string describe_sets(const std::vector<FacePairs>& sets) {
  std::string text;
  for (const FacePairs& faces : sets)
    text +=
        fmt::format("{} {} {}\n", faces.name, faces.pairs.size(), examples::fingerprint_text(*faces.images));
  return text;
}

}  // namespace

nn::CheckpointData Trainer::checkpoint() {
  share_statistics(model_.backbone);
  nn::CheckpointData data = checkpoint_common();
  data.tensors["backbone"] = model_.backbone.state();
  data.tensors["centres"] = centres_.state();
  data.tensors["optimizer"] = optimizer_->state();
  for (auto& [name, rows] : data.tensors["optimizer"]) {
    if (centres_.is_partial() || buffer_of(name, rows).empty()) continue;
    const Tensor all = centres_.whole(rows);
    if (all.defined()) rows = all;
  }
  data.values.insert({{"classes", centres_.classes()},
                      {"synthetic", options_.synthetic},
                      {"verified_step", verified_step_},
                      {"verified_sets", describe_sets(pairs_)}});
  examples::write_paths("verify", options_.verify, data);
  if (!options_.keep_images.empty()) examples::write_paths("keep_images", {options_.keep_images}, data);
  return data;
}

// A run with all centres in each step keeps what the optimiser knows of them there, one with a part of them
// beside the centres; which of the two a run is depends on the number of ranks, too.
bool Trainer::restore_centres(const nn::CheckpointData& data) {
  nn::State centres = data.part("centres"), optimizer = data.part("optimizer");
  const bool was_partial = centres.contains("steps");
  if (centres_.is_partial() && !was_partial)
    centres["steps"] = Tensor::scalar(data.value<int64_t>("trained_steps"));
  for (auto& [name, rows] : optimizer) {
    const std::string buffer = buffer_of(name, rows);
    if (buffer.empty()) continue;
    if (centres_.is_partial()) {
      if (!was_partial) centres[buffer] = rows;
      // The optimiser's are of the last step's rows, whose number another --batch or --sample-rate changes.
      rows = Tensor::zeros(centres_.head().weight.canonical_shape());
      continue;
    }
    if (was_partial)
      rows = centres.contains(buffer) ? centres.at(buffer) : Tensor::zeros(centres.at("weight").shape());
    rows = centres_.local_rows(rows);
  }
  const bool same_optimizer = restore_optimizer(optimizer, read_recipe(data));
  // What another optimiser or margin (--change-recipe) remembered says nothing here.
  const std::vector<nn::Buffer> averages = centres_.head().buffers();
  std::erase_if(centres, [&](const auto& entry) {
    const auto& [name, value] = entry;
    if (name == "weight") return false;
    if (name == "steps") return !centres_.is_partial();
    if (value.rank() == 0) return std::ranges::find(averages, name, &nn::Buffer::name) == averages.end();
    return !centres_.is_partial() || !same_optimizer;
  });
  centres_.load_state(centres);
  return same_optimizer;
}

void Trainer::restore(const nn::LoadedCheckpoint& checkpoint, bool same_data) {
  const nn::CheckpointData& data = checkpoint.data;
  if (data.value<int64_t>("classes") != centres_.classes()) {
    throw Error(fmt::format("{} is of {}, and the data has {}", checkpoint.folder.string(),
                            examples::counted(data.value<int64_t>("classes"), "identity"),
                            centres_.classes()));
  }
  restore_counts(data);
  verified_step_ = data.value<int64_t>("verified_step");
  const bool same_sets = !data.values.contains("verified_sets") ||
                         data.value<std::string>("verified_sets") == describe_sets(pairs_);
  if (same_sets) {
    restore_best();
  } else {
    best_ = {};
    verified_step_ = -1;
  }
  examples::load_weights(checkpoint.folder.string(), data.part("backbone"), model_.backbone);
  restore_averages(data);
  const bool same_optimizer = restore_centres(data);
  // The scale of the loss belongs to one precision.
  const Recipe before = read_recipe(data);
  if (before.at("--precision") == *options_.precision) scaler_.load_state(data.part("scaler"));
  const bool same_place = restore_place(data, same_data);
  if (same_place) stats_.skipped_before = data.value<int64_t>("epoch_skipped_before");
  if (checkpoint.damaged.empty() && same_optimizer && same_place && before == recipe()) note_saved();
  std::vector<std::string> notes;
  if (!same_sets) notes.push_back("the pairs are others than before; the best weights are found anew");
  if (!same_optimizer) notes.push_back("the optimiser starts afresh, as its state is another's");
  tell_resumed(checkpoint, notes, same_place, before.at("--epochs"));
}

}  // namespace train_insightface
