// Data sets that break their promises: the loader says which sample, and nothing reads, hangs or ends with
// it.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <system_error>
#include <thread>

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <sinter/core/base/error.h>
#include <sinter/core/base/log.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/data/data_loader.h>

#include "nn/data/data_test_support.h"

namespace sinter::nn::data {
namespace {

using namespace std::chrono_literals;
using testing::message_of;

/// 2 x 2 images of one channel and two classes; `change` may spoil them, sleep or worse.
class HostileDataset final : public Dataset {
 public:
  explicit HostileDataset(std::function<void(int64_t, Sample&)> change) : change_(std::move(change)) {}
  int64_t size() const override { return 8; }
  void read(int64_t index, Sample& sample, const DecodeHintFunction&) const override {
    sample.image.reshape(2, 2, 1);
    sample.label = index % 2;
    change_(index, sample);
  }
  const std::vector<std::string>& class_names() const override { return names_; }

 private:
  std::function<void(int64_t, Sample&)> change_;
  std::vector<std::string> names_ = {"even", "odd"};
};

/// Shows a sample in place.
class ViewDataset final : public Dataset {
 public:
  explicit ViewDataset(detail::SampleView view) : view_(view) {}
  int64_t size() const override { return 1; }
  void read(int64_t, Sample&, const DecodeHintFunction&) const override { throw IoError("not read"); }
  std::optional<detail::SampleView> view(int64_t) const override { return view_; }
  const std::vector<std::string>& class_names() const override { return names_; }

