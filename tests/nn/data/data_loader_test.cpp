// The loader: the same batches whatever the threads do, exact resumption, and no way to hang it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <numeric>
#include <thread>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/core/base/log.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/nn/data/data_loader.h>

#include "nn/data/data_test_support.h"

namespace sinter::nn::data {
namespace {

using namespace std::chrono_literals;
using testing::message_of;

// 4 x 4 RGB images that tell their index; `on_read` may sleep or throw.
class FakeDataset final : public Dataset {
 public:
  explicit FakeDataset(int64_t size, std::function<void(int64_t)> on_read = {})
      : size_(size), on_read_(std::move(on_read)) {}
  int64_t size() const override { return size_; }
  void read(int64_t index, Sample& sample, const ReductionChooser&) const override {
    checked_index(index);
    ++reads;
    if (on_read_) on_read_(index);
    sample.image.reshape(4, index == odd_one ? 5 : 4, 3);
    for (size_t i = 0; i < sample.image.pixels.size(); ++i) {
      sample.image.pixels[i] = static_cast<uint8_t>(static_cast<size_t>(index) * 7 + i);
    }
    sample.label = index;
  }
  const std::vector<std::string>& class_names() const override { return names_; }

  int64_t odd_one = -1;  // has another width
  mutable std::atomic<int64_t> reads = 0;

 private:
  int64_t size_;
  std::function<void(int64_t)> on_read_;
  std::vector<std::string> names_;
};

DataLoaderOptions shuffled(int workers) {
  DataLoaderOptions options;
  options.batch_size = 8;
  options.shuffle = true;
  options.seed = 11;
  options.workers = workers;
  options.transforms = {pad_crop(1, PadMode::kReflect), random_horizontal_flip()};
  return options;
}

struct Record {
  std::vector<int64_t> labels;
  std::vector<float> pixels;
  bool operator==(const Record&) const = default;
};
Record record(const Batch& batch) {
  return {batch.labels.to_vector<int64_t>(), batch.images.to_vector<float>()};
}

std::vector<Record> records(DataLoader& loader, int64_t epochs) {
  std::vector<Record> all;
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    for (const Batch& batch : loader) all.push_back(record(batch));
  }
  return all;
}

int thread_count() {
  is_available(Device::cuda());  // a CUDA build with a driver starts a thread of its own at the first look
  return static_cast<int>(std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}));
}

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
      EXPECT_EQ(loader.host_labels(), labels);
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
  whole.restore(half.state());
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
      resumed.restore(states[start]);
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
    for (const Batch& batch : loader.rest()) rest.push_back(record(batch));
    EXPECT_EQ(rest, epoch_of(2)) << "what was left of it";
  }
}

TEST(DataLoader, TheFirstLoopAfterRestoreGoesOn) {
  DataLoader reference(std::make_shared<FakeDataset>(53), shuffled(0));
  const std::vector<Record> expected = records(reference, 2);
  const auto per_epoch = static_cast<std::ptrdiff_t>(reference.batches_per_epoch());
  DataLoader first(std::make_shared<FakeDataset>(53), shuffled(0));
  for (int i = 0; i < 3; ++i) first.next();
  DataLoader resumed(std::make_shared<FakeDataset>(53), shuffled(0));
  resumed.restore(first.state());
  std::vector<Record> got = records(resumed, 2);
  EXPECT_EQ(got, std::vector<Record>(expected.begin() + 3, expected.end()));
  // At the end of an epoch that nobody was told of, the loop is over the nothing that is left.
  while (first.state().batch < per_epoch) first.next();
  resumed.restore(first.state());
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
  loader.restore(state);
  loader.next();
  EXPECT_EQ(dataset->reads, 8);
  loader.start_epoch(2);
  EXPECT_EQ(loader.state().batch, 0);
  EXPECT_EQ(loader.epoch(), 2);
}

