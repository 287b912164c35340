// What a training loop reads from: a numbered set of samples.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <sinter/core/tensor/tensor.h>
#include <sinter/nn/data/image/image.h>
#include <sinter/nn/data/image/jpeg.h>
#include <sinter/nn/data/sample/sample.h>

namespace sinter::nn::data {

/// Hashes what tells one data set from another into 64 bits, the same on every machine. Not against forgers.
class Fingerprint {
 public:
  void add(uint64_t number);
  /// Bytes, with their number: "ab" and "c" are not "a" and "bc".
  void add(std::span<const uint8_t> bytes);
  void add(std::string_view text);
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0;
};

/// Random access to samples. All members may be called from several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;
  /// Reads sample `index` into `sample`, which is reset, reusing its buffers. Throws InvalidArgument unless
  /// 0 <= index < size(), and IoError if the sample is damaged. Data that needs no decoder ignores
  /// `reduction`; data whose decoder is given it must not look at the pixels, as some may be undefined.
  /// Masks and boxes are those of the image at full size all the same.
  virtual void read(int64_t index, Sample& sample, const DecodeHintFunction& reduction) const = 0;
  /// Sample `index` where it lies, for data sets in memory: the loader then copies
  /// it once. None: it must be read. Throws InvalidArgument as read does.
  virtual std::optional<detail::SampleView> view(int64_t index) const;
  /// Reads the image of sample `index` as it is stored, of any format and perhaps damaged, into `sample`,
  /// reusing its buffer. False: there is no such thing, and it must be read. Throws as read does.
  virtual bool read_encoded(int64_t index, EncodedSample& sample) const;
  /// The names of the classes; the position is the label. None, the default: labels are not checked.
  virtual const std::vector<std::string>& class_names() const;
  /// The labels of all samples, where they are known without reading any; else none at all.
  virtual std::vector<int64_t> labels() const { return {}; }
  /// Tells whether this is the data of another run or machine: equal for the same samples in the same order,
  /// wherever they lie and whenever they were copied, and another for any that this library's data sets can
  /// tell apart without decoding: by the names of classes and files, labels, sizes, places in an archive,
  /// some files' contents. Cheap: of very many files, only some are looked at. By default of size,
  /// class_names() and labels().
  virtual uint64_t fingerprint() const;

  int64_t num_classes() const { return static_cast<int64_t>(class_names().size()); }
  /// Sample `index` at full size, as a fresh value.
  Sample get(int64_t index) const {
    Sample sample;
    read(index, sample, {});
    return sample;
  }

 protected:
  /// The index as an unsigned number, or InvalidArgument.
  size_t checked_index(int64_t index) const;
};

using DatasetPtr = std::shared_ptr<const Dataset>;

/// Images of one size in one block of memory.
class MemoryDataset final : public Dataset {
 public:
  struct Content {
    int64_t height = 0;
    int64_t width = 0;
    int64_t channels = 0;
    std::vector<uint8_t> pixels;  ///< (N, height, width, channels), row-major
    std::vector<int64_t> labels;  ///< N of them
    std::vector<std::string> class_names;
  };
  /// Throws InvalidArgument unless pixels, labels and names fit together.
  explicit MemoryDataset(Content content);

  int64_t size() const override { return static_cast<int64_t>(content_.labels.size()); }
  void read(int64_t index, Sample& sample, const DecodeHintFunction& reduction) const override;
  std::optional<detail::SampleView> view(int64_t index) const override;
  const std::vector<std::string>& class_names() const override { return content_.class_names; }
  std::vector<int64_t> labels() const override { return content_.labels; }
  /// Of the pixels too, which are in memory anyway.
  uint64_t fingerprint() const override;
  const Content& content() const { return content_; }

 private:
  Content content_;
};

/// Some samples of another data set, in the order of `indices`; one may be named several times.
class Subset final : public Dataset {
 public:
  /// Throws InvalidArgument unless all indices are in [0, dataset->size()).
  Subset(std::shared_ptr<const Dataset> dataset, std::vector<int64_t> indices);

  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  void read(int64_t index, Sample& sample, const DecodeHintFunction& reduction) const override;
  std::optional<detail::SampleView> view(int64_t index) const override;
  bool read_encoded(int64_t index, EncodedSample& sample) const override;
  const std::vector<std::string>& class_names() const override { return dataset_->class_names(); }
  std::vector<int64_t> labels() const override;
  uint64_t fingerprint() const override;

