// How sorted look-ups are cut into tasks: the kernels' walk on the CPU, task by task. Every look-up must
// reach its row once, and every row must be written once.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/random.h>
#include <sinter/ops/embedding/embedding_grad_plan.h>

namespace sinter::ops {
namespace {

struct Sorted {
  std::vector<uint32_t> keys, starts;
  SortedLookups view;

  Sorted(std::vector<uint32_t> rows_of_lookups, int64_t rows) : keys(std::move(rows_of_lookups)) {
    std::sort(keys.begin(), keys.end());
    for (int64_t row = 0; row <= rows; ++row) {
      starts.push_back(static_cast<uint32_t>(
          std::lower_bound(keys.begin(), keys.end(), static_cast<uint32_t>(row)) - keys.begin()));
    }
    view = {keys.data(), starts.data(), static_cast<int64_t>(keys.size()), rows};
  }
};

/// What the kernels do to each row: how often it is written, and which look-ups reach it, as sums of their
/// places so that one that is missed or taken twice shows.
struct Written {
  std::vector<int> times;
  std::vector<int64_t> places, counts;
};

Written walk(const EmbeddingGradPlan& plan, const SortedLookups& lookups) {
  const auto rows = static_cast<size_t>(plan.rows);
  Written written{std::vector<int>(rows), std::vector<int64_t>(rows), std::vector<int64_t>(rows)};
  std::vector<int64_t> slot_places(static_cast<size_t>(plan.slots()), -1), slot_counts(slot_places);
  for (int64_t row = 0; row < plan.rows; ++row) {
    if (lookups.is_long(row)) continue;
    const auto r = static_cast<size_t>(row);
    ++written.times[r];
    for (int64_t k = lookups.begin_of(row); k < lookups.end_of(row); ++k) {
      written.places[r] += k;
      ++written.counts[r];
    }
  }
  for (int64_t chunk = 0; chunk < plan.chunks; ++chunk) {
    for (const ChunkShare& share : {first_share(lookups, chunk), last_share(lookups, chunk)}) {
      if (share.first == share.end) continue;
      const auto slot = static_cast<size_t>(share.slot);
      EXPECT_EQ(slot_counts[slot], -1);
      EXPECT_EQ(share.slot / 2, chunk);
      slot_places[slot] = slot_counts[slot] = 0;
      for (int64_t k = share.first; k < share.end; ++k) {
        slot_places[slot] += k;
        ++slot_counts[slot];
      }
    }
  }
  for (int64_t chunk = 0; chunk < plan.chunks; ++chunk) {
    const LongRow found = long_row_from(lookups, chunk);
    if (found.parts == 0) continue;
    const auto r = static_cast<size_t>(found.row);
    ++written.times[r];
    for (int64_t part = 0; part < found.parts; ++part) {
      const auto slot = static_cast<size_t>(found.slot(part));
      EXPECT_GT(slot_counts[slot], 0);
      written.places[r] += slot_places[slot];
      written.counts[r] += slot_counts[slot];
    }
  }
  return written;
}

TEST(EmbeddingGradPlan, BringsEveryLookupToItsRow) {
  Generator generator(11);
  for (int round = 0; round < 3000; ++round) {
    const auto rows = static_cast<int64_t>(1 + generator.below(round % 3 == 0 ? 4 : 300));
    const auto count = static_cast<int64_t>(1 + generator.below(1500));
    const uint64_t few = 1 + generator.below(static_cast<uint64_t>(rows));
    std::vector<uint32_t> keys;
    for (int64_t i = 0; i < count; ++i) {
      // Some are out of range, and some rows are looked up much oftener than others.
      const uint64_t kind = generator.below(8);
      keys.push_back(static_cast<uint32_t>(kind == 0  ? static_cast<uint64_t>(rows)
                                           : kind < 5 ? generator.below(few)
                                                      : generator.below(static_cast<uint64_t>(rows))));
    }
    const Sorted sorted(std::move(keys), rows);
    const EmbeddingGradPlan plan(count, rows, 8, 4);
    const Written written = walk(plan, sorted.view);
    for (int64_t row = 0; row < rows; ++row) {
      const auto r = static_cast<size_t>(row);
      const int64_t begin = sorted.view.begin_of(row), end = sorted.view.end_of(row);
      ASSERT_EQ(written.times[r], 1) << row << " of " << rows << ", " << count;
      ASSERT_EQ(written.counts[r], end - begin);
      ASSERT_EQ(written.places[r], (end - begin) * (begin + end - 1) / 2);
    }
  }
}

TEST(EmbeddingGradPlan, CoversEveryColumnOnce) {
  for (int64_t columns = 1; columns < 700; ++columns) {
    for (const int64_t pack : {1, 2, 4, 8}) {
      if (columns % pack != 0) continue;
      const EmbeddingGradPlan plan(1000, 5, columns, pack);
      ASSERT_GE(plan.tiles * plan.across * pack, columns);
      ASSERT_LT((plan.tiles - 1) * plan.across * pack, columns);
      ASSERT_LE(plan.across, EmbeddingGradPlan::kMostAcross);
      ASSERT_EQ(plan.across & (plan.across - 1), 0);
    }
  }
  EXPECT_EQ(EmbeddingGradPlan(1, 1, 1, 1).key_bits(), 1);
  EXPECT_EQ(EmbeddingGradPlan(1, EmbeddingGradPlan::kMostRows, 1, 1).key_bits(), 32);
  EXPECT_FALSE(EmbeddingGradPlan::takes(0, 5, 5));
  EXPECT_FALSE(EmbeddingGradPlan::takes(5, 5, 0));
}

TEST(EmbeddingGradPlan, KeepsArraysOfScratchApart) {
  const EmbeddingGradPlan plan(1001, 33, 7, 1);
  const EmbeddingGradScratch scratch(plan, sizeof(float), 1000);
  const size_t begins[] = {scratch.keys,   scratch.positions, scratch.sorted_keys, scratch.sorted_positions,
                           scratch.starts, scratch.sums,      scratch.sort,        scratch.bytes};
  for (size_t i = 0; i + 1 < std::size(begins); ++i) {
    EXPECT_EQ(begins[i] % 256, 0u);
    EXPECT_LT(begins[i], begins[i + 1]);
  }
  EXPECT_EQ(scratch.starts - scratch.sorted_positions, 4096u);
  EXPECT_GE(scratch.sort - scratch.sums, 2 * 16 * 7 * sizeof(float));
  EXPECT_GE(scratch.bytes - scratch.sort, 1000u);
}

}  // namespace
}  // namespace sinter::ops
