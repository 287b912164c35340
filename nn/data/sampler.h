// Which samples an epoch has, and in which order, where that is neither the data set's nor a shuffle.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace sinter::nn::data {

/// The order of an epoch's samples. Pure: the same arguments give the same order, on every rank and after
/// every restart. May be called from several threads at once.
class Sampler {
 public:
  virtual ~Sampler() = default;
  /// Samples of an epoch.
  virtual int64_t size() const = 0;
  /// size() numbers of samples; one may be there several times, and is then augmented differently each time.
  virtual std::vector<int64_t> order(uint64_t seed, int64_t epoch) const = 0;
};

using SamplerPtr = std::shared_ptr<const Sampler>;

struct WeightedSamplerOptions {
  int64_t draws = 0;        ///< of an epoch; 0: as many as there are weights
  bool replacement = true;  ///< false: none is drawn twice
};

/// Draws sample i with a probability of weights[i] over the sum of the weights, or, without replacement, over
/// the sum of those that are left; torch's WeightedRandomSampler. Throws InvalidArgument for weights that are
/// negative or not finite, or all 0, and for more draws without replacement than there are weights over 0.
/// Source: P. Efraimidis, P. Spirakis, "Weighted random sampling with a reservoir", 2006.
SamplerPtr weighted_sampler(std::vector<double> weights, const WeightedSamplerOptions& options = {});

/// A weighted sampler that draws every class as often as any other, by weights of 1 over the number of its
/// samples: `balanced_sampler(dataset->labels())`. Throws InvalidArgument for no or negative labels.
SamplerPtr balanced_sampler(const std::vector<int64_t>& labels, const WeightedSamplerOptions& options = {});

struct RepeatedAugmentationOptions {
  int64_t repeats = 3;  ///< of each sample
  int64_t draws = 0;    ///< of an epoch; 0: as many as there are samples, of which a part is then left out
};

/// A shuffle of `samples` samples in which each is there `repeats` times, differently augmented, so that a
/// batch has several views of one picture. About 16 samples take turns, so that mixup and CutMix, which mix
/// an image with the one before it, mix two pictures and not one with itself. Source: M. Berman et al.,
/// "MultiGrain", 2019; the recipes A1 to A3 of R. Wightman et al., "ResNet strikes back", 2021.
SamplerPtr repeated_augmentation_sampler(int64_t samples, const RepeatedAugmentationOptions& options = {});

}  // namespace sinter::nn::data
