#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/sample_random.h>
#include <sinter/nn/data/sampler.h>

namespace sinter::nn::data {
namespace {

// In (0, 1), in steps of 2^-53.
double uniform(SampleRandom& random) {
  return (static_cast<double>(random.below(uint64_t{1} << 53)) + 0.5) * 0x1p-53;
}

class WeightedSampler final : public Sampler {
 public:
  WeightedSampler(std::vector<double> weights, int64_t draws, bool replacement)
      : weights_(std::move(weights)), draws_(draws), replacement_(replacement) {}

  int64_t size() const override { return draws_; }
  std::vector<int64_t> order(uint64_t seed, int64_t epoch) const override {
    SampleRandom random(seed, epoch, SampleRandom::kShuffle);
    return replacement_ ? drawn_again(random) : drawn_once(random);
  }

 private:
  std::vector<int64_t> drawn_again(SampleRandom& random) const {
    std::vector<double> sums;
    double sum = 0;
    for (const double weight : weights_) sums.push_back(sum += weight);
    std::vector<int64_t> order(static_cast<size_t>(draws_));
    for (int64_t& index : order) {
      // Rounding may lead beyond the last sum; what weighs nothing has the sum of the one before, and is
      // passed over.
      const double at = std::min(uniform(random) * sum, std::nextafter(sum, 0.0));
      index = std::upper_bound(sums.begin(), sums.end(), at) - sums.begin();
    }
    return order;
  }

  // In the order of log(u) / weight from the largest on, which is that of drawing one after the other.
  std::vector<int64_t> drawn_once(SampleRandom& random) const {
    std::vector<std::pair<double, int64_t>> keys;
    for (size_t i = 0; i < weights_.size(); ++i) {
      const double u = uniform(random);
      if (weights_[i] > 0) keys.emplace_back(-std::log(u) / weights_[i], static_cast<int64_t>(i));
    }
    std::sort(keys.begin(), keys.end());
    std::vector<int64_t> order;
    for (size_t i = 0; i < static_cast<size_t>(draws_); ++i) order.push_back(keys[i].second);
    return order;
  }

  std::vector<double> weights_;
  int64_t draws_;
  bool replacement_;
};

// Samples that take turns: enough that neighbours differ, few enough that a batch has all views of most.
constexpr int64_t kGroup = 16;

class RepeatedAugmentation final : public Sampler {
 public:
  RepeatedAugmentation(int64_t samples, int64_t repeats, int64_t draws)
      : samples_(samples), repeats_(repeats), draws_(draws) {}

  int64_t size() const override { return draws_; }
  std::vector<int64_t> order(uint64_t seed, int64_t epoch) const override {
    const std::vector<int64_t> shuffled = shuffled_indices(samples_, seed, epoch);
    const int64_t drawn = (draws_ + repeats_ - 1) / repeats_, groups = std::max<int64_t>(drawn / kGroup, 1);
    std::vector<int64_t> order;
    for (int64_t group = 0; group < groups; ++group) {
      const auto begin = shuffled.begin() + group * drawn / groups;
      const auto end = shuffled.begin() + (group + 1) * drawn / groups;
      for (int64_t k = 0; k < repeats_; ++k) order.insert(order.end(), begin, end);
    }
    order.resize(static_cast<size_t>(draws_));
    return order;
  }

 private:
  int64_t samples_, repeats_, draws_;
};

}  // namespace

SamplerPtr weighted_sampler(std::vector<double> weights, const WeightedSamplerOptions& options) {
  double sum = 0;
  int64_t positive = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    SINTER_CHECK(std::isfinite(weights[i]) && weights[i] >= 0,
                 "[weighted_sampler] expected finite weights >= 0 but weight {} is {}", i, weights[i]);
    sum += weights[i];
    if (weights[i] > 0) ++positive;
  }
  SINTER_CHECK(sum > 0 && std::isfinite(sum),
               "[weighted_sampler] expected weights with a finite sum > 0 but {} weights add up to {}",
               weights.size(), sum);
  const int64_t draws = options.draws == 0 ? static_cast<int64_t>(weights.size()) : options.draws;
  SINTER_CHECK(draws > 0, "[weighted_sampler] expected draws >= 0 but got {}", draws);
  SINTER_CHECK(
      options.replacement || draws <= positive,
      "[weighted_sampler] expected at most {} draws without replacement, one for each weight over 0, "
      "but got {}",
      positive, draws);
  return std::make_shared<WeightedSampler>(std::move(weights), draws, options.replacement);
}

SamplerPtr balanced_sampler(const std::vector<int64_t>& labels, const WeightedSamplerOptions& options) {
  SINTER_CHECK(!labels.empty(), "[balanced_sampler] expected labels but got none");
  std::map<int64_t, double> counts;
  for (const int64_t label : labels) {
    SINTER_CHECK(label >= 0, "[balanced_sampler] expected labels >= 0 but got {}", label);
    ++counts[label];
  }
  std::vector<double> weights;
  for (const int64_t label : labels) weights.push_back(1 / counts[label]);
  return weighted_sampler(std::move(weights), options);
}

SamplerPtr repeated_augmentation_sampler(int64_t samples, const RepeatedAugmentationOptions& options) {
  SINTER_CHECK(samples > 0, "[repeated_augmentation_sampler] expected samples but got {}", samples);
  SINTER_CHECK(options.repeats > 0, "[repeated_augmentation_sampler] expected repeats > 0 but got {}",
               options.repeats);
  const int64_t draws = options.draws == 0 ? samples : options.draws;
  SINTER_CHECK(draws > 0 && (draws - 1) / options.repeats < samples,
               "[repeated_augmentation_sampler] expected 1 to {} draws, {} of each of {} samples, but got {}",
               samples * options.repeats, options.repeats, samples, draws);
  return std::make_shared<RepeatedAugmentation>(samples, options.repeats, draws);
}

}  // namespace sinter::nn::data
