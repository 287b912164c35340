// PictureNetwork: a file of weights made ready to run on pictures, whatever is made of its outputs.
// Classifier and FeatureExtractor are two of these.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <sinter/nn/checkpoint/model_metadata.h>
#include <sinter/nn/checkpoint/weights_file.h>
#include <sinter/nn/data/data_loader.h>
#include <sinter/nn/data/normalize.h>
#include <sinter/nn/job/infer_job.h>
#include <sinter/nn/predict/picture.h>

namespace sinter::nn {

/// What weights are of that say nothing of themselves, as those that PyTorch wrote (.pth).
struct UnnamedWeights {
  std::string model = {};                     ///< "resnet50"
  std::vector<std::string> class_names = {};  ///< empty: their numbers
  /// Of an input: the middle of a picture whose shorter side is resized to `resize_size`.
  int64_t image_size = 224;
  /// A value for each channel; none: ImageNet's, of RGB images alone.
  std::optional<data::Normalization> normalization = {};
  int64_t resize_size = 0;                 ///< 0: 256/224 of image_size
  std::string interpolation = "bilinear";  ///< how a picture is resized; or "bicubic"
};

struct PredictOptions {
  Device device = {};
  std::optional<DType> precision = {};  ///< compute in float16 or bfloat16; none: in float32
  std::optional<Layout> layout = {};    ///< inside the network; none: NHWC on a GPU, else NCHW
  int64_t batch_size = 64;              ///< pictures that go through the network together
  /// Average over each picture and its mirror image.
  bool flip = false;
  /// 1, or 5: average over the middle and the four corners of the picture's middle of `resize_size` pixels.
  /// Source: A. Krizhevsky et al., "ImageNet classification with deep convolutional neural networks",
  /// NeurIPS 2012, section 4.1.
  int crops = 1;
  int workers = 0;  ///< threads that read and decode pictures of one call, ahead of the network
  data::DecodeOn decode = data::DecodeOn::kAuto;  ///< as in DataLoaderOptions
  double read_timeout = 0;                        ///< as in DataLoaderOptions
  /// Calls that may run beside each other; further ones wait. Each has a program of its own, made when it is
  /// first needed, on the same weights.
  int concurrency = 4;
  UnnamedWeights unnamed = {};
};

class PictureNetwork {
 public:
  /// What is made of one view of each picture, in the network's layout: a tensor (N, ...) in float32.
  using View = std::function<Tensor(const AnyModule& model, const Tensor& images)>;
  /// What is made of its mean over the views: tensors (N, ...).
  using Finish = std::function<std::vector<Tensor>(const Tensor& mean)>;
  struct Function {
    View view;
    Finish finish;
  };
  /// The outputs of pictures `first` and following, on the CPU, and what was wrong with each (empty: nothing;
  /// else its rows mean nothing). False: it is enough.
  using Take = std::function<bool(int64_t first, const std::vector<Tensor>& outputs,
                                  const std::vector<std::string>& errors)>;

  /// Reads a safetensors file or one of PyTorch's with metadata, or other weights that options.unnamed tells
  /// of. Throws InvalidArgument for options out of range, and where it is not known what the weights are of,
  /// or how their images are normalised; IoError for a file that cannot be read.
  PictureNetwork(const std::filesystem::path& weights, const PredictOptions& options, Function function)
      : PictureNetwork(read_weights(weights), weights.string(), options, std::move(function)) {}
  /// The same of weights that were read; `source` is what messages call them.
  PictureNetwork(const Weights& weights, const std::string& source, const PredictOptions& options,
                 Function function);
  PictureNetwork(const PictureNetwork&) = delete;
  PictureNetwork& operator=(const PictureNetwork&) = delete;

  /// Any number of pictures, in order. While the network runs on a batch the next is read, and results of the
  /// one before are taken. Safe to call from several threads at once.
  void run(std::vector<Picture> pictures, const Take& take) const;
  /// The outputs, on the CPU, of inputs (N, C, H, W): normalised, floating-point, of the model's size. Safe
  /// to call from several threads at once.
  std::vector<Tensor> run(const Tensor& inputs) const;

  const ModelMetadata& metadata() const { return metadata_; }
  const AnyModule& model() const { return *model_; }
  Layout layout() const { return layout_; }

 private:
  class JobLease;

  data::DataLoaderOptions loader_options(int64_t pictures) const;
  /// At most a batch of images, in the network's layout; results on the device.
  std::vector<Tensor> run_batch(const Tensor& images) const;
  /// `function_`, averaged over the views of each picture that options_ ask for.
  std::vector<Tensor> outputs_of(const Tensor& images) const;

  const PredictOptions options_;
  const Layout layout_;
  ModelMetadata metadata_;
  std::optional<AnyModule> model_;  // modules are not assigned
  Function function_;
  mutable std::mutex mutex_;  // guards what follows
  mutable std::condition_variable returned_;
  mutable std::vector<std::unique_ptr<InferJob>> idle_;
  mutable int made_ = 0;
};

}  // namespace sinter::nn
