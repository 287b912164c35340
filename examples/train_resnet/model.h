// The network, what its files say of it, and whether weights are its own.
#pragma once

#include <optional>
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

/// Where the names of one of train_resnet's models all begin with a word of another program's, "backbone.",
/// takes that off, leaves out what stands beside them, and says so.
void find_model(sinter::examples::WeightsFile& weights);

/// Throws Error for weights of networks for faces, and where what weights say of themselves is of other
/// channels than their own.
void check_metadata(const sinter::examples::WeightsFile& weights);

/// Makes --model and --image-size those of the weights wherever the command line says nothing.
void adopt(const sinter::examples::WeightsFile& weights, Options& options);

/// Makes --stem auto that of the weights, and says so where images of this size would get the other one.
/// Throws Error, which says what fits, if --stem asks for another than theirs, or the network has but one.
void settle_stem(const std::optional<sinter::examples::WeightsFile>& weights,
                 const sinter::nn::data::Dataset& train, Options& options);

/// The channels of the images that weights of one of train_resnet's models are for; 0 if they are of none.
int64_t image_channels(const sinter::nn::State& state);

/// What becomes of the classifier that stands in a file of weights.
enum class Classifier { kTested, kTrained, kNew };

/// Throws Error that names `source` and says what fits if the weights are of another model, or of another
/// number of classes or channels, than `now`. The classifier is of no account if it is new.
void check_weights(const std::string& source, const sinter::nn::State& state,
                   const sinter::nn::ModelMetadata& now, Classifier classifier = Classifier::kTested);

}  // namespace train_resnet
