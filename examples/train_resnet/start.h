// What a run starts with: the checkpoint that it goes on with or weights of others, and what they mean.
#pragma once

#include <optional>
#include <string>

#include <sinter/core/comm/communicator.h>
#include <sinter/nn/checkpoint/checkpoint.h>

#include "model.h"
#include "options.h"
#include "run/model_files.h"
#include "run/output_files.h"
#include "setup.h"

namespace train_resnet {

struct Start {
  std::optional<sinter::nn::LoadedCheckpoint> checkpoint;
  std::optional<sinter::examples::WeightsFile> weights;  // where there is no checkpoint
  std::optional<sinter::nn::ModelMetadata> metadata;     // of one or the other

  /// Which of them, for messages.
  std::string source() const { return weights ? weights->source : checkpoint->folder.string(); }
};

/// Throws Error that names the option unless everything that the options ask for can be written. The lock
/// keeps other processes from training in the same folder of checkpoints while it lives.
void check_outputs(const Options& options, std::optional<sinter::examples::FolderLock>& lock);

/// Throws Error where --resume has nothing to go on with, and --data does not say what to begin with: that
/// must not become a run on the digits.
void check_place(const Options& options);

/// Reads the checkpoint that --resume goes on with, whose options then hold wherever the command line says
/// nothing, or --load-weights, which say what they are of.
Start find_start(Options& options);

/// Says which options were given for images that keep their size, though --image-size crops them.
void tell_unused_crops(const Options& options);

/// Refuses a run that would go on with another recipe without being told to.
void check_recipe(const Options& options, const sinter::nn::LoadedCheckpoint& checkpoint);

/// Throws Error, which says what differs, on all ranks unless they all start alike.
void check_same_start(const sinter::Communicator& ranks, const Start& start, const Options& options,
                      const Data& data);

struct Meaning {
  sinter::nn::ModelMetadata metadata;  // of the weights that the run will have
  bool same_data = true;               // as the checkpoint's
};

/// Throws Error unless the weights that the run starts with fit the data: a checkpoint must be of the same
/// data, or, for --evaluate, of the same classes. Inputs are normalised as the checkpoint says, or weights
/// that are evaluated or whose trunk is frozen; where these say nothing, as --normalization does.
Meaning agree_on_meaning(const Options& options, const Start& start, const Data& data,
                         const sinter::Communicator& ranks);

}  // namespace train_resnet
