// The options of train_resnet.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sinter/core/base/device.h>
#include <sinter/core/op/attributes.h>
#include <sinter/nn/data/dataset.h>

#include "augmentation/augmentation.h"
#include "run/export_model.h"

namespace train_resnet {

/// What the user asked for. Values without a default depend on other options, the data and the device, and
/// are filled in by complete().
struct Options {
  std::string data;  // folder; empty: the digits that ship with Sinter
  double split = 0;  // share of each class to test with; 0: the folder has test images
  std::string model = "resnet20";
  std::optional<sinter::Layout> layout;
  std::optional<std::string> precision;  // f32, tf32, mixed-f16 or mixed-bf16
  int64_t image_size = 0;                // 0: the images have one size and keep it

  std::optional<int64_t> epochs;
  std::optional<int64_t> batch;
  int64_t accumulate = 1;         // batches whose gradients make one step
  std::string optimizer = "sgd";  // or adamw, lars, lamb
  std::optional<double> lr;
  std::string schedule = "one-cycle";
  double warmup = 0.2;  // share of the run
  double momentum = 0.9;
  std::optional<bool> nesterov;
  double beta1 = 0.9, beta2 = 0.999;  // of adamw and lamb
  double trust_coefficient = 0.001;   // of lars
  std::optional<double> weight_decay;
  bool decay_norms = false;
  bool sync_batch_norm = false;  // norms take the statistics of all processes together
  std::optional<double> label_smoothing;
  double ema = 0.0;   // the share of averages of the weights that a step keeps; 0: there are none
  double clip = 0.0;  // largest norm of all gradients; 0: no limit
  std::optional<int64_t> crop_padding;
  std::optional<std::string> crop_mode;  // zero or reflect
  std::optional<bool> flip;
  sinter::examples::AugmentationOptions augmentation;

  std::string device = "auto";  // auto: a GPU if there is one
  uint64_t seed = 0;
  int processes = 1;          // that this program starts itself on this machine
  int gpus = 0;               // the same, each on a GPU of its own
  double rank_timeout = 600;  // seconds that an operation may wait for other processes
  int threads = 0;            // 0: all processors
  std::optional<int> workers;
  std::string decode = "auto";  // auto: on the GPU's engines if it has some; or cpu, gpu
  double read_timeout = 0;      // seconds for one image; 0: no limit
  int64_t max_damaged = 0;      // images, of training and of testing each
  int64_t max_steps = 0;        // stop after so many steps of the run; 0: train to the end
  int64_t profile = 0;          // steps to time op by op; 0: none
  std::string trace;            // a JSON file of these steps
  // A step is one job, made of the model's code once; else that code runs at every step.
  bool job = true;
  double memory_limit = 0;  // GiB between the calls of a job's step; 0: none

  std::string checkpoints;       // folder; empty: none are saved
  int64_t checkpoint_every = 0;  // steps; 0: at the end of each epoch
  bool resume = false;
  bool change_recipe = false;
  std::string recipe, write_recipe;  // JSON files
  bool evaluate = false;
  std::string load_weights, save_weights;    // files of weights
  sinter::examples::ExportOptions exported;  // an ONNX file
  std::string report;                        // a JSON file
  std::string log;                           // a CSV file
  std::string log_dir;                       // folder; empty: that of checkpoints, if there is one
  int64_t log_every = 0;                     // steps; 0: twenty times an epoch, but at least every 50

  std::string run;                 // which run checkpoints and log are of: see new_run()
  std::set<std::string> given;     // the options that stood on the command line, as "--lr"
  std::vector<std::string> words;  // the command line behind the program's name

  bool has_momentum() const { return optimizer == "sgd" || optimizer == "lars"; }  // else it has betas
  bool is_given(const char* option) const { return given.contains(option); }
  bool leaves_files() const {
    return !(checkpoints + save_weights + exported.path + report + log + log_dir + trace + write_recipe)
                .empty();
  }
  /// Where the run tells of itself; empty: nowhere.
  const std::string& log_folder() const { return log_dir.empty() ? checkpoints : log_dir; }
  /// The option that says so.
  const char* log_option() const { return log_dir.empty() ? "--checkpoints" : "--log-dir"; }
};

/// Reads the command line. For --help, --version and mistakes it prints what there is to say and gives the
/// exit code: 0, or 2 for a mistake.
std::optional<int> parse_options(int argc, char** argv, Options& options);

/// An option that was given but is of another optimiser, in words; empty if there is none.
std::string check_optimizer(const Options& options);

/// Reads words such as "--lr=0.1" into options that are there already. Throws InvalidArgument for a word that
/// the command line would not take.
void apply_words(const std::vector<std::string>& words, Options& options);

/// Fills in what depends on the data and the device: small grey images get other defaults than photographs,
/// and a GPU computes in mixed precision.
void complete(Options& options, const sinter::nn::data::Dataset& train, sinter::Device device);

/// The dtype that the network computes in.
sinter::DType compute_dtype(const Options& options);

/// The options as a table for the start of a run.
std::string describe(const Options& options);

}  // namespace train_resnet
