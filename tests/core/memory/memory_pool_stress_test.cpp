// The pool under random operations against a simple model, under many threads, and with a device that fails
// at every call in turn.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/core/base/log.h>
#include <sinter/core/memory/memory_pool.h>

#include "fake_memory.h"

namespace sinter {
namespace {

using testing::FakeMemory;

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;
constexpr size_t kCanary = sizeof(uint64_t);

// One at each end; blocks too short for two have one, or a part of it.
void write_canaries(std::byte* block, size_t bytes, uint64_t value) {
  std::memcpy(block, &value, std::min(bytes, kCanary));
  if (bytes >= 2 * kCanary) std::memcpy(block + bytes - kCanary, &value, kCanary);
}

bool canaries_are(const std::byte* block, size_t bytes, uint64_t value) {
  if (std::memcmp(block, &value, std::min(bytes, kCanary)) != 0) return false;
  return bytes < 2 * kCanary || std::memcmp(block + bytes - kCanary, &value, kCanary) == 0;
}

// What is known of the pool from outside: who holds what, and which work on freed bytes may still be going
// on.
class Model {
 public:
  Model(FakeMemory& memory, MemoryPool& pool, uint64_t seed) : memory_(memory), pool_(pool), random_(seed) {
    memory_.on_deallocate = [this](void* block, size_t bytes) {
      // The device must not get memory back that a stream still works on.
      forget_range(static_cast<std::byte*>(block), bytes, kNoStream);
      ++device_deallocations_;
    };
  }
  ~Model() { memory_.on_deallocate = nullptr; }

  void step() {
    const uint64_t choice = random_() % 1000;
    if (choice < 480) {
      allocate();
    } else if (choice < 940) {
      free_one();
    } else if (choice < 960) {
      record_stream();
    } else if (choice < 990) {
      finish_some();
    } else if (choice < 991) {
      pool_.trim();
    } else if (choice < 993) {
      change_limit();
    }
    check_counters();
  }

  void free_all() {
    while (!live_.empty()) free_one();
    check_counters();
  }
  uint64_t refusals() const { return refusals_; }
  uint64_t moves_between_streams() const { return moves_; }

 private:
  static constexpr StreamId kStreams = 3;
  static constexpr StreamId kNoStream = ~StreamId{0};

  struct Held {
    std::byte* data;
    size_t bytes;
    size_t rounded;
    StreamId stream;
    std::vector<StreamId> others;
    uint64_t value;
  };
  struct Work {
    StreamId stream;
    uint64_t position;
  };
  struct Freed {
    size_t bytes;
    std::vector<Work> works;
  };

  void allocate() {
    if (live_.size() >= 400) return;
    const size_t bytes = std::uniform_int_distribution<size_t>(1, size_t{1} << (random_() % 23))(random_);
    const StreamId stream = random_() % kStreams;
    const size_t live_before = pool_.stats().live_bytes;
    std::byte* data = nullptr;
    try {
      data = static_cast<std::byte*>(pool_.allocate(bytes, stream));
    } catch (const OutOfMemory&) {
      ++refusals_;
      return;
    }
    const size_t rounded = pool_.stats().live_bytes - live_before;
    ASSERT_GE(rounded, bytes);
    const auto after = by_address_.lower_bound(data);
    ASSERT_TRUE(after == by_address_.end() || data + rounded <= after->first)
        << "overlaps the next live block";
    ASSERT_TRUE(after == by_address_.begin() || std::prev(after)->first + std::prev(after)->second <= data)
        << "overlaps the live block before";
    forget_range(data, rounded, stream);
    by_address_.emplace(data, rounded);
    const uint64_t value = random_();
    write_canaries(data, bytes, value);
    live_.push_back({data, bytes, rounded, stream, {}, value});
    expected_.live_bytes += rounded;
    expected_.requested_bytes += bytes;
    ++expected_.live_blocks;
    ++expected_.allocations;
    expected_.peak_live_bytes = std::max(expected_.peak_live_bytes, expected_.live_bytes);
  }

