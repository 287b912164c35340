// What a run is made of, as its options say: data, loaders, model, optimiser, schedule.
#pragma once

#include <memory>
#include <string>

#include <sinter/core/comm/communicator.h>
#include <sinter/nn/data/data_loader.h>
#include <sinter/nn/models/resnet.h>
#include <sinter/nn/optim/optimizer.h>

#include "options.h"
#include "run/damaged_images.h"

namespace train_resnet {

/// What the names of the classifier begin with.
constexpr const char* kHead = "fc.";

constexpr int64_t kTestBatch = 250;

struct Data {
  std::shared_ptr<const sinter::nn::data::Dataset> train, test;
  std::shared_ptr<const sinter::nn::data::Dataset> validation;  // to choose by; null: `test`
  std::string name, kind;
  std::shared_ptr<sinter::examples::DamagedImages> damaged = {};

  /// What epochs are judged by.
  const std::shared_ptr<const sinter::nn::data::Dataset>& judge() const {
    return validation != nullptr ? validation : test;
  }
};

/// Opens --data; images of one size are decoded and kept. Throws Error that names the option to change.
Data open_data(const Options& options);

/// Mean and deviation of each channel over (at most 5,000) images, scaled to [0, 1].
sinter::nn::data::Normalization measure_normalization(const sinter::nn::data::Dataset& dataset);

/// What is done to training images one by one in an epoch, counted from 0.
sinter::nn::data::Transforms train_transforms(const Options& options, const sinter::nn::data::Dataset& train,
                                              int64_t epoch);
sinter::nn::data::DataLoaderOptions train_loader_options(const Options& options, sinter::Device device,
                                                         const sinter::nn::data::Dataset& train,
                                                         const sinter::nn::data::Normalization& normalization,
                                                         const sinter::Communicator& ranks);
/// What this rank tests on: its part of the images, or all if there are fewer images than ranks.
std::shared_ptr<const sinter::nn::data::Dataset> test_part(
    const std::shared_ptr<const sinter::nn::data::Dataset>& test, const sinter::Communicator& ranks);
/// To how many pixels the shorter side of a test image is resized before its middle is cut out.
int64_t test_resize(const Options& options);
sinter::nn::data::DataLoaderOptions test_loader_options(const Options& options, sinter::Device device,
                                                        const sinter::nn::data::Normalization& normalization);

std::unique_ptr<sinter::nn::Optimizer> make_optimizer(const Options& options,
                                                      const sinter::nn::ResNet& model);

}  // namespace train_resnet
