#include "predict.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include <sinter/core/base/error.h>
#include <sinter/core/runtime/settings.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/core/text/printable.h>
#include <sinter/nn/checkpoint/safetensors.h>
#include <sinter/nn/models/resnet_names.h>
#include <sinter/nn/predict/classifier.h>
#include <sinter/nn/predict/feature_extractor.h>

#include "common/console.h"
#include "common/progress_bar.h"
#include "common/stop.h"
#include "common/text.h"
#include "model.h"
#include "normalization.h"
#include "predict/picture_files.h"
#include "predict/prediction_lines.h"
#include "run/export_model.h"
#include "run/model_files.h"
#include "run/output_files.h"
#include "run/program.h"
#include "setup.h"

namespace train_resnet {

using namespace sinter;
using examples::complain;
using examples::say;
using examples::stop_signal;

namespace {

/// How many pictures have been done, and which could not be read.
class Tally {
 public:
  explicit Tally(size_t pictures) : pictures_(pictures) {
    if (examples::terminal_columns(stderr) > 0) bar_.emplace("predict", static_cast<int64_t>(pictures));
  }

  /// Gives whether the run goes on.
  bool add(const std::string& error) {
    ++done_;
    if (!error.empty() && wrong_++ == 0) first_ = error;
    const auto done = static_cast<int64_t>(done_);
    if (bar_) bar_->update({.step = done, .items = done, .training = false});
    return stop_signal() == 0;
  }

  bool complete() const { return done_ == pictures_; }
  int64_t wrong() const { return wrong_; }

  /// Says how it went, `written` being what is there of it. Gives the exit code.
  int finish(const Options& options, const std::string& written) {
    if (bar_) bar_->finish();
    bar_.reset();
    if (!complete()) {
      complain("stopped after {} of {}; {}", done_, examples::counted(pictures_, "picture"),
               options.prediction.output.empty() ? "the lines so far are whole" : "nothing is written");
      return 128 + stop_signal();
    }
    say("{}, {} of which could not be read{}\n", examples::counted(pictures_, "picture"), wrong_, written);
    if (wrong_ == 0) return 0;
    complain("{}: {} of {} could not be read; the first: {}",
             wrong_ > options.max_damaged ? "error" : "warning", wrong_,
             examples::counted(pictures_, "picture"), first_);
    return wrong_ > options.max_damaged ? 1 : 0;
  }

