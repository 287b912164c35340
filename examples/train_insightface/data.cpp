#include "data.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <utility>

#include <fmt/core.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/faces/augment.h>
#include <sinter/nn/data/formats/image_folder.h>
#include <sinter/nn/data/records/record_dataset.h>
#include <sinter/nn/data/sample_random.h>
#include <sinter/nn/data/shards/shard_dataset.h>

#include "clean.h"

namespace train_insightface {

using namespace sinter;
namespace fs = std::filesystem;
using nn::data::Dataset;

namespace {

constexpr int64_t kImagesPerIdentity = 10;
constexpr int64_t kGrid = 7;  // an identity is a grid of so many colours a side, blended between them

class SyntheticFaces final : public Dataset {
 public:
  SyntheticFaces(int64_t identities, int64_t size) : size_(size) {
    for (int64_t i = 0; i < identities; ++i) names_.push_back(std::to_string(i));
  }

  int64_t size() const override { return num_classes() * kImagesPerIdentity; }
  const std::vector<std::string>& class_names() const override { return names_; }

  void read(int64_t index, nn::data::Sample& sample, const nn::data::DecodeHintFunction&) const override {
    checked_index(index);
    sample.label = index / kImagesPerIdentity;
    sample.image.reshape(size_, size_, 3);
    nn::data::SampleRandom person(1, 0, static_cast<uint64_t>(sample.label));
    std::array<float, kGrid * kGrid * 3> colours{};
    for (float& colour : colours) colour = 255.0f * person.uniform();
    nn::data::SampleRandom shot(2, 0, static_cast<uint64_t>(index));
    const float light = 0.7f + 0.3f * shot.uniform();
    for (int64_t y = 0; y < size_; ++y) draw_row(y, colours, light, shot, sample.image.row(y));
  }

 private:
  using Colours = std::array<float, kGrid * kGrid * 3>;

  void draw_row(int64_t y, const Colours& colours, float light, nn::data::SampleRandom& noise,
                uint8_t* to) const {
    const auto [top, down] = place(y);
    for (int64_t x = 0; x < size_; ++x) {
      const auto [left, right] = place(x);
      const uint32_t word = noise.word();
      for (int64_t c = 0; c < 3; ++c) {
        const auto at = [&](int64_t row, int64_t column) {
          return colours[static_cast<size_t>(((top + row) * kGrid + left + column) * 3 + c)];
        };
        const float value = (1 - down) * ((1 - right) * at(0, 0) + right * at(0, 1)) +
                            down * ((1 - right) * at(1, 0) + right * at(1, 1));
        const auto grain = static_cast<float>((word >> (8 * c)) & 0x1f);
        *to++ = static_cast<uint8_t>(std::clamp(light * value + grain, 0.0f, 255.0f));
      }
    }
  }
  /// The cell of the grid before a pixel, and how far the pixel is on the way to the next.
  std::pair<int64_t, float> place(int64_t pixel) const {
    const float position =
        static_cast<float>(pixel) * static_cast<float>(kGrid - 1) / static_cast<float>(size_);
    const auto cell = std::min<int64_t>(static_cast<int64_t>(position), kGrid - 2);
    return {cell, position - static_cast<float>(cell)};
  }

  int64_t size_;
  std::vector<std::string> names_;
};

}  // namespace

std::shared_ptr<const Dataset> synthetic_faces(int64_t identities, int64_t size) {
  return std::make_shared<SyntheticFaces>(identities, size);
}

TrainingData open_training_data(const Options& options) {
  auto damaged = std::make_shared<examples::DamagedImages>();
  const auto restricted = [&](std::shared_ptr<const Dataset> faces) {
    return options.keep_images.empty() ? faces : keep_images(std::move(faces), options.keep_images);
  };
  if (options.synthetic > 0) {
    return {restricted(synthetic_faces(options.synthetic, options.image_size)), "made-up faces", "synthetic",
            std::move(damaged)};
  }
  const fs::path path = options.data;
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    throw IoError(fmt::format("--data {}: there is no such file or folder", options.data));
  std::vector<fs::path> shards;
  fs::path records;
  if (!fs::is_directory(path, ignored)) {
    if (path.extension() != ".rec")
      throw IoError(fmt::format("--data {} is a file; give a .rec file, or the folder that holds the data",
                                options.data));
    records = path;
  } else if (fs::exists(path / "train.rec", ignored)) {
    records = path / "train.rec";
  } else {
    for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("train") && name.ends_with(".tar")) shards.push_back(entry.path());
    }
    std::ranges::sort(shards);
  }
  std::shared_ptr<const Dataset> faces = restricted(!records.empty()  ? nn::data::open_records(records)
                                                    : !shards.empty() ? nn::data::open_shards(shards)
                                                                      : nn::data::open_image_folder(path));
  if (options.max_damaged > 0) faces = damaged->watch("training", std::move(faces), options.max_damaged);
  const char* const kind = !records.empty() ? "records" : !shards.empty() ? "shards" : "folder of people";
  return {std::move(faces), options.data, kind, std::move(damaged)};
}

nn::data::DataLoaderOptions loader_options(const Options& options, Device device, const Dataset& faces) {
  return {.batch_size = options.batch_of(faces.size()),
          .workers = *options.workers,
          .device = device,
          .dtype = compute_dtype(options),
          .layout = *options.layout,
          .normalization = nn::data::symmetric_normalization(),
          .transforms = {nn::data::resize(options.image_size)},
          .read_timeout = options.read_timeout};
}

nn::data::DataLoaderOptions train_loader_options(const Options& options, Device device, const Dataset& faces,
                                                 const Communicator& ranks) {
  nn::data::DataLoaderOptions loader = loader_options(options, device, faces);
  loader.batch_size = options.shared_batch(faces.size(), ranks.size());
  loader.shard = ranks.rank();
  loader.shards = ranks.size();
  loader.shuffle = true;
  loader.drop_last = true;
  loader.seed = options.seed;
  if (options.synthetic > 0) loader.transforms.clear();  // they have the size
  loader.decode = options.decode_on();
  if (options.decode == "gpu" && (options.synthetic > 0 || options.augment != "none")) {
    throw InvalidArgument(fmt::format(
        "--decode gpu: {}; leave one of them out",
        options.synthetic > 0 ? "--synthetic has no files" : "--augment needs images that workers decode"));
  }
  if (options.augment != "none")
    loader.transforms.push_back(options.augment == "adaface" ? nn::data::adaface_augmentation()
                                                             : nn::data::insightface_augmentation());
  loader.augmentations = examples::augmentations(options.augmentation);
  if (options.flip) loader.transforms.push_back(nn::data::random_horizontal_flip());
  return loader;
}

}  // namespace train_insightface
