// The loader: the same batches whatever the threads do, exact resumption, and what it refuses.
#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>

#include "nn/data/data_test_support.h"
#include "nn/data/fake_dataset.h"

namespace sinter::nn::data {
namespace {

using namespace std::chrono_literals;
using testing::FakeDataset, testing::message_of, testing::Record, testing::record, testing::records,
    testing::shuffled;

TEST(DataLoader, GivesTheSameBatchesForAnyNumberOfWorkers) {
  DataLoader alone(std::make_shared<FakeDataset>(53), shuffled(0));
  const std::vector<Record> expected = records(alone, 3);
  ASSERT_EQ(expected.size(), 21u);
  for (const int workers : {1, 2, 5}) {
    for (const int64_t prefetch : {1, 2, 9}) {
      DataLoaderOptions options = shuffled(workers);
      options.prefetch = prefetch;
      // Uneven reading times mix up who finishes when.
      DataLoader loader(std::make_shared<FakeDataset>(53,
                                                      [](int64_t i) {
                                                        if (i % 9 == 0) std::this_thread::sleep_for(1ms);
                                                      }),
                        options);
      EXPECT_EQ(records(loader, 3), expected) << workers << " workers, prefetch " << prefetch;
    }
  }
}

TEST(DataLoader, VisitsEverySampleOnceAnEpochInANewOrder) {
  DataLoader loader(std::make_shared<FakeDataset>(50), shuffled(2));
  std::vector<std::vector<int64_t>> orders;
  for (int epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(loader.epoch(), epoch);
    orders.emplace_back();
    for (const Batch& batch : loader) {
      const auto labels = batch.labels.to_vector<int64_t>();
      EXPECT_EQ(batch.host_labels, labels);
      orders.back().insert(orders.back().end(), labels.begin(), labels.end());
    }
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
  std::vector<int64_t> all(50);
  std::iota(all.begin(), all.end(), int64_t{0});
  for (auto& order : orders) {
    EXPECT_NE(order, all);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, all);
  }
}

TEST(DataLoader, ShardsTogetherHaveTheBatchesOfOneLoader) {
  const auto dataset = std::make_shared<FakeDataset>(43);
  DataLoaderOptions options = shuffled(2);
  options.drop_last = true;
  DataLoader whole(dataset, options);
  std::vector<std::unique_ptr<DataLoader>> shards;
  options.shards = 4;
  for (options.shard = 0; options.shard < 4; ++options.shard)
    shards.push_back(std::make_unique<DataLoader>(dataset, options));
  for (int epoch = 0; epoch < 2; ++epoch) {
    EXPECT_EQ(shards[0]->batches_per_epoch(), 5);
    for (const Batch& batch : whole) {
      std::vector<float> pixels;
      std::vector<int64_t> labels;
      for (const auto& shard : shards) {
        const std::optional<Batch> part = shard->next();
        ASSERT_TRUE(part.has_value());
        EXPECT_EQ(part->size(), 2);
        for (const float pixel : part->images.to_vector<float>()) pixels.push_back(pixel);
        for (const int64_t label : part->labels.to_vector<int64_t>()) labels.push_back(label);
      }
      EXPECT_EQ(labels, batch.labels.to_vector<int64_t>());
      EXPECT_EQ(pixels, batch.images.to_vector<float>());
    }
    for (const auto& shard : shards) EXPECT_FALSE(shard->next().has_value());
  }
}

// A checkpoint says where in the samples an epoch stands, not how many loaders there were.
TEST(DataLoader, OtherShardsGoOnWhereTheseStood) {
  const auto dataset = std::make_shared<FakeDataset>(40);
  DataLoaderOptions options = shuffled(0);
  options.drop_last = true;
  DataLoader whole(dataset, options);
  options.shards = 2;
  options.shard = 1;
  DataLoader half(dataset, options);
  half.next();
  half.next();
  EXPECT_EQ(half.state().batch_size, 8);
  whole.load_state(half.state());
  EXPECT_EQ(whole.state(), half.state());
  const auto labels = whole.next()->labels.to_vector<int64_t>();
  EXPECT_EQ(std::vector<int64_t>(labels.begin() + 4, labels.end()), half.next()->labels.to_vector<int64_t>());
}

TEST(DataLoader, RefusesShardsThatCannotBe) {
  const auto dataset = std::make_shared<FakeDataset>(40);
  const auto refusal = [&](int64_t shard, int64_t shards, bool drop_last) {
    DataLoaderOptions options = shuffled(0);
    options.drop_last = drop_last;
    options.shard = shard;
    options.shards = shards;
    return message_of<InvalidArgument>([&] { DataLoader loader(dataset, options); });
  };
  EXPECT_NE(refusal(2, 2, true).find("expected a shard from 0"), std::string::npos);
  EXPECT_NE(refusal(0, 0, true).find("expected a shard from 0"), std::string::npos);
  EXPECT_NE(refusal(0, 3, true).find("that 3 shards divide but got 8"), std::string::npos);
  EXPECT_NE(refusal(0, 2, false).find("without drop_last"), std::string::npos);
}

TEST(DataLoader, ShapesBatches) {
  DataLoaderOptions options;
  options.batch_size = 8;
  DataLoader whole(std::make_shared<FakeDataset>(20), options);
  EXPECT_EQ(whole.batches_per_epoch(), 3);
  std::vector<int64_t> sizes;
  for (const Batch& batch : whole) {
    EXPECT_EQ(batch.images.shape(), (Shape{batch.size(), 3, 4, 4}));
    EXPECT_EQ(batch.images.dtype(), DType::kFloat32);
    sizes.push_back(batch.size());
  }
  EXPECT_EQ(sizes, (std::vector<int64_t>{8, 8, 4}));

  options.drop_last = true;
  options.layout = Layout::kNHWC;
  DataLoader dropping(std::make_shared<FakeDataset>(20), options);
  EXPECT_EQ(dropping.batches_per_epoch(), 2);
  const Batch batch = *dropping.next();
  EXPECT_EQ(batch.images.shape(), (Shape{8, 4, 4, 3}));
  EXPECT_EQ(batch.labels.to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_FLOAT_EQ(batch.images.data<float>()[4 * 4 * 3 * 2 + 5], (2 * 7 + 5) / 255.0f);
}

TEST(DataLoader, ResumesAnywhere) {
  for (const int workers : {0, 2}) {
    DataLoader whole(std::make_shared<FakeDataset>(53), shuffled(workers));
    std::vector<DataLoaderState> states;
    std::vector<std::optional<Record>> calls;  // none marks the ends of epochs
    for (int i = 0; i < 18; ++i) {
      states.push_back(whole.state());
      const std::optional<Batch> batch = whole.next();
      calls.push_back(batch ? std::optional(record(*batch)) : std::nullopt);
    }
    for (size_t start = 0; start < states.size(); ++start) {
      const auto dataset = std::make_shared<FakeDataset>(53);
      DataLoader resumed(dataset, shuffled(workers));
      resumed.load_state(states[start]);
      EXPECT_EQ(resumed.state(), states[start]);
      for (size_t i = start; i < calls.size(); ++i) {
        const std::optional<Batch> batch = resumed.next();
        EXPECT_EQ(batch ? std::optional(record(*batch)) : std::nullopt, calls[i]) << start << " to " << i;
      }
    }
  }
}

TEST(DataLoader, ALoopAfterABreakIsAnEpochFromItsStart) {
  for (const int workers : {0, 2}) {
    DataLoader reference(std::make_shared<FakeDataset>(53), shuffled(workers));
    const std::vector<Record> expected = records(reference, 3);
    const auto per_epoch = static_cast<std::ptrdiff_t>(reference.batches_per_epoch());
    const auto epoch_of = [&](std::ptrdiff_t epoch) {
      return std::vector<Record>(expected.begin() + epoch * per_epoch,
                                 expected.begin() + (epoch + 1) * per_epoch);
    };
    DataLoader loader(std::make_shared<FakeDataset>(53), shuffled(workers));
    int64_t seen = 0;
    for (const Batch& batch : loader) {
      EXPECT_EQ(record(batch), expected[static_cast<size_t>(seen)]);
      if (++seen == 3) break;
    }
    EXPECT_EQ(loader.epoch(), 0);
    EXPECT_EQ(records(loader, 1), epoch_of(1)) << "the whole of the next epoch";
    for (const Batch& batch : loader) {
      EXPECT_EQ(record(batch), epoch_of(2).front());
      break;
    }
    std::vector<Record> rest = {epoch_of(2).front()};
    for (const Batch& batch : loader.remaining()) rest.push_back(record(batch));
    EXPECT_EQ(rest, epoch_of(2)) << "what was left of it";
  }
}

TEST(DataLoader, RefusesToGoOnBehindALoopWithinALoop) {
  for (const int workers : {0, 2}) {
    DataLoader loader(std::make_shared<FakeDataset>(23), shuffled(workers));
    int64_t outer = 0, inner = 0;
    const auto nested = [&](auto&& within) {
      for ([[maybe_unused]] const Batch& batch : loader) {
        if (++outer > 3) return;  // in place of a loop that never ends
        for ([[maybe_unused]] const Batch& other : within()) ++inner;
      }
    };
    const std::string message =
        message_of<InvalidArgument>([&] { nested([&]() -> auto& { return loader; }); });
    EXPECT_NE(message.find("expected one loop at a time"), std::string::npos) << message;
    EXPECT_EQ(outer, 1);
    EXPECT_EQ(inner, loader.batches_per_epoch());
    EXPECT_THROW(nested([&] { return loader.remaining(); }), InvalidArgument);
    // What comes after the error is an epoch again.
    EXPECT_EQ(records(loader, 1).size(), static_cast<size_t>(loader.batches_per_epoch()));
  }
}

TEST(DataLoader, TheFirstLoopAfterRestoreGoesOn) {
  DataLoader reference(std::make_shared<FakeDataset>(53), shuffled(0));
  const std::vector<Record> expected = records(reference, 2);
  const auto per_epoch = static_cast<std::ptrdiff_t>(reference.batches_per_epoch());
  DataLoader first(std::make_shared<FakeDataset>(53), shuffled(0));
  for (int i = 0; i < 3; ++i) first.next();
  DataLoader resumed(std::make_shared<FakeDataset>(53), shuffled(0));
  resumed.load_state(first.state());
  std::vector<Record> got = records(resumed, 2);
  EXPECT_EQ(got, std::vector<Record>(expected.begin() + 3, expected.end()));
  // At the end of an epoch that nobody was told of, the loop is over the nothing that is left.
  while (first.state().batch < per_epoch) first.next();
  resumed.load_state(first.state());
  EXPECT_TRUE(records(resumed, 1).empty());
  EXPECT_EQ(records(resumed, 1), std::vector<Record>(expected.begin() + per_epoch, expected.end()));
}

TEST(DataLoader, RefusesAWrongNormalizationAtOnce) {
  const auto error = [](std::shared_ptr<const Dataset> dataset, const Normalization& normalization) {
    return message_of<InvalidArgument>([&] { DataLoader loader(dataset, {.normalization = normalization}); });
  };
  const auto unknown = std::make_shared<FakeDataset>(5);
  MemoryDataset::Content content{
      .height = 1, .width = 1, .channels = 3, .pixels = {1, 2, 3}, .labels = {0}, .class_names = {"a"}};
  const auto rgb = std::make_shared<MemoryDataset>(content);
  EXPECT_EQ(
      error(rgb, {{0.5f, 0.5f}, {1.0f}}),
      "[data_loader] expected a normalization with 1 or 3 means, one for each channel of the images, but "
      "got 2");
  EXPECT_EQ(
      error(unknown, {{0.5f, 0.5f, 0.5f}, {1.0f, 1.0f}}),
      "[data_loader] expected a normalization with 1 or 3 deviations, one for each channel of the images, "
      "but got 2");
  EXPECT_EQ(
      error(unknown, {{}, {1.0f}}),
      "[data_loader] expected a normalization with 1 or 1 means, one for each channel of the images, but "
      "got 0");
  EXPECT_EQ(error(unknown, {{0.0f}, {0.0f}}), "[data_loader] expected deviations > 0 but got 0");
}

TEST(DataLoader, SkipsWithoutReading) {
  const auto dataset = std::make_shared<FakeDataset>(10'000);
  DataLoader loader(dataset, shuffled(0));
  DataLoaderState state = loader.state();
  state.epoch = 400;
  state.batch = 1'000;
  loader.load_state(state);
  loader.next();
  EXPECT_EQ(dataset->reads, 8);
  loader.start_epoch(2);
  EXPECT_EQ(loader.state().batch, 0);
  EXPECT_EQ(loader.epoch(), 2);
}

// As where pictures grow from epoch to epoch, or from one batch to the next.
TEST(DataLoader, GoesOnWithOtherTransforms) {
  const auto dataset = std::make_shared<FakeDataset>(43);
  const Transforms other = {resize(6), random_horizontal_flip()};
  for (const int workers : {0, 3}) {
    DataLoaderOptions options = shuffled(workers);
    DataLoader loader(dataset, options), before(dataset, options);
    options.transforms = other;
    DataLoader after(dataset, options);
    const auto expect_next = [](DataLoader& one, DataLoader& expected) {
      const std::optional<Batch> batch = one.next(), wanted = expected.next();
      ASSERT_TRUE(batch.has_value() && wanted.has_value());
      EXPECT_EQ(batch->images.shape(), wanted->images.shape());
      EXPECT_EQ(record(*batch), record(*wanted));
    };
    for (int i = 0; i < 2; ++i) expect_next(loader, before);
    loader.set_transforms(other);
    EXPECT_EQ(loader.state(), before.state());
    after.load_state(before.state());
    for (int i = 0; i < 4; ++i) expect_next(loader, after);
    EXPECT_FALSE(loader.next().has_value());
    loader.set_transforms(shuffled(workers).transforms);  // between two epochs
    before.start_epoch(1);
    expect_next(loader, before);
    const DataLoaderState place = loader.state();
    EXPECT_NE(message_of([&] { loader.set_transforms({nullptr}); }), "");
    EXPECT_EQ(loader.state(), place);
    expect_next(loader, before);
  }
}

TEST(DataLoader, RefusesStatesOfOtherLoaders) {
  DataLoader loader(std::make_shared<FakeDataset>(53), shuffled(1));
  const DataLoaderState state = loader.state();
  const auto error = [&](auto change) {
    DataLoaderState other = state;
    change(other);
    return message_of<InvalidArgument>([&] { loader.load_state(other); });
  };
  EXPECT_EQ(error([](auto& s) { s.seed = 4; }), "[data_loader] expected a state of seed 11 but got one of 4");
  EXPECT_EQ(error([](auto& s) { s.batch_size = 4; }),
            "[data_loader] expected a state of batch size 8 but got one of 4");
  EXPECT_EQ(error([](auto& s) { s.dataset_size = 4; }),
            "[data_loader] expected a state of 53 samples but got one of 4");
  EXPECT_EQ(error([](auto& s) { s.shuffle = false; }),
            "[data_loader] expected a state with shuffle true but got false");
  EXPECT_EQ(error([](auto& s) { s.drop_last = true; }),
            "[data_loader] expected a state with drop_last false but got true");
  EXPECT_EQ(error([](auto& s) { s.batch = 8; }),
            "[data_loader] expected an epoch >= 0 and a batch from 0 to 7 but got epoch 0, batch 8");
}

TEST(DataLoader, RefusesWrongOptions) {
  const auto error = [](int64_t size, DataLoaderOptions options) {
    return message_of<InvalidArgument>(
        [&] { DataLoader loader(std::make_shared<FakeDataset>(size), options); });
  };
  EXPECT_EQ(error(0, {}), "[data_loader] expected at least one sample but the data set is empty");
  EXPECT_EQ(error(5, {.batch_size = 0}), "[data_loader] expected a batch size > 0 but got 0");
  EXPECT_EQ(error(5, {.workers = -1}), "[data_loader] expected 0 to 1024 workers but got -1");
  EXPECT_EQ(error(5, {.workers = 1, .prefetch = 0}), "[data_loader] expected a prefetch > 0 but got 0");
  EXPECT_EQ(error(5, {.dtype = DType::kFloat64}),
            "[data_loader] expected float32, float16 or bfloat16 images but got float64");
  EXPECT_EQ(error(5, {.transforms = {nullptr}}), "[data_loader] expected transforms but one is null");
  EXPECT_EQ(error(5, {.batch_size = 8, .drop_last = true}),
            "[data_loader] expected at least one batch, but 5 samples make none of 8 without the last");
}

TEST(DataLoader, RefusesImagesOfOtherSizes) {
  for (const int workers : {0, 2}) {
    const auto dataset = std::make_shared<FakeDataset>(16);
    dataset->odd_one = 10;
    DataLoaderOptions options;
    options.batch_size = 4;
    options.workers = workers;
    options.prefetch = 1;
    DataLoader loader(dataset, options);
    EXPECT_EQ(message_of<InvalidArgument>([&] { records(loader, 1); }),
              "[data_loader] expected all images (H, W, C) = (4, 4, 3) after the transforms but sample 10 is "
              "(4, 5, 3); "
              "a resize or crop makes them equal");
  }
}

}  // namespace
}  // namespace sinter::nn::data
