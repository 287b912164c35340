// The options of train_resnet.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <sinter/core/base/device.h>
#include <sinter/core/op/attributes.h>
#include <sinter/nn/data/dataset.h>

namespace train_resnet {

/// What the user asked for. Values without a default depend on the data and are filled in by complete().
struct Options {
  std::string data;  // folder; empty: the digits that ship with Sinter
  std::string model = "resnet20";
  std::optional<sinter::Layout> layout;
  std::optional<std::string> precision;  // f32, tf32, mixed-f16 or mixed-bf16
  int64_t image_size = 0;                // 0: the images have one size and keep it

  std::optional<int64_t> epochs;
  std::optional<int64_t> batch;
  std::optional<double> lr;
  std::string schedule = "one-cycle";
  double warmup = 0.2;  // share of the run
  double momentum = 0.9;
  bool nesterov = true;
  double weight_decay = 5e-4;
  bool decay_norms = false;
  std::optional<double> label_smoothing;
  double clip = 0.0;  // largest norm of all gradients; 0: no limit
  std::optional<int64_t> crop_padding;
  std::optional<std::string> crop_mode;  // zero or reflect
  std::optional<bool> flip;

  std::string device = "auto";  // auto: a GPU if there is one
  uint64_t seed = 0;
  int threads = 0;  // 0: all processors
  int workers = 1;
  int64_t max_steps = 0;  // stop after so many steps of the run; 0: train to the end
  int64_t profile = 0;    // steps to time op by op; 0: none

  std::string checkpoints;       // folder; empty: none are saved
  int64_t checkpoint_every = 0;  // steps; 0: at the end of each epoch
  bool resume = false;
  bool evaluate = false;
  std::string load_weights, save_weights;  // safetensors files
  std::string report;                      // a JSON file
};

/// Reads the command line. For --help and for mistakes it prints what CLI11 has to say and gives the exit
/// code.
std::optional<int> parse_options(int argc, char** argv, Options& options);

/// Fills in what depends on the data and the device: small grey images get other defaults than photographs,
/// and a GPU computes in mixed precision.
void complete(Options& options, const sinter::nn::data::Dataset& train, sinter::Device device);

/// The dtype that the network computes in.
sinter::DType compute_dtype(const Options& options);

/// The options as a table for the start of a run.
std::string describe(const Options& options);

}  // namespace train_resnet
