// What the pool promises to several streams, on a fake device.
#include <algorithm>
#include <vector>

#include "memory_pool_support.h"

namespace sinter {
namespace {

using testing::FakeMemory;
using testing::kKiB;
using testing::kMiB;
using testing::MemoryPoolTest;
using Call = FakeMemory::Call;

TEST_F(MemoryPoolTest, OtherStreamsWaitForTheEvent) {
  for (const size_t bytes : {size_t{1000}, 3 * kMiB}) {
    make();
    pool->deallocate(pool->allocate(100, 2));  // the pool knows both streams
    pool->trim();
    void* const first = pool->allocate(bytes, 1);
    memory->work(1);
    pool->deallocate(first);
    void* const other = pool->allocate(bytes, 2);
    EXPECT_NE(other, first);
    pool->deallocate(other);
    void* const again = pool->allocate(bytes, 1);  // its own stream need not wait
    EXPECT_EQ(again, first);
    pool->deallocate(again);
  }
}

TEST_F(MemoryPoolTest, AnotherStreamGetsTheBlockOnceItsEventHasPassed) {
  make();
  ask_in_vain(2, 1);
  void* const first = pool->allocate(3 * kMiB, 1);
  const uint64_t mine = memory->work(1);
  pool->deallocate(first);
  memory->work(1);  // after the event: of no interest to others
  memory->finish(1, mine);
  void* const other = pool->allocate(3 * kMiB, 2);
  EXPECT_EQ(other, first);
  pool->deallocate(other);
}

TEST_F(MemoryPoolTest, RestOfASplitKeepsTheEvent) {
  make();
  ask_in_vain(2, 1);
  void* const first = pool->allocate(4 * kMiB, 1);
  const uint64_t mine = memory->work(1);
  pool->deallocate(first);
  void* const part = pool->allocate(kMiB, 1);
  memory->work(1);  // on the part alone
  memory->finish(1, mine);
  void* const rest = pool->allocate(3 * kMiB, 2);
  EXPECT_EQ(rest, static_cast<std::byte*>(first) + kMiB);
  pool->deallocate(part);
  pool->deallocate(rest);
}

TEST_F(MemoryPoolTest, BlocksFreedBeforeASecondStreamCameAreSafeToo) {
  make();
  void* const first = pool->allocate(3 * kMiB, 1);
  memory->work(1);
  pool->deallocate(first);
  void* const other = pool->allocate(3 * kMiB, 2);
  EXPECT_NE(other, first);
  memory->finish(1);
  void* const another = pool->allocate(3 * kMiB, 2);
  EXPECT_EQ(another, first);
  pool->deallocate(other);
  pool->deallocate(another);
}

// A loader's stream: it took its blocks once and keeps them, beside a step that allocates and frees.
TEST_F(MemoryPoolTest, AStreamThatTakesNothingCostsNoEvents) {
  make();
  void* const staging = pool->allocate(3 * kMiB, 2);
  for (int step = 0; step < 10; ++step) {
    memory->work(2);
    pool->record_stream(staging, 1);
    std::vector<void*> blocks;
    for (size_t i = 1; i <= 100; ++i) {
      blocks.push_back(pool->allocate(i * 10 * kKiB, 1));
      memory->work(1);
    }
    for (void* block : blocks) pool->deallocate(block);
  }
  EXPECT_EQ(memory->calls(Call::kRecordEvent), 0u);
  EXPECT_EQ(memory->calls(Call::kEventDone), 0u);
  pool->deallocate(staging);  // the only block of two streams
  EXPECT_EQ(memory->calls(Call::kRecordEvent), 1u);
}

TEST_F(MemoryPoolTest, OneEventTellsOfAllBlocksThatWereFreedBeforeIt) {
  make();
  std::vector<void*> blocks;
  for (int i = 0; i < 50; ++i) blocks.push_back(pool->allocate(512 * kKiB, 1));
  memory->work(1);
  for (void* block : blocks) pool->deallocate(block);
  void* const other = pool->allocate(512 * kKiB, 2);
  EXPECT_EQ(memory->calls(Call::kRecordEvent), 1u);
  EXPECT_EQ(memory->calls(Call::kEventDone), 1u) << "once for a search, however many blocks there are";
  memory->finish(1);
  const uint64_t segments = pool->stats().device_allocations;
  std::vector<void*> taken;
  for (int i = 0; i < 50; ++i) taken.push_back(pool->allocate(512 * kKiB, 2));
  EXPECT_EQ(pool->stats().device_allocations, segments);
  EXPECT_EQ(memory->calls(Call::kRecordEvent), 1u);
  EXPECT_EQ(memory->calls(Call::kEventDone), 2u);
  EXPECT_EQ(memory->events_held(), 0u);
  pool->deallocate(other);
  for (void* block : taken) pool->deallocate(block);
}

TEST_F(MemoryPoolTest, HoldsFewEventsOfAStreamThatDoesNotEnd) {
  make();
  ask_in_vain(2, 1);
  std::vector<void*> blocks;
  std::vector<uint64_t> works;
  for (int i = 0; i < 500; ++i) blocks.push_back(pool->allocate(512 * kKiB, 1));
  for (void* block : blocks) {
    works.push_back(memory->work(1));
    pool->deallocate(block);
  }
  EXPECT_LE(memory->events_held(), 32u);
  EXPECT_GE(memory->events_held(), 16u);
  memory->finish(1, works[250]);  // half of them: at least some of that half can be had
  void* const other = pool->allocate(512 * kKiB, 2);
  const auto found = std::find(blocks.begin(), blocks.end(), other);
  ASSERT_NE(found, blocks.end());
  EXPECT_LE(found - blocks.begin(), 250);
  pool->deallocate(other);
}

TEST_F(MemoryPoolTest, TheWatchOverAStreamEnds) {
  make();
  ask_in_vain(2, 1);
  const auto recorded_by_a_free = [&] {
    void* const block = pool->allocate(kMiB, 1);
    memory->work(1);
    const uint64_t before = memory->calls(Call::kRecordEvent);
    pool->deallocate(block);
    return memory->calls(Call::kRecordEvent) - before;
  };
  EXPECT_EQ(recorded_by_a_free(), 1u);
  for (int i = 0; i < 5000; ++i) recorded_by_a_free();
  EXPECT_EQ(recorded_by_a_free(), 0u);
}

TEST_F(MemoryPoolTest, PartsTakenByAnotherStreamJoinAgain) {
  make();
  pool->deallocate(pool->allocate(100, 2));
  void* const first = pool->allocate(4 * kMiB, 1);
  pool->deallocate(first);
  void* const part = pool->allocate(kMiB, 2);
  EXPECT_EQ(part, first);
  memory->work(2);
  pool->deallocate(part);
  memory->finish(2);
  const uint64_t taken = pool->stats().device_allocations;
  void* const whole = pool->allocate(4 * kMiB, 1);
  EXPECT_EQ(whole, first);
  EXPECT_EQ(pool->stats().device_allocations, taken);
  pool->deallocate(whole);
}

TEST_F(MemoryPoolTest, RecordedStreamsDelayReuse) {
  make();
  void* const block = pool->allocate(3 * kMiB, 1);
  pool->record_stream(block, 2);
  pool->record_stream(block, 2);
  pool->record_stream(block, 1);  // its own: nothing to remember
  memory->work(2);
  pool->deallocate(block);
  EXPECT_EQ(memory->events_held(), 1u);
  EXPECT_EQ(pool->stats().live_bytes, 0u);
  void* const other = pool->allocate(3 * kMiB, 1);
  EXPECT_NE(other, block);
  memory->finish(2);
  void* const again = pool->allocate(3 * kMiB, 1);
  EXPECT_EQ(again, block);
  pool->deallocate(other);
  pool->deallocate(again);
}

TEST_F(MemoryPoolTest, TrimWaitsForPendingWork) {
  make();
  void* const block = pool->allocate(3 * kMiB, 1);
  pool->record_stream(block, 2);
  const uint64_t own = memory->work(1);
  const uint64_t others = memory->work(2);
  pool->deallocate(block);
  memory->on_deallocate = [&](void*, size_t) {
    EXPECT_EQ(memory->finished(1), own);
    EXPECT_EQ(memory->finished(2), others);
  };
  pool->trim();
  memory->on_deallocate = nullptr;
  EXPECT_EQ(memory->blocks_held(), 0u);
  EXPECT_EQ(pool->stats().reserved_bytes, 0u);
}

}  // namespace
}  // namespace sinter
