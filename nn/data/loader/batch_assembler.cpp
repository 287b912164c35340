#include <algorithm>
#include <utility>

#include <sinter/core/base/error.h>
#include <sinter/core/base/log.h>
#include <sinter/core/op/node.h>
#include <sinter/nn/data/image/baseline_jpeg.h>
#include <sinter/nn/data/loader/batch_assembler.h>
#include <sinter/ops/crop_images/crop_images.h>
#include <sinter/ops/fill/fill.h>

namespace sinter::nn::data {
namespace {

// Larger ones are decoded on the host, at a part of their size: a batch of them would fill the device.
constexpr int64_t kMostEnginePixels = 4'000'000;

const Transforms& checked(const Transforms& transforms) {
  for (const auto& transform : transforms) {
    SINTER_CHECK(transform != nullptr, "[data_loader] expected transforms but one is null");
  }
  return transforms;
}

const std::shared_ptr<const Dataset>& checked(const std::shared_ptr<const Dataset>& dataset) {
  SINTER_CHECK(dataset != nullptr, "[data_loader] expected a data set but got none");
  return dataset;
}

// The strongest reduction that leaves at least as many pixels in the window as the output has.
int reduction_for(const Frame& frame) {
  if (!frame.is_upright()) return 1;
  for (const int divisor : {8, 4, 2}) {
    if (frame.box().height >= static_cast<double>(frame.height() * divisor) &&
        frame.box().width >= static_cast<double>(frame.width() * divisor)) {
      return divisor;
    }
  }
  return 1;
}

// Whether an image is what a decoder was told to make of a larger one.
bool is_reduced(const WorkerBuffers::Reduced& stored, int64_t height, int64_t width) {
  return stored.by > 1 && height == (stored.height + stored.by - 1) / stored.by &&
         width == (stored.width + stored.by - 1) / stored.by;
}

// Brings mask and boxes to the size at which the image was decoded, for transforms of the host.
void follow_reduction(const WorkerBuffers::Reduced& stored, Sample& sample) {
  const Image& image = sample.image;
  if (!is_reduced(stored, image.height, image.width)) return;
  Frame frame(stored.height, stored.width);
  frame.set_border(ops::PadMode::kReplicate);
  frame.crop(
      Box{0, 0, static_cast<double>(image.height * stored.by), static_cast<double>(image.width * stored.by)},
      {image.height, image.width});
  if (sample.mask.height > 0) {
    Image mask;
    mask.reshape(image.height, image.width, 1);
    show_mask(frame, sample.mask, mask.pixels.data());
    sample.mask = std::move(mask);
  }
  show_boxes(frame, sample.boxes);
}

// A batch of a collate function on the device, on its current stream.
Batch moved(Batch batch, Device device) {
  const auto move = [device](Tensor& tensor) {
    if (tensor.defined()) tensor = tensor.to(device);
  };
  for (Tensor* const part : {&batch.images, &batch.labels, &batch.masks, &batch.boxes.boxes,
                             &batch.boxes.labels, &batch.boxes.images})
    move(*part);
  for (auto& [name, value] : batch.values) move(value);
  return batch;
}

bool is_for_engines(const BaselineJpeg& jpeg, const DecodeOptions& options) {
  return options.channels == 3 && (!options.apply_orientation || jpeg.orientation == 1) &&
         jpeg.height * jpeg.width <= std::min(kMostEnginePixels, options.max_pixels);
}

}  // namespace

BatchAssembler::BatchAssembler(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options)
    : BatchAssembler(std::move(dataset), options, nullptr) {}

BatchAssembler::BatchAssembler(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options,
                               std::shared_ptr<ImageDecoder> decoder)
    : dataset_(std::move(dataset)),
      options_(options),
      split_(checked(options.transforms), options.collate != nullptr),
      orders_(checked(dataset_)->size(), options.seed, options.shuffle, options.sampler),
      num_classes_(checked(dataset_)->num_classes()),
      sound_(split_.resamples && split_.host.empty() ? static_cast<size_t>((dataset_->size() + 63) / 64) : 0),
      decoder_(decoder != nullptr ? std::move(decoder) : find_decoder()) {
  check_options();
  for (const Augmentation& step : options_.augmentations) {
    if (!step->moves_images().empty()) moving_ = step->moves_images();
  }
}

// Null: the workers decode.
std::shared_ptr<ImageDecoder> BatchAssembler::find_decoder() const {
  if (options_.decode == DecodeOn::kCpu) return nullptr;
  const bool must = options_.decode == DecodeOn::kGpu;
  SINTER_CHECK(!must || options_.device.is_cuda(),
               "[data_loader] expected a GPU to decode on (DecodeOn::kGpu) but the batches are for {}",
               options_.device);
  const bool resamples = split_.resamples && split_.host.empty();
  SINTER_CHECK(
      !must || resamples,
      "[data_loader] expected transforms that all run on the device, one of which resamples, to decode "
      "there (DecodeOn::kGpu)");
  if (!options_.device.is_cuda() || !resamples) return nullptr;
  try {
    return hardware_image_decoder(options_.device);
  } catch (const Unsupported& reason) {
    if (must) throw;
    log::info("[data_loader] the workers decode: {}", reason.what());
    return nullptr;
  }
}

int64_t BatchAssembler::batches_per_epoch() const {
  const int64_t whole = orders_.size() / options_.batch_size;
  return whole + (!options_.drop_last && orders_.size() % options_.batch_size != 0 ? 1 : 0);
}

BatchTask BatchAssembler::make_task(int64_t epoch, int64_t batch) {
  BatchTask task;
  task.epoch = epoch;
  task.first = batch * options_.batch_size;
  task.rows = std::min(options_.batch_size, orders_.size() - task.first);
  if (options_.shards > 1) {
    task.rows /= options_.shards;
    task.first += options_.shard * task.rows;
  }
  task.order = orders_.of(epoch);
  if (options_.collate != nullptr) {
    task.samples.resize(static_cast<size_t>(task.rows));
  } else {
    task.staging = take_staging();
  }
  return task;
}

std::unique_ptr<BatchStaging> BatchAssembler::take_staging() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto staging = std::move(idle_.front());
      idle_.pop_front();
      return staging;
    }
  }
  return make_staging();
}

