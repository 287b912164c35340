// What the pool promises, one promise a test, on a fake device. Several streams are in
// memory_pool_streams_test.cpp, random operations and threads in memory_pool_stress_test.cpp, how much is
// held in memory_pool_footprint_test.cpp.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/core/base/log.h>
#include <sinter/core/memory/memory_pool.h>

#include "common/error_message.h"
#include "memory_pool_support.h"

namespace sinter {
namespace {

using testing::FakeMemory;
using testing::kKiB;
using testing::kMiB;
using testing::MemoryPoolTest;
using Call = FakeMemory::Call;

std::string message_of(MemoryPool& pool, size_t bytes) {
  return test::message_of<OutOfMemory>([&] { pool.deallocate(pool.allocate(bytes)); });
}

bool all_bytes_are(const void* block, size_t bytes, unsigned char byte) {
  const auto* data = static_cast<const unsigned char*>(block);
  return std::all_of(data, data + bytes, [byte](unsigned char value) { return value == byte; });
}

// ---- One stream

TEST_F(MemoryPoolTest, ZeroBytesAreNullptr) {
  make();
  EXPECT_EQ(pool->allocate(0), nullptr);
  pool->deallocate(nullptr);
  pool->record_stream(nullptr, 1);
  EXPECT_EQ(pool->stats().allocations, 0u);
}

TEST_F(MemoryPoolTest, FreedBlockIsReusedAtOnceOnItsStream) {
  make();
  for (const size_t bytes : {size_t{1}, 300 * kKiB, 50 * kMiB}) {
    memory->work(0);  // never ends by itself
    void* const first = pool->allocate(bytes);
    pool->deallocate(first);
    void* const second = pool->allocate(bytes);
    EXPECT_EQ(first, second) << bytes;
    pool->deallocate(second);
  }
  EXPECT_EQ(memory->calls(Call::kRecordEvent), 0u);  // one stream needs no events
  EXPECT_EQ(memory->calls(Call::kAllocate), 3u);
}

TEST_F(MemoryPoolTest, CountsExactly) {
  make();
  void* const a = pool->allocate(1);
  void* const b = pool->allocate(300 * kKiB + 1);
  PoolStats stats = pool->stats();
  EXPECT_EQ(stats.live_bytes, 256 + 304 * kKiB);
  EXPECT_EQ(stats.requested_bytes, 300 * kKiB + 2);
  EXPECT_EQ(stats.reserved_bytes, 4 * kMiB);
  EXPECT_EQ(stats.reserved_bytes, memory->bytes_held());
  EXPECT_EQ(stats.cached_bytes(), 4 * kMiB - 256 - 304 * kKiB);
  EXPECT_EQ(stats.live_blocks, 2u);
  EXPECT_EQ(stats.allocations, 2u);
  EXPECT_EQ(stats.device_allocations, 2u);

  pool->deallocate(b);
  pool->trim();
  stats = pool->stats();
  EXPECT_EQ(stats.live_bytes, 256u);
  EXPECT_EQ(stats.requested_bytes, 1u);
  EXPECT_EQ(stats.reserved_bytes, 2 * kMiB);
  EXPECT_EQ(stats.device_deallocations, 1u);
  EXPECT_EQ(stats.peak_live_bytes, 256 + 304 * kKiB);
  EXPECT_EQ(stats.peak_reserved_bytes, 4 * kMiB);
  pool->reset_peaks();
  stats = pool->stats();
  EXPECT_EQ(stats.peak_live_bytes, 256u);
  EXPECT_EQ(stats.peak_reserved_bytes, 2 * kMiB);
  pool->deallocate(a);
}

TEST_F(MemoryPoolTest, TakesTheBestFit) {
  make();
  void* const sizes[] = {pool->allocate(64 * kKiB), pool->allocate(256),       pool->allocate(16 * kKiB),
                         pool->allocate(256),       pool->allocate(32 * kKiB), pool->allocate(256)};
  for (const int i : {0, 2, 4}) pool->deallocate(sizes[i]);
  void* const got = pool->allocate(16 * kKiB - 100);
  EXPECT_EQ(got, sizes[2]);
  void* const split = pool->allocate(20 * kKiB);
  EXPECT_EQ(split, sizes[4]);
  void* const rest = pool->allocate(12 * kKiB);
  EXPECT_EQ(rest, static_cast<std::byte*>(sizes[4]) + 20 * kKiB);
  for (void* block : {got, split, rest, sizes[1], sizes[3], sizes[5]}) pool->deallocate(block);
}

TEST_F(MemoryPoolTest, FreeNeighboursBecomeOneInEveryOrder) {
  std::vector<size_t> order = {0, 1, 2, 3};
  do {
    make();
    std::vector<void*> blocks;
    for (int i = 0; i < 4; ++i) blocks.push_back(pool->allocate(512 * kKiB));
    ASSERT_EQ(pool->stats().device_allocations, 1u);
    for (const size_t i : order) pool->deallocate(blocks[i]);
    void* const whole = pool->allocate(2 * kMiB);
    EXPECT_EQ(whole, blocks[0]);
    EXPECT_EQ(pool->stats().device_allocations, 1u);
    pool->deallocate(whole);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(MemoryPoolTest, SmallRequestLeavesLargeCachedBlocksWhole) {
  make();
  void* const large = pool->allocate(100 * kMiB);
  pool->deallocate(large);
  void* const small = pool->allocate(1000);
  void* const medium = pool->allocate(kMiB);
  EXPECT_EQ(pool->stats().device_allocations, 3u);
  void* const again = pool->allocate(100 * kMiB);
  EXPECT_EQ(again, large);
  for (void* block : {small, medium, again}) pool->deallocate(block);
}

TEST_F(MemoryPoolTest, ForeignAndRepeatedPointersAreLoggedAndLeftAlone) {
  make();
  int stranger = 0;
  pool->deallocate(&stranger);
  void* const block = pool->allocate(100);
  pool->deallocate(block);
  pool->deallocate(block);
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_EQ(warnings[0], fmt::format("[memory] deallocate: expected a live block but got {}",
                                     static_cast<void*>(&stranger)));
  EXPECT_EQ(warnings[1], fmt::format("[memory] deallocate: expected a live block but got {}", block));
  EXPECT_THROW(pool->record_stream(block, 1), InvalidArgument);
  EXPECT_EQ(pool->stats().live_bytes, 0u);
  warnings.clear();
}

TEST_F(MemoryPoolTest, LiveBlocksGoBackWithThePool) {
  make();
  pool->allocate(100, 3);
  pool->record_stream(pool->allocate(kMiB), 5);
  pool.reset();
  EXPECT_EQ(memory->blocks_held(), 0u);
  EXPECT_EQ(memory->events_held(), 0u);
  EXPECT_EQ(warnings, std::vector<std::string>{"[memory] a pool ends while 2 of its blocks are live"});
  warnings.clear();
}

// ---- Exhaustion

TEST_F(MemoryPoolTest, GivesCachedSegmentsBackAndRetries) {
  make({}, 10 * kMiB);
  pool->deallocate(pool->allocate(4 * kMiB));
  pool->deallocate(pool->allocate(5 * kMiB, 7));
  memory->work(7);
  void* const block = pool->allocate(9 * kMiB);
  EXPECT_EQ(pool->stats().retries, 1u);
  EXPECT_EQ(pool->stats().reserved_bytes, 10 * kMiB);
  pool->deallocate(block);
}

TEST_F(MemoryPoolTest, WaitsForOtherStreamsRatherThanFail) {
  make({}, 4 * kMiB);
  void* const first = pool->allocate(3 * kMiB, 1);
  void* const keep = pool->allocate(300 * kKiB, 1);  // its segment cannot go back
  const uint64_t mine = memory->work(1);
  pool->deallocate(first);
  void* const other = pool->allocate(3 * kMiB, 2);
  EXPECT_EQ(other, first);
  EXPECT_EQ(memory->finished(1), mine);
  EXPECT_EQ(pool->stats().retries, 0u);
  pool->deallocate(other);
  pool->deallocate(keep);
}

TEST_F(MemoryPoolTest, TakesLessThanASegmentWhenThereIsNoRoomForOne) {
  make({.mode = PoolMode::kCaching, .byte_limit = 10000});
  void* const block = pool->allocate(9000);
  EXPECT_EQ(pool->stats().reserved_bytes, 9216u);
  pool->deallocate(block);
}

TEST_F(MemoryPoolTest, LimitBindsAndCanChange) {
  make({.mode = PoolMode::kCaching, .byte_limit = 8 * kMiB});
  void* const block = pool->allocate(4 * kMiB);
  EXPECT_THROW(pool->allocate(5 * kMiB), OutOfMemory);
  pool->set_byte_limit(std::nullopt);
  pool->deallocate(pool->allocate(5 * kMiB));
  EXPECT_EQ(pool->stats().reserved_bytes, 10 * kMiB);
  pool->set_byte_limit(8 * kMiB);  // gives back what is cached beyond it
  EXPECT_EQ(pool->stats().reserved_bytes, 4 * kMiB);
  pool->set_byte_limit(kMiB);  // less than is live: nothing more can be had
  EXPECT_THROW(pool->allocate(5 * kMiB), OutOfMemory);
  pool->deallocate(block);
  pool->trim();
  pool->deallocate(pool->allocate(kMiB));
}

TEST_F(MemoryPoolTest, ABarredStreamGetsNothingUntilItIsAdmitted) {
  MemoryPool& made = make();
  void* const block = made.allocate(kKiB, 1);
  void* const kept = made.allocate(kKiB, 2);
  made.bar_stream(2);
  const std::string message = test::message_of<Unsupported>([&] { made.allocate(kKiB, 2); });
  EXPECT_EQ(message.rfind("[memory] fake:0: a stream whose work is captured can neither allocate nor", 0), 0u)
      << message;
  EXPECT_THROW(made.record_stream(block, 2), Unsupported);
  EXPECT_EQ(made.stats().live_blocks, 2u);
  // Its own blocks come back, others go on, and nothing asks the device about it.
  made.deallocate(kept);
  made.deallocate(made.allocate(kKiB, 1));
  made.admit_stream(2);
  made.record_stream(block, 2);
  made.deallocate(made.allocate(kKiB, 2));
  made.deallocate(block);
}

TEST_F(MemoryPoolTest, FailsTheAllocationThatWasOrdered) {
  make();
  pool->fail_allocation(2);
  void* const first = pool->allocate(100);
  EXPECT_THROW(pool->allocate(100), OutOfMemory);
  void* const second = pool->allocate(100);  // once
  EXPECT_EQ(pool->stats().allocations, 2u);
  pool->fail_allocation(1);
  pool->fail_allocation(0);
  pool->deallocate(pool->allocate(100));
  pool->deallocate(first);
  pool->deallocate(second);
}

TEST_F(MemoryPoolTest, OutOfMemoryNamesEveryNumber) {
  make({}, 16 * kMiB);
  void* const block = pool->allocate(3 * kMiB);
  void* const small = pool->allocate(100);
  EXPECT_EQ(
      message_of(*pool, 11 * kMiB),
      "[memory] fake:0: expected room for 11.00 MiB (11534336 bytes) but the device has none left: live 3.00 "
      "MiB "
      "(3145984 bytes), cached 3.00 MiB (3145472 bytes), device free 10.00 MiB (10485760 bytes) of 16.00 MiB "
      "(16777216 bytes)");
  pool->set_byte_limit(6 * kMiB);
  EXPECT_EQ(message_of(*pool, 3 * kMiB + 1),
            "[memory] fake:0: expected room for 3.00 MiB (3149824 bytes) but the byte limit leaves none: "
            "live 3.00 MiB "
            "(3145984 bytes), cached 3.00 MiB (3145472 bytes), limit 6.00 MiB (6291456 bytes), device free "
            "10.00 MiB "
            "(10485760 bytes) of 16.00 MiB (16777216 bytes)");
  EXPECT_EQ(message_of(*pool, SIZE_MAX),
            "[memory] fake:0: expected room for 16.00 EiB (18446744073709551615 bytes) but the byte limit "
            "leaves none: "
            "live 3.00 MiB (3145984 bytes), cached 3.00 MiB (3145472 bytes), limit 6.00 MiB (6291456 bytes), "
            "device "
            "free 10.00 MiB (10485760 bytes) of 16.00 MiB (16777216 bytes)");
  EXPECT_EQ(pool->stats().allocations, 2u);
  pool->deallocate(block);
  pool->deallocate(small);

  make({.mode = PoolMode::kPassThrough, .byte_limit = 1000});  // a device that does not tell its capacity
  EXPECT_EQ(message_of(*pool, 1001),
            "[memory] fake:0: expected room for 1001 bytes but the byte limit leaves none: live 0 bytes, "
            "cached 0 bytes, "
            "limit 1000 bytes");
}

// ---- Modes

TEST_F(MemoryPoolTest, PassThroughKeepsNothing) {
  make({.mode = PoolMode::kPassThrough, .byte_limit = {}});
  void* const a = pool->allocate(1000);
  void* const b = pool->allocate(77);
  EXPECT_EQ(memory->bytes_held(), 1077u);  // exactly, so that checkers see every overrun
  EXPECT_EQ(pool->stats().live_bytes, 1077u);
  pool->deallocate(a);
  EXPECT_EQ(memory->bytes_held(), 77u);
  pool->record_stream(b, 4);
  const uint64_t others = memory->work(4);
  pool->deallocate(b);
  EXPECT_EQ(memory->finished(4), others);
  EXPECT_EQ(memory->bytes_held(), 0u);
  EXPECT_EQ(pool->stats().device_deallocations, 2u);
}

TEST_F(MemoryPoolTest, PoisonFillsFreshAndFreedBlocks) {
  make({.mode = PoolMode::kPoison, .byte_limit = {}});
  void* const block = pool->allocate(1000);
  EXPECT_TRUE(all_bytes_are(block, 1024, 0xFF));
  std::memset(block, 1, 1000);
  pool->deallocate(block);
  EXPECT_TRUE(all_bytes_are(block, 1024, 0xFF));  // the segment is still held
  std::memset(block, 1, 1000);                    // a write after free is covered up at the next hand-out
  EXPECT_EQ(pool->allocate(1000), block);
  EXPECT_TRUE(all_bytes_are(block, 1024, 0xFF));

  // Another stream still reads a block that was taken back: it may not be filled before that has ended.
  std::memset(block, 1, 1000);
  pool->record_stream(block, 2);
  memory->work(2);
  pool->deallocate(block);
  EXPECT_TRUE(all_bytes_are(block, 1000, 1));
  memory->finish(2);
  pool->deallocate(pool->allocate(100 * kKiB));
  EXPECT_TRUE(all_bytes_are(block, 1000, 0xFF));
}

TEST_F(MemoryPoolTest, CachingFillsNothing) {
  make();
  pool->deallocate(pool->allocate(1000));
  EXPECT_EQ(memory->calls(Call::kFill), 0u);
}

TEST_F(MemoryPoolTest, ModeComesFromTheEnvironment) {
  const auto mode_for = [](const char* value) {
    ::setenv("SINTER_MEMORY", value, 1);
    return pool_mode_from_environment();
  };
  const char* const before = std::getenv("SINTER_MEMORY");
  const std::optional<std::string> kept =
      before == nullptr ? std::nullopt : std::optional<std::string>(before);
  EXPECT_EQ(mode_for("caching"), PoolMode::kCaching);
  EXPECT_EQ(mode_for(""), PoolMode::kCaching);
  EXPECT_EQ(mode_for("passthrough"), PoolMode::kPassThrough);
  EXPECT_EQ(mode_for("poison"), PoolMode::kPoison);
  try {
    mode_for("Poison");
    ADD_FAILURE() << "expected InvalidArgument";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "[memory] SINTER_MEMORY: expected caching, passthrough or poison but got 'Poison'");
  }
  ::unsetenv("SINTER_MEMORY");
  EXPECT_EQ(pool_mode_from_environment(), PoolMode::kCaching);
  if (kept) ::setenv("SINTER_MEMORY", kept->c_str(), 1);
}

}  // namespace
}  // namespace sinter
