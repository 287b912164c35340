// --predict: what pictures show, or what a layer makes of them, by a file of weights alone.
#pragma once

#include "options.h"

namespace train_resnet {

/// Predicts and writes what the options ask for. Gives the exit code: 1 if more pictures than --max-damaged
/// could not be read, each of which has its line nevertheless.
int predict(Options& options);

}  // namespace train_resnet