ops::ImageOutput BatchAssembler::output_for(DType dtype, Layout layout) const {
  return {.dtype = dtype,
          .layout = layout,
          .mean = options_.normalization.mean,
          .std = options_.normalization.std};
}

bool BatchAssembler::augments(BatchAugmentation::Stage stage) const {
  return std::ranges::any_of(options_.augmentations,
                             [stage](const Augmentation& step) { return step->stage() == stage; });
}

std::unique_ptr<BatchStaging> BatchAssembler::make_staging() const {
  const bool as_pixels = augments(BatchAugmentation::Stage::kPixels);
  return std::make_unique<BatchStaging>(
      options_.device, split_,
      as_pixels ? output_for(DType::kUInt8, Layout::kNHWC) : output_for(options_.dtype, options_.layout),
      decoder_);
}

// Every augmentation has streams of its own by its place in the list, and the transforms have others.
Tensor BatchAssembler::augmented(const Tensor& images, const BatchTask& task) const {
  using enum BatchAugmentation::Stage;
  const NoGrad no_grad;
  std::vector<int64_t> streams(static_cast<size_t>(task.rows));
  for (int64_t row = 0; row < task.rows; ++row) streams[static_cast<size_t>(row)] = task.stream(row);
  const BatchRandom draws(options_.seed, task.epoch, std::move(streams));
  Tensor result = images;
  const auto apply = [&](BatchAugmentation::Stage stage, Layout layout) {
    for (size_t i = 0; i < options_.augmentations.size(); ++i) {
      const Augmentation& step = options_.augmentations[i];
      if (step->stage() == stage) result = step->apply(result, layout, draws.at_place(i));
    }
  };
  if (augments(kPixels)) {
    apply(kPixels, Layout::kNHWC);
    ops::ImageOutput output = output_for(options_.dtype, options_.layout);
    output.height = images.shape()[1];
    output.width = images.shape()[2];
    // The op, for Tensor::zeros would wait for the GPU.
    const Tensor windows = ops::zeros({task.rows, 3}, DType::kInt32, images.device());
    result = ops::crop_images(result, windows, output);
  }
  apply(kNormalized, options_.layout);
  return result;
}