 private:
  detail::SampleView view_;
  std::vector<std::string> names_ = {"one"};
};

std::string error_of(std::function<void(int64_t, Sample&)> change, int workers,
                     const Transforms& transforms = {}) {
  DataLoader loader(std::make_shared<HostileDataset>(std::move(change)),
                    {.batch_size = 8, .workers = workers, .transforms = transforms});
  return message_of<InvalidArgument>([&] { loader.next(); });
}

TEST(LoaderFaults, TooFewPixelsAreNamed) {
  for (const int workers : {0, 2}) {
    EXPECT_EQ(
        error_of([](int64_t i, Sample& sample) { sample.image.pixels.resize(i == 5 ? 3 : 4); }, workers),
        "[data_loader] expected the pixels of 2 x 2 x 1 for sample 5 but got 3 bytes");
    EXPECT_EQ(
        error_of([](int64_t i, Sample& sample) { sample.image.width = i == 3 ? int64_t{1} << 62 : 2; },
                 workers),
        "[data_loader] expected the pixels of 2 x 4611686018427387904 x 1 for sample 3 but got 4 bytes");
    EXPECT_EQ(error_of([](int64_t i, Sample& sample) { sample.image.height = i == 0 ? -2 : 2; }, workers),
              "[data_loader] expected the pixels of -2 x 2 x 1 for sample 0 but got 4 bytes");
  }
}

TEST(LoaderFaults, PreloadNamesThemToo) {
  const HostileDataset dataset([](int64_t i, Sample& sample) { sample.image.pixels.resize(i == 5 ? 3 : 4); });
  EXPECT_EQ(message_of<InvalidArgument>([&] { preload(dataset); }),
            "[dataset] expected the pixels of 2 x 2 x 1 for sample 5 but got 3 bytes");
}

TEST(LoaderFaults, TransformsThatSpoilAnImageAreNamedToo) {
  class Shrinker final : public Transform {
   public:
    void apply(Sample& sample, SampleRandom&) const override { sample.image.pixels.clear(); }
  };
  EXPECT_EQ(error_of([](int64_t, Sample&) {}, 0, {std::make_shared<Shrinker>()}),
            "[data_loader] expected the pixels of 2 x 2 x 1 for sample 0 but got 0 bytes");
}

TEST(LoaderFaults, LabelsThatAreNoClassAreNamed) {
  for (const int64_t wrong : {int64_t{2}, int64_t{-1}, INT64_MAX}) {
    EXPECT_EQ(error_of([=](int64_t i, Sample& sample) { sample.label = i == 6 ? wrong : 0; }, 1),
              fmt::format("[data_loader] expected labels from 0 to 1 but that of sample 6 is {}", wrong));
  }
}

TEST(LoaderFaults, ViewsOfNothingAreNamed) {
  const uint8_t pixel = 7;
  const auto error = [](const detail::SampleView& view) {
    DataLoader loader(std::make_shared<ViewDataset>(view), {.batch_size = 1});
    return message_of<InvalidArgument>([&] { loader.next(); });
  };
  EXPECT_EQ(error({1, 1, 1, nullptr, 0}),
            "[data_loader] expected pixels for sample 0 but got an image of 1 x 1 x 1 without any");
  EXPECT_EQ(error({1, 0, 1, &pixel, 0}),
            "[data_loader] expected pixels for sample 0 but got an image of 1 x 0 x 1");
  EXPECT_EQ(error({1, 1, 1, &pixel, 1}),
            "[data_loader] expected labels from 0 to 0 but that of sample 0 is 1");
}

TEST(LoaderFaults, AThreadThatEndsItselfIsAnError) {
  std::atomic<bool> ends = true;
  const auto dataset = std::make_shared<HostileDataset>([&](int64_t i, Sample&) {
    if (i == 4 && ends) pthread_exit(nullptr);
  });
  DataLoader loader(dataset, {.batch_size = 4, .workers = 2});
  EXPECT_EQ(message_of<Error>([&] {
              while (loader.next()) {
              }
            }),
            "[data_loader] a worker's thread was ended while it read sample 4");
  ends = false;
  int batches = 0;  // and the loader goes on from there
  while (loader.next()) ++batches;
  EXPECT_GE(batches, 1);
}

TEST(LoaderFaults, WithoutWorkersItIsTheCallersThreadThatEndsAndTheLoaderGoesOn) {
  std::atomic<bool> ends = true, came_back = false;
  const auto dataset = std::make_shared<HostileDataset>([&](int64_t i, Sample&) {
    if (i == 4 && ends) pthread_exit(nullptr);
  });
  DataLoader loader(dataset, {.batch_size = 4});
  std::thread([&] {
    while (loader.next()) {
    }
    came_back = true;
  }).join();
  EXPECT_FALSE(came_back);
  ends = false;
  int batches = 0;  // from the one that could not be read on
  while (loader.next()) ++batches;
  EXPECT_EQ(batches, (dataset->size() + 3) / 4 - 1);
}

TEST(LoaderFaults, AThreadThatEndsItselfIsAnErrorOfPreloading) {
  const auto dataset = std::make_shared<HostileDataset>([](int64_t i, Sample&) {
    if (i == 4) pthread_exit(nullptr);
  });
  const int threads = num_threads();
  for (const int count : {1, 3}) {
    set_num_threads(count);
    EXPECT_EQ(message_of<Error>([&] { preload(*dataset); }),
              "[dataset] a thread was ended while it read sample 4");
    EXPECT_EQ(message_of<Error>([&] { to_tensors(*dataset); }),
              "[dataset] a thread was ended while it read sample 4");
  }
  set_num_threads(threads);
}

#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // which need more memory than is left here
/// In a process without room for the stacks of so many workers.
[[noreturn]] void load_with_too_many_workers() {
  const auto dataset = std::make_shared<HostileDataset>([](int64_t, Sample&) {});
  DataLoader(dataset, {}).next();  // all libraries that this needs are there
  rlimit limit{};
  ::getrlimit(RLIMIT_AS, &limit);
  long pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  limit.rlim_cur = static_cast<rlim_t>(pages * ::sysconf(_SC_PAGESIZE)) + (rlim_t{64} << 20);
  ::setrlimit(RLIMIT_AS, &limit);
  try {
    DataLoader(dataset, {.workers = 200}).next();
    std::_Exit(1);
  } catch (const std::system_error& error) {
    std::fprintf(stderr, "%s", error.what());
  }
  std::_Exit(0);
}

TEST(LoaderFaults, ThreadsThatCannotStartAreAnError) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(load_with_too_many_workers(), ::testing::ExitedWithCode(0), "Resource temporarily unavailable");
}
#endif

/// Reads sample 3 for as long as it is told to.
class StuckRead {
 public:
  void operator()(int64_t index, Sample&) {
    if (index != 3) return;
    ++inside_;
    while (held_) std::this_thread::sleep_for(1ms);
    --inside_;
  }
  void wait_until_reading() const {
    while (inside_ == 0) std::this_thread::sleep_for(1ms);
  }
  void release() {
    held_ = false;
    while (inside_ > 0) std::this_thread::sleep_for(1ms);
  }

