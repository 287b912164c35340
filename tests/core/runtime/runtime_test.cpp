// Philox, the thread pool, current streams, and asking for devices that are not there.
#include <atomic>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/random.h>
#include <sinter/core/runtime/thread_pool.h>

namespace sinter {
namespace {

// Known answers of Random123's distribution (kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, GivesTheKnownAnswers) {
  const PhiloxBlock zeros = philox(0, 0, 0);
  EXPECT_EQ(zeros.words[0], 0x6627e8d5u);
  EXPECT_EQ(zeros.words[1], 0xe169c58du);
  EXPECT_EQ(zeros.words[2], 0xbc57ac4cu);
  EXPECT_EQ(zeros.words[3], 0x9b00dbd8u);
  const PhiloxBlock ones = philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0});
  EXPECT_EQ(ones.words[0], 0x408f276du);
  EXPECT_EQ(ones.words[1], 0x41c83b0eu);
  EXPECT_EQ(ones.words[2], 0xa20bc7c6u);
  EXPECT_EQ(ones.words[3], 0x6d5451fdu);
  const PhiloxBlock pi = philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e);
  EXPECT_EQ(pi.words[0], 0xd16cfe09u);
  EXPECT_EQ(pi.words[1], 0x94fdccebu);
  EXPECT_EQ(pi.words[2], 0x5001e420u);
  EXPECT_EQ(pi.words[3], 0x24126ea1u);
}

TEST(GeneratorTest, ContinuesBehindWhatItHandedOut) {
  Generator generator(7);
  EXPECT_EQ(generator.next(5).offset, 0u);
  EXPECT_EQ(generator.next(1).offset, 2u);
  const RandomKey key = generator.key();
  Generator copy(key);
  EXPECT_EQ(generator.word(), copy.word());
}

TEST(GeneratorTest, HasTheMomentsOfItsDistributions) {
  Generator generator(1);
  const int count = 200'000;
  double sum = 0, squares = 0, uniform = 0;
  std::vector<int> histogram(6);
  for (int i = 0; i < count; ++i) {
    const double z = generator.normal();
    sum += z;
    squares += z * z;
    uniform += static_cast<double>(generator.uniform());
    ++histogram[generator.below(6)];
  }
  EXPECT_NEAR(sum / count, 0.0, 0.012);  // five deviations of the mean
  EXPECT_NEAR(squares / count, 1.0, 0.016);
  EXPECT_NEAR(uniform / count, 0.5, 0.0033);
  for (const int n : histogram) EXPECT_NEAR(n, count / 6.0, 840);
  EXPECT_THROW(generator.below(0), InvalidArgument);
}

TEST(ParallelFor, CoversEachItemOnce) {
  for (const int64_t count : {0, 1, 7, 1000, 100'003}) {
    std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
    parallel_for(count, 10, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
    });
    for (const auto& times : seen) ASSERT_EQ(times, 1);
  }
}

TEST(ParallelFor, RethrowsAndStaysUsable) {
  const auto fail = [](int64_t, int64_t) { throw std::runtime_error("from a worker"); };
  for (int i = 0; i < 100; ++i) EXPECT_THROW(parallel_for(1000, 1, fail), std::runtime_error);
  std::atomic<int64_t> sum = 0;
  parallel_for(1000, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
  EXPECT_EQ(sum, 1000);
}

TEST(ParallelFor, NestsAndServesSeveralCallers) {
  std::atomic<int64_t> sum = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int j = 0; j < 50; ++j) {
        parallel_for(16, 1, [&](int64_t begin, int64_t end) {
          parallel_for(end - begin, 1, [&](int64_t b, int64_t e) { sum += e - b; });
        });
      }
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(sum, 4 * 50 * 16);
}

TEST(ThreadCount, RefusesNonsense) {
  EXPECT_THROW(set_num_threads(0), InvalidArgument);
  EXPECT_THROW(set_num_threads(5000), InvalidArgument);
  const int before = num_threads();
  set_num_threads(3);
  EXPECT_EQ(num_threads(), 3);
  std::atomic<int64_t> sum = 0;
  parallel_for(300, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
  EXPECT_EQ(sum, 300);
  set_num_threads(before);
}

TEST(Devices, SayWhyTheyAreMissing) {
  EXPECT_TRUE(is_available(Device::cpu()));
  EXPECT_FALSE(is_available({DeviceType::kCpu, 1}));
  try {
    backend_of({DeviceType::kCpu, 1});
    FAIL();
  } catch (const DeviceError& error) {
    EXPECT_STREQ(error.what(), "[device] cpu asked for, but there are only 1 devices of that type");
  }
  if (is_available(Device::cuda())) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_THROW(backend_of(Device::cuda()), DeviceError);
}

TEST(StreamGuardTest, NestsByDeviceAndThread) {
  const Stream outer{Device::cuda(), 1, nullptr}, inner{Device::cuda(), 2, nullptr};
  const Stream other{Device::cuda(1), 3, nullptr};
  const StreamGuard first(outer);
  {
    const StreamGuard second(other);
    const StreamGuard third(inner);
    EXPECT_EQ(current_stream(Device::cuda()).id, 2u);
    EXPECT_EQ(current_stream(Device::cuda(1)).id, 3u);
    std::thread([] {
      EXPECT_EQ(current_stream(Device::cpu()).id, 0u);
      const StreamGuard guard({Device::cuda(), 4, nullptr});
      EXPECT_EQ(current_stream(Device::cuda()).id, 4u);
    }).join();
    EXPECT_EQ(current_stream(Device::cuda()).id, 2u);
  }
  EXPECT_EQ(current_stream(Device::cuda()).id, 1u);
  EXPECT_EQ(current_stream(Device::cpu()).id, 0u);
}

TEST(TimeMarks, MeasureTheCpusClock) {
  Backend& cpu = backend_of(Device::cpu());
  const auto start = cpu.mark_time({});
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const auto stop = cpu.mark_time({});
  EXPECT_GE(stop->microseconds_since(*start), 2000.0);
  EXPECT_LE(start->microseconds_since(*stop), -2000.0);
}

}  // namespace
}  // namespace sinter
