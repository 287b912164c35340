// How a run is saved, and gone on with.
#include <string>
#include <vector>

#include <fmt/core.h>

#include "common/console.h"
#include "trainer.h"

namespace train_resnet {

using namespace sinter;
using examples::say;

nn::CheckpointData Trainer::checkpoint() {
  // All ranks count together; one writes.
  const Tensor counts = train_correct_.state().at("counts").to(Device::cpu());
  ranks_.all_reduce_(counts);
  if (ranks_.rank() != 0) return {};
  nn::CheckpointData data = checkpoint_common();
  data.tensors["model"] = model_.state();
  data.tensors["optimizer"] = optimizer_->state();
  data.tensors["epoch_ranks"] = train_correct_.state();
  data.tensors["epoch_ranks"]["counts"] = counts;
  data.values.insert({{"test_fingerprint", test_fingerprint_},
                      {"model", options_.model},
                      {"precision", *options_.precision},
                      {"epochs", *options_.epochs}});
  return data;
}

void Trainer::forget_tests() {
  best_ = {};
  if (!plateau_) return;
  nn::State state = plateau_->state();
  const nn::State fresh = nn::ReduceOnPlateau().state();
  for (const char* const part : {"best", "bad"}) state.at(part) = fresh.at(part);
  plateau_->load_state(state);
}

void Trainer::restore_weights(const nn::LoadedCheckpoint& checkpoint) {
  const nn::CheckpointData& data = checkpoint.data;
  examples::load_weights(checkpoint.folder.string(), data.part("model"), model_);
  restore_averages(data);
}

void Trainer::restore_model(const nn::LoadedCheckpoint& checkpoint) {
  restore_weights(checkpoint);
  say("model of {} at step {}\n", checkpoint.folder.string(), checkpoint.data.value<int64_t>("step"));
}

void Trainer::restore(const nn::LoadedCheckpoint& checkpoint, bool same_data) {
  const nn::CheckpointData& data = checkpoint.data;
  restore_counts(data);
  const bool same_test = !data.values.contains("test_fingerprint") ||
                         data.value<std::string>("test_fingerprint") == test_fingerprint_;
  if (same_test) {
    restore_best();
  } else {
    forget_tests();
  }
  restore_weights(checkpoint);
  const bool same_optimizer = restore_optimizer(data.part("optimizer"), read_recipe(data));
  // The scale of the loss belongs to one precision.
  const bool same_precision = data.value<std::string>("precision") == *options_.precision;
  if (same_precision) scaler_.load_state(data.part("scaler"));
  const bool same_place = restore_place(data, same_data);
  if (same_place && ranks_.rank() == 0) train_correct_.load_state(data.part("epoch_ranks"));  // of all
  if (same_precision && same_place) stats_.skipped_before = data.value<int64_t>("epoch_skipped_before");
  if (checkpoint.damaged.empty() && same_optimizer && same_place && read_recipe(data) == recipe())
    note_saved();

  std::vector<std::string> notes;
  if (!has_recipe(data))
    notes.push_back("the checkpoint does not hold its recipe; that of the command line is used");
  if (!same_optimizer) notes.push_back("the optimiser starts afresh, as its state is another's");
  if (!same_test) notes.push_back("the test images are others than before; the best weights are found anew");
  tell_resumed(checkpoint, notes, same_place, fmt::format("{}", data.value<int64_t>("epochs")));
}

}  // namespace train_resnet
