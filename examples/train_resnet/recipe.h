// The recipe of a run: every option that its result depends on. Checkpoints hold it, so that a run goes on as
// it began.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <sinter/nn/checkpoint/checkpoint.h>

#include "options.h"

namespace train_resnet {

/// Values by option, in the words of the command line: {"--lr", "0.1"}.
using Recipe = std::map<std::string, std::string>;

/// The recipe of complete options; of both optimisers' options, those of the one in use.
Recipe recipe_of(const Options& options);

/// Puts a recipe among a checkpoint's values, and gets it back. Of checkpoints that were saved before recipes
/// were, it has --model, --epochs and --precision only.
void write_recipe(const Recipe& recipe, sinter::nn::CheckpointData& data);
Recipe read_recipe(const sinter::nn::CheckpointData& data);
/// Whether a checkpoint's recipe is a whole one.
bool has_recipe(const sinter::nn::CheckpointData& data);

/// Makes `options` those of the recipe wherever the command line says nothing. An optimiser that the command
/// line changes gets its own defaults in place of the other's learning rate, momentum and weight decay.
void adopt(const Recipe& recipe, Options& options);

/// An option that a run would go on with, and its value before; "none" where one side does not use it.
struct Change {
  std::string option, before, now;
};

/// What differs, by option. More epochs than before are none: a run may be extended. Options that `before`
/// does not know are passed over if it is not `whole`.
std::vector<Change> changes(const Recipe& before, const Recipe& now, bool whole);

/// The changes as lines of text.
std::string list_changes(const std::vector<Change>& changes);

}  // namespace train_resnet
