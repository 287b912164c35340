// How a run is saved, and gone on with.
#include <filesystem>
#include <utility>

#include <fmt/core.h>

#include <sinter/core/runtime/random.h>
#include <sinter/nn/checkpoint/safetensors.h>

#include "common/console.h"
#include "trainer.h"

namespace train_resnet {

using namespace sinter;
using examples::complain;
using examples::say;

namespace {

constexpr const char* kBestName = "best.safetensors";

}  // namespace

nn::CheckpointData Trainer::checkpoint() const {
  const nn::data::DataLoaderState loader = train_loader_.state();
  const RandomKey key = default_generator().key();
  nn::CheckpointData data;
  data.tensors["model"] = model_.state();
  data.tensors["optimizer"] = optimizer_->state();
  data.tensors["scaler"] = scaler_.state();
  if (ema_ != nullptr) data.tensors["average"] = ema_->state();
  data.tensors["epoch_loss"] = stats_.loss.state();
  data.tensors["epoch_ranks"] = stats_.ranks.state();
  data.values = {{"run", options_.run},
                 {"test_fingerprint", test_fingerprint_},
                 {"model", options_.model},
                 {"precision", *options_.precision},
                 {"epochs", *options_.epochs},
                 {"epoch", epoch_},
                 {"step", step_},
                 {"trained_steps", trained_},
                 {"best_accuracy", best_.accuracy},
                 {"best_step", best_.step},
                 {"best_epoch", best_.epoch},
                 {"accumulate", options_.accumulate},
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
  return data;
}

void Trainer::save() {
  const std::pair present = {epoch_, step_};
  const bool asked = std::exchange(save_asked_, false);
  if (asked && options_.checkpoints.empty() && ranks_.rank() == 0)
    complain("warning: SIGUSR1 asks for a checkpoint, but there is no --checkpoints; training goes on");
  if (options_.checkpoints.empty() || saved_ == present) return;
  // All ranks count together; one writes.
  const Tensor counts = stats_.ranks.state().at("counts").to(Device::cpu());
  ranks_.all_reduce_(counts);
  if (checkpoints_ != nullptr) write_checkpoint(counts);
  const Tensor failed = Tensor::full({1}, save_failure_.empty() ? 0.0 : 1.0, DType::kInt64);
  ranks_.broadcast_(failed);
  if (failed.item() != 0.0) return;
  saved_ = present;
  if (asked) say("step {} is saved, as SIGUSR1 asks\n", step_);
}

void Trainer::write_checkpoint(const Tensor& counts) {
  if (run_folder_ != nullptr) run_folder_->flush();
  try {
    nn::CheckpointData data = checkpoint();
    data.tensors["epoch_ranks"]["counts"] = counts;
    checkpoints_->save(data);
    save_failure_.clear();
  } catch (const Error& error) {  // no room on the disk, or for copies of the weights in memory
    save_failure_ = error.what();
    complain("warning: step {} is not saved: {}", step_, error.what());
  }
}

void Trainer::keep_best(const TestResult& test) {
  if (test.confusion.accuracy() <= best_.accuracy) return;
  best_ = {test.confusion.accuracy(), trained_, epoch_ + 1};
  if (checkpoints_ == nullptr) return;  // or another rank writes it
  try {
    std::map<std::string, std::string> metadata = nn::to_safetensors_metadata(metadata_);
    metadata["step"] = fmt::format("{}", best_.step);
    metadata["accuracy"] = fmt::format("{}", best_.accuracy);
    nn::write_safetensors(checkpoints_->root() / kBestName, tested_weights(), metadata);
  } catch (const Error& error) {
    complain("warning: {} is not saved: {}", kBestName, error.what());
  }
}

void Trainer::restore_weights(const nn::LoadedCheckpoint& checkpoint) {
  const nn::CheckpointData& data = checkpoint.data;
  examples::load_weights(checkpoint.folder.string(), data.part("model"), model_);
  if (ema_ == nullptr) return;
  // Averages that --change-recipe has brought begin with the weights of the checkpoint.
  ema_->load_state(data.tensors.contains("average") ? data.part("average")
                                                    : nn::EMA(model_, {.warmup = true}).state());
}

void Trainer::restore_model(const nn::LoadedCheckpoint& checkpoint) {
  restore_weights(checkpoint);
  say("model of {} at step {}\n", checkpoint.folder.string(), checkpoint.data.value<int64_t>("step"));
}

bool Trainer::restore_optimizer(const nn::CheckpointData& data) {
  // The buffers of sgd and lars have the same names and shapes, but not the same meaning.
  const Recipe before = read_recipe(data);
  const auto optimizer = before.find("--optimizer");
  if (optimizer != before.end() && optimizer->second != options_.optimizer) return false;
  try {
    optimizer_->load_state(data.part("optimizer"));
    return true;
  } catch (const InvalidArgument&) {
    if (!options_.change_recipe) throw;
    return false;
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
  // Checkpoints of earlier versions do not have it.
  const int64_t accumulate =
      data.values.contains("accumulate") ? data.value<int64_t>("accumulate") : options_.accumulate;
  if (own != saved || accumulate != options_.accumulate || !same_data) {
    if (own != saved && !options_.change_recipe) {
      throw InvalidArgument(fmt::format(
          "the checkpoint is of {} images in batches of {} with seed {}, but this run has {} in batches of "
          "{} "
          "with seed {}; --change-recipe goes on with them",
          saved.dataset_size, saved.batch_size, saved.seed, own.dataset_size, own.batch_size, own.seed));
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
  // Checkpoints of earlier versions do not have it.
  stats_.compute_seconds = data.values.contains("epoch_compute_seconds")
                               ? data.value<double>("epoch_compute_seconds")
                               : stats_.seconds - stats_.wait_seconds;
  stats_.loss.load_state(data.part("epoch_loss"));
  if (ranks_.rank() == 0) stats_.ranks.load_state(data.part("epoch_ranks"));  // of all
  return true;
}

void Trainer::restore(const nn::LoadedCheckpoint& checkpoint, bool same_data) {
  const nn::CheckpointData& data = checkpoint.data;
  epoch_ = data.value<int64_t>("epoch");
  step_ = data.value<int64_t>("step");
  // Checkpoints of earlier versions do not have it.
  trained_ = data.values.contains("trained_steps") ? data.value<int64_t>("trained_steps") : step_;
  if (*options_.epochs < epoch_)
    throw InvalidArgument(fmt::format("--epochs {}: the run has done {} already", *options_.epochs, epoch_));
  if (data.values.contains("best_accuracy"))
    best_ = {data.value<double>("best_accuracy"), data.value<int64_t>("best_step"),
             data.values.contains("best_epoch") ? data.value<int64_t>("best_epoch") : 0};
  restore_weights(checkpoint);
  const bool same_optimizer = restore_optimizer(data);
  // The scale of the loss belongs to one precision.
  const bool same_precision = data.value<std::string>("precision") == *options_.precision;
  if (same_precision) scaler_.load_state(data.part("scaler"));
  const bool same_place = restore_place(data, same_data);
  if (same_precision && same_place) stats_.skipped_before = data.value<int64_t>("epoch_skipped_before");

  // What is on the disk already need not push an older checkpoint out.
  if (checkpoint.damaged.empty() && same_optimizer && same_place && read_recipe(data) == recipe_of(options_))
    saved_ = {epoch_, step_};

  say("resumed {} at step {}\n", checkpoint.folder.string(), data.value<int64_t>("step"));
  for (const std::filesystem::path& damaged : checkpoint.damaged)
    say("  {} is damaged and was passed over\n", damaged.filename().string());
  if (!has_recipe(data)) say("  the checkpoint does not hold its recipe; that of the command line is used\n");
  if (!same_optimizer) say("  the optimiser starts afresh, as its state is another's\n");
  const bool same_test = !data.values.contains("test_fingerprint") ||
                         data.value<std::string>("test_fingerprint") == test_fingerprint_;
  if (!same_test) say("  the test images are others than before, and so the accuracies\n");
  if (!same_place) say("  epoch {} is begun anew, as its batches are others\n", epoch_ + 1);
  if (!options_.load_weights.empty()) say("  --load-weights is passed over: the checkpoint has weights\n");
  const auto before = data.value<int64_t>("epochs");
  if (before != *options_.epochs)
    say("  the schedule is drawn over {} epochs in place of {}; the next learning rate is {:.4g}\n",
        *options_.epochs, before, schedule_(step_));
  if (epoch_ == *options_.epochs)
    say("  all {} epochs are done; --epochs <more> trains on\n", *options_.epochs);
}

}  // namespace train_resnet
