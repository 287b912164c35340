// How a run is saved, and gone on with.
#include <filesystem>

#include <fmt/core.h>

#include <sinter/core/runtime/random.h>
#include <sinter/nn/checkpoint/safetensors.h>

#include "common/console.h"
#include "run/model_files.h"
#include "trainer.h"

namespace train_insightface {

using namespace sinter;
using examples::complain;
using examples::say;

namespace {

constexpr const char* kBestName = "best.safetensors";
constexpr const char* kMomentum = "momentum.head.weight";  // that of the centres, or of a step's rows of them

}  // namespace

nn::CheckpointData Trainer::checkpoint() const {
  const nn::data::DataLoaderState loader = train_loader_.state();
  const RandomKey key = default_generator().key();
  nn::CheckpointData data;
  data.tensors["backbone"] = model_.backbone.state();
  data.tensors["centres"] = centres_.state();
  data.tensors["optimizer"] = optimizer_.state();
  if (auto& state = data.tensors["optimizer"]; state.contains(kMomentum) && !centres_.is_partial()) {
    const Tensor all = centres_.whole(state.at(kMomentum));
    if (all.defined()) state.at(kMomentum) = all;
  }
  data.tensors["scaler"] = scaler_.state();
  data.tensors["epoch_loss"] = stats_.loss.state();
  data.values = {{"run", options_.run},
                 {"classes", centres_.classes()},
                 {"synthetic", options_.synthetic},
                 {"epoch", epoch_},
                 {"step", step_},
                 {"trained_steps", trained_},
                 {"verified_step", verified_step_},
                 {"best_accuracy", best_.accuracy},
                 {"best_step", best_.step},
                 {"loader_epoch", loader.epoch},
                 {"loader_batch", loader.batch},
                 {"loader_seed", loader.seed},
                 {"loader_batch_size", loader.batch_size},
                 {"loader_dataset_size", loader.dataset_size},
                 {"random_seed", key.seed},
                 {"random_offset", key.offset},
                 {"epoch_images", stats_.images},
                 {"epoch_skipped_before", stats_.skipped_before},
                 {"epoch_seconds", stats_.seconds},
                 {"epoch_compute_seconds", stats_.compute_seconds},
                 {"epoch_wait_seconds", stats_.wait_seconds}};
  examples::write_recipe(recipe_of(options_), data);
  examples::write_metadata(metadata_, data);
  if (!options_.data.empty()) examples::write_paths("data", {options_.data}, data);
  examples::write_paths("verify", options_.verify, data);
  return data;
}

void Trainer::save() {
  const std::pair present = {epoch_, step_};
  const bool asked = std::exchange(save_asked_, false);
  if (asked && options_.checkpoints.empty() && ranks_.rank() == 0)
    complain("warning: SIGUSR1 asks for a checkpoint, but there is no --checkpoints; training goes on");
  if (options_.checkpoints.empty() || saved_ == present) return;
  if (run_folder_ != nullptr) run_folder_->flush();
  try {
    share_statistics();
    const nn::CheckpointData data = checkpoint();  // takes all ranks; one writes
    if (checkpoints_ != nullptr) checkpoints_->save(data);
    save_failure_.clear();
  } catch (const CommunicationError&) {
    throw;
  } catch (const Error& error) {  // no room on the disk, or for copies of the weights in memory
    if (ranks_.size() > 1 && checkpoints_ == nullptr) throw;  // the others would wait for this one
    save_failure_ = error.what();
    complain("warning: step {} is not saved: {}", step_, error.what());
  }
  const Tensor failed = Tensor::full({1}, save_failure_.empty() ? 0.0 : 1.0, DType::kInt64);
  ranks_.broadcast_(failed);
  if (failed.item() != 0.0) return;
  saved_ = present;
  if (asked) say("step {} is saved, as SIGUSR1 asks\n", step_);
}

void Trainer::save_best() {
  if (checkpoints_ == nullptr) return;  // another rank writes it
  try {
    std::map<std::string, std::string> metadata = nn::to_safetensors_metadata(metadata_);
    metadata["step"] = fmt::format("{}", best_.step);
    metadata["accuracy"] = fmt::format("{}", best_.accuracy);
    nn::write_safetensors(checkpoints_->root() / kBestName, model_.backbone.state(), metadata);
  } catch (const Error& error) {
    complain("warning: {} is not saved: {}", kBestName, error.what());
  }
}

bool Trainer::restore_place(const nn::CheckpointData& data, bool same_data) {
  const nn::data::DataLoaderState saved = {.epoch = data.value<int64_t>("loader_epoch"),
                                           .batch = data.value<int64_t>("loader_batch"),
                                           .seed = data.value<uint64_t>("loader_seed"),
                                           .batch_size = data.value<int64_t>("loader_batch_size"),
                                           .dataset_size = data.value<int64_t>("loader_dataset_size")};
  nn::data::DataLoaderState own = train_loader_.state();
  own.epoch = saved.epoch;
  own.batch = saved.batch;
  stats_ = {};
  if (own != saved || !same_data) {
    if (own != saved && !options_.change_recipe) {
      throw InvalidArgument(fmt::format(
          "the checkpoint is of {} images in batches of {} with seed {}, but this run has {} in batches of "
          "{} with "
          "seed {}; --change-recipe goes on with them",
          saved.dataset_size, saved.batch_size, saved.seed, own.dataset_size, own.batch_size, own.seed));
    }
    train_loader_.start_epoch(epoch_);
    step_ = epoch_ * train_loader_.batches_per_epoch();
    stats_.skipped_before = scaler_.skipped();
    return false;
  }
  train_loader_.load_state(saved);
  default_generator() =
      Generator(RandomKey{data.value<uint64_t>("random_seed"), data.value<uint64_t>("random_offset")});
  stats_.images = data.value<int64_t>("epoch_images");
  stats_.skipped_before = data.value<int64_t>("epoch_skipped_before");
  stats_.seconds = data.value<double>("epoch_seconds");
  stats_.compute_seconds = data.value<double>("epoch_compute_seconds");
  stats_.wait_seconds = data.value<double>("epoch_wait_seconds");
  stats_.loss.load_state(data.part("epoch_loss"));
  return true;
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
      centres = {{"weight", centres.at("weight")}};
    }
    if (rows != optimizer.end()) rows->second = centres_.local_rows(rows->second);
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
  epoch_ = data.value<int64_t>("epoch");
  step_ = data.value<int64_t>("step");
  trained_ = data.value<int64_t>("trained_steps");
  verified_step_ = data.value<int64_t>("verified_step");
  best_ = {data.value<double>("best_accuracy"), data.value<int64_t>("best_step")};
  if (options_.epochs < epoch_)
    throw InvalidArgument(fmt::format("--epochs {}: the run has done {} already", options_.epochs, epoch_));
  examples::load_weights(checkpoint.folder.string(), data.part("backbone"), model_.backbone);
  restore_centres(data);
  // The scale of the loss belongs to one precision.
  const Recipe before = examples::read_recipe(data);
  if (before.at("--precision") == *options_.precision) scaler_.load_state(data.part("scaler"));
  const bool same_place = restore_place(data, same_data);

  // What is on the disk already need not push an older checkpoint out.
  if (checkpoint.damaged.empty() && same_place && before == recipe_of(options_)) saved_ = {epoch_, step_};

  say("resumed {} at step {}\n", checkpoint.folder.string(), data.value<int64_t>("step"));
  for (const std::filesystem::path& damaged : checkpoint.damaged)
    say("  {} is damaged and was passed over\n", damaged.filename().string());
  if (!same_place) say("  epoch {} is begun anew, as its batches are others\n", epoch_ + 1);
  if (!options_.load_weights.empty()) say("  --load-weights is passed over: the checkpoint has weights\n");
  if (before.at("--epochs") != fmt::format("{}", options_.epochs)) {
    say("  the schedule is drawn over {} epochs in place of {}; the next learning rate is {:.4g}\n",
        options_.epochs, before.at("--epochs"), schedule_(step_));
  }
  if (epoch_ == options_.epochs)
    say("  all {} epochs are done; --epochs <more> trains on\n", options_.epochs);
}

}  // namespace train_insightface
