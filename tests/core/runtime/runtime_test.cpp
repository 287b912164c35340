// Philox, the thread pool, current streams, and asking for devices that are not there.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/random.h>
#include <sinter/core/runtime/thread_pool.h>

#include "common/error_message.h"

namespace sinter {
namespace {

TEST(CaptureTest, TheCpuSaysThatItCannot) {
  EXPECT_FALSE(backend_of({}).can_capture());
  const Stream before = current_stream({});
  EXPECT_EQ(test::message_of<Unsupported>([] { Capture capture({}); }),
            "[device] work of a cpu cannot be captured");
  EXPECT_EQ(current_stream({}).id, before.id);
}

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

TEST(GeneratorTest, GivesEachPartItsPlaceAndMovesOnBehindAll) {
  Generator whole(7);
  const RandomKey of_all = whole.next(3 * 8), behind = whole.next(3 * 5);
  for (int part = 0; part < 3; ++part) {
    Generator generator(7);
    {
      const RandomPartScope scope(part, 3);
      EXPECT_EQ(generator.next(8).offset, of_all.offset + static_cast<uint64_t>(part) * 2);
      EXPECT_EQ(generator.key().offset, behind.offset);
      // 5 elements take two blocks, 15 in one piece four: the parts have blocks of their own.
      EXPECT_EQ(generator.next(5).offset, behind.offset + static_cast<uint64_t>(part) * 2);
      EXPECT_EQ(generator.key().offset, behind.offset + 6);
      Generator on_host(7);
      EXPECT_EQ(on_host.next_on_host(8).offset, 0u);
      EXPECT_EQ(on_host.key().offset, 2u);
      {
        const RandomPartScope inner(0, 1);
        EXPECT_EQ(generator.next(8).offset, behind.offset + 6);
      }
      EXPECT_EQ(RandomPartScope::current().parts, 3u);
      std::thread([] { EXPECT_EQ(RandomPartScope::current().parts, 1u); }).join();
    }
    EXPECT_EQ(generator.next(4).offset, behind.offset + 8);
  }
  EXPECT_EQ(test::message_of([] { const RandomPartScope scope(2, 2); }),
            "[random] expected a part below the number of parts but got 2 of 2");
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

/// Mean and variance within five deviations of what they should be.
template <class Draw>
void expect_moments(Draw draw, double mean, double variance) {
  constexpr int kCount = 200'000;
  std::vector<double> values;
  double sum = 0, squares = 0, fourth = 0;
  for (int i = 0; i < kCount; ++i) values.push_back(draw());
  for (const double value : values) {
    const double distance = value - mean;
    sum += distance;
    squares += distance * distance;
    fourth += distance * distance * distance * distance;
  }
  const double spread = fourth / kCount - variance * variance;
  EXPECT_NEAR(sum / kCount, 0.0, 5 * std::sqrt(variance / kCount));
  EXPECT_NEAR(squares / kCount, variance, 5 * std::sqrt(spread / kCount));
}

TEST(GeneratorTest, DrawsGammaAndBetaWithTheirMoments) {
  const uint64_t seed = std::random_device{}();
  Generator generator(seed);
  for (const double shape : {0.1, 0.5, 1.0, 1.7, 30.0, 1e6}) {
    SCOPED_TRACE(fmt::format("seed {} gamma {}", seed, shape));
    expect_moments([&] { return generator.gamma(shape); }, shape, shape);
  }
  using Pair = std::pair<double, double>;
  for (const auto& [a, b] : {Pair{0.2, 0.2}, {0.4, 0.4}, {1, 1}, {2, 5}, {0.3, 8}, {50, 3}, {0.01, 0.02}}) {
    SCOPED_TRACE(fmt::format("seed {} beta {} {}", seed, a, b));
    const double mean = a / (a + b);
    expect_moments([&] { return generator.beta(a, b); }, mean, mean * (1 - mean) / (a + b + 1));
  }
}

TEST(GeneratorTest, DrawsBetaBetweenItsEnds) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  Generator generator(seed);
  // Gamma draws of such a shape are below the smallest double, and their quotient is not.
  int above = 0;
  for (int i = 0; i < 4000; ++i) {
    const double share = generator.beta(1e-4, 1e-4);
    ASSERT_TRUE(share >= 0.0 && share <= 1.0) << share;
    above += share > 0.5 ? 1 : 0;
  }
  EXPECT_NEAR(above, 2000, 5 * std::sqrt(4000 * 0.25));
  // beta(1, 1) is uniform: the largest distance of distribution functions (Kolmogorov, Smirnov).
  constexpr int kCount = 20'000;
  std::vector<double> draws;
  for (int i = 0; i < kCount; ++i) draws.push_back(generator.beta(1, 1));
  std::ranges::sort(draws);
  double distance = 0.0;
  for (int i = 0; i < kCount; ++i) {
    distance = std::max(distance, std::abs(draws[static_cast<size_t>(i)] - (i + 0.5) / kCount));
  }
  EXPECT_LT(distance, 3.0 / std::sqrt(kCount));  // by chance once in 30 million
  EXPECT_THROW(generator.beta(0, 1), InvalidArgument);
  EXPECT_THROW(generator.beta(1, std::numeric_limits<double>::infinity()), InvalidArgument);
  EXPECT_THROW(generator.gamma(std::nan("")), InvalidArgument);
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

TEST(ThreadCount, IsNotChangedWithinAParallelFor) {
  const int before = num_threads();
  for (const int threads : {1, 3}) {
    set_num_threads(threads);
    std::string message =
        test::message_of([] { parallel_for(300, 1, [](int64_t, int64_t) { set_num_threads(2); }); });
    EXPECT_TRUE(message.starts_with("[threads] expected set_num_threads outside of parallel_for")) << message;
    EXPECT_EQ(num_threads(), threads);
  }
  set_num_threads(before);
}

#if !defined(__SANITIZE_THREAD__)  // which has no threads in a process that fork() has made
/// The status of a process that fork() makes here, and that computes on threads.
int status_of_forked() {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);  // in place of a hang
    std::atomic<int64_t> sum = 0;
    const auto count = [&](int64_t begin, int64_t end) { sum += end - begin; };
    parallel_for(300, 1, count);
    set_num_threads(2);
    parallel_for(300, 1, count);
    std::_Exit(sum == 600 ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(ParallelFor, WorksInAForkedProcess) {
  const int before = num_threads();
  set_num_threads(3);
  const auto count = [](int64_t, int64_t) {};
  parallel_for(300, 1, count);  // starts the workers
  EXPECT_EQ(status_of_forked(), 0);
  // While a thread of this process has the workers, whose lock the other one inherits.
  std::atomic<bool> begun = false, over = false;
  std::thread other([&] {
    parallel_for(3, 1, [&](int64_t, int64_t) {
      begun = true;
      while (!over) std::this_thread::yield();
    });
  });
  while (!begun) std::this_thread::yield();
  EXPECT_EQ(status_of_forked(), 0);
  over = true;
  other.join();
  parallel_for(300, 1, count);
  set_num_threads(before);
}
#endif

#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // which need more memory than is left here
/// In a process without room for the stacks of so many threads.
[[noreturn]] void count_with_too_many_threads() {
  rlimit limit{};
  ::getrlimit(RLIMIT_AS, &limit);
  long pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  limit.rlim_cur = static_cast<rlim_t>(pages * ::sysconf(_SC_PAGESIZE)) + (rlim_t{64} << 20);
  ::setrlimit(RLIMIT_AS, &limit);
  set_num_threads(200);
  std::atomic<int> ranges = 0;
  std::atomic<int64_t> sum = 0;
  for (int i = 0; i < 10; ++i) {
    parallel_for(1000, 1, [&](int64_t begin, int64_t end) {
      ++ranges;
      for (int64_t j = begin; j < end; ++j) sum += j;
    });
  }
  // As many ranges as were asked for: the results do not depend on how many threads there are.
  std::_Exit(ranges == 10 * 200 && sum == 10 * 499'500 && num_threads() == 200 ? 0 : 1);
}

TEST(ThreadCount, GoesOnWithFewerWhereTheSystemGivesNoMore) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(count_with_too_many_threads(), ::testing::ExitedWithCode(0),
              "only [0-9]+ of 200 threads could be started .* the work is shared among them");
}
#endif

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