  void free_one() {
    if (live_.empty()) return;
    std::swap(live_[random_() % live_.size()], live_.back());
    const Held held = std::move(live_.back());
    live_.pop_back();
    ASSERT_TRUE(canaries_are(held.data, held.bytes, held.value)) << "somebody else wrote here";
    Freed freed{held.rounded, {{held.stream, memory_.work(held.stream)}}};
    for (const StreamId other : held.others) freed.works.push_back({other, memory_.work(other)});
    freed_.emplace(held.data, std::move(freed));
    by_address_.erase(held.data);
    expected_.live_bytes -= held.rounded;
    expected_.requested_bytes -= held.bytes;
    --expected_.live_blocks;
    pool_.deallocate(held.data);
  }

  void record_stream() {
    if (live_.empty()) return;
    Held& held = live_[random_() % live_.size()];
    const StreamId other = random_() % kStreams;
    pool_.record_stream(held.data, other);
    if (other != held.stream) held.others.push_back(other);
  }

  void finish_some() {
    const StreamId stream = random_() % kStreams;
    memory_.finish(stream, memory_.finished(stream) + random_() % 40);
  }

  void change_limit() {
    if (random_() % 2 == 0) return pool_.set_byte_limit(std::nullopt);
    pool_.set_byte_limit(random_() % (96 * kMiB));
  }

  // The bytes get a new owner on `taker`: all other streams must be done with them.
  void forget_range(std::byte* data, size_t bytes, StreamId taker) {
    auto at = freed_.lower_bound(data);
    if (at != freed_.begin() && std::prev(at)->first + std::prev(at)->second.bytes > data) --at;
    while (at != freed_.end() && at->first < data + bytes) {
      auto [begin, freed] = *at;
      for (const Work& work : freed.works) {
        if (work.stream == taker) continue;
        EXPECT_GE(memory_.finished(work.stream), work.position)
            << "stream " << work.stream << " still works here";
        if (taker != kNoStream) ++moves_;
      }
      at = freed_.erase(at);
      if (begin < data) freed_[begin] = {static_cast<size_t>(data - begin), freed.works};
      if (begin + freed.bytes > data + bytes) {
        const auto rest = static_cast<size_t>(begin + freed.bytes - (data + bytes));
        at = std::next(freed_.emplace(data + bytes, Freed{rest, freed.works}).first);
      }
    }
  }

  void check_counters() {
    const PoolStats stats = pool_.stats();
    ASSERT_EQ(stats.live_bytes, expected_.live_bytes);
    ASSERT_EQ(stats.requested_bytes, expected_.requested_bytes);
    ASSERT_EQ(stats.live_blocks, expected_.live_blocks);
    ASSERT_EQ(stats.allocations, expected_.allocations);
    ASSERT_EQ(stats.peak_live_bytes, expected_.peak_live_bytes);
    ASSERT_EQ(stats.reserved_bytes, memory_.bytes_held());
    ASSERT_LE(stats.live_bytes, stats.reserved_bytes);
    ASSERT_LE(stats.reserved_bytes, stats.peak_reserved_bytes);
    ASSERT_EQ(stats.device_allocations - stats.device_deallocations, memory_.blocks_held());
    ASSERT_EQ(stats.device_deallocations, device_deallocations_);
  }

