// A data set whose images tell their index, and what a loader made of it.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <sinter/nn/data/data_loader.h>

namespace sinter::nn::data::testing {

/// 4 x 4 RGB images that tell their index; `on_read` may sleep or throw.
class FakeDataset final : public Dataset {
 public:
  explicit FakeDataset(int64_t size, std::function<void(int64_t)> on_read = {})
      : size_(size), on_read_(std::move(on_read)) {}
  int64_t size() const override { return size_; }
  void read(int64_t index, Sample& sample, const DecodeHintFunction&) const override {
    checked_index(index);
    ++reads;
    if (on_read_) on_read_(index);
    sample.image.reshape(4, index == odd_one ? 5 : 4, 3);
    for (size_t i = 0; i < sample.image.pixels.size(); ++i) {
      sample.image.pixels[i] = static_cast<uint8_t>(static_cast<size_t>(index) * 7 + i);
    }
    sample.label = index;
  }
  const std::vector<std::string>& class_names() const override { return names_; }

  int64_t odd_one = -1;  // has another width
  mutable std::atomic<int64_t> reads = 0;

 private:
  int64_t size_;
  std::function<void(int64_t)> on_read_;
  std::vector<std::string> names_;
};

inline DataLoaderOptions shuffled(int workers) {
  DataLoaderOptions options;
  options.batch_size = 8;
  options.shuffle = true;
  options.seed = 11;
  options.workers = workers;
  options.transforms = {random_crop(4, {.padding = 1, .mode = ops::PadMode::kReflect}),
                        random_horizontal_flip()};
  return options;
}

struct Record {
  std::vector<int64_t> labels;
  std::vector<float> pixels;
  bool operator==(const Record&) const = default;
};
inline Record record(const Batch& batch) {
  return {batch.labels.to_vector<int64_t>(), batch.images.to_vector<float>()};
}

inline std::vector<Record> records(DataLoader& loader, int64_t epochs) {
  std::vector<Record> all;
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    for (const Batch& batch : loader) all.push_back(record(batch));
  }
  return all;
}

}  // namespace sinter::nn::data::testing
