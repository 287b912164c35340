#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include <sinter/core/base/error.h>
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/event.h>
#include <sinter/core/tensor/transfer.h>
#include <sinter/nn/predict/named_model.h>
#include <sinter/nn/predict/picture_network.h>
#include <sinter/nn/predict/preprocessing.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/concat/concat.h>
#include <sinter/ops/embedding/embedding.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/slice/slice.h>

namespace sinter::nn {

namespace {

/// The number of classes and of input channels, by the layers that all of these models have.
int64_t extent(const Weights& weights, const char* name, int axis) {
  const auto found = weights.tensors.find(name);
  return found == weights.tensors.end() || found->second.rank() <= axis ? 0 : found->second.shape()[axis];
}

/// Grey images have no normalisation that is usual.
data::Normalization assumed_normalization(const UnnamedWeights& unnamed, int64_t channels,
                                          const std::string& path) {
  SINTER_CHECK(
      unnamed.normalization || channels == 3,
      "[predict] {}: the file does not say how its images are normalised; expected mean and deviation "
      "of grey images in PredictOptions::unnamed",
      path);
  data::Normalization normalization = unnamed.normalization.value_or(data::imagenet_normalization());
  const auto count = static_cast<size_t>(channels);
  SINTER_CHECK(normalization.mean.size() == count && normalization.std.size() == count,
               "[predict] {}: expected {} means and deviations of the images' channels but got {} and {}",
               path, count, normalization.mean.size(), normalization.std.size());
  return normalization;
}

ModelMetadata describe(const Weights& weights, const UnnamedWeights& unnamed, const std::string& path) {
  SINTER_CHECK(
      !unnamed.model.empty(),
      "[predict] {}: the file does not say what its weights are of; expected the name of their model "
      "in PredictOptions::unnamed, and those of the classes and the size of inputs if they are not "
      "numbers and {}",
      path, unnamed.image_size);
  const int64_t classes = extent(weights, "fc.bias", 0),
                channels = std::max(extent(weights, "conv1.weight", 1), extent(weights, "conv1.0.weight", 1));
  SINTER_CHECK(
      classes > 0 && (channels == 1 || channels == 3),
      "[predict] {}: expected weights of a {} for grey or RGB images, with conv1.weight and fc.bias, "
      "but there are none",
      path, unnamed.model);
  SINTER_CHECK(unnamed.class_names.empty() || static_cast<int64_t>(unnamed.class_names.size()) == classes,
               "[predict] {}: these are weights with {} classes but got {} names", path, classes,
               unnamed.class_names.size());
  SINTER_CHECK(unnamed.image_size > 0, "[predict] expected inputs of at least 1 pixel but got {}",
               unnamed.image_size);
  SINTER_CHECK(
      unnamed.resize_size == 0 || unnamed.resize_size >= unnamed.image_size,
      "[predict] expected pictures that are resized to at least the {} pixels of an input but got {}",
      unnamed.image_size, unnamed.resize_size);
  ModelMetadata metadata;
  metadata.task = "image-classification";
  metadata.model = unnamed.model;
  metadata.options = {{"classes", fmt::format("{}", classes)}, {"in_channels", fmt::format("{}", channels)}};
  if (extent(weights, "conv1.weight", 2) == 3 && weights.tensors.contains("layer4.0.conv1.weight"))
    metadata.options["small_stem"] = "true";
  metadata.classes = unnamed.class_names;
  for (int64_t i = 0; i < classes && unnamed.class_names.empty(); ++i)
    metadata.classes.push_back(fmt::format("{}", i));
  metadata.height = metadata.width = unnamed.image_size;
  metadata.channels = channels;
  metadata.resize = "shorter_side";
  metadata.resize_size = unnamed.resize_size > 0 ? unnamed.resize_size : unnamed.image_size * 256 / 224;
  metadata.interpolation = unnamed.interpolation;
  const data::Normalization normalization = assumed_normalization(unnamed, channels, path);
  metadata.mean = normalization.mean;
  metadata.std = normalization.std;
  return metadata;
}

const PredictOptions& checked(const PredictOptions& options) {
  SINTER_CHECK(options.batch_size > 0, "[predict] expected a batch size > 0 but got {}", options.batch_size);
  SINTER_CHECK(options.crops == 1 || options.crops == 5, "[predict] expected 1 or 5 crops but got {}",
               options.crops);
  SINTER_CHECK(options.concurrency > 0, "[predict] expected a concurrency > 0 but got {}",
               options.concurrency);
  SINTER_CHECK(!options.precision || is_half(*options.precision),
               "[predict] expected a precision of float16 or bfloat16 but got {}", *options.precision);
  backend_of(options.device);  // throws if it is not there
  return options;
}

/// Left to right.
Tensor mirrored(const Tensor& images, Layout layout) {
  const bool is_last = layout == Layout::kNHWC;
  const int64_t width = images.size(is_last ? 2 : 3);
  const Tensor order = Tensor::arange(static_cast<double>(width - 1), -1.0, -1.0,
                                      {.dtype = DType::kInt64, .device = images.device()});
  if (is_last) {
    const Tensor columns = ops::permute(images, {2, 0, 1, 3});
    return ops::permute(ops::index_select(columns, 0, order), {1, 2, 0, 3});
  }
  const Tensor columns = ops::permute(images, {3, 0, 1, 2});
  return ops::permute(ops::index_select(columns, 0, order), {1, 2, 3, 0});
}

/// The least power of two that is at least `rows`, but no more than a batch: programs are made for few sizes.
int64_t padded_rows(int64_t rows, int64_t batch) {
  int64_t size = 1;
  while (size < rows) size *= 2;
  return std::min(size, batch);
}

int log2_above(int64_t batch) {
  int count = 1;
  for (int64_t size = 1; size < batch; size *= 2) ++count;
  return count;
}

/// Results on their way to the host, behind which the device goes on.
class HostCopy {
 public:
  explicit HostCopy(const std::vector<Tensor>& results) {
    for (const Tensor& result : results) {
      const Device device = result.device();
      if (device.is_cpu()) {
        host_.push_back(result);
        continue;
      }
      const Stream stream = current_stream(device);
      host_.push_back(Tensor::empty_pinned(result.shape(), result.dtype(), device));
      copy_async(host_.back(), result, stream);
      copied_ = Event(stream);
    }
  }
  const std::vector<Tensor>& wait() const {
    copied_.synchronize();
    return host_;
  }

