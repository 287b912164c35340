#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <sinter/core/base/error.h>
#include <sinter/core/base/log.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/data/dataset.h>
#include <sinter/nn/data/sample_random.h>

namespace sinter::nn::data {
namespace {

// Decoded images of any sizes.
class CachedDataset final : public Dataset {
 public:
  CachedDataset(std::vector<Sample> samples, const Dataset& of)
      : samples_(std::move(samples)), class_names_(of.class_names()), fingerprint_(of.fingerprint()) {}

  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  void read(int64_t index, Sample& sample, const DecodeHintFunction&) const override {
    sample = samples_[checked_index(index)];  // a vector's assignment reuses its buffer
  }
  std::optional<detail::SampleView> view(int64_t index) const override {
    const Sample& sample = samples_[checked_index(index)];
    const Image& image = sample.image;
    if (image.height == 0) return std::nullopt;
    return detail::SampleView{image.height,        image.width,  image.channels,
                              image.pixels.data(), sample.label, &sample};
  }
  const std::vector<std::string>& class_names() const override { return class_names_; }
  std::vector<int64_t> labels() const override {
    std::vector<int64_t> labels;
    for (const Sample& sample : samples_) labels.push_back(sample.label);
    return labels;
  }
  uint64_t fingerprint() const override { return fingerprint_; }

 private:
  std::vector<Sample> samples_;
  std::vector<std::string> class_names_;
  uint64_t fingerprint_;
};

}  // namespace

// Each word goes through the finaliser of MurmurHash3 (A. Appleby), which spreads every bit over all.
void Fingerprint::add(uint64_t number) {
  uint64_t x = (state_ + 0x9e3779b97f4a7c15U) ^ number;
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdU;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53U;
  state_ = x ^ (x >> 33);
}

void Fingerprint::add(std::span<const uint8_t> bytes) {
  const auto word = [&bytes](size_t count) {  // little-endian
    uint64_t number = 0;
    for (size_t i = 0; i < count; ++i) number |= uint64_t{bytes[i]} << (8 * i);
    return number;
  };
  add(uint64_t{bytes.size()});
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) add(word(8));
  if (!bytes.empty()) add(word(bytes.size()));
}

