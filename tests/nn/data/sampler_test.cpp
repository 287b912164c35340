// Samplers: how often they draw what, that they draw it again, and what the loader makes of it.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/augment/random_erasing.h>
#include <sinter/nn/data/sampler.h>

#include "nn/data/data_test_support.h"
#include "nn/data/fake_dataset.h"

namespace sinter::nn::data {
namespace {

using testing::FakeDataset, testing::message_of, testing::Record, testing::records, testing::shuffled;

TEST(Sampler, DrawsByWeight) {
  const SamplerPtr sampler = weighted_sampler({1, 0, 3, 6}, {.draws = 20'000});
  EXPECT_EQ(sampler->size(), 20'000);
  std::map<int64_t, int> counts;
  for (const int64_t index : sampler->order(1, 0)) ++counts[index];
  EXPECT_EQ(counts.size(), 3u);
  EXPECT_NEAR(counts[0], 2'000, 5 * 42);  // 5 deviations
  EXPECT_NEAR(counts[2], 6'000, 5 * 65);
  EXPECT_NEAR(counts[3], 12'000, 5 * 70);
  EXPECT_EQ(sampler->order(1, 0), sampler->order(1, 0));
  EXPECT_NE(sampler->order(1, 0), sampler->order(1, 1));
  EXPECT_NE(sampler->order(1, 0), sampler->order(2, 0));
}

TEST(Sampler, DrawsWithoutReplacementAsOneAfterTheOther) {
  const SamplerPtr sampler = weighted_sampler({1, 2, 0, 5}, {.draws = 2, .replacement = false});
  constexpr int64_t kEpochs = 20'000;
  std::map<std::pair<int64_t, int64_t>, int64_t> counts;
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const std::vector<int64_t> order = sampler->order(7, epoch);
    ASSERT_EQ(order.size(), 2u);
    ++counts[{order[0], order[1]}];
  }
  const double weights[] = {1, 2, 0, 5};
  EXPECT_EQ(counts.size(), 6u);
  for (const auto& [pair, count] : counts) {
    const auto [first, second] = pair;
    const double p = weights[first] / 8 * weights[second] / (8 - weights[first]);
    EXPECT_NEAR(static_cast<double>(count), kEpochs * p, 5 * std::sqrt(kEpochs * p))
        << first << " " << second;
  }
}

TEST(Sampler, BalancesClasses) {
  std::vector<int64_t> labels(1000, 0);
  std::fill(labels.begin(), labels.begin() + 10, 1);
  int64_t ones = 0;
  for (const int64_t index : balanced_sampler(labels, {.draws = 10'000})->order(1, 0))
    ones += labels[static_cast<size_t>(index)];
  EXPECT_NEAR(static_cast<double>(ones), 5'000, 250);
}

TEST(Sampler, RepeatsSamples) {
  const SamplerPtr sampler = repeated_augmentation_sampler(10);
  EXPECT_EQ(sampler->size(), 10);
  const std::vector<int64_t> order = sampler->order(1, 3);
  EXPECT_EQ(order.size(), 10u);
  EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), 4u);
  EXPECT_EQ(repeated_augmentation_sampler(10, {.draws = 30})->order(1, 3).size(), 30u);
}

// Batches that are mixed with their neighbours mix pictures, and still have all views of most of them.
TEST(Sampler, RepeatsSamplesInTurns) {
  const std::vector<int64_t> order = repeated_augmentation_sampler(1000)->order(1, 0);
  std::map<int64_t, std::vector<int64_t>> places;
  for (int64_t i = 0; i < 1000; ++i) places[order[static_cast<size_t>(i)]].push_back(i);
  EXPECT_EQ(places.size(), 334u);
  int64_t thrice = 0;
  for (const auto& [sample, at] : places) {
    for (size_t k = 1; k < at.size(); ++k) {
      EXPECT_GE(at[k] - at[k - 1], 16) << sample;
      EXPECT_LE(at[k] - at[k - 1], 17) << sample;
    }
    EXPECT_LE(at.size(), 3u);
    thrice += at.size() == 3 ? 1 : 0;
  }
  EXPECT_GE(thrice, 332);
}

TEST(Sampler, RefusesWhatCannotBe) {
  const auto error = [](auto make) { return message_of<InvalidArgument>(make); };
  EXPECT_EQ(error([] {
              weighted_sampler({1, -1});
            }),
            "[weighted_sampler] expected finite weights >= 0 but weight 1 is -1");
  EXPECT_EQ(error([] {
              weighted_sampler({0, 0});
            }),
            "[weighted_sampler] expected weights with a finite sum > 0 but 2 weights add up to 0");
  EXPECT_EQ(error([] {
              weighted_sampler({1, 0, 1}, {.replacement = false});
            }),
            "[weighted_sampler] expected at most 2 draws without replacement, one for each weight over 0, "
            "but got 3");
  EXPECT_EQ(error([] { balanced_sampler({}); }), "[balanced_sampler] expected labels but got none");
  EXPECT_EQ(error([] { repeated_augmentation_sampler(4, {.draws = 13}); }),
            "[repeated_augmentation_sampler] expected 1 to 12 draws, 3 of each of 4 samples, but got 13");
}

/// Every third sample, backwards, and the last one twice.
class Thirds final : public Sampler {
 public:
  int64_t size() const override { return 14; }
  std::vector<int64_t> order(uint64_t, int64_t epoch) const override {
    std::vector<int64_t> order;
    for (int64_t i = 36; i >= 0; i -= 3) order.push_back(i + epoch);
    order.push_back(36 + epoch);
    return order;
  }
};

TEST(SampledLoader, HasTheOrderOfItsSampler) {
  for (const int workers : {0, 2}) {
    DataLoader loader(std::make_shared<FakeDataset>(40),
                      {.batch_size = 5, .sampler = std::make_shared<Thirds>(), .workers = workers});
    EXPECT_EQ(loader.batches_per_epoch(), 3);
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      std::vector<int64_t> seen, indices;
      for (const Batch& batch : loader) {
        const auto labels = batch.labels.to_vector<int64_t>();
        EXPECT_EQ(batch.host_labels, labels);
        seen.insert(seen.end(), labels.begin(), labels.end());
        indices.insert(indices.end(), batch.indices.begin(), batch.indices.end());
      }
      EXPECT_EQ(seen, Thirds().order(0, epoch));
      EXPECT_EQ(indices, seen);
    }
  }
}

// What is there twice is augmented twice, by transforms and on whole batches; what is there for the first
// time as without a sampler.
TEST(SampledLoader, AugmentsRepetitionsDifferently) {
  DataLoaderOptions options = shuffled(0);
  options.shuffle = false;
  options.batch_size = 12;
  options.transforms = {make_transform([](Sample& sample, SampleRandom& random) {
    sample.values["draw"] = Tensor::scalar(static_cast<int64_t>(random.word()));
  })};
  options.augmentations = {RandomErasing({.probability = 1})};
  const auto dataset = std::make_shared<FakeDataset>(4);
  DataLoader plain(dataset, options);
  options.sampler = repeated_augmentation_sampler(4, {.draws = 12});
  DataLoader repeated(dataset, options);
  const Batch once = *plain.next(), often = *repeated.next();
  const auto draws = often["draw"].to_vector<int64_t>();
  EXPECT_EQ(std::set<int64_t>(draws.begin(), draws.end()).size(), 12u);
  const auto first = once["draw"].to_vector<int64_t>();
  std::set<std::vector<float>> images;
  for (int64_t row = 0; row < 12; ++row) {
    if (row < 4) {
      EXPECT_EQ(draws[static_cast<size_t>(row)],
                first[static_cast<size_t>(often.indices[static_cast<size_t>(row)])]);
      EXPECT_EQ(often.images[row].to_vector<float>(),
                once.images[often.indices[static_cast<size_t>(row)]].to_vector<float>());
    }
    images.insert(often.images[row].to_vector<float>());
  }
  EXPECT_GT(images.size(), 8u);
}

TEST(SampledLoader, GoesOnInTheMiddleOfAnEpoch) {
  const std::vector<double> weights = [] {
    std::vector<double> values(40);
    std::iota(values.begin(), values.end(), 1.0);
    return values;
  }();
  for (const SamplerPtr& sampler :
       {weighted_sampler(weights), weighted_sampler(weights, {.draws = 23, .replacement = false}),
        repeated_augmentation_sampler(40), SamplerPtr(std::make_shared<Thirds>())}) {
    DataLoaderOptions options = shuffled(2);
    options.shuffle = false;
    options.sampler = sampler;
    const auto dataset = std::make_shared<FakeDataset>(40);
    DataLoader whole(dataset, options);
    const std::vector<Record> expected = records(whole, 2);
    DataLoader first(dataset, options);
    std::vector<Record> seen;
    seen.push_back(testing::record(*first.next()));
    DataLoader second(dataset, options);
    second.load_state(first.state());
    for (const Batch& batch : second) seen.push_back(testing::record(batch));
    for (const Record& record : records(second, 1)) seen.push_back(record);
    EXPECT_EQ(seen, expected);
  }
}

TEST(SampledLoader, ShardsHaveEqualPartsOfItsBatches) {
  DataLoaderOptions options = shuffled(0);
  options.shuffle = false;
  options.drop_last = true;
  options.sampler = weighted_sampler(std::vector<double>(43, 1.0));
  const auto dataset = std::make_shared<FakeDataset>(43);
  DataLoader whole(dataset, options);
  options.shards = 2;
  DataLoader left(dataset, options);
  options.shard = 1;
  DataLoader right(dataset, options);
  for (const Batch& batch : whole) {
    std::vector<float> parts;
    for (DataLoader* const shard : {&left, &right}) {
      const Batch part = *shard->next();
      EXPECT_EQ(part.size(), 4);
      for (const float value : part.images.to_vector<float>()) parts.push_back(value);
    }
    EXPECT_EQ(parts, batch.images.to_vector<float>());
  }
}

TEST(SampledLoader, RefusesBadOrdersAndOtherSamplers) {
  class Bad final : public Sampler {
   public:
    explicit Bad(std::vector<int64_t> order) : order_(std::move(order)) {}
    int64_t size() const override { return 2; }
    std::vector<int64_t> order(uint64_t, int64_t) const override { return order_; }

   private:
    std::vector<int64_t> order_;
  };
  const auto dataset = std::make_shared<FakeDataset>(4);
  const auto error = [&](std::vector<int64_t> order) {
    return message_of<InvalidArgument>(
        [&] { DataLoader(dataset, {.sampler = std::make_shared<Bad>(order)}).next(); });
  };
  EXPECT_EQ(error({1}), "[data_loader] expected 2 samples of the sampler, as its size() says, but got 1");
  EXPECT_EQ(error({1, 4}), "[data_loader] expected samples from 0 to 3 of the sampler but got 4");
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              DataLoader(dataset, {.shuffle = true, .sampler = weighted_sampler({1, 1, 1, 1})});
            }),
            "[data_loader] expected either shuffle or a sampler but got both");
  DataLoader none(dataset, {}), weighted(dataset, {.sampler = weighted_sampler({1, 2, 3, 4})}),
      other(dataset, {.sampler = weighted_sampler({4, 3, 2, 1})});
  EXPECT_EQ(message_of<InvalidArgument>([&] { weighted.load_state(none.state()); }),
            "[data_loader] expected a state of the same sampler but got one of none");
  EXPECT_EQ(message_of<InvalidArgument>([&] { weighted.load_state(other.state()); }),
            "[data_loader] expected a state of the same sampler but got one of another");
}

}  // namespace
}  // namespace sinter::nn::data
