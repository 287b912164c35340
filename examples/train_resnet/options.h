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
#include "predict/predict_options.h"
#include "recipe/recipe.h"
#include "recipe_options.h"
#include "trainer/trainer_options.h"

namespace train_resnet {

using sinter::examples::Recipe;

/// What the user asked for. Values without a default depend on other options, the data and the device, and
/// are filled in by complete().
struct Options : sinter::examples::TrainerOptions {
  double split = 0;  // share of each class to test with; 0: the folder has test images
  std::string model = "resnet20";
  int64_t image_size = 0;  // 0: the images have one size and keep it

  std::optional<int64_t> epochs;
  std::optional<int64_t> batch;
  int64_t accumulate = 1;         // batches whose gradients make one step
  std::string optimizer = "sgd";  // or adamw, adam, rmsprop, lars, lamb
  std::optional<double> lr;
  std::string schedule = "one-cycle";
  double warmup = 0.2;  // share of the run
  double momentum = 0.9;
  std::optional<bool> nesterov;
  double beta1 = 0.9, beta2 = 0.999;  // of adamw, adam and lamb
  double trust_coefficient = 0.001;   // of lars
  std::optional<double> weight_decay;
  bool decay_norms = false;
  std::optional<double> label_smoothing;
  double ema = 0.0;   // the share of averages of the weights that a step keeps; 0: there are none
  double clip = 0.0;  // largest norm of all gradients; 0: no limit
  std::optional<int64_t> crop_padding;
  std::optional<std::string> crop_mode;  // zero or reflect
  std::optional<bool> flip;
  sinter::examples::AugmentationOptions augmentation;
  sinter::examples::FinetuneOptions finetune;
  double test_crop = 0.875;  // share of the resized side that test images keep
  NetworkOptions network;
  LossOptions loss;
  CourseOptions course;

  std::string decode = "auto";  // auto: on the GPU's engines if it has some; or cpu, gpu
  int64_t profile = 0;          // steps to time op by op; 0: none
  std::string trace;            // a JSON file of these steps
  std::string report_html;      // an HTML file of the job
  double memory_limit = 0;      // GiB between the calls of a job's step; 0: none
  std::string log;              // a CSV file

  sinter::examples::PredictionOptions prediction;

  bool has_momentum() const {
    return optimizer == "sgd" || optimizer == "lars" || optimizer == "rmsprop";
  }  // else it has betas
  /// The files that are written in one go.
  sinter::examples::OutputFiles output_files() const;
  bool leaves_files() const;
};

/// Reads the command line. For --help, --version and mistakes it prints what there is to say and gives the
/// exit code: 0, or 2 for a mistake.
std::optional<int> parse_options(int argc, char** argv, Options& options);

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

/// Makes `options` those of the recipe wherever the command line says nothing. An optimiser that the command
/// line changes gets its own defaults in place of the other's learning rate, momentum and weight decay.
/// Gives the options that it took from the recipe. Throws InvalidArgument for words that the command line
/// would not take.
std::set<std::string> adopt(const Recipe& recipe, Options& options);

/// The options as a table for the start of a run.
std::string describe(const Options& options);

}  // namespace train_resnet
