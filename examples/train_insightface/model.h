// What trains, as the options say: backbone, centres, optimiser, schedule.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include <sinter/core/comm/communicator.h>
#include <sinter/nn/checkpoint/model_metadata.h>
#include <sinter/nn/data/dataset.h>
#include <sinter/nn/loss/partial_fc.h>
#include <sinter/nn/module/module.h>
#include <sinter/nn/optim/optimizer.h>

#include "options.h"
#include "run/model_files.h"

namespace train_insightface {

/// The loss of images (N, ...) and labels (N), which are rows of the head.
struct FaceModel : sinter::nn::ModuleOf<sinter::Tensor(const sinter::Tensor&, const sinter::Tensor&)> {
  FaceModel(const sinter::nn::AnyModule& trunk, const sinter::nn::MarginHead& classes)
      : backbone(child("backbone", trunk)), head(child("head", classes)) {}
  sinter::Tensor forward(const sinter::Tensor& images, const sinter::Tensor& labels) const override {
    return head(backbone(images), labels);
  }

  sinter::nn::AnyModule backbone;
  sinter::nn::MarginHead head;
};

/// A backbone with fresh weights, on the CPU.
sinter::nn::AnyModule make_backbone(const Options& options);
/// Fresh centres, on the CPU; with several ranks, this one's part of them.
sinter::nn::PartialFC make_centres(const Options& options, int64_t classes,
                                   const sinter::Communicator& ranks);

/// The weights of backbone and head, in groups by what --clip-of and --no-decay-norms set apart.
std::vector<sinter::nn::ParameterGroup> parameter_groups(const Options& options, const FaceModel& model);
std::unique_ptr<sinter::nn::Optimizer> make_optimizer(const Options& options, const FaceModel& model);

/// What is known of the data, without the names of identities where these are but numbers, or over a million:
/// they would fill every file of weights, whose header has room for some millions. The fingerprint tells
/// other people from the same.
sinter::nn::ModelMetadata without_many_names(sinter::nn::ModelMetadata data);

/// What the backbone's weights are, and how a picture gets to them, beside what the data say.
sinter::nn::ModelMetadata describe_model(const Options& options, sinter::nn::ModelMetadata data);

/// Reads a backbone's weights. Wherever the command line does not say which backbone it is, how many
/// dimensions an embedding has, and how large images are, the file does. Throws Error if they are of another
/// backbone than --backbone.
sinter::examples::WeightsFile read_weights(const std::filesystem::path& path, Options& options);

}  // namespace train_insightface
