// How a run is saved, and gone on with.
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/core.h>

#include <sinter/nn/checkpoint/safetensors.h>
#include <sinter/ops/copy/copy.h>

#include "common/console.h"
#include "trainer.h"

namespace train_resnet {

using namespace sinter;
using examples::say;

namespace {

/// A copy on the host that shares no memory with the model.
nn::State host_copy(const nn::State& state) {
  nn::State copy;
  for (const auto& [name, tensor] : state)
    copy[name] = tensor.device().is_cpu() ? ops::copy(tensor) : tensor.to(Device::cpu());
  return copy;
}

}  // namespace

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

void Trainer::keep_best(const TestResult& test) {
  tested_epoch_ = epoch_ + 1;
  if (test.confusion.accuracy() <= best_.accuracy) return;
  best_ = {test.confusion.accuracy(), trained_, epoch_ + 1};
  if (checkpoints_ != nullptr) save_best(tested_weights());
  if (final_) best_state_ = host_copy(tested_weights());
}

void Trainer::forget_tests() {
  best_ = {};
  if (!plateau_) return;
  nn::State state = plateau_->state();
  const nn::State fresh = nn::ReduceOnPlateau().state();
  for (const char* const part : {"best", "bad"}) state.at(part) = fresh.at(part);
  plateau_->load_state(state);
}

void Trainer::restore_best() {
  if (!final_ || best_.accuracy < 0) return;
  const auto path = std::filesystem::path(options_.checkpoints) / examples::kBestName;
  try {
    const nn::Safetensors file = nn::read_safetensors(path);
    if (file.metadata.contains("step") && file.metadata.at("step") == fmt::format("{}", best_.step)) {
      best_state_ = file.tensors;
      return;
    }
  } catch (const Error&) {  // it is gone, or damaged
  }
  if (ranks_.rank() == 0)
    examples::complain(
        "warning: {} does not hold the best weights, of step {}; the search for them begins anew",
        path.string(), best_.step);
  best_ = {};
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
