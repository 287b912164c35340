#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include <sinter/core/base/error.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/data/dataset.h>

namespace sinter::nn::data {
namespace {

// Decoded images of any sizes.
class CachedDataset final : public Dataset {
 public:
  CachedDataset(std::vector<Sample> samples, std::vector<std::string> class_names)
      : samples_(std::move(samples)), class_names_(std::move(class_names)) {}

  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  void read(int64_t index, Sample& sample, const ReductionChooser&) const override {
    sample = samples_[checked_index(index)];  // a vector's assignment reuses its buffer
  }
  std::optional<SampleView> view(int64_t index) const override {
    const auto& [image, label] = samples_[checked_index(index)];
    return SampleView{image.height, image.width, image.channels, image.pixels.data(), label};
  }
  const std::vector<std::string>& class_names() const override { return class_names_; }

 private:
  std::vector<Sample> samples_;
  std::vector<std::string> class_names_;
};

}  // namespace

std::optional<SampleView> Dataset::view(int64_t index) const {
  checked_index(index);
  return std::nullopt;
}

size_t Dataset::checked_index(int64_t index) const {
  SINTER_CHECK(index >= 0 && index < size(), "[dataset] expected an index from 0 to {} but got {}",
               size() - 1, index);
  return static_cast<size_t>(index);
}

MemoryDataset::MemoryDataset(Content content) : content_(std::move(content)) {
  const Content& c = content_;
  SINTER_CHECK(c.height > 0 && c.width > 0 && c.channels > 0,
               "[dataset] expected images of at least 1 x 1 x 1 but got {} x {} x {}", c.height, c.width,
               c.channels);
  int64_t bytes = 0;
  const bool fits = !__builtin_mul_overflow(c.height, c.width, &bytes) &&
                    !__builtin_mul_overflow(bytes, c.channels, &bytes) &&
                    !__builtin_mul_overflow(bytes, size(), &bytes);
  SINTER_CHECK(fits && static_cast<uint64_t>(bytes) == c.pixels.size(),
               "[dataset] expected {} images of {} x {} x {} but got {} bytes", size(), c.height, c.width,
               c.channels, c.pixels.size());
  for (size_t i = 0; i < c.labels.size(); ++i) {
    SINTER_CHECK(c.labels[i] >= 0 && c.labels[i] < num_classes(),
                 "[dataset] expected labels from 0 to {} but label {} is {}", num_classes() - 1, i,
                 c.labels[i]);
  }
}

std::optional<SampleView> MemoryDataset::view(int64_t index) const {
  const size_t i = checked_index(index);
  const auto bytes = static_cast<size_t>(content_.height * content_.width * content_.channels);
  return SampleView{content_.height, content_.width, content_.channels, content_.pixels.data() + i * bytes,
                    content_.labels[i]};
}

void MemoryDataset::read(int64_t index, Sample& sample, const ReductionChooser&) const {
  const size_t i = checked_index(index);
  sample.image.reshape(content_.height, content_.width, content_.channels);
  const size_t bytes = sample.image.pixels.size();
  std::memcpy(sample.image.pixels.data(), content_.pixels.data() + i * bytes, bytes);
  sample.label = content_.labels[i];
}

std::shared_ptr<const Dataset> preload(const Dataset& dataset, uint64_t max_bytes) {
  constexpr int64_t kGrain = 64;
  std::vector<Sample> samples(static_cast<size_t>(dataset.size()));
  std::atomic<uint64_t> bytes = 0;
  std::atomic<bool> failed = false;
  std::atomic<int64_t> next = 0;
  // Samples are drawn from a counter, since images differ in cost; each range of parallel_for is one worker.
  const int64_t workers = std::min<int64_t>(num_threads(), (dataset.size() + kGrain - 1) / kGrain);
  parallel_for(workers, 1, [&](int64_t, int64_t) {
    try {
      for (int64_t begin; !failed && (begin = next.fetch_add(kGrain)) < dataset.size();) {
        const int64_t end = std::min(begin + kGrain, dataset.size());
        for (int64_t i = begin; i < end && !failed; ++i) {
          Sample& sample = samples[static_cast<size_t>(i)];
          dataset.read(i, sample, {});
          sample.image.pixels.shrink_to_fit();
          if ((bytes += sample.image.pixels.size()) > max_bytes) {
            throw_error<OutOfMemory>(
                "[dataset] expected the {} decoded images to fit in {} bytes but they need more",
                dataset.size(), max_bytes);
          }
        }
      }
    } catch (...) {
      failed = true;
      throw;
    }
  });
  return std::make_shared<CachedDataset>(std::move(samples), dataset.class_names());
}

}  // namespace sinter::nn::data
