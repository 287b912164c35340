// The tiled transposes of GPUs, executed on the host: the very functions that a kernel's threads run, thread
// after thread, compared with the permutation by definition.
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sinter/core/runtime/random.h>
#include <sinter/ops/permute/permute_load_cuda.h>
#include <sinter/ops/permute/permute_store_cuda.h>
#include <sinter/ops/permute/permute_woven_cuda.h>

#include "common/test_cases.h"
#include "ops/permute_tile_plan.h"

namespace sinter::ops {
namespace {

/// An element of 16 bytes.
struct alignas(16) Bits128 {
  uint64_t low, high;
};

/// Memory whose first element lies `phase` elements behind a multiple of 16 bytes, and which ends with its
/// last: a checker of memory sees every access outside.
template <class T>
struct Elements {
  Elements(int64_t elements, int64_t phase)
      : bytes(static_cast<std::byte*>(std::malloc(static_cast<size_t>(elements + phase) * sizeof(T)))),
        data(reinterpret_cast<T*>(bytes.get()) + phase) {}
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> bytes;
  T* data;
};

template <TileKind kKind, class T>
void run_tiles(const TileJob& job, const T* in, T* out) {
  const int64_t bytes = TileMemory::bytes(job);
  ASSERT_LE(bytes, 96 << 10);
  const Elements<Bits128> shared(bytes / 16 + 1, 0);
  const TileMemory memory(reinterpret_cast<std::byte*>(shared.data), job);
  for (int64_t outer = 0; outer < job.outer_count; ++outer) {
    for (int64_t i = 0; i < job.matrix_tiles; ++i) {
      const Tile tile = job.tile(static_cast<uint32_t>(i), outer);
      if (tile.rows <= 0) continue;
      if constexpr (kKind == TileKind::kSeveralAxes) {
        for (int t = 0; t < 1 << log_threads(kKind); ++t) note_tile<T>(job, tile, t, memory);
      }
      for (int t = 0; t < 1 << log_threads(kKind); ++t) load_tile<T, kKind>(job, tile, t, in, memory);
      for (int t = 0; t < 1 << log_threads(kKind); ++t) store_tile<T, kKind>(job, tile, t, memory, out);
    }
  }
}

/// Does what a launch would do, and names it.
template <class T>
std::string run(const PermutePlan& plan, const T* in, T* out) {
  const TileJob job =
      plan_tiles(plan, sizeof(T), reinterpret_cast<uintptr_t>(in), reinterpret_cast<uintptr_t>(out));
  switch (job.kind) {
    case TileKind::kColumns:
      run_tiles<TileKind::kColumns>(job, in, out);
      return job.piece ? "few columns" : "columns";
    case TileKind::kShiftedColumns:
      run_tiles<TileKind::kShiftedColumns>(job, in, out);
      return job.joined ? "joined columns" : "shifted columns";
    case TileKind::kSeveralAxes:
      run_tiles<TileKind::kSeveralAxes>(job, in, out);
      return job.next_column != 0 ? "joined several axes" : "several axes";
    default:
      run_tiles<TileKind::kWholeColumns>(job, in, out);
      return job.piece ? "small matrices" : "few rows";
  }
}

/// The same in woven tiles.
template <class T>
std::string run_woven(const WovenJob& job, const T* in, T* out) {
  EXPECT_LE(job.shared_bytes(), 96 << 10);
  const Elements<Bits128> shared(job.shared_bytes() / 16 + 1, 0);
  const auto image = reinterpret_cast<std::byte*>(shared.data);
  for (int64_t i = 0; i < job.tiles; ++i) {
    const WovenTile tile = job.tile(i);
    for (int t = 0; t < 1 << kLogWovenThreads; ++t) load_woven(job, tile, t, in, image);
    for (int t = 0; t < 1 << kLogWovenThreads; ++t) store_woven(job, tile, t, image, out);
  }
  return job.joined ? "joined woven" : job.whole_packs ? "woven" : "shifted woven";
}

struct Case {
  std::vector<int64_t> extents;
  std::vector<int> axes;
  int64_t input_phase = 0, output_phase = 0;
};

/// Calls visit(output index, input index) for every element.
template <class F>
void walk(const Case& c, F visit) {
  const size_t rank = c.axes.size();
  std::vector<int64_t> strides(rank, 1), at(rank, 0);
  for (size_t i = rank; i-- > 1;) strides[i - 1] = strides[i] * c.extents[i];
  const int64_t count = strides[0] * c.extents[0];
  int64_t from = 0;
  for (int64_t to = 0; to < count; ++to) {
    visit(to, from);
    for (size_t i = rank; i-- > 0;) {
      const auto axis = static_cast<size_t>(c.axes[i]);
      from += strides[axis];
      if (++at[i] < c.extents[axis]) break;
      from -= at[i] * strides[axis];
      at[i] = 0;
    }
  }
}

template <class T>
T element(int64_t i) {
  if constexpr (sizeof(T) == 16) {
    return {static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15u, static_cast<uint64_t>(i)};
  } else {
    return static_cast<T>(static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15u >> (64 - 8 * sizeof(T)));
  }
}

bool same(const auto& a, const auto& b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

/// The output's elements before anything is stored.
template <class T>
void forget(const Elements<T>& out, int64_t count) {
  std::memset(static_cast<void*>(out.data), 0xa5, static_cast<size_t>(count) * sizeof(T));
}

template <class T>
void expect_permuted(const Case& c, const Elements<T>& in, const Elements<T>& out, const std::string& kind) {
  int64_t wrong = -1;
  walk(c, [&](int64_t to, int64_t from) {
    if (wrong < 0 && !same(out.data[to], in.data[from])) wrong = to;
  });
  ASSERT_LT(wrong, 0) << "shape " << to_string(Shape(c.extents)) << " axes "
                      << fmt::format("{}", fmt::join(c.axes, ",")) << " of " << sizeof(T) << " bytes, phases "
                      << c.input_phase << " and " << c.output_phase << ", " << kind << ": element " << wrong
                      << " differs";
}

/// In tiles of rows and columns, unless the last axis stays, and in woven ones where there are any.
template <class T>
void check(const Case& c, std::map<std::string, int>& seen) {
  const PermutePlan plan = plan_permute(Shape(c.extents), c.axes);
  if (plan.is_copy()) return;
  const int64_t count = Shape(c.extents).numel();
  Elements<T> in(count, c.input_phase), out(count, c.output_phase);
  for (int64_t i = 0; i < count; ++i) in.data[i] = element<T>(i);
  const auto from = reinterpret_cast<uintptr_t>(in.data), to = reinterpret_cast<uintptr_t>(out.data);
  const auto expect = [&](const std::string& kind) {
    ++seen[kind];
    expect_permuted(c, in, out, kind);
    forget(out, count);
  };
  forget(out, count);
  if (!plan.keeps_last()) expect(run(plan, in.data, out.data));
  const std::optional<WovenJob> woven = plan_woven(plan, sizeof(T), from, to);
  if (!woven) return;
  expect(run_woven(*woven, in.data, out.data));
  if (plan.keeps_last()) {
    ++seen["woven rows"];
  } else if (choose_woven(plan, plan_tiles(plan, sizeof(T), from, to), sizeof(T), from, to)) {
    ++seen["chosen woven"];
  }
}

class CaseMaker {
 public:
  Case make(int pack) {
    Case c;
    const size_t rank = 2 + below(4);
    const int64_t most = below(16) == 0 ? 40000 : 2000;
    const int64_t unit = below(2) == 0 ? pack : 1;  // multiples of a pack, or anything
    int64_t count = 1;
    for (size_t i = 0; i < rank; ++i) {
      const int64_t bounds[] = {3, 9, 40, 300};
      int64_t extent = 1 + static_cast<int64_t>(below(static_cast<size_t>(bounds[below(4)])));
      if (i + 2 >= rank) extent *= unit;
      if (count * extent > most) extent = 1 + most / count / 2;
      count *= extent;
      c.extents.push_back(extent);
    }
    c.axes.resize(rank);
    std::iota(c.axes.begin(), c.axes.end(), 0);
    const size_t order = below(5);  // the last two axes change places, so do all, or those two and the others
    const size_t shuffled = order < 2 ? 0 : order < 4 ? rank : rank - 2;
    for (size_t j = shuffled; j > 1; --j) std::swap(c.axes[j - 1], c.axes[below(j)]);
    if (shuffled != rank) std::swap(c.axes[rank - 1], c.axes[rank - 2]);
    if (below(3) == 0) c.input_phase = static_cast<int64_t>(below(static_cast<size_t>(pack)));
    if (below(6) == 0) c.output_phase = static_cast<int64_t>(below(static_cast<size_t>(pack)));
    return c;
  }
  size_t below(size_t bound) { return generator_.below(bound); }

 private:
  Generator generator_{11};
};

TEST(PermuteTilesTest, MoveEveryElementInRandomCases) {
  CaseMaker maker;
  std::map<std::string, int> seen;
  const int usual = 130000, cases = test::share_of_cases(usual);
  for (int i = 0; i < cases; ++i) {
    switch (i % 5) {
      case 0:
        check<uint8_t>(maker.make(16), seen);
        break;
      case 1:
        check<uint16_t>(maker.make(8), seen);
        break;
      case 2:
        check<uint32_t>(maker.make(4), seen);
        break;
      case 3:
        check<uint64_t>(maker.make(2), seen);
        break;
      default:
        check<Bits128>(maker.make(1), seen);
    }
    if (HasFatalFailure()) FAIL() << "case " << i;
  }
  if (cases < usual) return;
  for (const char* kind : {"columns", "shifted columns", "joined columns", "several axes",
                           "joined several axes", "few rows", "few columns", "small matrices", "woven rows",
                           "woven", "shifted woven", "joined woven", "chosen woven"}) {
    EXPECT_GT(seen[kind], 100) << kind;
  }
}

/// The rows of a tile of this permutation, in bytes, once every element has moved.
template <class T>
int64_t tile_run_bytes(const Case& c) {
  std::map<std::string, int> seen;
  check<T>(c, seen);
  const PermutePlan plan = plan_permute(Shape(c.extents), c.axes);
  const TileJob job = plan_tiles(plan, sizeof(T), 0, 0);
  return job.row_step * static_cast<int64_t>(sizeof(T));
}

TEST(PermuteTilesTest, CutAlignedRunsOfTheOutputIntoLines) {
  EXPECT_EQ(tile_run_bytes<uint32_t>({{17, 1040, 64}, {0, 2, 1}}) % 128, 0);
  EXPECT_EQ(tile_run_bytes<uint16_t>({{2360, 17, 64}, {2, 1, 0}}) % 128, 0);
  EXPECT_EQ(tile_run_bytes<uint32_t>({{14, 2, 700, 80}, {1, 3, 2, 0}}) % 128, 0);
  EXPECT_EQ(tile_run_bytes<uint8_t>({{2, 14336, 243}, {2, 0, 1}}) % 128, 0);
  EXPECT_EQ(tile_run_bytes<uint64_t>({{3000, 200}, {1, 0}}) % 128, 0);
  // Of small tensors, into sectors: they need the blocks.
  EXPECT_EQ(tile_run_bytes<uint32_t>({{264, 128}, {1, 0}}) % 32, 0);
}

TEST(PermuteTilesTest, MoveSmallMatricesAndWideSides) {
  std::map<std::string, int> seen;
  check<uint16_t>({{31, 10, 31, 7, 4}, {2, 1, 0, 4, 3}, 3, 0}, seen);
  check<uint16_t>({{41, 117, 127, 8}, {1, 0, 3, 2}, 0, 5}, seen);
  check<uint8_t>({{183, 40, 19, 7}, {1, 0, 3, 2}, 7, 9}, seen);
  check<uint32_t>({{14, 99, 25, 31}, {1, 0, 3, 2}, 1, 2}, seen);
  check<uint64_t>({{24, 5, 7, 61, 8}, {2, 0, 1, 4, 3}, 1, 0}, seen);
  check<Bits128>({{30, 5, 7, 11, 13}, {2, 1, 0, 4, 3}}, seen);
  EXPECT_EQ(seen["chosen woven"], 6);  // matrices that lie elsewhere in the output
  check<uint32_t>({{25, 8, 192, 12, 11}, {1, 0, 2, 4, 3}, 1, 1}, seen);
  check<uint8_t>({{127, 27, 16}, {0, 2, 1}, 5, 11}, seen);
  EXPECT_EQ(seen["small matrices"], 2);
  check<uint64_t>({{24, 275, 22, 8}, {3, 1, 0, 2}}, seen);
  check<uint32_t>({{64, 71, 32, 8}, {1, 3, 0, 2}}, seen);
  check<uint16_t>({{1642, 11, 19, 27}, {1, 3, 0, 2}, 1, 3}, seen);
  check<uint8_t>({{14, 7, 3, 69, 298}, {3, 0, 4, 2, 1}, 3, 1}, seen);
  EXPECT_EQ(seen["several axes"] + seen["joined several axes"], 4);
}

TEST(PermuteTilesTest, ManyRowTilesOfNarrowColumnsAndMatrices) {
  std::map<std::string, int> seen;
  check<uint16_t>({{20001, 200}, {1, 0}}, seen);
  check<uint8_t>({{12000, 300}, {1, 0}, 1, 3}, seen);
  check<uint16_t>({{20000, 6, 64}, {2, 1, 0}}, seen);
  check<uint16_t>({{2, 20000, 3, 64}, {0, 3, 2, 1}}, seen);
}

TEST(PermuteTilesTest, MoveRowsOfAnyLength) {
  std::map<std::string, int> seen;
  for (const int64_t length : {3, 5, 16, 17, 31, 33, 107, 159}) {
    check<uint8_t>({{7, 13, length}, {1, 0, 2}}, seen);
    check<uint8_t>({{5, 2, 9, length}, {2, 1, 0, 3}, 7, 3}, seen);
    check<uint16_t>({{7, 13, length}, {1, 0, 2}, 3, 5}, seen);
    check<uint16_t>({{48, 13, length}, {1, 0, 2}}, seen);
    check<uint32_t>({{48, 3, 31, length}, {2, 0, 1, 3}, 1, 2}, seen);
    check<uint64_t>({{31, 48, length}, {1, 0, 2}, 1, 1}, seen);
  }
  EXPECT_EQ(seen["woven rows"], 48);
}

TEST(PermuteTilesTest, MoveRunsOverSeveralAxesThatFollowEachOther) {
  std::map<std::string, int> seen;
  check<uint8_t>({{131, 3, 40, 59, 7}, {4, 2, 1, 3, 0}}, seen);
  check<uint8_t>({{147, 3, 40, 59, 7}, {4, 2, 1, 3, 0}, 3, 5}, seen);
  check<uint16_t>({{67, 2, 26, 31, 30}, {4, 2, 1, 3, 0}, 1, 3}, seen);
  check<uint32_t>({{33, 2, 300, 11, 9}, {4, 2, 1, 3, 0}, 0, 1}, seen);
  EXPECT_EQ(seen["joined several axes"], 4);
}

TEST(PermuteTilesTest, WeaveWhereRowsAndColumnsStopAtEachOther) {
  std::map<std::string, int> seen;
  const Case cases[] = {
      {{8, 7, 15, 27, 8, 5}, {1, 3, 2, 5, 0, 4}},  {{8, 4, 31, 8, 4, 4}, {3, 2, 1, 5, 0, 4}},
      {{3, 56, 24, 29, 6}, {0, 2, 4, 3, 1}, 3, 1}, {{51, 3, 4, 47, 5}, {0, 4, 3, 2, 1}, 5, 0},
      {{17, 2, 108, 32}, {2, 0, 3, 1}, 0, 1},      {{23, 192, 25}, {2, 1, 0}, 1, 3},
      {{31, 4, 6, 4, 17, 31}, {3, 2, 1, 5, 4, 0}}, {{5, 32, 115, 8}, {0, 3, 2, 1}, 1, 1}};
  for (const Case& c : cases) {
    check<uint8_t>(c, seen);
    check<uint16_t>(c, seen);
    check<uint32_t>(c, seen);
    check<uint64_t>(c, seen);
    check<Bits128>(c, seen);
  }
  EXPECT_EQ(seen["woven"] + seen["shifted woven"] + seen["joined woven"], 40);
}

TEST(PermuteTilesTest, WovenTilesHaveLongRunsOnBothSides) {
  const auto runs = [](const std::vector<int64_t>& extents, const std::vector<int>& axes, int64_t size) {
    const PermutePlan plan = plan_permute(Shape(extents), axes);
    const TileJob tiles = plan_tiles(plan, static_cast<int>(size), 0, 0);
    const std::optional<WovenJob> woven = choose_woven(plan, tiles, static_cast<int>(size), 0, 0);
    return woven ? std::min(woven->length.step, woven->rows.step) * size : 0;
  };
  EXPECT_GE(runs({8, 197, 15, 27, 8, 5}, {1, 3, 2, 5, 0, 4}, 2), 512);
  EXPECT_GE(runs({8, 4, 31, 64, 4, 4}, {3, 2, 1, 5, 0, 4}, 2), 256);
  EXPECT_GE(runs({47, 8, 7, 24, 29, 6}, {0, 3, 5, 4, 1, 2}, 1), 160);
  EXPECT_GE(runs({31, 64, 6, 4, 17, 31}, {3, 2, 1, 5, 4, 0}, 2), 512);
  EXPECT_GE(runs({17, 2, 17, 64, 32}, {2, 3, 0, 4, 1}, 2), 256);
  // Neighbouring rows follow each other in the input: not thin.
  EXPECT_EQ(runs({37, 16, 46, 56, 16}, {4, 2, 0, 1, 3}, 2), 0);
}

TEST(PermuteTilesTest, MoveSmallMatricesWhateverTheAlignment) {
  std::map<std::string, int> seen;
  for (const int64_t rows : {2, 7, 8, 16, 31, 64, 74, 96, 205}) {
    for (const int64_t columns : {2, 4, 6, 8, 14, 16, 28, 40}) {
      for (const int64_t phase : {0, 1, 3}) {
        const Case c{{23, rows, columns}, {0, 2, 1}, phase, (rows + columns + phase) % 3};
        if (rows * columns <= 8192) check<uint8_t>(c, seen);
        if (rows * columns <= 4096) check<uint16_t>(c, seen);
        if (rows * columns <= 2048) check<uint32_t>(c, seen);
        if (rows * columns <= 1024) check<uint64_t>(c, seen);
      }
    }
  }
  EXPECT_GT(seen["small matrices"], 300);
  EXPECT_GT(seen["columns"] + seen["joined columns"] + seen["shifted columns"] + seen["chosen woven"], 100);
}

TEST(PermuteTilesTest, CutAlignedRunsAtSectors) {
  const TileJob job = plan_of<uint16_t>({936, 37, 4096}, {2, 1, 0});
  EXPECT_EQ(job.kind, TileKind::kShiftedColumns);
  EXPECT_EQ(job.cut_unit, 16);
  EXPECT_GE(job.row_step, 128);
  std::map<std::string, int> seen;
  check<uint16_t>({{936, 3, 1600}, {2, 1, 0}}, seen);
  check<uint16_t>({{936, 3, 1600}, {2, 1, 0}, 0, 8}, seen);
  check<uint16_t>({{3, 1000, 1608}, {0, 2, 1}, 0, 8}, seen);
  check<uint16_t>({{264, 5, 3208}, {2, 1, 0}, 8, 0}, seen);
  check<uint8_t>({{1040, 5, 1616}, {2, 1, 0}, 0, 16}, seen);
  check<uint8_t>({{5, 528, 3232}, {0, 2, 1}}, seen);
  EXPECT_EQ(seen["shifted columns"], 6);
}

}  // namespace
}  // namespace sinter::ops
