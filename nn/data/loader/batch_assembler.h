// The loader's work without its threads: which samples a batch has, and how they get into it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <vector>

#include <sinter/core/image/image_decoder.h>
#include <sinter/nn/data/data_loader.h>
#include <sinter/nn/data/loader/batch_staging.h>
#include <sinter/nn/data/loader/epoch_orders.h>

namespace sinter::nn::data {

/// One batch being filled. Different threads may fill different rows.
struct BatchTask {
  int64_t epoch = 0;
  int64_t first = 0;  ///< position in the epoch of row 0
  int64_t rows = 0;
  EpochOrder order;
  std::unique_ptr<BatchStaging> staging;  ///< begun when the first image is there
  std::vector<Sample> samples;            ///< in place of staging, for a collate function
  std::optional<Batch> plain;             ///< once it is on the device, before its augmentation

  /// The sample of a row.
  int64_t sample(int64_t row) const { return stream(row) % kRepeat; }
  /// The number of its random stream, which is that of the sample where the sample is there for the first
  /// time.
  int64_t stream(int64_t row) const {
    return order ? (*order)[static_cast<size_t>(first + row)] : first + row;
  }
};

/// Tells other threads which sample a thread is reading, and since when.
class ReadClock {
 public:
  using Clock = std::chrono::steady_clock;

  /// While it lives, a sample is being read.
  class Scope {
   public:
    Scope(ReadClock& clock, int64_t sample) : clock_(clock) { clock.start(sample); }
    ~Scope() { clock_.stop(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    ReadClock& clock_;
  };

  void start(int64_t sample) {
    const std::lock_guard lock(mutex_);
    sample_ = sample;
    since_ = Clock::now();
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    since_.reset();
  }
  /// None: nothing is being read.
  std::optional<Clock::time_point> since() const {
    const std::lock_guard lock(mutex_);
    return since_;
  }
  /// The last one that was begun.
  int64_t sample() const {
    const std::lock_guard lock(mutex_);
    return sample_;
  }

 private:
  mutable std::mutex mutex_;
  int64_t sample_ = 0;
  std::optional<Clock::time_point> since_;
};

/// A thread's buffers, kept from sample to sample.
struct WorkerBuffers {
  /// What the decoder of the sample was told: the stored size, and by what it may be divided.
  struct Reduced {
    int64_t height = 0, width = 0;
    int by = 1;
  };

  ReadClock reading;
  Sample sample;
  EncodedSample encoded;
  Reduced reduced;
  SampleRandom random;
};

/// All members may be called from several threads at once.
class BatchAssembler {
 public:
  BatchAssembler(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options);
  /// With a decoder in place of the one that the options ask for; for tests.
  BatchAssembler(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options,
                 std::shared_ptr<ImageDecoder> decoder);
  virtual ~BatchAssembler() = default;

  int64_t batches_per_epoch() const;
  /// A fingerprint of the sampler's first epoch; 0 without one.
  uint64_t sampler_fingerprint() const { return orders_.sampler_fingerprint(); }
  virtual BatchTask make_task(int64_t epoch, int64_t batch);
  /// Puts the samples of an epoch in order before its tasks ask for it: 50 ms for a million.
  void prepare_epoch(int64_t epoch) { orders_.of(epoch); }
  /// Reads and stages rows [begin, end) of a batch; returns early once `stop` is set.
  void fill_rows(BatchTask& task, int64_t begin, int64_t end, WorkerBuffers& buffers,
                 const std::atomic<bool>& stop);
  /// Sends a filled batch to the device, and reads those samples anew whose files its decoder refuses.
  void upload(BatchTask& task, WorkerBuffers& buffers);
  /// The batch of a task whose upload is queued, on the current stream; the task is then used up. If it
  /// throws, it can be called again.
  Batch finish(BatchTask& task);
  int64_t damaged_samples() const { return damaged_count_; }
  std::string decoder() const { return decoder_ == nullptr ? "the workers" : decoder_->describe(); }
  int64_t hardware_decoded() const { return decoded_by_engines_; }
  const Dataset& dataset() const { return *dataset_; }
  const std::shared_ptr<const Dataset>& dataset_pointer() const { return dataset_; }
  /// Takes over what another has counted, and which samples it found damaged.
  void go_on_counting(const BatchAssembler& other);
  const DataLoaderOptions& options() const { return options_; }

 protected:
  /// The memory of one more batch on its way.
  virtual std::unique_ptr<BatchStaging> make_staging() const;
  const TransformSplit& split() const { return split_; }

 private:
  ops::ImageOutput output_for(DType dtype, Layout layout) const;
  bool augments(BatchAugmentation::Stage stage) const;
  Tensor augmented(const Tensor& images, const BatchTask& task) const;
  void check_normalization() const;
  std::shared_ptr<ImageDecoder> find_decoder() const;
  void fill_row(BatchTask& task, int64_t row, WorkerBuffers& buffers, Shape& known);
  bool leave_to_decoder(BatchTask& task, int64_t row, WorkerBuffers& buffers, Shape& known);
  std::unique_ptr<BatchStaging> take_staging();
  detail::SampleView read_sample(const BatchTask& task, int64_t row, WorkerBuffers& buffers);
  std::optional<detail::SampleView> read_one(int64_t index, WorkerBuffers& buffers,
                                             const DecodeHintFunction& reduction);
  void transform(int64_t index, WorkerBuffers& buffers) const;
  void put_sample(BatchTask& task, int64_t row, const detail::SampleView& sample, WorkerBuffers& buffers,
                  Shape& known);
  Frame moved_frame(int64_t height, int64_t width, SampleRandom& random) const;
  DecodeHint reduction_of(int64_t index, int64_t height, int64_t width, WorkerBuffers& buffers) const;
  void check_options() const;
  void check_sample(int64_t index, const Sample& sample) const;
  void check_mask(int64_t index, const Image& mask, int64_t height, int64_t width) const;
  void check_label(int64_t index, int64_t label) const;
  bool is_damaged(int64_t index) const;
  void add_damaged(int64_t index, const char* reason);
  void prepare(BatchTask& task, const Shape& image, int64_t index, Shape& known);

  const std::shared_ptr<const Dataset> dataset_;
  const DataLoaderOptions options_;
  const TransformSplit split_;
  EpochOrders orders_;
  const int64_t num_classes_;  // 0: the data set names none, and labels are not checked
  // A bit for each sample that was read to its end and is sound; none where pixels are wanted whole.
  std::vector<std::atomic<uint64_t>> sound_;
  const std::shared_ptr<ImageDecoder> decoder_;  // null: the workers decode
  std::atomic<int64_t> decoded_by_engines_ = 0;
  std::string moving_;  // the name of an augmentation that moves what is in images, if there is one

  mutable std::mutex mutex_;  // guards what follows; nobody waits for a device while holding it
  std::unordered_set<int64_t> damaged_;
  std::atomic<int64_t> damaged_count_ = 0;
  std::optional<Shape> image_shape_;                // (H, W, C) of every image
  std::deque<std::unique_ptr<BatchStaging>> idle_;  // oldest first: the likeliest to be done with its copy
};

}  // namespace sinter::nn::data
