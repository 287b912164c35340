// The options of train_insightface, and the recipe that checkpoints keep of them.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sinter/core/base/device.h>
#include <sinter/nn/loss/margin.h>

#include "augmentation/augmentation.h"
#include "recipe/recipe.h"
#include "trainer/trainer_options.h"

namespace train_insightface {

using sinter::examples::Recipe;

/// What the user asked for. Values without a default depend on the device or on others, and are
/// filled in by complete(). The data are a folder with train.rec or tar shards, a .rec file, or a folder of
/// people.
struct Options : sinter::examples::TrainerOptions {
  /// What InsightFace has otherwise than other trainers.
  Options();

  int64_t synthetic = 0;  // so many made-up identities in place of data
  int64_t image_size = 112;

  std::string backbone = "iresnet50";
  int64_t dims = 512;  // of an embedding
  int64_t width = 64;  // channels of an iResNet's first stage
  double dropout = 0.0;
  std::string init = "insightface";  // or pytorch
  bool train_features_weight = false;

  std::string margin = "arcface";  // or as parse_margin() takes it
  double scale = 64.0;
  std::string margin_gradient = "straight-through";  // or exact
  double interclass_filter = 0.0;
  double sample_rate = 1.0;              // of Partial FC
  int64_t sub_centres = 1;               // of each identity
  std::string head_precision = "model";  // or f32

  std::string clip_of = "backbone";
  bool flip = true;
  std::string augment = "none";  // or insightface, adaface
  sinter::examples::AugmentationOptions augmentation;

  std::string keep_images;  // a list that --clean wrote
  std::string clean;        // the file for such a list

  std::vector<std::string> verify;  // .bin files, lists of pairs, folders of people
  int64_t verify_every = 2000;      // steps; 0: at the end of each epoch
  std::string verify_flip = "sum";  // an embedding is the sum with the mirror image's; or off: the image's
  std::string roc;                  // a folder for the sets' curves

  std::string embed, output;   // a folder of images, and the file for what they become
  bool embed_groups = false;   // a row per folder
  std::string ijb;             // a folder with loose_crop and meta
  std::string ijb_embeddings;  // of its pictures, made elsewhere
  std::string ijb_lengths = "keep", ijb_score = "use";

  bool trains() const { return !evaluate && embed.empty() && ijb.empty() && clean.empty(); }
  /// What is all that is done, in place of training.
  const char* only() const {
    if (evaluate) return "--evaluate";
    return !embed.empty() ? "--embed" : !ijb.empty() ? "--ijb" : "--clean";
  }
  bool leaves_files() const {
    return !(checkpoints + save_weights + exported.path + report + log_dir + roc + output + clean +
             write_recipe + log + trace + report_html)
                .empty();
  }
  const std::string& roc_folder() const { return roc.empty() && trains() ? log_folder() : roc; }
};

/// Reads the command line. For --help, --version and mistakes it prints what there is to say and gives the
/// exit code: 0, or 2 for a mistake.
std::optional<int> parse_options(int argc, char** argv, Options& options);

/// Fills in what depends on the device, as a GPU computes in mixed precision, and on other options.
void complete(Options& options, sinter::Device device);

/// The margin that --margin, --scale, --margin-gradient and --interclass-filter ask for; none if --margin is
/// not what parse_margin() takes.
std::optional<sinter::nn::Margin> margin_of(const Options& options);

/// An option that was given but is of another optimiser, in words; empty if there is none.
std::string check_optimizer(const Options& options);

/// The recipe of complete options.
Recipe recipe_of(const Options& options);
/// The recipe of a checkpoint, also of one that was saved when there was one optimiser.
Recipe read_recipe(const sinter::nn::CheckpointData& data);

/// adopt_recipe() of these options.
std::set<std::string> adopt(const Recipe& recipe, Options& options);

/// The options as a table for the start of a run with so many images of training.
std::string describe(const Options& options, int64_t images);

}  // namespace train_insightface
