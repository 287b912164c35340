// What a file of weights does alone, without data to train on: --predict tells what pictures show, or what a
// layer makes of them; --export writes it for other runtimes.
#pragma once

#include "options.h"

namespace train_resnet {

/// Predicts and writes what the options ask for. Gives the exit code: 1 if more pictures than --max-damaged
/// could not be read, each of which has its line nevertheless.
int predict(Options& options);

/// Exports the weights of --load-weights as they are. Gives the exit code.
int export_weights(Options& options);

}  // namespace train_resnet