 private:
  size_t pictures_, done_ = 0;
  int64_t wrong_ = 0;
  std::string first_;
  std::optional<examples::ProgressBar> bar_;
};

/// Throws Error that names the option if the command line says other than the weights do.
void check_against(const Options& options, const std::string& source, const nn::ModelMetadata& metadata) {
  if (options.is_given("--model") && options.model != metadata.model) {
    throw Error(
        fmt::format("{}: these are weights of a {}, --model says {}", source, metadata.model, options.model));
  }
  if (options.is_given("--image-size") && options.image_size != metadata.height) {
    throw Error(fmt::format("{}: these are weights for images of {}, --image-size says {}", source,
                            examples::counted(metadata.height, "pixel"), options.image_size));
  }
  Options own = options;
  own.image_size = std::min<int64_t>(metadata.height, 1 << 20);  // a damaged file's overflows nothing
  const bool is_cropped = metadata.resize == "shorter_side" && metadata.resize_size == test_resize(own);
  if (options.is_given("--test-crop") && !is_cropped)
    throw Error(fmt::format("{} says how its pictures are cropped; leave --test-crop out", source));
  if (options.is_given("--interpolation") && options.images.interpolation != metadata.interpolation) {
    throw Error(fmt::format("{}: these are weights for {} resizing, --interpolation says {}", source,
                            escape_name(metadata.interpolation), options.images.interpolation));
  }
  if (!options.prediction.class_names.empty())
    throw Error(fmt::format("{} says how its classes are called; leave --class-names out", source));
  check_no_choice(options.normalization, source);
}

/// What weights without metadata are of, by the command line and their shapes.
nn::UnnamedWeights unnamed_by(const Options& options, const std::string& source, const nn::State& state) {
  const std::string found = nn::recognise_resnet(state);
  if (found.empty() && !options.is_given("--model"))
    throw Error(fmt::format("{} does not say what it is of, and is none of the models of --model", source));
  nn::UnnamedWeights unnamed;
  unnamed.model = options.is_given("--model") ? options.model : found;
  if (!found.empty() && unnamed.model != found)
    throw Error(fmt::format("{}: these are weights of a {}, --model says {}", source, found, unnamed.model));
  if (!options.is_given("--image-size") || options.image_size == 0) {
    throw Error(
        fmt::format("{} does not say what it is of: --image-size <pixels of an input>, 224 mostly, and "
                    "--class-names <file> do",
                    source));
  }
  unnamed.image_size = options.image_size;
  unnamed.resize_size = test_resize(options);
  unnamed.interpolation = options.images.interpolation;
  if (!options.prediction.class_names.empty())
    unnamed.class_names = examples::read_lines("--class-names", options.prediction.class_names);
  for (std::string& name : unnamed.class_names) name = nn::to_utf8(name);
  const int64_t channels = image_channels(state);
  unnamed.normalization = assumed_normalization(options.normalization, source, channels);
  if (!unnamed.normalization && channels == 1) {
    throw Error(
        fmt::format("{} does not say how its images are normalised, which are grey: --normalization "
                    "<mean>/<deviation> of pixels from 0 to 1 does",
                    source));
  }
  tell_assumed(options.normalization, source, channels);
  return unnamed;
}

nn::PredictOptions predict_options(const Options& options, Device device) {
  nn::PredictOptions predict;
  predict.device = device;
  if (options.is_half()) predict.precision = compute_dtype(options);
  predict.layout = options.layout;
  predict.batch_size = options.batch.value_or(device.is_cuda() ? 256 : 64);
  predict.flip = options.prediction.flip;
  predict.crops = options.prediction.crops;
  predict.workers = *options.workers;
  predict.decode = options.decode == "cpu"   ? nn::data::DecodeOn::kCpu
                   : options.decode == "gpu" ? nn::data::DecodeOn::kGpu
                                             : nn::data::DecodeOn::kAuto;
  predict.read_timeout = options.read_timeout;
  return predict;
}

int write_classes(const Options& options, const std::vector<std::string>& paths, const nn::Weights& weights,
                  const nn::PredictOptions& how) {
  const auto& output = options.prediction.output;
  nn::ClassifierOptions classify{how};
  classify.top_k = options.prediction.top_k;
  const nn::Classifier classifier(weights, options.load_weights, classify);
  const int64_t top_k = std::min(options.prediction.top_k, static_cast<int64_t>(classifier.classes().size()));
  const bool as_json = output.ends_with(".jsonl");
  examples::catch_stop_signals();
  examples::LineOutput lines(output);
  if (!as_json) lines.write(examples::csv_header(top_k));
  Tally tally(paths.size());
  classifier.for_each({paths.begin(), paths.end()}, [&](int64_t index, const nn::Prediction& prediction) {
    const std::string& path = paths[static_cast<size_t>(index)];
    lines.write(as_json ? examples::json_line(path, prediction)
                        : examples::csv_line(path, prediction, top_k));
    return tally.add(prediction.error);
  });
  if (tally.complete()) lines.finish();
  return tally.finish(options, "; predictions in " + output);
}

int write_features(const Options& options, const std::vector<std::string>& paths, const nn::Weights& weights,
                   const nn::PredictOptions& how) {
  const nn::FeatureExtractor extractor(weights, options.load_weights, options.prediction.features, how);
  examples::catch_stop_signals();
  std::vector<float> values;
  std::string read, errors;  // a path, and what is wrong with it, a line
  Tally tally(paths.size());
  extractor.for_each({paths.begin(), paths.end()},
                     [&](int64_t index, std::span<const float> row, const std::string& error) {
                       const std::string path = escape_name(paths[static_cast<size_t>(index)]) + '\n';
                       if (error.empty()) {
                         values.insert(values.end(), row.begin(), row.end());
                         read += path;
                       } else {
                         errors += escape_name(error) + '\n';
                       }
                       return tally.add(error);
                     });
  if (tally.complete()) {
    const int64_t rows = static_cast<int64_t>(paths.size()) - tally.wrong();
    nn::write_safetensors(options.prediction.output,
                          {{"features", Tensor::from_values(values, {rows, extractor.dimensions()})}},
                          {{"paths", read}, {"errors", errors}, {"layer", extractor.layer()}});
  }
  return tally.finish(options,
                      fmt::format("; {} of each in {}", examples::counted(extractor.dimensions(), "feature"),
                                  options.prediction.output));
}

}  // namespace

namespace {

/// Sets up what the weights will run with, and reads them. Throws Error if options contradict them.
nn::Weights read_given(Options& options, nn::PredictOptions& how) {
  tell_passed_over(options);
  if (options.threads > 0) set_num_threads(options.threads);
  const Device device = examples::choose_device(options.device);
  complete_common(options, device);
  settings::set_allow_tf32(*options.precision == "tf32");
  examples::WeightsFile file = examples::read_weights(options.load_weights, options.key);
  find_model(file);
  how = predict_options(options, device);
  nn::Weights weights;
  if (file.metadata) {
    check_against(options, file.source, *file.metadata);
    weights.metadata = nn::to_safetensors_metadata(*file.metadata);
  } else {
    how.unnamed = unnamed_by(options, file.source, file.state);
  }
  weights.tensors = std::move(file.state);
  return weights;
}

}  // namespace

int predict(Options& options) {
  const examples::PredictionOptions& prediction = options.prediction;
  if (prediction.output.empty()) examples::be_quiet();  // but for the predictions
  if (!prediction.output.empty()) examples::check_file("--output", prediction.output);
  const std::vector<std::string> paths = examples::find_pictures(prediction.pictures);
  nn::PredictOptions how;
  const nn::Weights weights = read_given(options, how);
  return prediction.features.empty() ? write_classes(options, paths, weights, how)
                                     : write_features(options, paths, weights, how);
}

int export_weights(Options& options) {
  examples::check_file("--export", options.exported.path);
  nn::PredictOptions how;
  const nn::Weights weights = read_given(options, how);
  how.device = {};
  const nn::PictureNetwork network(weights, options.load_weights, how, {});
  examples::export_model(network.model(), network.metadata(), options.exported);
  return 0;
}

}  // namespace train_resnet