Batch BatchAssembler::finish(BatchTask& task) {
  if (options_.collate != nullptr)
    return moved(std::exchange(task.plain, std::nullopt).value(), options_.device);
  if (!task.plain) {
    task.plain = task.staging->finish();
    for (int64_t row = 0; row < task.rows; ++row) task.plain->indices.push_back(task.sample(row));
  }
  Batch batch = *task.plain;
  if (!options_.augmentations.empty() && batch.images.defined()) batch.images = augmented(batch.images, task);
  task.plain.reset();
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(task.staging));
  return batch;
}

void BatchAssembler::fill_rows(BatchTask& task, int64_t begin, int64_t end, WorkerBuffers& buffers,
                               const std::atomic<bool>& stop) {
  Shape known;
  for (int64_t row = begin; row < end && !stop; ++row) {
    if (!leave_to_decoder(task, row, buffers, known)) fill_row(task, row, buffers, known);
  }
}

void BatchAssembler::fill_row(BatchTask& task, int64_t row, WorkerBuffers& buffers, Shape& known) {
  const detail::SampleView sample = read_sample(task, row, buffers);
  if (options_.collate != nullptr) {
    task.samples[static_cast<size_t>(row)] = std::move(buffers.sample);
  } else {
    put_sample(task, row, sample, buffers, known);
  }
}

// `known`: the shape of the caller's last image, for which the batch is prepared; empty before. Mask and
// boxes go with the stored image. One that was decoded at a part of its size is a fraction of a pixel larger
// than that part where the size does not divide: the frame is moved over the stored image, whose edges are
// exact, and then shrunk.
void BatchAssembler::put_sample(BatchTask& task, int64_t row, const detail::SampleView& sample,
                                WorkerBuffers& buffers, Shape& known) {
  const int64_t index = task.sample(row);
  const Sample& rest = sample.rest != nullptr ? *sample.rest : buffers.sample;
  if (!moving_.empty() && (rest.mask.height > 0 || !rest.boxes.empty())) {
    throw_error<InvalidArgument>(
        "[{}] expected samples without masks and boxes, which do not follow where it moves images, but "
        "sample "
        "{} has them; random_rotation and other transforms take them along",
        moving_, index);
  }
  if (sample.height == 0) {
    SINTER_CHECK(split_.device.empty(),
                 "[data_loader] expected an image for the transforms but sample {} has none", index);
    prepare(task, {0, 0, 0}, index, known);
    task.staging->put(row, sample, nullptr);
    task.staging->put_targets(row, index, rest, nullptr);
    return;
  }
  const bool reduced = split_.host.empty() && is_reduced(buffers.reduced, sample.height, sample.width);
  const Frame stored = moved_frame(reduced ? buffers.reduced.height : sample.height,
                                   reduced ? buffers.reduced.width : sample.width, buffers.random);
  Frame frame = stored;
  if (reduced) frame.divide(buffers.reduced.by);
  prepare(task, {frame.height(), frame.width(), sample.channels}, index, known);
  task.staging->put(row, sample, &frame);
  task.staging->put_targets(row, index, rest, split_.device.empty() ? nullptr : &stored);
}