 private:
  std::vector<Tensor> host_;
  Event copied_;
};

}  // namespace

/// An idle job, or a new one where there may be more of them, or the first that another call gives back.
class PictureNetwork::JobLease {
 public:
  explicit JobLease(const PictureNetwork& network) : network_(network) {
    std::unique_lock lock(network.mutex_);
    network.returned_.wait(
        lock, [&] { return !network.idle_.empty() || network.made_ < network.options_.concurrency; });
    if (!network.idle_.empty()) {
      job_ = std::move(network.idle_.back());
      network.idle_.pop_back();
      return;
    }
    const auto function = [&network](std::span<const Tensor> inputs) {
      return network.outputs_of(inputs[0]);
    };
    job_ = std::make_unique<InferJob>(*network.model_, function,
                                      InferJobOptions{.precision = network.options_.precision,
                                                      .max_graphs = log2_above(network.options_.batch_size)});
    ++network.made_;
  }
  ~JobLease() {
    {
      const std::lock_guard lock(network_.mutex_);
      network_.idle_.push_back(std::move(job_));
    }
    network_.returned_.notify_one();
  }
  JobLease(const JobLease&) = delete;
  JobLease& operator=(const JobLease&) = delete;

  InferJob& job() { return *job_; }

 private:
  const PictureNetwork& network_;
  std::unique_ptr<InferJob> job_;
};

PictureNetwork::PictureNetwork(const Weights& weights, const std::string& source,
                               const PredictOptions& options, Function function)
    : options_(checked(options)),
      layout_(options.layout.value_or(options.device.is_cuda() ? Layout::kNHWC : Layout::kNCHW)),
      function_(std::move(function)) {
  const std::optional<ModelMetadata> own = find_model_metadata(weights.metadata, source);
  metadata_ = own ? *own : describe(weights, options.unnamed, source);
  SINTER_CHECK(metadata_.channels == 1 || metadata_.channels == 3,
               "[predict] {}: expected a model of images with 1 or 3 channels but got {}", source,
               metadata_.channels);
  normalization_of(metadata_);  // throws if there is none
  options.crops > 1 ? crop_transforms(metadata_) : test_transforms(metadata_);
  model_.emplace(make_model(metadata_, layout_));
  model_->load_state(weights.tensors);
  model_->eval();
  model_->set_requires_grad(false);
  model_->to(options.device);
}

std::vector<Tensor> PictureNetwork::outputs_of(const Tensor& images) const {
  const int axis = layout_ == Layout::kNHWC ? 1 : 2;
  std::vector<Tensor> views;
  if (options_.crops == 1) {
    views.push_back(images);
  } else {
    const int64_t down = images.size(axis) - metadata_.height,
                  right = images.size(axis + 1) - metadata_.width;
    for (const auto& [top, left] : {std::pair{down / 2, right / 2},
                                    {int64_t{0}, int64_t{0}},
                                    {int64_t{0}, right},
                                    {down, int64_t{0}},
                                    {down, right}}) {
      const Tensor rows = ops::slice(images, axis, top, top + metadata_.height);
      views.push_back(ops::slice(rows, axis + 1, left, left + metadata_.width));
    }
  }
  if (options_.flip) {
    for (size_t i = 0, count = views.size(); i < count; ++i) views.push_back(mirrored(views[i], layout_));
  }
  Tensor sum = function_.view(*model_, views[0]);
  for (size_t i = 1; i < views.size(); ++i) sum = sum + function_.view(*model_, views[i]);
  if (views.size() > 1) sum = sum * (1.0 / static_cast<double>(views.size()));
  return function_.finish(sum);
}

data::DataLoaderOptions PictureNetwork::loader_options(int64_t pictures) const {
  const bool ahead = pictures > 1;
  return {.batch_size = std::min(options_.batch_size, pictures),
          .workers = ahead ? options_.workers : 0,
          .device = options_.device,
          .dtype = options_.precision.value_or(DType::kFloat32),
          .layout = layout_,
          .normalization = normalization_of(metadata_),
          .transforms = options_.crops > 1 ? crop_transforms(metadata_) : test_transforms(metadata_),
          .decode = ahead ? options_.decode : data::DecodeOn::kCpu,
          .read_timeout = ahead && options_.workers > 0 ? options_.read_timeout : 0};
}

std::vector<Tensor> PictureNetwork::run_batch(const Tensor& images) const {
  const int64_t rows = images.size(0), padded = padded_rows(rows, options_.batch_size);
  Tensor whole = images;
  if (padded > rows) {
    const auto own = images.shape().extents();
    std::vector<int64_t> extents(own.begin(), own.end());
    extents[0] = padded - rows;
    whole = ops::concat({images, ops::zeros(Shape(extents), images.dtype(), images.device())}, 0);
  }
  JobLease lease(*this);
  std::vector<Tensor> outputs = lease.job().run({&whole, 1});
  for (Tensor& output : outputs) output = ops::slice(output, 0, 0, rows);
  return outputs;
}

void PictureNetwork::run(std::vector<Picture> pictures, const Take& take) const {
  if (pictures.empty()) return;
  const NoGrad no_grad;
  const auto count = static_cast<int64_t>(pictures.size());
  const auto set = std::make_shared<const PictureSet>(std::move(pictures), metadata_);
  data::DataLoader loader(set, loader_options(count));
  int64_t first = 0;
  std::optional<HostCopy> before;
  const auto give = [&] {
    if (!before) return true;
    const std::vector<Tensor>& outputs = before->wait();
    const int64_t rows = outputs[0].size(0);
    const bool goes_on = take(first, outputs, set->take_errors(first, first + rows));
    first += rows;
    return goes_on;
  };
  while (const std::optional<data::Batch> batch = loader.next()) {
    HostCopy copy(run_batch(batch->images));
    if (!give()) return;
    before = std::move(copy);
  }
  give();
}

std::vector<Tensor> PictureNetwork::run(const Tensor& inputs) const {
  SINTER_CHECK(
      inputs.defined() && inputs.rank() == 4 && is_float(inputs.dtype()) &&
          inputs.size(1) == metadata_.channels && inputs.size(2) == metadata_.height &&
          inputs.size(3) == metadata_.width && inputs.size(0) > 0,
      "[predict] expected normalised images (N, {}, {}, {}) of a floating-point dtype, or pixels uint8 "
      "(N, H, W, C), but got {}",
      metadata_.channels, metadata_.height, metadata_.width,
      inputs.defined() ? fmt::format("{} {}", inputs.dtype(), inputs.shape()) : "none");
  SINTER_CHECK(options_.crops == 1, "[predict] expected pictures to crop but got inputs of the network");
  const NoGrad no_grad;
  Tensor images = ops::cast(inputs.to(options_.device), options_.precision.value_or(DType::kFloat32));
  if (layout_ == Layout::kNHWC) images = ops::permute(images, {0, 2, 3, 1});
  std::vector<std::vector<Tensor>> parts;  // by output
  for (int64_t begin = 0; begin < images.size(0); begin += options_.batch_size) {
    const int64_t end = std::min(begin + options_.batch_size, images.size(0));
    const std::vector<Tensor> outputs = run_batch(ops::slice(images, 0, begin, end));
    parts.resize(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) parts[i].push_back(outputs[i].to(Device::cpu()));
  }
  std::vector<Tensor> whole;
  for (const std::vector<Tensor>& part : parts) whole.push_back(ops::concat(part, 0));
  return whole;
}

}  // namespace sinter::nn
