// The loader's threads: an error is told at once and once, nothing hangs, and none is left behind.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/core/base/log.h>
#include <sinter/core/runtime/backend.h>

#include "nn/data/data_test_support.h"
#include "nn/data/fake_dataset.h"

namespace sinter::nn::data {
namespace {

using namespace std::chrono_literals;
using testing::FakeDataset, testing::message_of, testing::Record, testing::record, testing::records,
    testing::shuffled;

/// Threads of this process: the fewest within a tenth of a second, as those that were joined may be listed a
/// little longer.
int thread_count() {
  is_available(Device::cuda());  // a CUDA build with a driver starts a thread of its own at the first look
  auto fewest = std::numeric_limits<int64_t>::max();
  for (int look = 0; look < 100; ++look, std::this_thread::sleep_for(1ms))
    fewest =
        std::min<int64_t>(fewest, std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}));
  return static_cast<int>(fewest);
}

TEST(LoaderThreads, BringsAWorkersErrorAtOnce) {
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

TEST(LoaderThreads, DoesNotWaitForASleeperToTellAnError) {
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

TEST(LoaderThreads, RecoversFromAPassingError) {
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

TEST(LoaderThreads, TellsAnErrorThatCameBetweenTwoCalls) {
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

TEST(LoaderThreads, CanBeDestroyedAnywhere) {
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

TEST(LoaderThreads, StaysWithinItsPrefetch) {
  const auto dataset = std::make_shared<FakeDataset>(1'000);
  DataLoaderOptions options = shuffled(3);
  options.prefetch = 2;
  DataLoader loader(dataset, options);
  loader.next();
  std::this_thread::sleep_for(50ms);
  EXPECT_LE(dataset->reads, 8 * 3);
}

TEST(LoaderThreads, PutsUpWithAFewDamagedSamples) {
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
