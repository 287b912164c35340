// How a run is saved, and gone on with.
#include <algorithm>

#include <fmt/core.h>

#include "run/model_files.h"
#include "trainer.h"

namespace train_insightface {

using namespace sinter;

namespace {

constexpr const char* kMomentum = "momentum.head.weight";  // that of the centres, or of a step's rows of them

}  // namespace

nn::CheckpointData Trainer::checkpoint() {
  share_statistics(model_.backbone);
  nn::CheckpointData data = checkpoint_common();
  data.tensors["backbone"] = model_.backbone.state();
  data.tensors["centres"] = centres_.state();
  data.tensors["optimizer"] = optimizer_.state();
  if (auto& state = data.tensors["optimizer"]; state.contains(kMomentum) && !centres_.is_partial()) {
    const Tensor all = centres_.whole(state.at(kMomentum));
    if (all.defined()) state.at(kMomentum) = all;
  }
  data.values.insert({{"classes", centres_.classes()},
                      {"synthetic", options_.synthetic},
                      {"verified_step", verified_step_}});
  examples::write_paths("verify", options_.verify, data);
  if (!options_.keep_images.empty()) examples::write_paths("keep_images", {options_.keep_images}, data);
  return data;
}

// A run with all centres in each step keeps their momenta in the optimiser, one with a part of them beside
// the centres; which of the two a run is depends on the number of ranks, too.
void Trainer::restore_centres(const nn::CheckpointData& data) {
  nn::State centres = data.part("centres"), optimizer = data.part("optimizer");
  const auto rows = optimizer.find(kMomentum);
  const bool was_partial = centres.contains("steps");
  if (centres_.is_partial()) {
    if (!was_partial) {
      centres["steps"] = Tensor::scalar(data.value<int64_t>("trained_steps"));
      if (rows != optimizer.end()) centres["momentum"] = rows->second;
    }
    // The optimiser's are of the last step's rows, whose number another --batch or --sample-rate changes.
    if (rows != optimizer.end()) rows->second = Tensor::zeros(centres_.head().weight.canonical_shape());
  } else {
    if (was_partial) {
      const auto momentum = centres.find("momentum");
      if (rows != optimizer.end())
        rows->second =
            momentum != centres.end() ? momentum->second : Tensor::zeros(centres.at("weight").shape());
      centres.erase("momentum");
      centres.erase("steps");
    }
    if (rows != optimizer.end()) rows->second = centres_.local_rows(rows->second);
  }
  // Of another margin (--change-recipe): what that one remembered says nothing here.
  for (const char* average : {"norm_mean", "norm_deviation", "t"}) {
    const std::vector<nn::Buffer> own = centres_.head().buffers();
    if (std::ranges::find(own, average, &nn::Buffer::name) == own.end()) centres.erase(average);
  }
  centres_.load_state(centres);
  optimizer_.load_state(optimizer);
}

void Trainer::restore(const nn::LoadedCheckpoint& checkpoint, bool same_data) {
  const nn::CheckpointData& data = checkpoint.data;
  if (data.value<int64_t>("classes") != centres_.classes()) {
    throw Error(fmt::format("{} is of {} identities, and the data has {}", checkpoint.folder.string(),
                            data.value<int64_t>("classes"), centres_.classes()));
  }
  restore_counts(data);
  verified_step_ = data.value<int64_t>("verified_step");
  examples::load_weights(checkpoint.folder.string(), data.part("backbone"), model_.backbone);
  restore_centres(data);
  // The scale of the loss belongs to one precision.
  const Recipe before = examples::read_recipe(data);
  if (before.at("--precision") == *options_.precision) scaler_.load_state(data.part("scaler"));
  const bool same_place = restore_place(data, same_data);
  if (same_place) stats_.skipped_before = data.value<int64_t>("epoch_skipped_before");
  if (checkpoint.damaged.empty() && same_place && before == recipe()) note_saved();
  tell_resumed(checkpoint, {}, same_place, before.at("--epochs"));
}

}  // namespace train_insightface