void Fingerprint::add(std::string_view text) {
  add(std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

uint64_t Dataset::fingerprint() const {
  Fingerprint print;
  print.add(static_cast<uint64_t>(size()));
  for (const std::string& name : class_names()) print.add(name);
  for (const int64_t label : labels()) print.add(static_cast<uint64_t>(label));
  return print.value();
}

const std::vector<std::string>& Dataset::class_names() const {
  static const std::vector<std::string> none;
  return none;
}

std::optional<detail::SampleView> Dataset::view(int64_t index) const {
  checked_index(index);
  return std::nullopt;
}

bool Dataset::read_encoded(int64_t index, EncodedSample&) const {
  checked_index(index);
  return false;
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

std::optional<detail::SampleView> MemoryDataset::view(int64_t index) const {
  const size_t i = checked_index(index);
  const auto bytes = static_cast<size_t>(content_.height * content_.width * content_.channels);
  return detail::SampleView{content_.height, content_.width, content_.channels,
                            content_.pixels.data() + i * bytes, content_.labels[i]};
}

uint64_t MemoryDataset::fingerprint() const {
  Fingerprint print;
  print.add(Dataset::fingerprint());
  for (const int64_t side : {content_.height, content_.width, content_.channels})
    print.add(static_cast<uint64_t>(side));
  print.add(content_.pixels);
  return print.value();
}

void MemoryDataset::read(int64_t index, Sample& sample, const DecodeHintFunction&) const {
  const size_t i = checked_index(index);
  sample.image.reshape(content_.height, content_.width, content_.channels);
  const size_t bytes = sample.image.pixels.size();
  std::memcpy(sample.image.pixels.data(), content_.pixels.data() + i * bytes, bytes);
  sample.label = content_.labels[i];
}

Subset::Subset(std::shared_ptr<const Dataset> dataset, std::vector<int64_t> indices)
    : dataset_(std::move(dataset)), indices_(std::move(indices)) {
  SINTER_CHECK(dataset_ != nullptr, "[subset] expected a data set but got none");
  const int64_t count = dataset_->size();
  for (size_t i = 0; i < indices_.size(); ++i) {
    SINTER_CHECK(indices_[i] >= 0 && indices_[i] < count,
                 "[subset] expected indices from 0 to {} but index {} is {}", count - 1, i, indices_[i]);
  }
}

void Subset::read(int64_t index, Sample& sample, const DecodeHintFunction& reduction) const {
  dataset_->read(indices_[checked_index(index)], sample, reduction);
}

std::optional<detail::SampleView> Subset::view(int64_t index) const {
  return dataset_->view(indices_[checked_index(index)]);
}

bool Subset::read_encoded(int64_t index, EncodedSample& sample) const {
  return dataset_->read_encoded(indices_[checked_index(index)], sample);
}

std::vector<int64_t> Subset::labels() const {
  const std::vector<int64_t> all = dataset_->labels();
  std::vector<int64_t> labels;
  if (all.empty()) return labels;
  for (const int64_t index : indices_) labels.push_back(all[static_cast<size_t>(index)]);
  return labels;
}

uint64_t Subset::fingerprint() const {
  Fingerprint print;
  print.add(dataset_->fingerprint());
  for (const int64_t index : indices_) print.add(static_cast<uint64_t>(index));
  return print.value();
}

SkipDamaged::SkipDamaged(std::shared_ptr<const Dataset> dataset, int64_t max_damaged)
    : dataset_(std::move(dataset)), max_damaged_(max_damaged) {
  SINTER_CHECK(dataset_ != nullptr, "[sound_samples] expected a data set but got none");
  SINTER_CHECK(max_damaged_ >= 0, "[sound_samples] expected a limit >= 0 but got {}", max_damaged_);
}

void SkipDamaged::read(int64_t index, Sample& sample, const DecodeHintFunction& reduction) const {
  checked_index(index);
  const int64_t count = size();
  for (int64_t skipped = 0; skipped < count; ++skipped) {
    const int64_t at = (index + skipped) % count;
    if (is_damaged(at)) continue;
    try {
      sample.reset();  // of what was read before the damage
      return dataset_->read(at, sample, reduction);
    } catch (const IoError& error) {
      add_damaged(at, error.what());
    }
  }
  throw_error<IoError>("[sound_samples] all {} samples of the data set are damaged", count);
}

bool SkipDamaged::read_encoded(int64_t index, EncodedSample& sample) const {
  checked_index(index);
  return !is_damaged(index) && dataset_->read_encoded(index, sample);
}

SkipDamaged::Damage SkipDamaged::damage() const {
  const std::lock_guard lock(mutex_);
  return {static_cast<int64_t>(damaged_.size()), first_reason_};
}

bool SkipDamaged::is_damaged(int64_t index) const {
  const std::lock_guard lock(mutex_);
  return damaged_.contains(index);
}

void SkipDamaged::add_damaged(int64_t index, const std::string& reason) const {
  const std::lock_guard lock(mutex_);
  if (damaged_.contains(index)) return;
  if (static_cast<int64_t>(damaged_.size()) >= max_damaged_) {
    if (max_damaged_ == 0) throw_error<IoError>("{}", reason);
    throw_error<IoError>("[sound_samples] more than {} damaged samples; the last is sample {}: {}",
                         max_damaged_, index, reason);
  }
  if (damaged_.empty() || index < first_) {
    first_ = index;
    first_reason_ = reason;
  }
  damaged_.insert(index);
  log::warning("[sound_samples] sample {} is damaged and left out: {}", index, reason);
}

std::vector<std::shared_ptr<const Dataset>> random_split(const std::shared_ptr<const Dataset>& dataset,
                                                         const std::vector<double>& fractions,
                                                         uint64_t seed) {
  SINTER_CHECK(dataset != nullptr, "[random_split] expected a data set but got none");
  double sum = 0.0;
  for (const double fraction : fractions) {
    SINTER_CHECK(fraction >= 0.0, "[random_split] expected fractions >= 0 but got {}", fraction);
    sum += fraction;
  }
  SINTER_CHECK(std::abs(sum - 1.0) < 1e-6, "[random_split] expected fractions that add up to 1 but got {}",
               sum);
  const int64_t count = dataset->size();
  std::vector<int64_t> sizes;
  int64_t left = count;
  for (const double fraction : fractions) {
    sizes.push_back(std::min(left, static_cast<int64_t>(std::floor(static_cast<double>(count) * fraction))));
    left -= sizes.back();
  }
  for (size_t i = 0; left > 0; i = (i + 1) % sizes.size(), --left) ++sizes[i];

  const std::vector<int64_t> order = shuffled_indices(count, seed, -1);  // no epoch of a loader
  std::vector<std::shared_ptr<const Dataset>> parts;
  auto begin = order.begin();
  for (const int64_t size : sizes) {
    parts.push_back(std::make_shared<Subset>(dataset, std::vector<int64_t>(begin, begin + size)));
    begin += size;
  }
  return parts;
}

TrainTestSplit stratified_split(const std::shared_ptr<const Dataset>& dataset, double fraction,
                                uint64_t seed) {
  SINTER_CHECK(dataset != nullptr, "[stratified_split] expected a data set but got none");
  SINTER_CHECK(fraction > 0 && fraction < 1,
               "[stratified_split] expected a fraction between 0 and 1 but got {}", fraction);
  const std::vector<int64_t> labels = dataset->labels();
  SINTER_CHECK(static_cast<int64_t>(labels.size()) == dataset->size(),
               "[stratified_split] expected a data set that knows its labels");
  const int64_t named = dataset->num_classes();
  std::map<int64_t, std::vector<int64_t>> classes;
  for (size_t i = 0; i < labels.size(); ++i) {
    SINTER_CHECK(labels[i] >= 0 && (named == 0 || labels[i] < named),
                 "[stratified_split] expected labels {} but sample {} has {}",
                 named == 0 ? ">= 0" : fmt::format("from 0 to {}", named - 1), i, labels[i]);
    classes[labels[i]].push_back(static_cast<int64_t>(i));
  }
  std::vector<int64_t> train, test;
  for (const auto& [label, members] : classes) {
    const auto count = static_cast<int64_t>(members.size());
    int64_t taken = std::llround(static_cast<double>(count) * fraction);
    if (count > 1) taken = std::clamp<int64_t>(taken, 1, count - 1);
    // Epochs of a loader are numbers from 0 on, random_split's is -1.
    const auto order = shuffled_indices(count, seed, -2 - label);
    for (int64_t i = 0; i < count; ++i)
      (i < taken ? test : train).push_back(members[static_cast<size_t>(order[static_cast<size_t>(i)])]);
  }
  std::sort(train.begin(), train.end());
  std::sort(test.begin(), test.end());
  return {std::make_shared<Subset>(dataset, std::move(train)),
          std::make_shared<Subset>(dataset, std::move(test))};
}

namespace {

/// Calls `keep(i, sample)` for every sample of a data set, on threads of its own: what read() does is its
/// author's, and may end a thread. `keep` may take the sample. The first error ends it.
void read_all(const Dataset& dataset, const std::function<void(int64_t, Sample&)>& keep) {
  constexpr int64_t kGrain = 64;
  std::atomic<bool> failed = false;
  std::atomic<int64_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;
  // Samples are drawn from a counter, since images differ in cost.
  const auto read_range = [&](int64_t begin, Sample& sample, int64_t& at) {
    const int64_t end = std::min(begin + kGrain, dataset.size());
    for (at = begin; at < end && !failed; ++at) {
      sample.reset();
      dataset.read(at, sample, {});
      SINTER_CHECK(sample.image.is_whole() || (sample.image.height == 0 && !sample.is_empty()),
                   "[dataset] expected the pixels of {} x {} x {} for sample {} but got {} bytes",
                   sample.image.height, sample.image.width, sample.image.channels, at,
                   sample.image.pixels.size());
      keep(at, sample);
    }
  };
  const auto work = [&] {
    const SerialGuard serial;  // the pool's threads are for those who compute
    int64_t at = 0;
    try {
      Sample sample;
      for (int64_t begin; !failed && (begin = next.fetch_add(kGrain)) < dataset.size();)
        read_range(begin, sample, at);
    } catch (...) {
      const std::exception_ptr reason = std::current_exception();
      const bool is_ended = reason == nullptr;  // pthread_exit and its like unwind without an exception
      failed = true;
      {
        const std::lock_guard lock(mutex);
        if (!error) {
          error = is_ended ? std::make_exception_ptr(Error(
                                 fmt::format("[dataset] a thread was ended while it read sample {}", at)))
                           : reason;
        }
      }
      if (is_ended) throw;
    }
  };
  std::vector<std::thread> threads;
  try {
    const int64_t count = std::min<int64_t>(num_threads(), (dataset.size() + kGrain - 1) / kGrain);
    for (int64_t i = 0; i < count; ++i) threads.emplace_back(work);
  } catch (const std::system_error&) {  // fewer do it too
    if (threads.empty()) work();
  }
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

[[noreturn]] void fail_for_size(const Dataset& dataset, uint64_t max_bytes) {
  throw_error<OutOfMemory>("[dataset] expected the {} decoded images to fit in {} bytes but they need more",
                           dataset.size(), max_bytes);
}

}  // namespace

std::shared_ptr<const Dataset> preload(const Dataset& dataset, uint64_t max_bytes) {
  std::vector<Sample> samples(static_cast<size_t>(dataset.size()));
  std::atomic<uint64_t> bytes = 0;
  read_all(dataset, [&](int64_t i, Sample& sample) {
    uint64_t own = sample.image.pixels.size() + sample.mask.pixels.size();
    for (const auto& [name, value] : sample.values) own += value.spec().bytes();
    if ((bytes += own) > max_bytes) fail_for_size(dataset, max_bytes);
    sample.image.pixels.shrink_to_fit();
    sample.mask.pixels.shrink_to_fit();
    samples[static_cast<size_t>(i)] = std::exchange(sample, {});
  });
  return std::make_shared<CachedDataset>(std::move(samples), dataset);
}

DatasetTensors to_tensors(const Dataset& dataset, uint64_t max_bytes) {
  SINTER_CHECK(dataset.size() > 0, "[dataset] expected at least one sample");
  const Image first = dataset.get(0).image;
  SINTER_CHECK(first.is_whole(),
               "[dataset] expected the pixels of {} x {} x {} for sample 0 but got {} bytes", first.height,
               first.width, first.channels, first.pixels.size());
  const uint64_t image_bytes = first.pixels.size();
  if (image_bytes > max_bytes / static_cast<uint64_t>(dataset.size())) fail_for_size(dataset, max_bytes);
  const DatasetTensors made{
      Tensor::empty({dataset.size(), first.height, first.width, first.channels}, DType::kUInt8),
      Tensor::empty({dataset.size()}, DType::kInt64)};
  read_all(dataset, [&](int64_t i, const Sample& sample) {
    const Image& image = sample.image;
    SINTER_CHECK(
        image.height == first.height && image.width == first.width && image.channels == first.channels,
        "[dataset] expected images of {} x {} x {}, as the first, but sample {} is {} x {} x {}",
        first.height, first.width, first.channels, i, image.height, image.width, image.channels);
    std::memcpy(made.images.data<uint8_t>() + static_cast<uint64_t>(i) * image_bytes, image.pixels.data(),
                image_bytes);
    made.labels.data<int64_t>()[i] = sample.label;
  });
  return made;
}

}  // namespace sinter::nn::data
