// How rows that begin anywhere are cut into aligned chunks and spread over threads, which is host code.
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/ops/common/rows/row_cut.h>

namespace sinter::ops {
namespace {

template <int pack>
void check_row(int64_t place, int columns) {
  const RowCut<pack, int> cut(place, columns);
  EXPECT_LE(cut.chunks(), (RowCut<pack, int>::most_chunks(columns)));
  std::vector<int> seen(static_cast<size_t>(columns));
  for (int chunk = 0; chunk < cut.chunks(); ++chunk) {
    const int first = cut.first(chunk);
    EXPECT_EQ((place + first) % pack, 0);
    int inside = 0;
    for (int j = 0; j < pack; ++j) {
      if (!cut.is_inside(first + j)) continue;
      ++inside;
      ++seen.at(static_cast<size_t>(first + j));
    }
    EXPECT_EQ(cut.is_whole(first), inside == pack);
    EXPECT_GT(inside, 0) << "an empty chunk";
  }
  EXPECT_GE(cut.first(cut.chunks()), columns);
  for (const int times : seen) ASSERT_EQ(times, 1) << columns << " columns from " << place;
}

TEST(RowCut, TakesEveryColumnOnce) {
  for (int columns = 1; columns < 70; ++columns) {
    for (int64_t place = 0; place < 16; ++place) {
      check_row<1>(place, columns);
      check_row<2>(place, columns);
      check_row<4>(place, columns);
      check_row<8>(place, columns);
      check_row<16>(place, columns);
    }
  }
  std::mt19937_64 random(2);
  for (int round = 0; round < 500; ++round) {
    const auto place = static_cast<int64_t>(random() >> 4);
    const int columns = 1 + static_cast<int>(random() % 20000);
    check_row<2>(place, columns);
    check_row<4>(place, columns);
    check_row<8>(place, columns);
  }
}

TEST(ResidentRows, FitIntoTheRegistersOfTheirThreads) {
  for (const int64_t element : {2, 4, 8}) {
    const int pack = static_cast<int>(16 / element);
    const int64_t compute = std::max<int64_t>(element, 4), held = kResidentBytes / compute;
    for (int64_t columns = 1; columns < 20000; ++columns) {
      for (const bool aligned : {false, true}) {
        const int threads = resident_row_threads(columns, pack, aligned, compute);
        const bool always = aligned && columns % pack == 0;
        const int64_t chunks = (columns + (always ? 0 : pack - 1) + pack - 1) / pack;
        ASSERT_TRUE(threads == 0 || threads == 32 || threads == 128 || threads == 512);
        if (threads > 0) {
          ASSERT_LE(chunks * pack, threads * held) << columns;
        }
        if (threads != 32) {
          ASSERT_GT(chunks * pack, (threads == 0 ? 512 : threads / 4) * held) << columns;
        }
      }
    }
  }
  EXPECT_EQ(resident_row_threads(1024, 8, true, 4), 32);
  EXPECT_EQ(resident_row_threads(1001, 4, true, 4), 32);
  EXPECT_EQ(resident_row_threads(16384, 4, true, 4), 512);
  EXPECT_EQ(resident_row_threads(0, 4, true, 4), 0);
  EXPECT_EQ(resident_row_threads(int64_t{1} << 40, 8, true, 4), 0);
}

}  // namespace
}  // namespace sinter::ops
