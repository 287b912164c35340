// The options of train_insightface, and the recipe that checkpoints keep of them.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sinter/core/base/device.h>
#include <sinter/core/op/attributes.h>
#include <sinter/nn/loss/margin.h>

#include "recipe/recipe.h"
#include "run/export_model.h"

namespace train_insightface {

using sinter::examples::Recipe;

/// What the user asked for. Values without a default depend on the device or on others, and are
/// filled in by complete().
struct Options {
  std::string data;       // a folder with train.rec, a .rec file, or a folder of people
  int64_t synthetic = 0;  // so many made-up identities in place of data
  int64_t image_size = 112;

  std::string backbone = "iresnet50";
  int64_t dims = 512;  // of an embedding
  double dropout = 0.0;
  std::string init = "insightface";  // or pytorch
  bool train_features_weight = false;
  std::optional<sinter::Layout> layout;
  std::optional<std::string> precision;  // f32, tf32, mixed-f16 or mixed-bf16

  std::string margin = "arcface";  // or cosface, or m1,m2,m3
  double scale = 64.0;
  std::string margin_gradient = "straight-through";  // or exact
  double interclass_filter = 0.0;
  double sample_rate = 1.0;  // of Partial FC

  int64_t epochs = 20;
  int64_t batch = 128;
  double lr = 0.1;
  std::string schedule = "polynomial";  // or one-cycle, constant
  std::optional<double> warmup;         // share of the run
  double momentum = 0.9;
  bool cycle_momentum = false;
  double weight_decay = 5e-4;
  bool decay_norms = true;
  double clip = 5.0;  // largest norm of gradients; 0: no limit
  std::string clip_of = "backbone";
  bool flip = true;
  uint64_t seed = 0;

  std::vector<std::string> verify;  // .bin files, lists of pairs, folders of people
  int64_t verify_every = 2000;      // steps; 0: at the end of each epoch
  std::string verify_flip = "sum";  // an embedding is the sum with the mirror image's; or off: the image's
  std::string roc;                  // a folder for the sets' curves

  bool sync_batch_norm = false;  // norms take the statistics of all processes together

  std::string device = "auto";
  int processes = 1;          // that this program starts itself on this machine
  int gpus = 0;               // the same, each on a GPU of its own
  double rank_timeout = 600;  // seconds that an operation may wait for other processes
  int threads = 0;
  std::optional<int> workers;
  double read_timeout = 0;
  int64_t max_damaged = 0;  // images of training
  int64_t max_steps = 0;
  bool job = true;

  std::string checkpoints;
  int64_t checkpoint_every = 0;  // steps; 0: at the end of each epoch
  bool resume = false;
  bool change_recipe = false;
  std::string recipe, write_recipe;  // JSON files
  bool evaluate = false;
  std::string embed, output;   // a folder of images, and the file for what they become
  bool embed_groups = false;   // a row per folder
  std::string ijb;             // a folder with loose_crop and meta
  std::string ijb_embeddings;  // of its pictures, made elsewhere
  std::string ijb_lengths = "keep", ijb_score = "use";
  std::string load_weights, save_weights;
  sinter::examples::ExportOptions exported;  // an ONNX file
  std::string report;
  std::string log_dir;
  int64_t log_every = 0;  // steps; 0: twenty times an epoch, but at least every 50

  std::string run;                 // which run checkpoints and log are of: see new_run()
  std::set<std::string> given;     // the options that stood on the command line, as "--lr"
  std::vector<std::string> words;  // the command line behind the program's name

  bool is_given(const char* option) const { return given.contains(option); }
  bool trains() const { return !evaluate && embed.empty() && ijb.empty(); }
  /// What is all that is done, in place of training.
  const char* only() const { return evaluate ? "--evaluate" : embed.empty() ? "--ijb" : "--embed"; }
  bool leaves_files() const {
    return !(checkpoints + save_weights + exported.path + report + log_dir + roc + output + write_recipe)
                .empty();
  }
  const std::string& log_folder() const { return log_dir.empty() ? checkpoints : log_dir; }
  const std::string& roc_folder() const { return roc.empty() && trains() ? log_folder() : roc; }
  const char* log_option() const { return log_dir.empty() ? "--checkpoints" : "--log-dir"; }
};

/// Reads the command line. For --help, --version and mistakes it prints what there is to say and gives the
/// exit code: 0, or 2 for a mistake.
std::optional<int> parse_options(int argc, char** argv, Options& options);

/// Fills in what depends on the device, as a GPU computes in mixed precision, and on other options.
void complete(Options& options, sinter::Device device);

/// The dtype that the network computes in.
sinter::DType compute_dtype(const Options& options);

/// The margin that --margin, --scale, --margin-gradient and --interclass-filter ask for; none if --margin is
/// neither a name nor three numbers in range.
std::optional<sinter::nn::CombinedMargin> margin_of(const Options& options);

/// The recipe of complete options.
Recipe recipe_of(const Options& options);

/// Makes `options` those of a recipe wherever the command line says nothing. Throws InvalidArgument for words
/// that the command line would not take.
std::set<std::string> adopt(const Recipe& recipe, Options& options);

/// The options as a table for the start of a run.
std::string describe(const Options& options);

}  // namespace train_insightface