// Stages the file of a sample if the device's decoder takes it. Whatever is wrong with a file is left to
// those who read it on the host, and say so.
bool BatchAssembler::leave_to_decoder(BatchTask& task, int64_t row, WorkerBuffers& buffers, Shape& known) {
  const int64_t index = task.sample(row);
  if (decoder_ == nullptr || is_damaged(index)) return false;
  EncodedSample& sample = buffers.encoded;
  try {
    const ReadClock::Scope reading(buffers.reading, index);
    if (!dataset_->read_encoded(index, sample)) return false;
  } catch (const IoError&) {
    return false;
  }
  const std::optional<BaselineJpeg> jpeg = read_baseline_jpeg(sample.bytes);
  if (!jpeg || !is_for_engines(*jpeg, sample.decode) || !decoder_->takes(sample.bytes)) return false;
  check_label(index, sample.label);
  buffers.random = SampleRandom(options_.seed, task.epoch, static_cast<uint64_t>(task.stream(row)));
  const Frame frame = moved_frame(jpeg->height, jpeg->width, buffers.random);
  prepare(task, {frame.height(), frame.width(), 3}, index, known);
  task.staging->put_encoded(row, sample, jpeg->height, jpeg->width, frame);
  return true;
}

void BatchAssembler::upload(BatchTask& task, WorkerBuffers& buffers) {
  if (options_.collate != nullptr) {
    Batch batch = options_.collate(std::exchange(task.samples, {}));
    const Tensor& labels = batch.labels;
    if (batch.host_labels.empty() && labels.defined() && labels.device().is_cpu() &&
        labels.dtype() == DType::kInt64)
      batch.host_labels = labels.to_vector<int64_t>();
    if (batch.indices.empty()) {
      for (int64_t row = 0; row < task.rows; ++row) batch.indices.push_back(task.sample(row));
    }
    task.plain = std::move(batch);
    return;
  }
  Shape known;
  decoded_by_engines_ += task.staging->upload([&](int64_t row) { fill_row(task, row, buffers, known); });
}

// All of an image, moved by the device's transforms.
Frame BatchAssembler::moved_frame(int64_t height, int64_t width, SampleRandom& random) const {
  Frame frame(height, width);
  for (const auto& transform : split_.device) transform->move(frame, random);
  return frame;
}

// What a decoder may leave out of a sample. If it decodes at the reduced size, put_sample() will come to the
// same frame.
DecodeHint BatchAssembler::reduction_of(int64_t index, int64_t height, int64_t width,
                                        WorkerBuffers& buffers) const {
  DecodeHint reduction(1);
  Frame first(height, width);
  SampleRandom random = buffers.random;
  if (options_.transforms.front()->move(first, random)) reduction.by = reduction_for(first);
  buffers.reduced = {height, width, reduction.by};
  if (sound_.empty()) return reduction;
  random = buffers.random;
  Frame frame = moved_frame(height, width, random);
  if (reduction.by > 1) frame.divide(reduction.by);
  check_frame(frame, height, width);
  reduction.window =
      needed_pixels(frame.box(), (height + reduction.by - 1) / reduction.by,
                    (width + reduction.by - 1) / reduction.by, frame.height(), frame.width(), split_.filter);
  reduction.is_sound = (sound_[static_cast<size_t>(index / 64)] >> (index % 64) & 1) != 0;
  return reduction;
}

// The sample after the host's transforms, in the buffers or where the data set has it; a damaged one is an
// error or replaced by its successor.
detail::SampleView BatchAssembler::read_sample(const BatchTask& task, int64_t row, WorkerBuffers& buffers) {
  const int64_t count = dataset_->size(), index = task.sample(row);
  int64_t at = index;
  DecodeHintFunction reduction;
  if (!options_.transforms.empty()) {
    reduction = [&](int64_t height, int64_t width) { return reduction_of(at, height, width, buffers); };
  }
  for (int64_t skipped = 0; skipped < count; ++skipped) {
    at = (index + skipped) % count;
    if (is_damaged(at)) continue;
    const int64_t stream = task.stream(row) - index + at;
    buffers.random = SampleRandom(options_.seed, task.epoch, static_cast<uint64_t>(stream));
    buffers.reduced = {};
    buffers.sample.reset();
    try {
      if (const std::optional<detail::SampleView> view = read_one(at, buffers, reduction)) return *view;
    } catch (const IoError& error) {
      if (options_.max_damaged == 0) throw;
      add_damaged(at, error.what());
      continue;
    }
    if (!sound_.empty()) sound_[static_cast<size_t>(at / 64)] |= uint64_t{1} << (at % 64);
    transform(at, buffers);
    const Image& image = buffers.sample.image;
    return {image.height, image.width, image.channels, image.pixels.data(), buffers.sample.label};
  }
  throw_error<IoError>("[data_loader] all {} samples of the data set are damaged", count);
}

