// The options of train_resnet, and the recipe that checkpoints keep of them.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include <sinter/core/base/device.h>
#include <sinter/nn/checkpoint/checkpoint.h>
#include <sinter/nn/data/dataset.h>

#include "augmentation/augmentation.h"
#include "finetune/finetune.h"
#include "image_options.h"
#include "predict/predict_options.h"
#include "recipe/recipe.h"
#include "recipe_options.h"
#include "trainer/trainer_options.h"

namespace train_resnet {

using sinter::examples::Recipe;

/// What the user asked for. Values without a default depend on other options, the data and the device, and
/// are filled in by complete().
struct Options : sinter::examples::TrainerOptions {
  double split = 0;      // share of each class to test with; 0: the folder has test images
  double val_share = 0;  // share of each class of the training images to choose with
  std::string model = "resnet20";
  int64_t image_size = 0;  // 0: the images have one size and keep it

  std::optional<double> label_smoothing;
  std::optional<int64_t> crop_padding;
  std::optional<std::string> crop_mode;  // zero or reflect
  std::optional<bool> flip;
  sinter::examples::AugmentationOptions augmentation;
  sinter::examples::FinetuneOptions finetune;
  ImageOptions images;
  double test_crop = 0.875;            // share of the resized side that test images keep
  std::string normalization = "auto";  // of weights that do not say it: see normalization.h
  NetworkOptions network;
  LossOptions loss;

  sinter::examples::PredictionOptions prediction;

  /// The files that are written in one go.
  sinter::examples::OutputFiles output_files() const;
  bool leaves_files() const;
  /// Whether --export is of the weights of --load-weights as they are: no data, folder of a run or test is
  /// named.
  bool only_exports() const;
};

/// Reads the command line. For --help, --version and mistakes it prints what there is to say and gives the
/// exit code: 0, or 2 for a mistake.
std::optional<int> parse_options(int argc, char** argv, Options& options);

/// That --normalization is of --load-weights, in words, unless it is; of a run that does not go on with a
/// checkpoint.
std::string check_normalization(const Options& options);

/// An option that was given but is of another optimiser, in words; empty if there is none.
std::string check_optimizer(const Options& options);

/// Fills in what depends on the data and the device: small grey images get other defaults than photographs,
/// and a GPU computes in mixed precision.
void complete(Options& options, const sinter::nn::data::Dataset& train, sinter::Device device);

/// The recipe of complete options; of the options of optimisers, those of the one in use.
Recipe recipe_of(const Options& options);

/// The recipe of a checkpoint. Of checkpoints that were saved before recipes were, it has --model, --epochs
/// and --precision only.
Recipe read_recipe(const sinter::nn::CheckpointData& data);
/// Whether a checkpoint's recipe is a whole one.
bool has_recipe(const sinter::nn::CheckpointData& data);

/// adopt_recipe() of these options.
std::set<std::string> adopt(const Recipe& recipe, Options& options);

/// The options as a table for the start of a run, with so many images of training.
std::string describe(const Options& options, int64_t images);

}  // namespace train_resnet
