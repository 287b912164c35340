// The loader's work without its threads: which samples a batch has, and how they get into it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <vector>

#include <sinter/nn/data/data_loader.h>

namespace sinter::nn::data {

/// The order of the samples in an epoch; null for the order of the data set.
using EpochOrder = std::shared_ptr<const std::vector<int64_t>>;

/// One batch being filled. Different threads may fill different rows.
struct BatchTask {
  int64_t epoch = 0;
  int64_t first = 0;  ///< position in the epoch of row 0
  int64_t rows = 0;
  EpochOrder order;
  Batch batch;  ///< allocated when the first image is there
};

/// A thread's buffers, kept from sample to sample.
struct WorkerBuffers {
  Sample sample;
  TransformContext context;
};

/// All members may be called from several threads at once.
class BatchAssembler {
 public:
  BatchAssembler(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options);

  int64_t batches_per_epoch() const;
  BatchTask make_task(int64_t epoch, int64_t batch);
  /// Reads, transforms and normalises rows [begin, end) of a batch; returns early once `stop` is set.
  void fill_rows(BatchTask& task, int64_t begin, int64_t end, WorkerBuffers& buffers,
                 const std::atomic<bool>& stop);

  int64_t damaged_samples() const { return damaged_count_; }
  const Dataset& dataset() const { return *dataset_; }
  const DataLoaderOptions& options() const { return options_; }

 private:
  EpochOrder order_of(int64_t epoch);
  void read_sample(int64_t epoch, int64_t index, WorkerBuffers& buffers);
  bool is_damaged(int64_t index) const;
  void add_damaged(int64_t index, const char* reason);
  void prepare(BatchTask& task, const Image& image, int64_t index);

  const std::shared_ptr<const Dataset> dataset_;
  const DataLoaderOptions options_;

  mutable std::mutex mutex_;                            // guards what follows, and the allocation of batches
  std::vector<std::pair<int64_t, EpochOrder>> orders_;  // of the last epochs asked for
  std::unordered_set<int64_t> damaged_;
  std::atomic<int64_t> damaged_count_ = 0;
  std::optional<Shape> image_shape_;  // (H, W, C) of every image
  std::optional<Normalizer> normalizer_;
};

}  // namespace sinter::nn::data
