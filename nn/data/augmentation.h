// What happens to whole batches on their device, behind the transforms of single images.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <sinter/core/base/layout.h>
#include <sinter/core/tensor/tensor.h>
#include <sinter/nn/data/sample_random.h>

namespace sinter::nn::data {

/// The samples of a batch, and where their random numbers come from.
class BatchRandom {
 public:
  BatchRandom(uint64_t seed, int64_t epoch, std::vector<int64_t> samples)
      : seed_(seed), epoch_(epoch), samples_(std::move(samples)) {}

  int64_t size() const { return static_cast<int64_t>(samples_.size()); }
  /// The stream of the sample in this row: of seed, epoch, the sample's index and how often it was there
  /// before in the epoch, and of nothing else.
  SampleRandom of(int64_t row) const {
    return {seed_, epoch_, static_cast<uint64_t>(samples_[static_cast<size_t>(row)])};
  }
  /// The same samples with other streams, for the augmentation at this place in a list.
  BatchRandom at_place(size_t place) const {
    constexpr uint64_t kStream = SampleRandom::kShuffle - 1;  // no sample's
    const PhiloxBlock block = philox(seed_, place, kStream);
    return {uint64_t{block.words[0]} << 32 | block.words[1], epoch_, samples_};
  }

 private:
  uint64_t seed_;
  int64_t epoch_;
  std::vector<int64_t> samples_;
};

/// Changes the images of a batch at random. What an image gets depends on seed, epoch and the sample's index
/// alone, so neither on the batch in which it comes nor on workers or the device. Safe to call from several
/// threads at once.
class BatchAugmentation {
 public:
  enum class Stage {
    kPixels,      ///< takes and gives uint8 (N, H, W, C), before they are normalised
    kNormalized,  ///< takes and gives what the network reads
  };

  virtual ~BatchAugmentation() = default;
  virtual Stage stage() const = 0;
  /// Its name, if it moves what is in the images: the loader then refuses samples with masks or boxes, which
  /// would not follow. Empty, the default: all stays where it is.
  virtual std::string_view moves_images() const { return {}; }
  /// The changed batch, of the same spec and on the same device. `layout`: NHWC for pixels. Throws
  /// InvalidArgument unless there are as many images as `draws` has samples.
  virtual Tensor apply(const Tensor& images, Layout layout, const BatchRandom& draws) const = 0;
};

/// Any augmentation: `std::vector<Augmentation>{nn::RandAugment(), nn::RandomErasing()}`.
class Augmentation {
 public:
  template <std::derived_from<BatchAugmentation> T>
  Augmentation(T augmentation)  // NOLINT(google-explicit-constructor): lists are written as above
      : shared_(std::make_shared<const T>(std::move(augmentation))) {}

  const BatchAugmentation* operator->() const { return shared_.get(); }

 private:
  std::shared_ptr<const BatchAugmentation> shared_;
};

}  // namespace sinter::nn::data
