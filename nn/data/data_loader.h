// Turns a data set into batches: in a fixed random order, on worker threads, a few batches ahead of the
// training loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>
#include <sinter/nn/data/augmentation.h>
#include <sinter/nn/data/dataset.h>
#include <sinter/nn/data/normalize.h>
#include <sinter/nn/data/sample/sample.h>
#include <sinter/nn/data/sampler.h>
#include <sinter/nn/data/transforms.h>

namespace sinter::nn::data {

/// Who decodes the JPEGs of a loader.
enum class DecodeOn {
  kCpu,   ///< the workers
  kGpu,   ///< the engines of the loader's GPU, which must have some, and the workers what these do not take
  kAuto,  ///< the engines where that can be, else the workers
};

/// The boxes of a batch, one after the other: (top, left, height, width), float32 (M, 4); their classes,
/// int64 (M); and the rows of the batch that they belong to, int64 (M), from the first on. M is 0 without
/// any.
struct BoxBatch {
  Tensor boxes, labels, images;
};

/// On the loader's device. What no sample has is undefined, or not in `values`.
struct Batch {
  Tensor images;      ///< (N, C, H, W) or (N, H, W, C)
  Tensor labels;      ///< int64 (N)
  Tensor masks = {};  ///< int64 (N, H, W)
  BoxBatch boxes = {};
  std::map<std::string, Tensor> values = {};  ///< the samples' values, stacked: (N, ...)
  /// The labels where host code may read them without waiting for a device.
  std::vector<int64_t> host_labels = {};
  /// The samples' numbers in the data set; of a damaged one, too, in whose place another stands.
  std::vector<int64_t> indices = {};

  int64_t size() const;
  /// A value by its name. Throws InvalidArgument, and tells the names that there are, for others.
  const Tensor& operator[](const std::string& name) const;
  /// `const auto& [images, labels] = batch`.
  template <size_t I>
  const Tensor& get() const {
    static_assert(I < 2);
    if constexpr (I == 0) return images;
    if constexpr (I == 1) return labels;
  }
};

struct DataLoaderOptions {
  int64_t batch_size = 32;
  bool shuffle = false;    ///< a new order every epoch, given by seed and epoch alone
  bool drop_last = false;  ///< leave the last batch out if it is smaller than the others
  uint64_t seed = 0;       ///< of the order, of all transforms and augmentations
  /// Which samples an epoch has, in place of `shuffle`; of all shards together.
  SamplerPtr sampler = {};
  /// Of every batch this loader gives the part number `shard` of `shards`, all equally large: the ranks of a
  /// job together have the batches of one loader, sample by sample, and the same order and transforms. Needs
  /// drop_last and a batch size that `shards` divides.
  int64_t shard = 0;
  int64_t shards = 1;
  int workers = 0;       ///< threads of the loader; 0 assembles each batch in next()
  int64_t prefetch = 3;  ///< batches that workers may be ahead
  /// Where the batches come out. For a GPU the workers only read and decode, into pinned memory; the pixels
  /// are copied as bytes on a stream of their own while earlier batches are worked on, and the transforms at
  /// the end of the list (mirroring, and one of shifting or resampling) run there with the normalisation.
  Device device = {};
  DType dtype = DType::kFloat32;  ///< of the images: float32, float16 or bfloat16
  Layout layout = Layout::kNCHW;
  Normalization normalization = {};
  /// Must leave all images with one size and at most 128 channels; those that resample take 1 or 3. Masks and
  /// boxes follow what moves images.
  Transforms transforms = {};
  /// What happens to whole batches behind the transforms, on the device and in this order, but those of
  /// pixels before those of normalised images: nn::RandAugment, nn::ColorJitter, nn::RandomErasing. A batch
  /// goes by 8-bit pixels between them, rounded after a resampling as well.
  std::vector<Augmentation> augmentations = {};
  /// Engines decode plain files (baseline, gray or YCbCr, upright) at full size, if the transforms are such
  /// as run on the device and one of them resamples, and channels are 3. Their pixels are not quite the
  /// workers'.
  DecodeOn decode = DecodeOn::kCpu;
  /// How many different damaged samples (IoError) to put up with before an error. Each is logged, counted,
  /// and replaced by the next sound sample of the data set, so that batches keep their size. 0: the first one
  /// is an error.
  int64_t max_damaged = 0;
  /// Seconds that a worker may take for one sample: after them next() throws an IoError that names the sample
  /// instead of waiting on, and a thread that still reads is left to itself when the loader goes. 0: no
  /// limit, so that a read() that never returns holds next() and the destructor for ever. Needs workers.
  double read_timeout = 0;
  /// Makes a batch of its samples, in their order and as the transforms have left them, in place of stacking
  /// them: for images of several sizes, or several views of one. It is called on the workers, for several
  /// batches at once. Its tensors are moved to the device; normalisation, dtype, layout and labels are its
  /// own business, and augmentations are refused. Last among the fields.
  std::function<Batch(std::vector<Sample>)> collate = {};
};

/// Where a loader stands, for checkpoints; of how many shards it is one is no part of it, since all of them
/// stand at the same place. Everything but epoch and batch is there to refuse a loader that would give the
/// samples in another order or in other batches.
struct DataLoaderState {
  int64_t epoch = 0;
  int64_t batch = 0;  ///< batches of the epoch that were handed out
  uint64_t seed = 0;
  int64_t batch_size = 0;  ///< of all shards together
  int64_t dataset_size = 0;
  uint64_t sampler = 0;  ///< a fingerprint of the sampler's first epoch; 0 without one
  bool shuffle = false;
  bool drop_last = false;
  bool operator==(const DataLoaderState&) const = default;
};

/// For one consumer at a time: a call while another thread's runs throws InvalidArgument. The batches depend
/// on the data set, the options and the epoch; neither the number of workers nor their timing plays a part,
/// and on every device they are the same but for rounding. Resampled values keep their fractions, as they are
/// rounded once, to the dtype. A batch on a GPU is ordered on the stream that is current when next() is
/// called, as the results of ops are.
///
///     DataLoader loader(dataset, {.batch_size = 512,
///                                 .shuffle = true,
///                                 .workers = 4,
///                                 .device = Device::cuda(),
///                                 .dtype = DType::kFloat16,
///                                 .layout = Layout::kNHWC,
///                                 .normalization = cifar10_normalization(),
///                                 .transforms = {random_crop(32, {.padding = 4}),
///                                                random_horizontal_flip()}});
///     for (int64_t epoch = 0; epoch < epochs; ++epoch)
///       for (const Batch& batch : loader) train(batch.images, batch.labels);
///
/// Every such loop is an epoch from its start: after a `break` the next one begins the next epoch. The
/// exception is the first loop after load_state(), which goes on where the state was taken; remaining() does
/// so at any time. A loop within a loop needs a loader of its own.
class DataLoader {
 public:
  /// Throws InvalidArgument for options out of range, an empty data set, or one without a single batch, and
  /// Unsupported for DecodeOn::kGpu where there are no engines.
  DataLoader(std::shared_ptr<const Dataset> dataset, DataLoaderOptions options);
  /// Stops the workers, wherever they are, and waits for the samples that they are reading, but for each no
  /// longer than read_timeout.
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  /// The next batch, or none once at the end of each epoch; the call after that starts the next epoch. A
  /// worker's exception is thrown here at once, ahead of finished batches; the loader then stands where it
  /// stood, and another call tries again from there.
  std::optional<Batch> next();

