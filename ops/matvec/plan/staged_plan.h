// How a GPU cuts products of a large matrix with up to 16 vectors that go through shared memory. Pure
// arithmetic, without CUDA.
//
// A block takes a tile of the output's elements (outs) and walks along what they sum over (terms) in chunks.
// Matrix and vectors of a chunk are copied to shared memory as they lie, in the 16-byte units of memory that
// hold them, so that any extent and any alignment is read in whole units; the arithmetic reads single
// elements there.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>

#include <sinter/ops/matvec/plan/thin_plan.h>

namespace sinter::ops {

/// The most vectors that one pass over the matrix takes.
inline constexpr int kMostStagedVectors = 16;

/// A product as the plan sees it: `batch` matrices, each with `vectors` of its own.
struct StagedSizes {
  int element_bytes = 4;
  bool tensor_cores = false;   ///< they multiply, not plain arithmetic: see multiplies_on_tensor_cores
  bool transpose = false;      ///< the outs, not the terms, are neighbours in the matrix's memory
  bool dense_vectors = false;  ///< the terms of a vector are neighbours; else the vectors of a term are
  int64_t batch = 1, outs = 0, terms = 0;
  int vectors = 2;
};

/// Segments of memory of `pitch` bytes from one to the next, `bytes` of each copied, that lie `shared_pitch`
/// bytes apart in shared memory. Both pitches leave the same rest modulo 16, so that units of 16 bytes stay
/// whole; what shared memory holds of neighbouring segments does not overlap.
struct StagedCopy {
  int64_t pitch = 0;
  int segments = 1, bytes = 0, shared_pitch = 0;  ///< the most of a chunk

  /// Units of 16 bytes that a segment may touch.
  int units() const { return (bytes + 30) / 16; }
  int shared_bytes() const { return ((segments - 1) * shared_pitch + bytes + 47) / 16 * 16; }
  /// Neighbouring threads of a block, 2 to the power of this, that copy a segment together: as many as leave
  /// the fewest instructions to a thread and read whole lines of memory at once.
  int log_lanes() const;
};

struct StagedPlan {
  static constexpr int kThreads = 256, kWarps = 8;
  static constexpr int kStages = 3;  ///< chunks in flight and in use

  bool tensor_cores = false;
  int slots = 4;          ///< sums of an out, a power of two, of which the first `vectors` count
  int term_lanes = 1;     ///< 1, 4, 16 or 32 neighbouring lanes of a warp share an out; of tensor cores 1
  int outs_per_lane = 1;  ///< (without tensor cores)
  int term_step = 1;      ///< neighbouring terms that a warp takes at once
  int warp_outs = 16;     ///< that a warp takes at once
  int out_warps = 1;      ///< warps side by side; the other ones share the terms of a chunk
  int tile_outs = 16;     ///< a power of two; with one chunk per out a warp may take several of its shares
  int step_outs = 16;     ///< from a tile to the next: fewer than tile_outs where few tiles are so more alike
  int chunk = 16;         ///< terms
  int64_t tiles = 1, chunks = 1;  ///< of a matrix
  int64_t block_tiles = 1;  ///< that a block takes, every blocks()-th, at most; 1 if there are several chunks
  int64_t parts =
      1;  ///< that a tile's chunks are dealt to in turn, so that all parts read neighbouring memory
  int blocks_at_once = 3;  ///< of a processor, as registers allow
  bool flat = false;       ///< the tile's segments follow each other without gaps: they are copied as one
  StagedCopy matrix, vectors;
  int sum_bytes = 0;