  FakeMemory& memory_;
  MemoryPool& pool_;
  std::mt19937_64 random_;
  std::vector<Held> live_;
  std::map<std::byte*, size_t> by_address_;
  std::map<std::byte*, Freed> freed_;
  PoolStats expected_;
  uint64_t device_deallocations_ = 0;
  uint64_t refusals_ = 0;
  uint64_t moves_ = 0;
};

void expect_nothing_left(const FakeMemory& memory) {
  EXPECT_EQ(memory.blocks_held(), 0u);
  EXPECT_EQ(memory.events_held(), 0u);
  EXPECT_EQ(memory.misuses(), std::vector<std::string>{});
}

class MemoryPoolStressTest : public ::testing::TestWithParam<PoolMode> {};

TEST_P(MemoryPoolStressTest, AgreesWithAModel) {
  // Filling every block and asking the device for each takes its time; the normal mode gets the million.
  const int steps = GetParam() == PoolMode::kCaching ? 1'000'000 : 20'000;
  FakeMemory memory(128 * kMiB);
  {
    MemoryPool pool(memory, {.mode = GetParam(), .byte_limit = {}});
    Model model(memory, pool, 2024);
    for (int i = 0; i < steps && !HasFatalFailure() && !HasNonfatalFailure(); ++i) model.step();
    if (HasFailure()) return;
    model.free_all();
    EXPECT_GT(model.refusals(), 0u);
    EXPECT_EQ(model.moves_between_streams() > 0, GetParam() != PoolMode::kPassThrough);
    pool.trim();
    EXPECT_EQ(pool.stats().reserved_bytes, 0u);
  }
  expect_nothing_left(memory);
}

TEST_P(MemoryPoolStressTest, EightThreads) {
  FakeMemory memory(256 * kMiB);
  {
    MemoryPool pool(memory, {.mode = GetParam(), .byte_limit = {}});
    struct Parcel {
      std::byte* data;
      size_t bytes;
      uint64_t value;
    };
    std::mutex mutex;
    std::vector<Parcel> exchange;  // blocks that another thread will free
    std::atomic<int> damaged = 0;
    const auto hammer = [&](unsigned seed) {
      std::mt19937_64 random(seed);
      std::vector<Parcel> mine;
      const auto free_last = [&] {
        const Parcel parcel = mine.back();
        mine.pop_back();
        if (!canaries_are(parcel.data, parcel.bytes, parcel.value)) ++damaged;
        pool.deallocate(parcel.data);
      };
      for (int i = 0; i < 3000; ++i) {
        const size_t bytes = 1 + random() % (size_t{1} << (random() % 21));
        const uint64_t value = random();
        try {
          // One stream each for the odd ones: their memory must not pass to others while it is in use.
          auto* const data = static_cast<std::byte*>(pool.allocate(bytes, seed % 2 == 0 ? 0 : seed));
          write_canaries(data, bytes, value);
          mine.push_back({data, bytes, value});
        } catch (const OutOfMemory&) {
          while (!mine.empty()) free_last();
        }
        if (random() % 16 == 0 && !mine.empty()) pool.record_stream(mine.back().data, random() % 8);
        if (random() % 64 == 0) memory.finish(random() % 8);
        if (random() % 512 == 0) pool.trim();
        if (random() % 4 == 0 && !mine.empty()) {
          const std::lock_guard lock(mutex);
          exchange.push_back(mine.back());
          mine.back() = exchange.front();
          exchange.erase(exchange.begin());
        }
        while (mine.size() > 16 || (random() % 2 == 0 && !mine.empty())) free_last();
      }
      while (!mine.empty()) free_last();
    };
    std::vector<std::thread> threads;
    for (unsigned seed = 0; seed < 8; ++seed) threads.emplace_back(hammer, seed);
    for (std::thread& thread : threads) thread.join();
    for (const Parcel& parcel : exchange) pool.deallocate(parcel.data);
    EXPECT_EQ(damaged, 0);
    const PoolStats stats = pool.stats();
    EXPECT_EQ(stats.live_bytes, 0u);
    EXPECT_EQ(stats.requested_bytes, 0u);
    EXPECT_EQ(stats.live_blocks, 0u);
    EXPECT_EQ(stats.reserved_bytes, memory.bytes_held());
    EXPECT_GT(stats.allocations, 8u * 2000u);
  }
  expect_nothing_left(memory);
}

// A fixed course through every path: two streams, recorded uses, splits, a full device, trim and a new limit.
// Calls that fail are skipped; all that was handed out is given back.
void fixed_course(FakeMemory& memory, MemoryPool& pool, int& failures) {
  struct Live {
    std::byte* data;
    size_t bytes;
    uint64_t value;
  };
  std::vector<Live> live;
  const auto attempt = [&failures](auto&& action) {
    try {
      action();
    } catch (const DeviceError&) {
      ++failures;
    } catch (const OutOfMemory&) {  // the course fills the device on purpose
    }
  };
  const auto take = [&](size_t bytes, StreamId stream) {
    const PoolStats before = pool.stats();
    bool thrown = true;
    attempt([&] {
      auto* const data = static_cast<std::byte*>(pool.allocate(bytes, stream));
      thrown = false;
      write_canaries(data, bytes, live.size() + bytes);
      live.push_back({data, bytes, live.size() + bytes});
    });
    const PoolStats after = pool.stats();
    ASSERT_EQ(after.requested_bytes, before.requested_bytes + (thrown ? 0 : bytes));
    ASSERT_EQ(after.live_blocks, before.live_blocks + (thrown ? 0 : 1));
    ASSERT_EQ(after.allocations, before.allocations + (thrown ? 0 : 1));
    ASSERT_EQ(after.live_bytes > before.live_bytes, !thrown);
    ASSERT_EQ(after.reserved_bytes, memory.bytes_held());
  };
  const auto drop = [&](size_t index) {
    if (index >= live.size()) return;
    const Live gone = live[index];
    live.erase(live.begin() + static_cast<std::ptrdiff_t>(index));
    ASSERT_TRUE(canaries_are(gone.data, gone.bytes, gone.value));
    memory.work(1);
    pool.deallocate(gone.data);
  };
  for (const size_t bytes : {size_t{100}, 5 * kKiB, 300 * kKiB, 3 * kMiB}) take(bytes, 1);
  drop(1);
  take(2 * kKiB, 1);
  for (size_t i = 0; i < live.size(); i += 2) {
    memory.work(2);
    attempt([&] { pool.record_stream(live[i].data, 2); });
  }
  drop(0);
  drop(1);
  take(2 * kKiB, 2);
  take(kMiB, 2);
  memory.finish(2);
  take(3 * kMiB, 2);
  drop(2);
  memory.finish(1);
  take(4 * kMiB, 2);
  take(5 * kMiB, 1);  // there is no room: gives back and retries
  drop(0);
  take(6 * kMiB, 1);
  attempt([&] { pool.trim(); });
  attempt([&] { pool.set_byte_limit(4 * kMiB); });
  take(3 * kMiB, 2);
  while (!live.empty()) drop(live.size() - 1);
  attempt([&] { pool.trim(); });
}

TEST_P(MemoryPoolStressTest, SurvivesAFailureOfEveryCall) {
  std::vector<std::string> warnings;
  log::set_sink([&](log::Level, std::string_view line) { warnings.emplace_back(line); });
  int reported = 0;
  uint64_t k = 1;
  for (bool reached = true; reached && !HasFailure(); ++k) {
    FakeMemory memory(10 * kMiB);
    {
      MemoryPool pool(memory, {.mode = GetParam(), .byte_limit = {}});
      memory.fail_kth(k);
      fixed_course(memory, pool, reported);
      reached = !memory.failure_is_due();
      memory.fail_none();
      EXPECT_EQ(pool.stats().live_bytes, 0u) << k;
      // The pool is as good as new.
      pool.trim();
      EXPECT_EQ(pool.stats().reserved_bytes, 0u) << k;
      pool.set_byte_limit(std::nullopt);
      pool.deallocate(pool.allocate(8 * kMiB));
    }
    expect_nothing_left(memory);
  }
  log::set_sink({});
  EXPECT_GT(k, 20u);
  EXPECT_GT(reported, 5);
  for (const std::string& line : warnings) {
    EXPECT_EQ(line,
              "[memory] deallocate: the device failed and is asked again later: [fake] a failure on order");
  }
}

// The same, where the failure comes while the pool is being destroyed.
TEST_P(MemoryPoolStressTest, EndsCleanlyWhenTheDeviceFails) {
  log::set_sink([](log::Level, std::string_view) {});
  for (uint64_t k = 1; k <= 12; ++k) {
    FakeMemory memory;
    {
      MemoryPool pool(memory, {.mode = GetParam(), .byte_limit = {}});
      void* const block = pool.allocate(kMiB, 1);
      pool.record_stream(block, 2);
      pool.deallocate(pool.allocate(100, 2));
      pool.deallocate(block);
      memory.fail_kth(k);
    }
    expect_nothing_left(memory);
  }
  log::set_sink({});
}

INSTANTIATE_TEST_SUITE_P(Modes, MemoryPoolStressTest,
                         ::testing::Values(PoolMode::kCaching, PoolMode::kPassThrough, PoolMode::kPoison),
                         [](const auto& tested) -> std::string {
                           switch (tested.param) {
                             case PoolMode::kCaching:
                               return "Caching";
                             case PoolMode::kPassThrough:
                               return "PassThrough";
                             case PoolMode::kPoison:
                               return "Poison";
                           }
                           return {};
                         });

}  // namespace
}  // namespace sinter
