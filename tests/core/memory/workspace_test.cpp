// Leases of scratch memory: reuse, nesting, threads, and failures of the device.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/core/memory/memory_pool.h>
#include <sinter/core/memory/workspace.h>

#include "fake_memory.h"

namespace sinter {
namespace {

using testing::FakeMemory;

constexpr size_t kMiB = size_t{1} << 20;

class WorkspaceTest : public ::testing::Test {
 protected:
  void TearDown() override {
    workspace.reset();
    EXPECT_EQ(pool.stats().live_blocks, 0u);
    EXPECT_EQ(memory.misuses(), std::vector<std::string>{});
  }

  FakeMemory memory;
  MemoryPool pool{memory};
  std::optional<Workspace> workspace{std::in_place, pool, 3};
};

bool is_aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % 256 == 0;
}

TEST_F(WorkspaceTest, ZeroBytesAreNullptr) {
  const Workspace::Lease lease = workspace->lease(0);
  EXPECT_EQ(lease.data(), nullptr);
  EXPECT_EQ(lease.bytes(), 0u);
  EXPECT_EQ(pool.stats().allocations, 0u);
}

TEST_F(WorkspaceTest, IsReusedWithoutThePool) {
  void* first = nullptr;
  {
    const Workspace::Lease lease = workspace->lease(kMiB);
    first = lease.data();
    EXPECT_EQ(lease.bytes(), kMiB);
  }
  for (const size_t bytes : {kMiB, size_t{1}, kMiB / 2}) {
    const Workspace::Lease lease = workspace->lease(bytes);
    EXPECT_EQ(lease.data(), first);
  }
  EXPECT_EQ(pool.stats().allocations, 1u);
  EXPECT_EQ(workspace->capacity(), kMiB);
}

TEST_F(WorkspaceTest, GrowsToTheLargestNeedOfNestedLeases) {
  for (int round = 0; round < 3; ++round) {
    const Workspace::Lease outer = workspace->lease(1000);
    const Workspace::Lease middle = workspace->lease(5000);
    const Workspace::Lease inner = workspace->lease(300);
    EXPECT_TRUE(is_aligned(outer.data()) && is_aligned(middle.data()) && is_aligned(inner.data()));
    std::memset(outer.data(), 1, outer.bytes());
    std::memset(middle.data(), 2, middle.bytes());
    std::memset(inner.data(), 3, inner.bytes());
    EXPECT_EQ(static_cast<const char*>(outer.data())[999], 1);
    EXPECT_EQ(static_cast<const char*>(middle.data())[4999], 2);
    // Overflow in the first round, then an arena for all three.
    EXPECT_EQ(workspace->capacity(), round == 0 ? 1024u : 1024u + 5120u + 512u);
  }
  EXPECT_EQ(pool.stats().allocations, 4u);
}

TEST_F(WorkspaceTest, MovedLeasesEndOnce) {
  Workspace::Lease a = workspace->lease(100);
  void* const data = a.data();
  Workspace::Lease b = std::move(a);
  EXPECT_EQ(a.data(), nullptr);  // NOLINT(bugprone-use-after-move): what it is to have then
  EXPECT_EQ(a.bytes(), 0u);
  EXPECT_EQ(b.data(), data);
  Workspace::Lease& self = b;
  b = std::move(self);
  EXPECT_EQ(b.data(), data);
  b = Workspace::Lease();
  EXPECT_EQ(workspace->lease(100).data(), data);  // its place is free again
}

TEST_F(WorkspaceTest, LeasesThatEndOutOfTurnDoNotOverlap) {
  { const Workspace::Lease sizing = workspace->lease(4096); }
  std::optional<Workspace::Lease> first(workspace->lease(512));
  std::optional<Workspace::Lease> second(workspace->lease(512));
  const void* const base = first->data();
  first.reset();
  {
    const Workspace::Lease third = workspace->lease(1024);
    const auto* const a = static_cast<const std::byte*>(second->data());
    const auto* const b = static_cast<const std::byte*>(third.data());
    EXPECT_TRUE(b >= a + 512 || a >= b + 1024);
  }
  second.reset();
  EXPECT_EQ(workspace->lease(4096).data(), base);  // with the last one all room is back
}

TEST_F(WorkspaceTest, ReleaseGivesTheArenaBackUnlessLeased) {
  {
    const Workspace::Lease lease = workspace->lease(kMiB);
    workspace->release();
    EXPECT_EQ(workspace->capacity(), kMiB);
  }
  workspace->release();
  EXPECT_EQ(workspace->capacity(), 0u);
  EXPECT_EQ(pool.stats().live_bytes, 0u);
  { const Workspace::Lease lease = workspace->lease(512); }
  EXPECT_EQ(workspace->capacity(), 512u);  // the need of before is forgotten
}

TEST_F(WorkspaceTest, OutOfMemoryLeavesItUsable) {
  pool.set_byte_limit(4 * kMiB);
  { const Workspace::Lease lease = workspace->lease(kMiB); }
  EXPECT_THROW(workspace->lease(8 * kMiB), OutOfMemory);
  EXPECT_THROW(workspace->lease(SIZE_MAX), OutOfMemory);
  const Workspace::Lease lease = workspace->lease(kMiB);
  EXPECT_THROW(workspace->lease(8 * kMiB), OutOfMemory);  // as overflow, while another is out
  const Workspace::Lease another = workspace->lease(kMiB);
  EXPECT_NE(another.data(), nullptr);
}

TEST_F(WorkspaceTest, TakesWhatIsNeededWhenTheLargestNeedCannotBeHad) {
  {
    const Workspace::Lease a = workspace->lease(3 * kMiB);
    const Workspace::Lease b = workspace->lease(3 * kMiB);
  }
  pool.set_byte_limit(5 * kMiB);
  workspace->lease(3 * kMiB);
  EXPECT_EQ(workspace->capacity(), 3 * kMiB);
}

TEST_F(WorkspaceTest, NeverLeasesTheSameBytesToTwoThreads) {
  // Two threads that share a stream share its workspace. Each fills its piece and finds it unchanged.
  std::atomic<int> overlaps = 0;
  const auto use = [&](unsigned char mark) {
    for (size_t i = 0; i < 20000; ++i) {
      const Workspace::Lease lease = workspace->lease(1 + i % 2000);
      auto* const bytes = static_cast<volatile unsigned char*>(lease.data());
      for (size_t j = 0; j < lease.bytes(); j += 61) bytes[j] = mark;
      for (size_t j = 0; j < lease.bytes(); j += 61) overlaps += bytes[j] != mark;
    }
  };
  std::thread other(use, static_cast<unsigned char>(1));
  use(2);
  other.join();
  EXPECT_EQ(overlaps, 0);
}

TEST_F(WorkspaceTest, SurvivesAFailureOfEveryDeviceCall) {
  for (uint64_t k = 1; k <= 3; ++k) {
    pool.trim();
    memory.fail_kth(k, FakeMemory::Call::kAllocate);
    for (int i = 0; i < 3; ++i) {
      try {
        const Workspace::Lease a = workspace->lease(10 * kMiB);
        const Workspace::Lease b = workspace->lease(20 * kMiB);
      } catch (const DeviceError&) {
      }
    }
    EXPECT_FALSE(memory.failure_is_due()) << k;
    memory.fail_none();
    workspace->release();
    EXPECT_EQ(pool.stats().live_bytes, 0u);
  }
}

TEST_F(WorkspaceTest, RandomNestingNeverOverlaps) {
  std::mt19937 random(7);
  std::vector<std::pair<Workspace::Lease, unsigned char>> out;
  for (int i = 0; i < 20000; ++i) {
    if (out.size() < 6 && random() % 2 == 0) {
      const auto mark = static_cast<unsigned char>(random());
      out.emplace_back(workspace->lease(1 + random() % 5000), mark);
      ASSERT_TRUE(is_aligned(out.back().first.data()));
      std::memset(out.back().first.data(), mark, out.back().first.bytes());
    } else if (!out.empty()) {
      const auto& [lease, mark] = out.back();
      const auto* const bytes = static_cast<const unsigned char*>(lease.data());
      for (size_t j = 0; j < lease.bytes(); ++j) ASSERT_EQ(bytes[j], mark);
      out.pop_back();
    }
  }
  out.clear();
  const uint64_t before = pool.stats().allocations;
  { const Workspace::Lease lease = workspace->lease(5000); }
  EXPECT_LE(pool.stats().allocations, before + 1);
  EXPECT_LE(workspace->capacity(), 6u * 5120u);
}

}  // namespace
}  // namespace sinter
