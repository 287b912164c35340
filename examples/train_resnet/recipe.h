// The recipe of a run of train_resnet.
#pragma once

#include <sinter/nn/checkpoint/checkpoint.h>

#include "options.h"
#include "recipe/recipe.h"

namespace train_resnet {

using sinter::examples::Change;
using sinter::examples::changes;
using sinter::examples::list_changes;
using sinter::examples::Recipe;
using sinter::examples::write_recipe;

/// The recipe of complete options; of the options of optimisers, those of the one in use.
Recipe recipe_of(const Options& options);

/// The recipe of a checkpoint. Of checkpoints that were saved before recipes were, it has --model, --epochs
/// and
/// --precision only.
Recipe read_recipe(const sinter::nn::CheckpointData& data);
/// Whether a checkpoint's recipe is a whole one.
bool has_recipe(const sinter::nn::CheckpointData& data);

/// Makes `options` those of the recipe wherever the command line says nothing. An optimiser that the command
/// line changes gets its own defaults in place of the other's learning rate, momentum and weight decay.
/// Gives the options that it took from the recipe.
std::set<std::string> adopt(const Recipe& recipe, Options& options);

}  // namespace train_resnet
