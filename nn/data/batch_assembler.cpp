#include <algorithm>
#include <numeric>
#include <utility>

#include <sinter/core/base/error.h>
#include <sinter/core/base/log.h>
#include <sinter/nn/data/batch_assembler.h>

namespace sinter::nn::data {
namespace {

constexpr size_t kKeptOrders = 2;  // an epoch that ends and the one whose batches are read ahead

// Fisher and Yates' shuffle.
std::vector<int64_t> shuffled(int64_t count, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  SampleRandom random(seed, epoch, SampleRandom::kShuffle);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

}  // namespace

BatchAssembler::BatchAssembler(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options)
    : dataset_(std::move(dataset)), options_(options) {
  SINTER_CHECK(dataset_ != nullptr, "[data_loader] expected a data set but got none");
  SINTER_CHECK(dataset_->size() > 0, "[data_loader] expected at least one sample but the data set is empty");
  SINTER_CHECK(options_.batch_size > 0, "[data_loader] expected a batch size > 0 but got {}",
               options_.batch_size);
  SINTER_CHECK(options_.workers >= 0 && options_.workers <= 1024,
               "[data_loader] expected 0 to 1024 workers but got {}", options_.workers);
  SINTER_CHECK(options_.prefetch > 0, "[data_loader] expected a prefetch > 0 but got {}", options_.prefetch);
  SINTER_CHECK(options_.max_damaged >= 0, "[data_loader] expected max_damaged >= 0 but got {}",
               options_.max_damaged);
  SINTER_CHECK(batches_per_epoch() > 0,
               "[data_loader] expected at least one batch, but {} samples make none of {} without the last",
               dataset_->size(), options_.batch_size);
  for (const auto& transform : options_.transforms) {
    SINTER_CHECK(transform != nullptr, "[data_loader] expected transforms but one is null");
  }
}

int64_t BatchAssembler::batches_per_epoch() const {
  const int64_t whole = dataset_->size() / options_.batch_size;
  return whole + (!options_.drop_last && dataset_->size() % options_.batch_size != 0 ? 1 : 0);
}

BatchTask BatchAssembler::make_task(int64_t epoch, int64_t batch) {
  BatchTask task;
  task.epoch = epoch;
  task.first = batch * options_.batch_size;
  task.rows = std::min(options_.batch_size, dataset_->size() - task.first);
  task.order = order_of(epoch);
  return task;
}

EpochOrder BatchAssembler::order_of(int64_t epoch) {
  if (!options_.shuffle) return nullptr;
  const std::lock_guard lock(mutex_);
  for (const auto& [known, order] : orders_) {
    if (known == epoch) return order;
  }
  if (orders_.size() == kKeptOrders) orders_.erase(orders_.begin());
  auto order = std::make_shared<const std::vector<int64_t>>(shuffled(dataset_->size(), options_.seed, epoch));
  orders_.emplace_back(epoch, order);
  return order;
}

void BatchAssembler::fill_rows(BatchTask& task, int64_t begin, int64_t end, WorkerBuffers& buffers,
                               const std::atomic<bool>& stop) {
  Shape image_shape;
  for (int64_t row = begin; row < end && !stop; ++row) {
    const int64_t position = task.first + row;
    const int64_t index = task.order ? (*task.order)[static_cast<size_t>(position)] : position;
    read_sample(task.epoch, index, buffers);
    const Image& image = buffers.sample.image;
    const Shape shape{image.height, image.width, image.channels};
    if (row == begin || shape != image_shape) {
      prepare(task, image, index);  // throws if the image differs from the others
      image_shape = shape;
    }
    normalizer_->write(image, options_.layout, task.batch.images.data<float>() + row * shape.numel());
    task.batch.labels.data<int64_t>()[row] = buffers.sample.label;
  }
}

// Leaves the sample, transformed, in the buffers; a damaged one is an error or replaced by its successor.
void BatchAssembler::read_sample(int64_t epoch, int64_t index, WorkerBuffers& buffers) {
  const int64_t count = dataset_->size();
  ReductionChooser reduction;
  if (!options_.transforms.empty()) {
    reduction = [&](int64_t height, int64_t width) {
      return options_.transforms.front()->reduction(height, width, buffers.context.random);
    };
  }
  for (int64_t skipped = 0; skipped < count; ++skipped) {
    const int64_t at = (index + skipped) % count;
    if (is_damaged(at)) continue;
    buffers.context.random = SampleRandom(options_.seed, epoch, static_cast<uint64_t>(at));
    try {
      dataset_->read(at, buffers.sample, reduction);
    } catch (const IoError& error) {
      if (options_.max_damaged == 0) throw;
      add_damaged(at, error.what());
      continue;
    }
    for (const auto& transform : options_.transforms) transform->apply(buffers.sample.image, buffers.context);
    return;
  }
  throw_error<IoError>("[data_loader] all {} samples of the data set are damaged", count);
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

// Checks the image's size against all others and allocates the batch if this is its first image.
void BatchAssembler::prepare(BatchTask& task, const Image& image, int64_t index) {
  const std::lock_guard lock(mutex_);
  const Shape shape{image.height, image.width, image.channels};
  if (!image_shape_) {
    normalizer_.emplace(options_.normalization, image.channels);
    image_shape_ = shape;
  }
  SINTER_CHECK(shape == *image_shape_,
               "[data_loader] expected all images (H, W, C) = {} after the transforms but sample {} is {}; a "
               "resize or "
               "crop makes them equal",
               *image_shape_, index, shape);
  if (task.batch.images.defined()) return;
  const Shape batch_shape = options_.layout == Layout::kNCHW
                                ? Shape{task.rows, image.channels, image.height, image.width}
                                : Shape{task.rows, image.height, image.width, image.channels};
  task.batch.labels = Tensor::empty({task.rows}, DType::kInt64);
  task.batch.images = Tensor::empty(batch_shape);
}

}  // namespace sinter::nn::data