 private:
  std::atomic<bool> held_ = true;
  std::atomic<int> inside_ = 0;
};

TEST(LoaderFaults, ASampleThatIsNeverReadIsNamedInTime) {
  const auto stuck = std::make_shared<StuckRead>();
  std::vector<std::string> warnings;
  log::set_sink([&](log::Level, std::string_view text) { warnings.emplace_back(text); });
  const auto start = std::chrono::steady_clock::now();
  {
    DataLoader loader(std::make_shared<HostileDataset>([stuck](int64_t i, Sample& s) { (*stuck)(i, s); }),
                      {.batch_size = 4, .workers = 2, .prefetch = 1, .read_timeout = 0.2});
    EXPECT_EQ(message_of<IoError>([&] { loader.next(); }),
              "[data_loader] sample 3 was not read within 0.2 seconds (read_timeout)");
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_GE(seconds, 0.2);
  EXPECT_LT(seconds, 20.0);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("a worker still reads sample 3 and is left to itself"), std::string::npos);
  log::set_sink({});
  stuck->release();
}

TEST(LoaderFaults, TheDestructorDoesNotWaitForASampleThatIsNeverRead) {
  const auto stuck = std::make_shared<StuckRead>();
  log::set_sink([](log::Level, std::string_view) {});
  {
    DataLoader loader(std::make_shared<HostileDataset>([stuck](int64_t i, Sample& s) { (*stuck)(i, s); }),
                      {.batch_size = 2, .workers = 1, .read_timeout = 0.1});
    EXPECT_EQ(loader.next()->size(), 2);  // samples 0 and 1; the worker goes on to 3
    stuck->wait_until_reading();
  }
  log::set_sink({});
  stuck->release();
}

TEST(LoaderFaults, WhoWasLateDoesNotDisturbThoseWhoTakeOver) {
  const auto stuck = std::make_shared<StuckRead>();
  log::set_sink([](log::Level, std::string_view) {});
  DataLoader loader(std::make_shared<HostileDataset>([stuck](int64_t i, Sample& s) { (*stuck)(i, s); }),
                    {.batch_size = 4, .workers = 2, .read_timeout = 0.3});
  EXPECT_EQ(message_of<IoError>([&] { loader.next(); }),
            "[data_loader] sample 3 was not read within 0.3 seconds (read_timeout)");
  std::thread helper([&] {
    std::this_thread::sleep_for(100ms);
    stuck->release();  // the thread that was late returns as well, and its batch is nobody's
  });
  std::vector<int64_t> labels;
  while (labels.size() < 8) {
    try {
      if (const auto batch = loader.next()) {
        for (const int64_t label : batch->labels.to_vector<int64_t>()) labels.push_back(label);
      }
    } catch (const IoError&) {  // where the machine is slow, once more
    }
  }
  helper.join();
  log::set_sink({});
  EXPECT_EQ(labels, (std::vector<int64_t>{0, 1, 0, 1, 0, 1, 0, 1}));
}

TEST(LoaderFaults, TimeoutsThatCannotWorkAreRefused) {
  const auto dataset = std::make_shared<HostileDataset>([](int64_t, Sample&) {});
  const auto error = [&](int workers, double timeout) {
    return message_of<InvalidArgument>(
        [&] { DataLoader loader(dataset, {.workers = workers, .read_timeout = timeout}); });
  };
  EXPECT_EQ(error(1, -1), "[data_loader] expected a read_timeout from 0 to 1e9 seconds but got -1");
  EXPECT_EQ(error(1, std::nan("")),
            "[data_loader] expected a read_timeout from 0 to 1e9 seconds but got nan");
  EXPECT_EQ(error(0, 1),
            "[data_loader] expected workers for a read_timeout: next() cannot leave its own thread");
}

}  // namespace
}  // namespace sinter::nn::data