TEST(DataLoader, RefusesStatesOfOtherLoaders) {
  DataLoader loader(std::make_shared<FakeDataset>(53), shuffled(1));
  const DataLoaderState state = loader.state();
  const auto error = [&](auto change) {
    DataLoaderState other = state;
    change(other);
    return message_of<InvalidArgument>([&] { loader.restore(other); });
  };
  EXPECT_EQ(error([](auto& s) { s.seed = 4; }), "[data_loader] expected a state of seed 11 but got one of 4");
  EXPECT_EQ(error([](auto& s) { s.batch_size = 4; }),
            "[data_loader] expected a state of batch size 8 but got one of 4");
  EXPECT_EQ(error([](auto& s) { s.dataset_size = 4; }),
            "[data_loader] expected a state of 53 samples but got one of 4");
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

TEST(DataLoader, BringsAWorkersErrorAtOnce) {
  const int before = thread_count();
  for (const int64_t bad : {0, 3, 17, 52}) {
    // The others are slow, so that a loader that waits for them is found out.
    const auto dataset = std::make_shared<FakeDataset>(53, [&](int64_t i) {
      if (i == bad) throw std::runtime_error("broken");
      if (i % 2 == 0 && i > 10) std::this_thread::sleep_for(20ms);
    });
    DataLoaderOptions options = shuffled(3);
    options.shuffle = false;
    DataLoader loader(dataset, options);
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(message_of<std::runtime_error>([&] { records(loader, 1); }), "broken") << bad;
    EXPECT_LT(std::chrono::steady_clock::now() - start, 2s);
    // It stands where it stood: the call can be repeated, and fails again.
    const DataLoaderState state = loader.state();
    EXPECT_LE(state.batch, bad / 8);
    EXPECT_EQ(message_of<std::runtime_error>([&] { records(loader, 1); }), "broken");
  }
  EXPECT_EQ(thread_count(), before);
}

TEST(DataLoader, DoesNotWaitForASleeperToTellAnError) {
  // Time and again: the worker that does not sleep must go on with the same batch, never with the next one,
  // whichever of the two is made first.
  for (int round = 0; round < 100; ++round) {
    std::atomic<bool> wake = false;
    const auto dataset = std::make_shared<FakeDataset>(8, [&](int64_t i) {
      if (i == 5) throw std::runtime_error("broken");
      while (i == 0 && !wake) std::this_thread::sleep_for(1ms);
    });
    DataLoader loader(dataset, {.batch_size = 8, .workers = 2});
    EXPECT_EQ(message_of<std::runtime_error>([&] { loader.next(); }),
              "broken");  // while sample 0 is still read
    wake = true;
  }
}

TEST(DataLoader, RecoversFromAPassingError) {
  std::atomic<int> failures = 1;
  const auto flaky = std::make_shared<FakeDataset>(53, [&](int64_t i) {
    if (i == 20 && failures-- > 0) throw std::runtime_error("once");
  });
  DataLoader alone(std::make_shared<FakeDataset>(53), shuffled(0));
  DataLoader loader(flaky, shuffled(2));
  std::vector<Record> seen;
  int errors = 0;
  while (seen.size() < 7) {
    try {
      if (const std::optional<Batch> batch = loader.next()) seen.push_back(record(*batch));
    } catch (const std::runtime_error&) {
      ++errors;
    }
  }
  EXPECT_EQ(errors, 1);
  EXPECT_EQ(seen, records(alone, 1));
}

TEST(DataLoader, TellsAnErrorThatCameBetweenTwoCalls) {
  std::atomic<int> failures = 1;
  std::atomic<bool> go = false, failed = false;
  const auto flaky = std::make_shared<FakeDataset>(8, [&](int64_t i) {
    if (i != 5 || failures-- <= 0) return;
    while (!go) std::this_thread::sleep_for(1ms);
    failed = true;
    throw std::runtime_error("once");
  });
  DataLoader loader(flaky, {.batch_size = 4, .workers = 1});
  EXPECT_EQ(loader.next()->size(), 4);
  go = true;
  while (!failed) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(50ms);  // in which the worker stops
  EXPECT_EQ(message_of<std::runtime_error>([&] { loader.next(); }), "once");
  EXPECT_EQ(record(*loader.next()).labels, (std::vector<int64_t>{4, 5, 6, 7}));
}

TEST(DataLoader, CanBeDestroyedAnywhere) {
  const int before = thread_count();
  for (int batches = 0; batches <= 9; ++batches) {
    for (const int64_t prefetch : {1, 4}) {
      DataLoaderOptions options = shuffled(3);
      options.prefetch = prefetch;
      DataLoader loader(
          std::make_shared<FakeDataset>(53, [](int64_t) { std::this_thread::sleep_for(100us); }), options);
      for (int i = 0; i < batches; ++i) loader.next();
    }
  }
  EXPECT_EQ(thread_count(), before);
}

TEST(DataLoader, StaysWithinItsPrefetch) {
  const auto dataset = std::make_shared<FakeDataset>(1'000);
  DataLoaderOptions options = shuffled(3);
  options.prefetch = 2;
  DataLoader loader(dataset, options);
  loader.next();
  std::this_thread::sleep_for(50ms);
  EXPECT_LE(dataset->reads, 8 * 3);
}

TEST(DataLoader, PutsUpWithAFewDamagedSamples) {
  int warnings = 0;
  log::set_sink([&](log::Level, std::string_view) { ++warnings; });
  const auto damaged = [](int64_t i) {
    if (i == 4 || i == 5 || i == 52) throw IoError("torn");
  };
  DataLoaderOptions options;
  options.batch_size = 53;
  options.max_damaged = 3;
  for (const int workers : {0, 2}) {
    warnings = 0;
    options.workers = workers;
    DataLoader loader(std::make_shared<FakeDataset>(53, damaged), options);
    for (int epoch = 0; epoch < 2; ++epoch) {
      const auto labels = loader.next()->labels.to_vector<int64_t>();
      EXPECT_EQ(labels[3], 3);
      EXPECT_EQ(labels[4], 6);
      EXPECT_EQ(labels[5], 6);
      EXPECT_EQ(labels[52], 0);
      EXPECT_FALSE(loader.next());
    }
    EXPECT_EQ(loader.damaged_samples(), 3);
    EXPECT_EQ(warnings, 3);
  }
  log::set_sink({});
  options.workers = 0;
  options.max_damaged = 0;
  DataLoader strict(std::make_shared<FakeDataset>(53, damaged), options);
  EXPECT_EQ(message_of<IoError>([&] { strict.next(); }), "torn");
  log::set_sink([](log::Level, std::string_view) {});
  options.max_damaged = 2;
  DataLoader limited(std::make_shared<FakeDataset>(53, damaged), options);
  EXPECT_EQ(message_of<IoError>([&] { limited.next(); }),
            "[data_loader] more than 2 damaged samples; the last is sample 52: torn");
  DataLoader hopeless(std::make_shared<FakeDataset>(2, [](int64_t) { throw IoError("torn"); }), options);
  EXPECT_EQ(message_of<IoError>([&] { hopeless.next(); }),
            "[data_loader] all 2 samples of the data set are damaged");
  log::set_sink({});
}

}  // namespace
}  // namespace sinter::nn::data
