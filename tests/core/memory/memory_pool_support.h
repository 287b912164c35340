// The fixture of the pool's tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/base/log.h>
#include <sinter/core/memory/memory_pool.h>

#include "fake_memory.h"

namespace sinter::testing {

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;

/// A device and a pool on it; at the end nothing may be left and nothing may have been misused.
class MemoryPoolTest : public ::testing::Test {
 protected:
  MemoryPool& make(MemoryPoolOptions options = {}, size_t capacity = SIZE_MAX) {
    check_and_end();
    memory = std::make_unique<FakeMemory>(capacity);
    pool.emplace(*memory, options);
    return *pool;
  }
  void SetUp() override {
    log::set_sink([this](log::Level, std::string_view line) { warnings.emplace_back(line); });
  }
  void TearDown() override {
    check_and_end();
    log::set_sink({});
    EXPECT_EQ(warnings, std::vector<std::string>{});
  }

  void check_and_end() {
    if (!pool) return;
    EXPECT_EQ(pool->stats().live_blocks, 0u);
    pool.reset();
    EXPECT_EQ(memory->blocks_held(), 0u);
    EXPECT_EQ(memory->events_held(), 0u);
    EXPECT_EQ(memory->misuses(), std::vector<std::string>{});
  }

  /// `asker` asks for a block of `owner` that is still in use there: from then on the pool watches `owner`.
  void ask_in_vain(StreamId asker, StreamId owner) {
    void* const first = pool->allocate(3 * kMiB, owner);
    memory->work(owner);
    pool->deallocate(first);
    void* const other = pool->allocate(3 * kMiB, asker);
    EXPECT_NE(other, first);
    pool->deallocate(other);
    pool->trim();
  }

  std::vector<std::string> warnings;
  std::unique_ptr<FakeMemory> memory;
  std::optional<MemoryPool> pool;
};

}  // namespace sinter::testing
