// Products with several vectors that go through shared memory: how they are cut, and a run of the kernel's
// copies and sums on the CPU, place by place.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/random.h>
#include <sinter/ops/matvec/plan/staged_plan.h>
#include <sinter/ops/matvec/thin_product.h>

#include "ops/random_extents.h"

namespace sinter::ops {
namespace {

using namespace testing_plans;

constexpr int kCases = 100000;

StagedSizes random_sizes(Generator& generator, int most) {
  StagedSizes sizes;
  sizes.element_bytes = 2 << integer(generator, 0, 2);
  sizes.tensor_cores = sizes.element_bytes == 2 || generator.uniform() < 0.5;
  sizes.transpose = generator.uniform() < 0.5;
  sizes.dense_vectors = generator.uniform() < 0.5;
  sizes.batch = generator.uniform() < 0.5 ? 1 : extent(generator, 10);
  sizes.outs = extent(generator, most);
  sizes.terms = extent(generator, most);
  sizes.vectors = static_cast<int>(integer(generator, 1, kMostStagedVectors));
  return sizes;
}

std::string text(const StagedSizes& s) {
  return std::to_string(s.batch) + " of " + std::to_string(s.outs) + " outs, " + std::to_string(s.terms) +
         " terms, " + std::to_string(s.vectors) + " vectors, " + std::to_string(s.element_bytes) + " bytes" +
         (s.transpose ? ", transposed" : "") + (s.dense_vectors ? ", dense" : "") +
         (s.tensor_cores ? ", tensor cores" : "");
}

/// Whether there is such a PlainTile.
bool has_plain_tile(const StagedSizes& sizes, const StagedPlan& plan) {
  const bool is_float = sizes.element_bytes == 4;
  if (plan.slots < 2) return false;
  switch (plan.term_lanes) {
    case 1:
      return plan.outs_per_lane == 1 || (plan.outs_per_lane == 2 && is_float);
    case 4:
      return plan.outs_per_lane == 2 || (plan.outs_per_lane == 4 && is_float);
    case 16:
    case 32:
      return plan.outs_per_lane == 4 && plan.slots <= 8;
    default:
      return false;
  }
}

TEST(StagedPlan, FitsTheKernelAndTheGpu) {
  constexpr int kMostSharedBytes = 99 * 1024;  // of a block, on every GPU that the kernel is compiled for
  Generator generator(1);
  for (int i = 0; i < kCases; ++i) {
    const StagedSizes sizes = random_sizes(generator, 32);
    SCOPED_TRACE(text(sizes));
    const StagedPlan plan = plan_staged(sizes);
    ASSERT_GE(plan.slots, sizes.vectors);
    ASSERT_TRUE(plan.slots <= 16 && (plan.slots & (plan.slots - 1)) == 0) << plan.slots;
    ASSERT_EQ(plan.tensor_cores, sizes.tensor_cores);
    if (sizes.tensor_cores) {
      ASSERT_GE(plan.slots, 8);
      ASSERT_TRUE(plan.warp_outs == 16 || (plan.warp_outs == 32 && sizes.element_bytes == 4));
      ASSERT_EQ(plan.term_step, sizes.element_bytes == 8 ? 8 : 16);
    } else {
      ASSERT_TRUE(has_plain_tile(sizes, plan)) << plan.term_lanes << " lanes of " << plan.outs_per_lane;
      ASSERT_EQ(plan.warp_outs, 32 / plan.term_lanes * plan.outs_per_lane);
      ASSERT_EQ(plan.term_step, plan.term_lanes);
    }
    ASSERT_EQ(plan.out_warps * plan.term_warps(), StagedPlan::kWarps);
    ASSERT_EQ(plan.tile_outs & (plan.tile_outs - 1), 0) << "places are taken apart by shifts";
    ASSERT_EQ(plan.tile_outs % (plan.warp_outs * plan.out_warps), 0);
    if (plan.chunks > 1) {
      ASSERT_EQ(plan.tile_outs, plan.warp_outs * plan.out_warps) << "sums of several shares";
      ASSERT_EQ(plan.block_tiles, 1);
      ASSERT_TRUE(plan.step_outs <= plan.tile_outs && (plan.step_outs % 8 == 0 || plan.tiles == 1));
      ASSERT_EQ(plan.chunk % 4, 0);
    } else {
      ASSERT_EQ(plan.parts, 1);
    }
    ASSERT_GE(plan.tiles * plan.step_outs, sizes.outs);
    ASSERT_LT((plan.tiles - 1) * plan.step_outs, sizes.outs) << "a tile without outs";
    ASSERT_GE(plan.chunks * plan.chunk, sizes.terms);
    ASSERT_LT((plan.chunks - 1) * plan.chunk, sizes.terms) << "a chunk without terms";
    ASSERT_LE(plan.parts, std::max<int64_t>(plan.chunks / 2, 1)) << "a part without work";
    const int lane_sums = plan.slots * (plan.tensor_cores ? plan.warp_outs / 32 : plan.outs_per_lane);
    const bool many_sums = plan.tensor_cores ? sizes.element_bytes == 4 && lane_sums == 16
                                             : sizes.element_bytes * lane_sums > 64;
    ASSERT_LE(plan.blocks_at_once, many_sums ? 2 : 3) << "as the kernels are compiled";
    ASSERT_GE(plan.blocks_at_once, 1);
    ASSERT_LE(plan.blocks_at_once * (plan.shared_bytes() + 1024), 228 * 1024)
        << "blocks of an H200's processor";
    ASSERT_GE(plan.blocks() * plan.block_tiles, plan.tiles);
    ASSERT_LT((plan.blocks() - 1) * plan.block_tiles, plan.tiles) << "a block without tiles";
    ASSERT_LE(plan.parts, 65535);
    ASSERT_LE(plan.parts * plan.tiles * sizes.batch, std::max<int64_t>(1584, plan.tiles * sizes.batch));
    ASSERT_LE(plan.shared_bytes(), kMostSharedBytes);
    ASSERT_EQ(plan.stage_bytes() % 16, 0);
    for (const StagedCopy& copy : {plan.matrix, plan.vectors}) {
      ASSERT_GT(copy.bytes, 0);
      ASSERT_EQ((copy.pitch - copy.shared_pitch) % 16, 0) << "units of 16 bytes are cut";
    }
  }
}

/// What StagedCopier of the kernel writes to shared memory: address of global memory by that of shared
/// memory, each of a byte, for whole units. Behind `end` nothing is read.
std::map<int64_t, int64_t> copy(const StagedCopy& how, int64_t first, int64_t segments, int64_t bytes,
                                int64_t end, bool near_end) {
  std::map<int64_t, int64_t> shared;
  const int lanes = 1 << how.log_lanes(), groups = StagedPlan::kThreads / lanes;
  EXPECT_GE(groups, 1);
  const auto put = [&](int64_t to, int64_t from, int64_t used) {
    EXPECT_TRUE(to >= 0 && to % 16 == 0) << to;
    EXPECT_EQ(from % 16, 0);
    EXPECT_TRUE(used > 0 && from + used <= end) << "read behind the end";
    EXPECT_LE(to + 16, how.shared_bytes());
    for (int64_t byte = 0; byte < 16; ++byte) {
      EXPECT_TRUE(shared.emplace(to + byte, byte < used ? from + byte : -1).second) << "written twice";
    }
  };
  for (int thread = 0; thread < StagedPlan::kThreads; ++thread) {
    const int group = thread / lanes, lane = thread % lanes;
    for (int64_t segment = group; segment < segments; segment += groups) {
      const int64_t source = first + segment * how.pitch;
      const int64_t target = first % 16 + segment * how.shared_pitch;
      for (int64_t at = 16 * lane - source % 16; at < bytes; at += 16 * lanes) {
        put(target + at, source + at, near_end ? std::min<int64_t>(end - source - at, 16) : 16);
      }
    }
  }
  return shared;
}

void expect_lines(const std::map<int64_t, int64_t>& shared, const StagedCopy& how, int64_t first,
                  int64_t segments, int64_t bytes) {
  for (int64_t segment = 0; segment < segments; ++segment) {
    for (int64_t byte = 0; byte < bytes; ++byte) {
      const auto found = shared.find(first % 16 + segment * how.shared_pitch + byte);
      ASSERT_NE(found, shared.end());
      ASSERT_EQ(found->second, first + segment * how.pitch + byte);
    }
  }
}

TEST(StagedPlan, EveryByteOfAChunkIsWhereTheKernelReadsIt) {
  Generator generator(2);
  for (int i = 0; i < 400; ++i) {
    const StagedSizes sizes = random_sizes(generator, 14);
    const StagedPlan plan = plan_staged(sizes);
    const int64_t e = sizes.element_bytes;
    const int64_t tile = integer(generator, 0, plan.tiles - 1),
                  chunk = integer(generator, 0, plan.chunks - 1);
    const int64_t outs = std::min<int64_t>(plan.step_outs, sizes.outs - tile * plan.step_outs),
                  terms = std::min<int64_t>(plan.chunk, sizes.terms - chunk * plan.chunk);
    const int64_t base = 4096 + e * integer(generator, 0, 15);
    SCOPED_TRACE(text(sizes) + ", tile " + std::to_string(tile) + ", chunk " + std::to_string(chunk) +
                 ", base " + std::to_string(base));
    const int64_t out = tile * plan.step_outs, term = chunk * plan.chunk;
    const int64_t segments = sizes.transpose ? terms : outs, bytes = (sizes.transpose ? outs : terms) * e;
    const int64_t first = base + (sizes.transpose ? term * sizes.outs + out : out * sizes.terms + term) * e;
    const int64_t end = base + sizes.outs * sizes.terms * e;
    const bool near_end = plan.chunks == 1 ? tile + 2 >= plan.tiles : chunk + 2 >= plan.chunks;
    const auto matrix = plan.flat ? copy(plan.matrix, first, 1, segments * bytes, end, near_end)
                                  : copy(plan.matrix, first, segments, bytes, end, near_end);
    expect_lines(matrix, plan.matrix, first, segments, bytes);
    const int64_t x_first = base + (sizes.dense_vectors ? term : term * sizes.vectors) * e;
    const int64_t lines = sizes.dense_vectors ? sizes.vectors : 1,
                  length = terms * e * (sizes.dense_vectors ? 1 : sizes.vectors);
    const auto vectors = copy(plan.vectors, x_first, lines, length, base + sizes.terms * sizes.vectors * e,
                              near_end || plan.chunks == 1);
    expect_lines(vectors, plan.vectors, x_first, lines, length);
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

TEST(StagedPlan, WarpsTakeEveryOutAndTermOnce) {
  Generator generator(3);
  for (int i = 0; i < 2000; ++i) {
    const StagedSizes sizes = random_sizes(generator, 9);
    SCOPED_TRACE(text(sizes));
    const StagedPlan plan = plan_staged(sizes);
    const int step = plan.term_step;
    std::vector<int> visits(static_cast<size_t>(sizes.outs * sizes.terms));
    for (int64_t tile = 0; tile < plan.tiles; ++tile) {
      for (int64_t chunk = 0; chunk < plan.chunks; ++chunk) {
        const int64_t outs = std::min<int64_t>(plan.step_outs, sizes.outs - tile * plan.step_outs),
                      terms = std::min<int64_t>(plan.chunk, sizes.terms - chunk * plan.chunk);
        for (int warp = 0; warp < StagedPlan::kWarps; ++warp) {
          for (int64_t o = int64_t{warp % plan.out_warps} * plan.warp_outs; o < outs;
               o += int64_t{plan.out_warps} * plan.warp_outs) {
            for (int64_t k = int64_t{warp / plan.out_warps} * step; k < terms;
                 k += plan.term_warps() * step) {
              for (int64_t out = o; out < std::min(o + plan.warp_outs, outs); ++out) {
                for (int64_t term = k; term < std::min(k + step, terms); ++term) {
                  ++visits[static_cast<size_t>((tile * plan.step_outs + out) * sizes.terms +
                                               chunk * plan.chunk + term)];
                }
              }
            }
          }
        }
      }
    }
    ASSERT_TRUE(std::all_of(visits.begin(), visits.end(), [](int count) { return count == 1; }));
  }
}

TEST(StagedPlan, LargeMatricesKeepTheGpuBusy) {
  // Thin operands of 16 MiB and more, however they lie.
  Generator generator(4);
  for (int i = 0; i < 10000; ++i) {
    StagedSizes sizes = random_sizes(generator, 4);
    const int64_t elements = (int64_t{16} << 20) / sizes.element_bytes;
    sizes.batch = integer(generator, 1, 64);
    const int64_t thin = integer(generator, 1, 64), thick = elements / thin / sizes.batch;
    sizes.outs = generator.uniform() < 0.5 ? thin : thick;
    sizes.terms = sizes.outs == thin ? thick : thin;
    SCOPED_TRACE(text(sizes));
    const StagedPlan plan = plan_staged(sizes);
    ASSERT_GE(plan.blocks() * plan.parts * sizes.batch, 120);  // 132 less what a second kernel would cost
  }
}

TEST(StagedProduct, ManyVectorsAreMultipliedOnTensorCores) {
  const auto takes = [](DType dtype, int64_t outs, int64_t terms, int vectors) {
    return staged_plan_of({.dtype = dtype, .rows = outs, .columns = terms, .vectors = vectors}).tensor_cores;
  };
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (const int64_t outs : {17, 300, 100000}) {
      EXPECT_TRUE(takes(dtype, outs, 5000, 5));
      EXPECT_TRUE(takes(dtype, outs, 9, 16));
      EXPECT_FALSE(takes(dtype, outs, 8, 16)) << "few terms";
    }
    EXPECT_FALSE(takes(dtype, 3, 5000, 3)) << "lanes with all outs";
  }
  EXPECT_FALSE(takes(DType::kFloat32, 300, 5000, 4));
  EXPECT_FALSE(takes(DType::kFloat32, 8, 5000, 8));
  EXPECT_TRUE(takes(DType::kFloat64, 300, 5000, 2));
  EXPECT_TRUE(takes(DType::kFloat64, 8, 5000, 5));
}

TEST(StagedPlan, SmallProductsOnTensorCoresNeedNoSecondKernel) {
  struct Case {
    bool transpose, dense;
    int64_t batch, outs, terms;
    int vectors;
  };
  for (const Case& c : {Case{true, true, 1, 8192, 208, 8}, Case{false, false, 1, 6151, 148, 16},
                        Case{false, false, 4, 2688, 256, 10}, Case{false, true, 1, 4096, 256, 3},
                        Case{false, false, 4, 232, 688, 16}}) {
    const StagedSizes sizes{.element_bytes = 2,
                            .tensor_cores = true,
                            .transpose = c.transpose,
                            .dense_vectors = c.dense,
                            .batch = c.batch,
                            .outs = c.outs,
                            .terms = c.terms,
                            .vectors = c.vectors};
    SCOPED_TRACE(text(sizes));
    const StagedPlan plan = plan_staged(sizes);
    EXPECT_EQ(plan.parts, 1);
    EXPECT_LE(plan.chunks, StagedPlan::kStages - 1) << "chunks that are not all asked for at once";
    EXPECT_GE(plan.blocks() * sizes.batch, 60);
  }
}

TEST(StagedPlan, FewWavesOfTilesAreOneWave) {
  // 1024 tiles of 64 outs, all terms in a chunk, three blocks to a processor.
  const StagedPlan plan = plan_staged({.element_bytes = 2,
                                       .tensor_cores = true,
                                       .dense_vectors = true,
                                       .outs = 65536,
                                       .terms = 120,
                                       .vectors = 12});
  EXPECT_EQ(plan.chunks, 1);
  EXPECT_EQ(plan.block_tiles, 3);
  EXPECT_LE(plan.blocks(), 132 * plan.blocks_at_once);
}

TEST(StagedProduct, TakesLargeMatricesWithSeveralDenseVectors) {
  const ThinProblem large{.dtype = DType::kFloat16,
                          .rows = 1000,
                          .columns = 3000,
                          .vectors = 5,
                          .x_vector = 1,
                          .x_element = 5,
                          .y_vector = 1,
                          .y_element = 5};
  EXPECT_TRUE(is_staged(large));
  ThinProblem other = large;
  other.vectors = 1;
  EXPECT_FALSE(is_staged(other));
  const ThinProblem few_rows{.dtype = DType::kBFloat16, .transpose = true, .rows = 17, .columns = 17231};
  EXPECT_TRUE(is_staged(few_rows));
  other = few_rows;
  other.columns = 17232;
  EXPECT_FALSE(is_staged(other)) << "rows of whole packs";
  other = few_rows;
  other.columns = 172307;
  EXPECT_FALSE(is_staged(other)) << "threads enough that walk down columns";
  const ThinProblem odd_rows{.dtype = DType::kFloat16, .rows = 1142520, .columns = 171};
  EXPECT_FALSE(is_staged(odd_rows)) << "rows that are read in units";
  other = odd_rows;
  other.rows = 5;
  other.columns = 1000001;
  EXPECT_FALSE(is_staged(other)) << "few long rows, along which blocks walk";
  EXPECT_TRUE(takes_long_rows(other));
  other.batch = 20;
  EXPECT_TRUE(is_staged(other)) << "of many matrices";
  other.batch = 1;
  other.rows = 1;
  EXPECT_FALSE(is_staged(other)) << "a small matrix";
  other = large;
  other.rows = 10;
  EXPECT_FALSE(is_staged(other));
  other.columns = 0;
  EXPECT_FALSE(is_staged(other));
  other = large;
  other.x_element = 7;
  EXPECT_FALSE(is_staged(other));
  other = large;
  other.rows = other.columns = int64_t{1} << 40;
  EXPECT_TRUE(is_staged(other)) << "sizes whose product has more than 64 bits";
}

}  // namespace
}  // namespace sinter::ops
