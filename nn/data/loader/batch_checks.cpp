// What a loader refuses: of its options, before anything is read, and of samples, which come from anyone's
// code.
#include <algorithm>
#include <cmath>
#include <utility>

#include <sinter/core/base/error.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/nn/data/loader/batch_assembler.h>

namespace sinter::nn::data {

void BatchAssembler::check_options() const {
  SINTER_CHECK(dataset_->size() > 0, "[data_loader] expected at least one sample but the data set is empty");
  SINTER_CHECK(options_.batch_size > 0, "[data_loader] expected a batch size > 0 but got {}",
               options_.batch_size);
  SINTER_CHECK(options_.shards > 0 && options_.shard >= 0 && options_.shard < options_.shards,
               "[data_loader] expected a shard from 0 to the number of shards but got {} of {}",
               options_.shard, options_.shards);
  SINTER_CHECK(options_.shards == 1 || (options_.drop_last && options_.batch_size % options_.shards == 0),
               "[data_loader] expected drop_last and a batch size that {} shards divide but got {}{}",
               options_.shards, options_.batch_size, options_.drop_last ? "" : " without drop_last");
  SINTER_CHECK(options_.workers >= 0 && options_.workers <= 1024,
               "[data_loader] expected 0 to 1024 workers but got {}", options_.workers);
  SINTER_CHECK(options_.prefetch > 0, "[data_loader] expected a prefetch > 0 but got {}", options_.prefetch);
  SINTER_CHECK(options_.max_damaged >= 0, "[data_loader] expected max_damaged >= 0 but got {}",
               options_.max_damaged);
  SINTER_CHECK(options_.read_timeout >= 0 && options_.read_timeout <= 1e9,
               "[data_loader] expected a read_timeout from 0 to 1e9 seconds but got {}",
               options_.read_timeout);
  SINTER_CHECK(options_.read_timeout == 0 || options_.workers > 0,
               "[data_loader] expected workers for a read_timeout: next() cannot leave its own thread");
  SINTER_CHECK(batches_per_epoch() > 0,
               "[data_loader] expected at least one batch, but {} samples make none of {} without the last",
               orders_.size(), options_.batch_size);
  SINTER_CHECK(is_float(options_.dtype) && options_.dtype != DType::kFloat64,
               "[data_loader] expected float32, float16 or bfloat16 images but got {}", options_.dtype);
  SINTER_CHECK(!options_.shuffle || options_.sampler == nullptr,
               "[data_loader] expected either shuffle or a sampler but got both");
  SINTER_CHECK(
      options_.collate == nullptr || options_.augmentations.empty(),
      "[data_loader] expected no augmentations beside collate, which makes the batch as it is to be");
  check_normalization();
  backend_of(options_.device);  // throws if it is not there
}

// As far as it can be told before the first image is there.
void BatchAssembler::check_normalization() const {
  const auto& [mean, std] = options_.normalization;
  const std::optional<detail::SampleView> view = dataset_->view(0);
  const size_t channels = view ? static_cast<size_t>(view->channels) : std::max(mean.size(), std.size());
  for (const auto& [what, values] : {std::pair{"means", &mean}, std::pair{"deviations", &std}}) {
    SINTER_CHECK(values->size() == 1 || (!values->empty() && values->size() == channels),
                 "[data_loader] expected a normalization with 1 or {} {}, one for each channel of the "
                 "images, but got {}",
                 channels, what, values->size());
  }
  for (const float value : mean)
    SINTER_CHECK(std::isfinite(value), "[data_loader] expected finite means but got {}", value);
  for (const float value : std)
    SINTER_CHECK(std::isfinite(value) && value > 0, "[data_loader] expected deviations > 0 but got {}",
                 value);
}

// Data sets and transforms may be anyone's: pixels that are not there would be read all the same.
void BatchAssembler::check_sample(int64_t index, const Sample& sample) const {
  const auto check = [index](const char* what, const Image& image) {
    SINTER_CHECK(image.is_whole(),
                 "[data_loader] expected the {} of {} x {} x {} for sample {} but got {} bytes", what,
                 image.height, image.width, image.channels, index, image.pixels.size());
  };
  const Image &image = sample.image, &mask = sample.mask;
  if (image.height != 0 || sample.values.empty()) check("pixels", image);
  if (mask.height != 0) check("mask", mask);
}

void BatchAssembler::check_mask(int64_t index, const Image& mask, int64_t height, int64_t width) const {
  SINTER_CHECK(
      mask.height == 0 ||
          (mask.height == height && mask.width == width && mask.channels == 1 && mask.is_whole()),
      "[data_loader] expected a mask of {} x {} x 1, as its image, for sample {} but got {} x {} x {}",
      height, width, index, mask.height, mask.width, mask.channels);
}

void BatchAssembler::check_label(int64_t index, int64_t label) const {
  SINTER_CHECK(num_classes_ == 0 || (label >= 0 && label < num_classes_),
               "[data_loader] expected labels from 0 to {} but that of sample {} is {}", num_classes_ - 1,
               index, label);
}

}  // namespace sinter::nn::data
