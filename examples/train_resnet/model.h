// The network, what its files say of it, and whether weights are its own.
#pragma once

#include <string>

#include <sinter/nn/checkpoint/model_metadata.h>
#include <sinter/nn/models/resnet.h>

#include "options.h"
#include "run/model_files.h"
#include "setup.h"

namespace train_resnet {

/// A model with fresh weights, on the CPU.
sinter::nn::ResNet make_model(const Options& options, const sinter::nn::data::Dataset& train);

/// What the run's weights are, and how a picture gets to them.
sinter::nn::ModelMetadata describe_model(const Options& options, const sinter::nn::data::Dataset& train,
                                         const sinter::nn::data::Normalization& normalization);

/// Makes --model and --image-size those of the weights wherever the command line says nothing.
void adopt(const sinter::examples::WeightsFile& weights, Options& options);

/// Throws Error that names `source` if the weights are of another model, or of another number of classes or
/// channels, than `now`.
void check_weights(const std::string& source, const sinter::nn::State& state,
                   const sinter::nn::ModelMetadata& now);

}  // namespace train_resnet