  int64_t batches_per_epoch() const;
  /// The epoch that the loader is in, from 0; it ends when next() has told its end.
  int64_t epoch() const;

  DataLoaderState state() const;
  /// Continues as the loader that gave this state would have, without reading what lies before; the next loop
  /// over the loader is over the rest of that epoch. Throws InvalidArgument, and changes nothing, if one of
  /// the fields beside the place is another than here. What the samples are, and what transforms make of
  /// them, is not compared.
  void load_state(const DataLoaderState& state);
  /// Moves to the start of an epoch.
  void start_epoch(int64_t epoch);
  /// Other transforms from the next batch on, as for pictures that grow from epoch to epoch. The loader
  /// stands where it stood; what was read ahead is read again. Throws InvalidArgument, and changes nothing,
  /// for transforms that a loader with these options cannot have.
  void set_transforms(Transforms transforms);

  /// Seconds that next() has waited for batches (or assembled them, without workers) since the construction:
  /// the host's time, in which a GPU may have been busy.
  double wait_seconds() const;
  /// Different damaged samples met so far.
  int64_t damaged_samples() const;
  /// Who decodes JPEGs, for people: "the workers", or "7 engines of nvJPEG 13.0".
  std::string decoder_name() const;
  /// Images that engines have decoded since the construction, for batches handed out or read ahead.
  int64_t hardware_decoded() const;

  const Dataset& dataset() const;

  class Iterator {
   public:
    const Batch& operator*() const { return *batch_; }
    /// Throws InvalidArgument if another loop over the loader has begun since, as one within this loop has:
    /// they would take each other's batches, and this one would never end.
    Iterator& operator++();
    bool operator==(std::nullptr_t) const { return !batch_; }

   private:
    friend class DataLoader;
    explicit Iterator(DataLoader* loader);
    DataLoader* loader_;
    uint64_t loop_;
    std::optional<Batch> batch_;
  };
  /// The batches of an epoch: of the present one if none of its batches was handed out or the loader was just
  /// restored, else of the next.
  Iterator begin();
  std::nullptr_t end() const { return nullptr; }

  /// What is left of the present epoch: `for (const Batch& batch : loader.remaining())`.
  class Rest {
   public:
    Iterator begin() const { return Iterator(loader_); }
    std::nullptr_t end() const { return nullptr; }

   private:
    friend class DataLoader;
    explicit Rest(DataLoader* loader) : loader_(loader) {}
    DataLoader* loader_;
  };
  Rest remaining() { return Rest(this); }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sinter::nn::data

template <>
struct std::tuple_size<sinter::nn::data::Batch> : std::integral_constant<size_t, 2> {};
template <size_t I>
struct std::tuple_element<I, sinter::nn::data::Batch> {
  using type = const sinter::Tensor;
};
