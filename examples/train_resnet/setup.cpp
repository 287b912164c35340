#include "setup.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <tuple>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/data/formats/open_dataset.h>
#include <sinter/nn/optim/parameter_groups.h>
#include <sinter/nn/predict/preprocessing.h>

#include "common/text.h"

namespace train_resnet {

using namespace sinter;
using nn::data::Dataset;

namespace {

/// The digits lie at the same place beside the program where it is built and where it is installed.
std::string digits_folder() {
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  return (program.parent_path() / SINTER_DIGITS).lexically_normal();
}

std::string size_text(const nn::data::Image& image) {
  return fmt::format("{}x{}", image.width, image.height);
}

/// Throws unless the images that are looked at, at most 1,000 of them, have the size of the first.
void check_one_size(const Dataset& dataset) {
  const std::string first = size_text(dataset.get(0).image);
  const int64_t count = std::min<int64_t>(dataset.size(), 1000);
  for (int64_t i = 1; i < count; ++i) {
    const int64_t index = i * dataset.size() / count;
    const std::string size = size_text(dataset.get(index).image);
    if (size == first) continue;
    throw InvalidArgument(
        fmt::format("the images differ in size: image 0 has {} pixels, image {} {}; --image-size 224 (say) "
                    "trains on crops "
                    "of one size",
                    first, index, size));
  }
}

/// Opens the data. A folder that could be divided, but has no images to test with, is refused with the option
/// that divides it.
nn::data::DatasetPair open_folder(const Options& options, const std::string& folder) {
  const auto open = [&](double fraction) {
    return nn::data::open_dataset(folder, {.hold_out = {.fraction = fraction, .seed = options.seed}});
  };
  try {
    return open(options.split);
  } catch (const IoError&) {
    if (options.split > 0) throw;
    std::vector<std::string> names;
    try {
      names = open(0.1).train->class_names();
    } catch (const Error&) {  // it is something else
    }
    if (names.size() < 2) throw;
    const size_t count = names.size();
    names.resize(std::min<size_t>(count, 3));
    throw IoError(
        fmt::format("--data {}: it has {} classes ({}{}), but no train/ and test/; --split 0.1 tests "
                    "with a tenth of each",
                    folder, count, fmt::join(names, ", "), count > names.size() ? ", ..." : ""));
  }
}

/// What is left to train on, and the share of --val-share.
std::pair<std::shared_ptr<const Dataset>, std::shared_ptr<const Dataset>> divided(
    const std::shared_ptr<const Dataset>& train, const Options& options) {
  auto [rest, share] = nn::data::stratified_split(train, options.val_share, options.seed);
  if (rest->size() == 0 || share->size() == 0) {
    throw InvalidArgument(fmt::format("--val-share {}: of {} in {} it leaves none to {}", options.val_share,
                                      examples::counted(train->size(), "image"),
                                      examples::counted(train->num_classes(), "class"),
                                      rest->size() == 0 ? "train on" : "choose by"));
  }
  return {std::move(rest), std::move(share)};
}

nn::data::ResizeFilter filter_of(const Options& options) {
  return options.images.interpolation == "bicubic" ? nn::data::ResizeFilter::kBicubic
                                                   : nn::data::ResizeFilter::kBilinear;
}

/// The prefixes of the names of what follows one another: the stem, each block, the classifier.
std::vector<std::vector<std::string>> layers_of(const nn::ResNet& model) {
  std::vector<std::vector<std::string>> layers = {{"conv1.", "bn1."}};
  for (const nn::ModuleInfo& module : model.modules()) {
    if (module.depth == 2 && module.path.starts_with("layer")) layers.push_back({module.path + "."});
  }
  layers.push_back({kHead});
  return layers;
}

}  // namespace

Data open_data(const Options& options) {
  namespace fs = std::filesystem;
  const std::string folder = options.data.empty() ? digits_folder() : options.data;
  std::error_code ignored;
  if (!fs::exists(folder, ignored)) throw IoError(fmt::format("--data {}: there is no such folder", folder));
  if (!fs::is_directory(folder, ignored))
    throw IoError(fmt::format("--data {} is a file; give the folder that holds the data", folder));
  auto [train, test, kind, validation] = open_folder(options, folder);
  if (test == nullptr) {
    throw IoError(fmt::format(
        "--data {} has no images to test with, only train.rec; sinter_pack --name val packs some beside it",
        folder));
  }
  if (options.val_share > 0) {
    if (validation != nullptr) {
      throw InvalidArgument(
          fmt::format("--val-share: --data {} has images to choose by, in val, beside test", folder));
    }
    std::tie(train, validation) = divided(train, options);
  }
  if (options.evaluate) validation = nullptr;  // it is the test images that tell
  auto damaged = std::make_shared<examples::DamagedImages>();
  if (options.max_damaged > 0) {
    train = damaged->watch("training", std::move(train), options.max_damaged);
    test = damaged->watch("test", std::move(test), options.max_damaged);
    if (validation != nullptr)
      validation = damaged->watch("validation", std::move(validation), options.max_damaged);
  }
  if (options.image_size == 0) {  // small images are decoded once and kept
    if (train->size() > 0) check_one_size(*train);
    train = nn::data::preload(*train);
    test = nn::data::preload(*test);
    if (validation != nullptr) validation = nn::data::preload(*validation);
  }
  return {std::move(train),      std::move(test),
          std::move(validation), options.data.empty() ? "handwritten digits" : folder,
          std::move(kind),       std::move(damaged)};
}

// Sums of whole numbers, so that threads do not change them.
nn::data::Normalization measure_normalization(const Dataset& dataset) {
  const int64_t count = std::min<int64_t>(dataset.size(), 5000);
  const auto channels = static_cast<size_t>(dataset.get(0).image.channels);
  std::vector<uint64_t> sum(channels), squares(channels);
  uint64_t pixels = 0;
  std::mutex mutex;
  parallel_for(count, 16, [&](int64_t begin, int64_t end) {
    std::vector<uint64_t> own_sum(channels), own_squares(channels);
    uint64_t own_pixels = 0;
    nn::data::Sample sample;
    for (int64_t i = begin; i < end; ++i) {
      dataset.read(i * dataset.size() / count, sample, {});
      const auto& bytes = sample.image.pixels;
      for (size_t j = 0; j < bytes.size(); ++j) {
        own_sum[j % channels] += bytes[j];
        own_squares[j % channels] += uint64_t{bytes[j]} * bytes[j];
      }
      own_pixels += bytes.size() / channels;
    }
    const std::lock_guard lock(mutex);
    for (size_t c = 0; c < channels; ++c) {
      sum[c] += own_sum[c];
      squares[c] += own_squares[c];
    }
    pixels += own_pixels;
  });
  nn::data::Normalization normalization{{}, {}};
  for (size_t c = 0; c < channels; ++c) {
    const double mean = static_cast<double>(sum[c]) / static_cast<double>(pixels) / 255.0;
    const double square = static_cast<double>(squares[c]) / static_cast<double>(pixels) / (255.0 * 255.0);
    normalization.mean.push_back(static_cast<float>(mean));
    normalization.std.push_back(static_cast<float>(std::sqrt(std::max(square - mean * mean, 1e-6))));
  }
  return normalization;
}

nn::data::Transforms train_transforms(const Options& options, const Dataset& train, int64_t epoch) {
  nn::data::Transforms transforms;
  if (options.image_size > 0) {
    const auto [least, most] = range_of(options.images.crop_scale);
    const auto [narrow, wide] = range_of(options.images.crop_ratio);
    // Four digits of 4 / 3 stand for it.
    const bool usual = options.images.crop_ratio == ImageOptions().crop_ratio;
    transforms.push_back(nn::data::random_resized_crop(train_size(options.images, options.image_size, epoch),
                                                       {.min_area = least,
                                                        .max_area = most,
                                                        .min_aspect = narrow,
                                                        .max_aspect = usual ? 4.0 / 3.0 : wide,
                                                        .filter = filter_of(options)}));
  } else if (*options.crop_padding > 0) {
    const nn::data::Image first = train.get(0).image;
    transforms.push_back(nn::data::random_crop(
        {first.height, first.width},
        {.padding = *options.crop_padding,
         .mode = *options.crop_mode == "reflect" ? ops::PadMode::kReflect : ops::PadMode::kConstant}));
  }
  if (*options.flip) transforms.push_back(nn::data::random_horizontal_flip());
  if (options.images.vertical_flip) transforms.push_back(nn::data::random_vertical_flip());
  if (options.images.rotation > 0) transforms.push_back(nn::data::random_rotation(options.images.rotation));
  return transforms;
}

nn::data::DataLoaderOptions train_loader_options(const Options& options, Device device, const Dataset& train,
                                                 const nn::data::Normalization& normalization,
                                                 const Communicator& ranks) {
  const int64_t repeats = options.images.repeats;
  const bool trains = !options.evaluate;  // else any batch will do, however many images there are
  return {.batch_size = trains ? options.shared_batch(train.size(), ranks.size()) : 1,
          .shuffle = repeats == 1,
          .drop_last = true,
          .seed = options.seed,
          .sampler = repeats > 1 ? nn::data::repeated_augmentation_sampler(train.size(), {.repeats = repeats})
                                 : nullptr,
          .shard = trains ? ranks.rank() : 0,
          .shards = trains ? ranks.size() : 1,
          .workers = *options.workers,
          .device = device,
          .dtype = compute_dtype(options),
          .layout = *options.layout,
          .normalization = normalization,
          .transforms = train_transforms(options, train, 0),
          .augmentations = examples::augmentations(options.augmentation),
          .decode = options.image_size > 0 ? options.decode_on() : nn::data::DecodeOn::kCpu,
          .read_timeout = options.read_timeout};
}

std::shared_ptr<const Dataset> test_part(const std::shared_ptr<const Dataset>& test,
                                         const Communicator& ranks) {
  if (ranks.size() == 1 || test->size() < ranks.size()) return test;
  std::vector<int64_t> indices;
  const int64_t end = test->size() * (ranks.rank() + 1) / ranks.size();
  for (int64_t i = test->size() * ranks.rank() / ranks.size(); i < end; ++i) indices.push_back(i);
  return std::make_shared<nn::data::Subset>(test, std::move(indices));
}

int64_t test_resize(const Options& options) {
  // A little more, so that 224 / 0.875 is 256 however it was rounded.
  return static_cast<int64_t>(std::floor(static_cast<double>(options.image_size) / options.test_crop + 1e-6));
}

nn::data::DataLoaderOptions test_loader_options(const Options& options, Device device,
                                                const nn::data::Normalization& normalization) {
  nn::data::Transforms transforms;
  if (options.image_size > 0) {
    nn::ModelMetadata metadata;
    metadata.height = metadata.width = options.image_size;
    metadata.resize = "shorter_side";
    metadata.resize_size = test_resize(options);
    metadata.interpolation = options.images.interpolation;
    transforms = nn::test_transforms(metadata);
  }
  return {.batch_size = kTestBatch,
          .workers = *options.workers,
          .device = device,
          .dtype = compute_dtype(options),
          .layout = *options.layout,
          .normalization = normalization,
          .transforms = transforms,
          .decode = options.image_size > 0 ? options.decode_on() : nn::data::DecodeOn::kCpu,
          .read_timeout = options.read_timeout};
}

std::unique_ptr<nn::Optimizer> make_optimizer(const Options& options, const nn::ResNet& model) {
  return examples::make_optimizer(
      options, nn::parameter_groups(model, group_rules(options.finetune, layers_of(model), *options.lr),
                                    {.decay_vectors = options.decay_norms}));
}

}  // namespace train_resnet
