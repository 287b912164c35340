// The orders of a loader's epochs: shuffled, a sampler's, or the data set's own.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <sinter/nn/data/sampler.h>

namespace sinter::nn::data {

/// The order of the samples in an epoch, null for that of the data set: numbers of samples, to which
/// kRepeat is added for each time that the sample was there before.
using EpochOrder = std::shared_ptr<const std::vector<int64_t>>;
inline constexpr int64_t kRepeat = int64_t{1} << 40;

/// All members may be called from several threads at once.
class EpochOrders {
 public:
  EpochOrders(int64_t samples, uint64_t seed, bool shuffle, SamplerPtr sampler)
      : samples_(samples), seed_(seed), shuffle_(shuffle), sampler_(std::move(sampler)) {}

  /// Samples of an epoch.
  int64_t size() const { return sampler_ != nullptr ? sampler_->size() : samples_; }
  /// Throws InvalidArgument for a sampler that breaks its promises.
  EpochOrder of(int64_t epoch);
  /// A fingerprint of the sampler's first epoch; 0 without one.
  uint64_t sampler_fingerprint() const;

 private:
  /// Made once, by the first who needs it; others wait for that and for nothing else.
  struct KnownOrder {
    int64_t epoch = 0;
    std::once_flag made;
    EpochOrder order;
  };
  std::vector<int64_t> make(int64_t epoch) const;

  const int64_t samples_;
  const uint64_t seed_;
  const bool shuffle_;
  const SamplerPtr sampler_;
  std::mutex mutex_;                                // guards the list
  std::vector<std::shared_ptr<KnownOrder>> known_;  // of the last epochs asked for
  mutable std::once_flag fingerprint_made_;
  mutable uint64_t fingerprint_ = 0;
};

}  // namespace sinter::nn::data
