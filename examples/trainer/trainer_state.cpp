// How a run is saved, and gone on with.
#include <filesystem>
#include <utility>

#include <fmt/core.h>

#include <sinter/core/runtime/random.h>

#include "common/console.h"
#include "common/text.h"
#include "run/model_files.h"
#include "trainer/trainer_base.h"

namespace sinter::examples {

namespace {

/// A value that checkpoints of earlier versions do not have.
template <class T>
T value_or(const nn::CheckpointData& data, const char* key, T other) {
  return data.values.contains(key) ? data.value<T>(key) : other;
}

}  // namespace

nn::CheckpointData TrainerBase::checkpoint_common() const {
  const nn::data::DataLoaderState loader = train_loader_.state();
  const RandomKey key = default_generator().key();
  nn::CheckpointData data;
  data.tensors["scaler"] = scaler_.state();
  data.tensors["epoch_loss"] = stats_.loss.state();
  if (ema_ != nullptr) data.tensors["average"] = ema_->state();
  if (plateau_) data.tensors["plateau"] = plateau_->state();
  data.values = {{"run", common_.run},
                 {"epoch", epoch_},
                 {"step", step_},
                 {"trained_steps", trained_},
                 {"best_accuracy", best_.accuracy},
                 {"best_step", best_.step},
                 {"best_epoch", best_.epoch},
                 {"tested_epoch", tested_epoch_},
                 {"accumulate", common_.accumulate},
                 {"loader_epoch", loader.epoch},
                 {"loader_batch", loader.batch},
                 {"loader_seed", loader.seed},
                 {"loader_batch_size", loader.batch_size},
                 {"loader_dataset_size", loader.dataset_size},
                 {"loader_sampler", loader.sampler},
                 {"random_seed", key.seed},
                 {"random_offset", key.offset},
                 {"epoch_images", stats_.images},
                 {"epoch_skipped_before", stats_.skipped_before},
                 {"epoch_seconds", stats_.seconds},
                 {"epoch_compute_seconds", stats_.compute_seconds},
                 {"epoch_wait_seconds", stats_.wait_seconds}};
  write_recipe(recipe(), data);
  write_metadata(metadata_, data);
  if (!common_.data.empty()) write_paths("data", {common_.data}, data);
  return data;
}

void TrainerBase::save() {
  save_best_again();
  const std::pair present = {epoch_, step_};
  const bool asked = std::exchange(save_asked_, false);
  if (asked && common_.checkpoints.empty() && ranks_.rank() == 0)
    complain("warning: SIGUSR1 asks for a checkpoint, but there is no --checkpoints; training goes on");
  if (common_.checkpoints.empty() || saved_ == present) return;
  if (run_folder_ != nullptr) run_folder_->flush();
  try {
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

void TrainerBase::restore_counts(const nn::CheckpointData& data) {
  epoch_ = data.value<int64_t>("epoch");
  step_ = data.value<int64_t>("step");
  trained_ = value_or(data, "trained_steps", step_);
  if (*common_.epochs < epoch_)
    throw InvalidArgument(fmt::format("--epochs {}: the run has done {} already", *common_.epochs, epoch_));
  if (data.values.contains("best_accuracy"))
    best_ = {data.value<double>("best_accuracy"), data.value<int64_t>("best_step"),
             value_or(data, "best_epoch", int64_t{0})};
  tested_epoch_ = value_or(data, "tested_epoch", epoch_);
  if (plateau_ && data.tensors.contains("plateau")) plateau_->load_state(data.part("plateau"));
}

bool TrainerBase::restore_place(const nn::CheckpointData& data, bool same_data) {
  nn::data::DataLoaderState own = train_loader_.state();
  const nn::data::DataLoaderState saved = {.epoch = data.value<int64_t>("loader_epoch"),
                                           .batch = data.value<int64_t>("loader_batch"),
                                           .seed = data.value<uint64_t>("loader_seed"),
                                           .batch_size = data.value<int64_t>("loader_batch_size"),
                                           .dataset_size = data.value<int64_t>("loader_dataset_size"),
                                           .sampler = value_or(data, "loader_sampler", uint64_t{0}),
                                           .shuffle = own.shuffle,
                                           .drop_last = own.drop_last};
  own.epoch = saved.epoch;
  own.batch = saved.batch;
  clear_stats();
  const bool same_series = value_or(data, "accumulate", common_.accumulate) == common_.accumulate;
  if (own != saved || !same_series || !same_data) {
    if (own != saved && !common_.change_recipe) {
      throw InvalidArgument(fmt::format(
          "the checkpoint is of {} in batches of {} with seed {}, but this run has {} in batches of "
          "{} with seed {}{}; --change-recipe goes on with them",
          counted(saved.dataset_size, "image"), saved.batch_size, saved.seed, own.dataset_size,
          own.batch_size, own.seed, own.sampler == saved.sampler ? "" : ", in another order"));
    }
    train_loader_.start_epoch(epoch_);
    step_ = epoch_ * steps_per_epoch();
    stats_.skipped_before = scaler_.skipped();
    return false;
  }
  train_loader_.load_state(saved);
  // The same on all ranks, which therefore draw alike and stand at the same offset in every checkpoint.
  default_generator() =
      Generator(RandomKey{data.value<uint64_t>("random_seed"), data.value<uint64_t>("random_offset")});
  stats_.images = data.value<int64_t>("epoch_images");
  stats_.seconds = data.value<double>("epoch_seconds");
  stats_.wait_seconds = data.value<double>("epoch_wait_seconds");
  stats_.compute_seconds = value_or(data, "epoch_compute_seconds", stats_.seconds - stats_.wait_seconds);
  stats_.loss.load_state(data.part("epoch_loss"));
  return true;
}

void TrainerBase::tell_resumed(const nn::LoadedCheckpoint& checkpoint, const std::vector<std::string>& notes,
                               bool same_place, const std::string& epochs_before) const {
  say("resumed {} at step {}\n", checkpoint.folder.string(), checkpoint.data.value<int64_t>("step"));
  for (const std::filesystem::path& damaged : checkpoint.damaged)
    say("  {} is damaged and was passed over\n", damaged.filename().string());
  for (const std::string& note : notes) say("  {}\n", note);
  if (!same_place) say("  epoch {} is begun anew, as its batches are others\n", epoch_ + 1);
  if (!common_.load_weights.empty()) say("  --load-weights is passed over: the checkpoint has weights\n");
  if (epochs_before != fmt::format("{}", *common_.epochs)) {
    say("  the schedule is drawn over {} in place of {}; the next learning rate is {:.4g}\n",
        counted(*common_.epochs, "epoch"), epochs_before, schedule_(step_));
  }
  if (epoch_ == *common_.epochs) {
    say("  {} done; --epochs <more> trains on\n",
        *common_.epochs == 1 ? "the epoch is" : fmt::format("all {} epochs are", *common_.epochs));
  } else if (ends_early()) {
    say("  the run has ended, with no better test for {} (--patience {}); --patience 0 --change-recipe "
        "trains "
        "on\n",
        counted(epochs_since_best(), "epoch"), common_.course.patience);
  }
}

}  // namespace sinter::examples