  int term_warps() const { return kWarps / out_warps; }
  int64_t blocks() const { return detail::divide_up(tiles, block_tiles); }  ///< of a matrix and a part
  int stage_bytes() const { return matrix.shared_bytes() + vectors.shared_bytes(); }
  int shared_bytes() const { return kStages * stage_bytes() + sum_bytes; }
};

namespace detail {

inline constexpr int kStageBytes = 20480;  // of matrix and vectors: about three blocks fit a processor
inline constexpr int kProcessorSharedBytes = 228 * 1024;  // of an H200
inline constexpr int kBlockSharedBytes = 1024;            // of which every block takes more than it asks for

/// The least pitch for segments of `bytes` that is `pitch` modulo 16 and at which the same places of eight
/// neighbouring segments lie in different banks: its whole units are an odd number.
inline int shared_pitch_of(int64_t pitch, int bytes) {
  const int rest = static_cast<int>(pitch % 16);
  // Segments that begin alike need one unit more than they have; others a unit at either end.
  int units = rest == 0 && bytes % 16 == 0 ? bytes / 16 + 1 : (bytes + 45) / 16;
  if (units % 2 == 0) ++units;
  return units * 16 + rest;
}

inline StagedCopy staged_copy(int64_t pitch, int64_t segments, int64_t bytes) {
  return {.pitch = pitch,
          .segments = static_cast<int>(segments),
          .bytes = static_cast<int>(bytes),
          .shared_pitch = shared_pitch_of(pitch, static_cast<int>(bytes))};
}

/// Terms that tensor cores take at once: of float64 one instruction, of float32 two.
inline int tensor_core_terms(const StagedSizes& sizes) {
  return sizes.element_bytes == 8 ? 8 : 16;
}

/// Few terms: a chunk holds them all, and a block takes tile after tile.
inline bool has_few_terms(const StagedSizes& sizes) {
  constexpr int64_t kManyOuts = 1024;
  const int64_t few = (sizes.tensor_cores ? 128 : 64) / sizes.element_bytes;
  return sizes.terms <= few && sizes.outs >= kManyOuts;
}

/// Few tiles, which go on to the end together, get about as many outs each.
inline int balanced_outs(const StagedSizes& sizes, int tile_outs) {
  constexpr int64_t kFewTiles = 8;
  const int64_t tiles = divide_up(sizes.outs, tile_outs), unit = sizes.transpose ? 16 : 8;
  if (tiles > kFewTiles) return tile_outs;
  const int64_t outs = divide_up(divide_up(sizes.outs, tiles), unit) * unit;
  return static_cast<int>(std::min<int64_t>(outs, tile_outs));
}

inline void shape_few_terms(const StagedSizes& sizes, StagedPlan& plan) {
  constexpr int64_t kMatrixBytes = 16384, kSumBytes = 16384;
  plan.out_warps = StagedPlan::kWarps;
  if (sizes.tensor_cores) {
    const int64_t sum_bytes = plan.slots * std::max(sizes.element_bytes, 4);
    const int64_t most = std::min(kMatrixBytes / (sizes.terms * sizes.element_bytes), kSumBytes / sum_bytes);
    plan.tile_outs =
        static_cast<int>(std::bit_floor(static_cast<uint64_t>(std::clamp<int64_t>(most, 128, 512))));
    plan.chunk = static_cast<int>(divide_up(sizes.terms, plan.term_step)) * plan.term_step;
  } else {
    plan.outs_per_lane = sizes.element_bytes == 4 && sizes.terms < 8 ? 2 : 1;
    plan.warp_outs = 32 * plan.outs_per_lane;
    plan.tile_outs = plan.warp_outs * plan.out_warps;
    plan.chunk = static_cast<int>(sizes.terms);
  }
  plan.step_outs = plan.tile_outs;
}

/// Lanes without tensor cores. Of few outs a lane has four, and more lanes share the terms: whatever a lane
/// loads it uses for all of the outs or vectors, and no lane is without an out.
inline void shape_lanes(const StagedSizes& sizes, StagedPlan& plan) {
  if (sizes.outs <= 8 && plan.slots <= 8) {
    plan.term_lanes = sizes.outs <= 4 ? 32 : 16;
    plan.outs_per_lane = 4;
  } else {
    const int most = sizes.element_bytes == 8 ? 2 : 4;
    plan.term_lanes = 4;
    plan.outs_per_lane = std::min(sizes.outs <= 16 ? 2 : 4, most);
  }
  plan.term_step = plan.term_lanes;
  plan.warp_outs = 32 / plan.term_lanes * plan.outs_per_lane;
}

inline void shape_many_terms(const StagedSizes& sizes, StagedPlan& plan) {
  if (sizes.tensor_cores) {
    const int most = sizes.outs <= 16                       ? 16
                     : sizes.outs <= 32                     ? 32
                     : sizes.outs <= 64 || !sizes.transpose ? 64
                                                            : 128;
    // Splitting the vectors in float32 is work that more outs share.
    plan.warp_outs = sizes.element_bytes == 4 && most > 16 ? 32 : 16;
    plan.out_warps = most / plan.warp_outs;
  } else {
    shape_lanes(sizes, plan);
    while (plan.out_warps < 64 / plan.warp_outs && plan.out_warps * plan.warp_outs < sizes.outs)
      plan.out_warps *= 2;
  }
  plan.tile_outs = plan.warp_outs * plan.out_warps;
  plan.step_outs = balanced_outs(sizes, plan.tile_outs);
  const int64_t per_term =
      (std::min<int64_t>(sizes.outs, plan.step_outs) + sizes.vectors) * sizes.element_bytes;
  const int64_t unit = int64_t{plan.term_step} * plan.term_warps();
  const int64_t chunk = std::max<int64_t>(kStageBytes / per_term / unit, 1) * unit;
  plan.chunk = static_cast<int>(std::min(chunk, divide_up(sizes.terms, unit) * unit));
}

inline void lay_out_staged(const StagedSizes& sizes, StagedPlan& plan) {
  constexpr int64_t kShortSegment = 256;
  const int64_t e = sizes.element_bytes;
  const int64_t pitch = (sizes.transpose ? sizes.outs : sizes.terms) * e;
  const int64_t tile = std::min<int64_t>(plan.step_outs, sizes.outs),
                chunk = std::min<int64_t>(plan.chunk, sizes.terms);
  const int64_t segments = sizes.transpose ? chunk : tile, length = (sizes.transpose ? tile : chunk) * e;
  plan.flat = length == pitch && pitch < kShortSegment && (pitch % 16 != 0 || pitch == 16);
  plan.matrix = plan.flat ? StagedCopy{pitch, 1, static_cast<int>(segments * pitch), static_cast<int>(pitch)}
                          : staged_copy(pitch, segments, length);
  const auto vector_pitch = static_cast<int>(sizes.vectors * e);
  plan.vectors = sizes.dense_vectors
                     ? staged_copy(sizes.terms * e, sizes.vectors, chunk * e)
                     : StagedCopy{vector_pitch, 1, static_cast<int>(chunk) * vector_pitch, vector_pitch};
  plan.sum_bytes = plan.term_warps() * plan.tile_outs * plan.slots * std::max(sizes.element_bytes, 4);
}

/// Takes as many chunks' terms that three blocks of a processor, or as many as the kernel's registers allow,
/// have room in shared memory; where one share of terms is too much, fewer blocks.
inline void fit_staged(const StagedSizes& sizes, StagedPlan& plan) {
  // As the kernel is compiled: many sums of a lane leave registers for two blocks.
  const bool many_sums = sizes.tensor_cores ? sizes.element_bytes == 4 && plan.slots * plan.warp_outs > 256
                                            : sizes.element_bytes * plan.slots * plan.outs_per_lane > 64;
  const int by_registers = many_sums ? 2 : 3;
  const int unit = plan.term_step * plan.term_warps();
  lay_out_staged(sizes, plan);
  const auto blocks = [&] { return kProcessorSharedBytes / (plan.shared_bytes() + kBlockSharedBytes); };
  while (blocks() < by_registers && plan.chunk < sizes.terms && plan.chunk > unit) {
    plan.chunk -= unit;
    lay_out_staged(sizes, plan);
  }
  // Of a small matrix chunks are so small that every processor has two, if they are not all the terms.
  const int64_t tiles = sizes.batch * divide_up(sizes.outs, plan.step_outs);
  const auto is_idle = [&] { return tiles * divide_up(sizes.terms, plan.chunk) < 4 * kProcessors; };
  while (plan.chunk < sizes.terms && plan.chunk > unit && is_idle()) {
    plan.chunk -= unit;
    lay_out_staged(sizes, plan);
  }
  plan.blocks_at_once = std::clamp(blocks(), 1, by_registers);
}

/// How long a product takes whose tiles are cut into `parts`, in bytes that one block reads: waves of blocks,
/// the start of each and of its last chunk's sums, which nothing hides, and the table of the parts' sums.
inline double staged_cost(const StagedSizes& sizes, const StagedPlan& plan, int64_t parts) {
  constexpr double kStart = 2.0;  // chunks
  const int64_t at_once = kProcessors * plan.blocks_at_once, blocks = sizes.batch * plan.tiles * parts;
  const double chunk_bytes =
      static_cast<double>(std::min<int64_t>(plan.step_outs, sizes.outs) + sizes.vectors) * plan.chunk *
      sizes.element_bytes;
  const double part_chunks = static_cast<double>(divide_up(plan.chunks, parts)) + kStart;
  // Blocks of many waves do not wait for each other: only the last wave is as long as a whole one.
  const auto full = static_cast<double>(blocks) / static_cast<double>(at_once);
  const double waves = blocks <= at_once ? 1.0 : full + 0.5;
  const double table = parts == 1 ? 0.0
                                  : static_cast<double>(sizes.batch * sizes.outs * sizes.vectors) *
                                        static_cast<double>(2 * parts * std::max(sizes.element_bytes, 4));
  return waves * part_chunks * chunk_bytes + table / static_cast<double>(at_once);
}

inline void cut_staged(const StagedSizes& sizes, StagedPlan& plan) {
  constexpr int64_t kSeveralWaves = 4, kMostTiles = 8, kMostStagedParts = 1024;
  const int64_t at_once = kProcessors * plan.blocks_at_once;
  plan.tiles = divide_up(sizes.outs, plan.step_outs);
  plan.chunks = divide_up(sizes.terms, plan.chunk);
  const int64_t tiles = sizes.batch * plan.tiles;
  if (plan.chunks == 1) {
    // Some waves of short blocks are one of longer ones, whose copies run beside their arithmetic.
    const bool one_wave = sizes.tensor_cores && tiles <= kMostTiles * at_once;
    const int64_t block_tiles = one_wave ? divide_up(tiles, at_once) : tiles / (kSeveralWaves * at_once);
    plan.block_tiles = std::min(std::clamp<int64_t>(block_tiles, 1, kMostTiles), plan.tiles);
    return;
  }
  // Counts that fill whole waves, up to four; and one part, which needs no table. A part has two chunks.
  double least = staged_cost(sizes, plan, 1);
  for (int64_t waves = 1; waves <= kSeveralWaves; ++waves) {
    const int64_t parts = std::min({waves * at_once / tiles, plan.chunks / 2, kMostStagedParts});
    if (parts <= 1) continue;
    const double cost = staged_cost(sizes, plan, parts);
    if (cost < least) least = cost, plan.parts = parts;
  }
}

}  // namespace detail

inline int StagedCopy::log_lanes() const {
  constexpr int kLogThreads = 8, kLogLine = 3, kOfSegment = 12, kOfUnit = 10;  // the last: instructions
  // Whole lines of 128 bytes at once, or all of a segment: memory moves no less than 32 bytes.
  const int fewest =
      std::min(kLogLine, static_cast<int>(std::bit_width(static_cast<unsigned>((bytes + 15) / 16))) - 1);
  int best = fewest;
  int64_t least = INT64_MAX;
  for (int log = fewest; log <= kLogThreads; ++log) {
    const int64_t rounds = detail::divide_up(segments, StagedPlan::kThreads >> log);
    const int64_t cost = rounds * (kOfSegment + kOfUnit * detail::divide_up(units(), int64_t{1} << log));
    if (cost <= least) least = cost, best = log;
  }
  return best;
}

/// Whether tensor cores multiply: always in the 16-bit types, and in float64, whose products they take in
/// its own precision, wherever they are not mostly idle. A float32 is split in two for them (SplitTile),
/// which pays for many vectors. Lanes with all of a few outs, or of a few terms, need fewer instructions.
inline bool multiplies_on_tensor_cores(int element_bytes, int64_t outs, int64_t terms, int vectors) {
  constexpr int64_t kFewTerms = 8;
  if (element_bytes == 2) return true;
  if (terms <= kFewTerms) return false;
  return vectors > 8 || (element_bytes == 8 ? outs > 4 : vectors > 4 && outs > 8);
}

namespace detail {

/// How long a plan for tensor cores takes, in microseconds: its bytes at the pace of memory or, where blocks
/// are few, of a processor; the start of blocks; the second kernel and its table. Rows that begin anywhere
/// cost memory a part of a line at either end.
inline double tensor_core_time(const StagedSizes& sizes, const StagedPlan& plan) {
  constexpr double kMemory = 4300, kTable = 3000, kProcessor = 40;  // KB in a microsecond
  constexpr double kStart = 1.5, kFold = 2.5;
  constexpr int64_t kEnds = 48, kLine = 64;
  const int64_t blocks = sizes.batch * plan.blocks() * plan.parts;
  const int64_t places = plan.chunks == 1 ? plan.block_tiles : divide_up(plan.chunks, plan.parts);
  const int64_t ends = plan.flat || plan.matrix.pitch % kLine == 0 ? 0 : kEnds * plan.matrix.segments;
  const int64_t bytes = std::min<int64_t>(plan.chunk, sizes.terms) * sizes.element_bytes;
  const int64_t lines = std::min<int64_t>(plan.step_outs, sizes.outs) + sizes.vectors;
  const double block_kb = static_cast<double>(places * (bytes * lines + ends)) / 1000;
  const double reading =
      std::max(static_cast<double>(blocks) * block_kb / kMemory,
               static_cast<double>(divide_up(blocks, kProcessors)) * block_kb / kProcessor);
  if (plan.parts == 1) return reading + kStart;
  const double sums = static_cast<double>(sizes.batch * sizes.outs * sizes.vectors);
  return reading + kStart + kFold + 2 * static_cast<double>(plan.parts) * sums * 4 / 1000 / kTable;
}

/// A plan with `out_warps` warps side by side whose tiles are not cut into parts, and whose few chunks are so
/// large that the first two are most of a tile; nothing if there are too many chunks or blocks for that.
inline std::optional<StagedPlan> plan_whole_tiles(const StagedSizes& sizes, int slots, int out_warps) {
  constexpr int kLargeStageBytes = 26624, kMostBlockBytes = 99 * 1024;  // of every GPU
  constexpr int64_t kMostChunks = 6;
  StagedPlan plan;
  plan.tensor_cores = true;
  plan.term_step = tensor_core_terms(sizes);
  plan.slots = slots;
  plan.out_warps = out_warps;
  plan.tile_outs = plan.warp_outs * out_warps;
  plan.step_outs = balanced_outs(sizes, plan.tile_outs);
  plan.tiles = divide_up(sizes.outs, plan.step_outs);
  const int64_t per_term =
      (std::min<int64_t>(sizes.outs, plan.step_outs) + sizes.vectors) * sizes.element_bytes;
  const int64_t unit = int64_t{16} * plan.term_warps();
  const int64_t most = std::max<int64_t>(kLargeStageBytes / per_term / unit, 1) * unit;
  const int64_t chunks = divide_up(sizes.terms, most);
  if (chunks > kMostChunks) return std::nullopt;
  plan.chunk = static_cast<int>(divide_up(divide_up(sizes.terms, chunks), unit) * unit);
  plan.chunks = divide_up(sizes.terms, plan.chunk);
  lay_out_staged(sizes, plan);
  const int blocks = kProcessorSharedBytes / (plan.shared_bytes() + kBlockSharedBytes);
  plan.blocks_at_once = std::clamp(blocks, 1, 3);
  if (plan.shared_bytes() > kMostBlockBytes) return std::nullopt;
  if (sizes.batch * plan.tiles > kProcessors * plan.blocks_at_once) return std::nullopt;
  return plan;
}

/// Small products on tensor cores: where a tile's terms would be cut into parts, narrower tiles that are not
/// cut may do as well without the second kernel.
inline StagedPlan without_parts(const StagedSizes& sizes, const StagedPlan& cut) {
  constexpr int64_t kLarge = int64_t{4} << 20;  // bytes, which need every processor
  const bool is_large = sizes.outs >= divide_up(kLarge, sizes.element_bytes * sizes.batch * sizes.terms);
  StagedPlan best = cut;
  double least = tensor_core_time(sizes, cut);
  for (int out_warps = cut.out_warps; out_warps >= 1; out_warps /= 2) {
    const std::optional<StagedPlan> whole = plan_whole_tiles(sizes, cut.slots, out_warps);
    if (!whole || (is_large && sizes.batch * whole->tiles < kProcessors)) continue;
    const double time = tensor_core_time(sizes, *whole);
    if (time < least) least = time, best = *whole;
  }
  return best;
}

}  // namespace detail

/// Every size is at least 1, vectors are at most kMostStagedVectors. Depends on the sizes alone.
inline StagedPlan plan_staged(const StagedSizes& sizes) {
  StagedPlan plan;
  plan.slots = static_cast<int>(std::bit_ceil(static_cast<unsigned>(sizes.vectors)));
  plan.slots = std::max(plan.slots, sizes.tensor_cores ? 8 : 2);
  plan.tensor_cores = sizes.tensor_cores;
  if (sizes.tensor_cores) plan.term_step = detail::tensor_core_terms(sizes);
  if (detail::has_few_terms(sizes)) {
    detail::shape_few_terms(sizes, plan);
  } else {
    detail::shape_many_terms(sizes, plan);
  }
  detail::fit_staged(sizes, plan);
  detail::cut_staged(sizes, plan);
  if (sizes.tensor_cores && sizes.element_bytes == 2 && plan.parts > 1)
    return detail::without_parts(sizes, plan);
  return plan;
}

}  // namespace sinter::ops