  /// Where the samples are in the data set beneath.
  const std::vector<int64_t>& indices() const { return indices_; }

 private:
  std::shared_ptr<const Dataset> dataset_;
  std::vector<int64_t> indices_;
};

/// Another data set whose damaged samples (those that throw IoError) are each replaced by the next sound one,
/// the first following the last, so that sizes and places stay. Whoever asks, and in which order, gets the
/// same samples.
class SkipDamaged final : public Dataset {
 public:
  /// Puts up with at most `max_damaged` damaged samples; the one after them is an IoError.
  SkipDamaged(std::shared_ptr<const Dataset> dataset, int64_t max_damaged);

  int64_t size() const override { return dataset_->size(); }
  void read(int64_t index, Sample& sample, const DecodeHintFunction& reduction) const override;
  std::optional<detail::SampleView> view(int64_t index) const override { return dataset_->view(index); }
  /// False for a sample that is known to be damaged, in whose place read() gives another.
  bool read_encoded(int64_t index, EncodedSample& sample) const override;
  const std::vector<std::string>& class_names() const override { return dataset_->class_names(); }
  std::vector<int64_t> labels() const override { return dataset_->labels(); }
  uint64_t fingerprint() const override { return dataset_->fingerprint(); }

  /// The damaged samples that were met so far.
  struct Damage {
    int64_t count = 0;
    std::string first;  ///< what was wrong with the one of them that comes first; names its file
  };
  Damage damage() const;

 private:
  void add_damaged(int64_t index, const std::string& reason) const;
  bool is_damaged(int64_t index) const;

  std::shared_ptr<const Dataset> dataset_;
  int64_t max_damaged_;
  mutable std::mutex mutex_;  // guards what follows
  mutable std::unordered_set<int64_t> damaged_;
  mutable int64_t first_ = 0;
  mutable std::string first_reason_;
};

/// Deals the samples out at random into as many parts as there are fractions, which add up to 1: part i gets
/// floor(size * fraction) of them, and what is left goes to the first parts, one each. The parts are
/// disjoint, hold every sample between them, and depend on the sizes and `seed` alone. Throws InvalidArgument
/// for no or negative fractions, or another sum.
std::vector<std::shared_ptr<const Dataset>> random_split(const std::shared_ptr<const Dataset>& dataset,
                                                         const std::vector<double>& fractions,
                                                         uint64_t seed = 0);

/// Deals the samples of every class out in two parts, for training and for testing: of a class of n samples,
/// n * fraction, rounded, go to the second, but at least one, and at most n - 1, if n > 1. Each part keeps
/// the order of the data set. Which samples go depends on the class's size, its number and `seed` alone.
/// Throws InvalidArgument unless 0 < fraction < 1, for a data set that does not know its labels, and for
/// labels that are negative or beyond the classes that have names.
struct TrainTestSplit {
  std::shared_ptr<const Dataset> train, test;
};
TrainTestSplit stratified_split(const std::shared_ptr<const Dataset>& dataset, double fraction,
                                uint64_t seed = 0);

/// Reads all of a data set into memory, decoded, on as many threads as parallel_for() has, so that
/// every later epoch costs no decoding. Classes and fingerprint stay. The first damaged sample's error is
/// rethrown. Throws OutOfMemory once the images need more than `max_bytes`; the whole data set is never
/// needed to find that out.
std::shared_ptr<const Dataset> preload(const Dataset& dataset, uint64_t max_bytes = uint64_t{8} << 30);

/// A whole data set on the CPU, to be moved to a device that has room for it and where batches are then taken
/// by ops: take_rows and crop_images.
struct DatasetTensors {
  Tensor images;  ///< uint8 (N, height, width, channels)
  Tensor labels;  ///< int64 (N)
};

/// Reads all of a data set whose images have one size, as preload does: on all worker threads, and with its
/// errors. Throws InvalidArgument, which names the sample, for an image of another size than the first.
DatasetTensors to_tensors(const Dataset& dataset, uint64_t max_bytes = uint64_t{8} << 30);

}  // namespace sinter::nn::data
