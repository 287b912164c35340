// The faces that are trained on.
#pragma once

#include <memory>
#include <string>

#include <sinter/core/comm/communicator.h>
#include <sinter/nn/data/data_loader.h>

#include "options.h"
#include "run/damaged_images.h"

namespace train_insightface {

struct TrainingData {
  std::shared_ptr<const sinter::nn::data::Dataset> faces;
  std::string name, kind;
  std::shared_ptr<sinter::examples::DamagedImages> damaged = {};
};

/// Opens --data, or makes up --synthetic. Throws Error that names the option to change.
TrainingData open_training_data(const Options& options);

/// Made-up identities, ten images each: each identity is a smooth random picture, each image of it the same
/// under another light and with noise. Nothing is stored; image i is always the same.
std::shared_ptr<const sinter::nn::data::Dataset> synthetic_faces(int64_t identities, int64_t size);

/// How images become batches, with values in [-1, 1]: those of another size are resized to --image-size.
sinter::nn::data::DataLoaderOptions loader_options(const Options& options, sinter::Device device,
                                                   const sinter::nn::data::Dataset& faces);
/// The same with what training adds: another order every epoch, whole batches, images that are changed at
/// random; of several ranks, this one's part of each batch. Throws InvalidArgument for a batch that they
/// cannot share equally.
sinter::nn::data::DataLoaderOptions train_loader_options(const Options& options, sinter::Device device,
                                                         const sinter::nn::data::Dataset& faces,
                                                         const sinter::Communicator& ranks);

}  // namespace train_insightface