void BatchAssembler::transform(int64_t index, WorkerBuffers& buffers) const {
  if (split_.host.empty()) return;
  follow_reduction(buffers.reduced, buffers.sample);
  for (const auto& step : split_.host) {
    step->apply(buffers.sample, buffers.random);
    check_sample(index, buffers.sample);
  }
}

// The data set's own view of a sample if it has one, else none, and the sample is in the buffers.
std::optional<detail::SampleView> BatchAssembler::read_one(int64_t index, WorkerBuffers& buffers,
                                                           const DecodeHintFunction& reduction) {
  const ReadClock::Scope reading(buffers.reading, index);
  if (split_.host.empty() && options_.collate == nullptr) {
    if (const std::optional<detail::SampleView> view = dataset_->view(index)) {
      SINTER_CHECK(view->height > 0 && view->width > 0 && view->channels > 0 && view->pixels != nullptr,
                   "[data_loader] expected pixels for sample {} but got an image of {} x {} x {}{}", index,
                   view->height, view->width, view->channels, view->pixels == nullptr ? " without any" : "");
      if (view->rest != nullptr) check_mask(index, view->rest->mask, view->height, view->width);
      check_label(index, view->label);
      return view;
    }
  }
  dataset_->read(index, buffers.sample, reduction);
  check_sample(index, buffers.sample);
  // Of an image that was decoded at a part of its size, the mask has the whole size.
  const Image& image = buffers.sample.image;
  const bool reduced = is_reduced(buffers.reduced, image.height, image.width);
  if (image.height != 0) {
    check_mask(index, buffers.sample.mask, reduced ? buffers.reduced.height : image.height,
               reduced ? buffers.reduced.width : image.width);
  }
  check_label(index, buffers.sample.label);
  return std::nullopt;
}

void BatchAssembler::go_on_counting(const BatchAssembler& other) {
  decoded_by_engines_ += other.decoded_by_engines_;
  const std::lock_guard lock(other.mutex_);
  damaged_ = other.damaged_;
  damaged_count_ = static_cast<int64_t>(damaged_.size());
}

bool BatchAssembler::is_damaged(int64_t index) const {
  if (damaged_count_ == 0) return false;
  const std::lock_guard lock(mutex_);
  return damaged_.contains(index);
}

void BatchAssembler::add_damaged(int64_t index, const char* reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!damaged_.insert(index).second) return;
    damaged_count_ = static_cast<int64_t>(damaged_.size());
  }
  if (damaged_count_ > options_.max_damaged) {
    throw_error<IoError>("[data_loader] more than {} damaged samples; the last is sample {}: {}",
                         options_.max_damaged, index, reason);
  }
  log::warning("[data_loader] sample {} is damaged and left out: {}", index, reason);
}

// Checks the image's size against all others and begins the batch if this is its first image. What is `known`
// to fit needs neither.
void BatchAssembler::prepare(BatchTask& task, const Shape& shape, int64_t index, Shape& known) {
  if (shape == known) return;
  {
    const std::lock_guard lock(mutex_);
    if (!image_shape_) image_shape_ = shape;
    SINTER_CHECK(
        shape == *image_shape_,
        "[data_loader] expected all images (H, W, C) = {} after the transforms but sample {} is {}; a "
        "resize or "
        "crop makes them equal",
        *image_shape_, index, shape);
  }
  task.staging->begin_once(task.rows, shape);
  known = shape;
}

}  // namespace sinter::nn::data
