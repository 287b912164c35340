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

#include <sinter/ops/matvec/thin_plan.h>

namespace sinter::ops {

/// The most vectors that one pass over the matrix takes.
inline constexpr int kMostStagedVectors = 16;

/// A product as the plan sees it: `batch` matrices, each with `vectors` of its own.
struct StagedSizes {
  int element_bytes = 4;
  bool tensor_cores = false;   ///< 16-bit elements
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
};

struct StagedPlan {
  static constexpr int kThreads = 256, kWarps = 8;
  static constexpr int kStages = 3;  ///< chunks in flight and in use

  int slots = 4;          ///< sums of an out: 4, 8 or 16, of which the first `vectors` count
  int term_lanes = 1;     ///< 1 or 4 neighbouring lanes of a warp share an out (without tensor cores)
  int outs_per_lane = 1;  ///< (without tensor cores)
  int warp_outs = 16;     ///< that a warp takes at once
  int out_warps = 1;      ///< warps side by side; the other ones share the terms of a chunk
  int tile_outs = 16;     ///< a power of two; with one chunk per out a warp may take several of its shares
  int chunk = 16;         ///< terms
  int64_t tiles = 1, chunks = 1;  ///< of a matrix
  int64_t block_tiles = 1;        ///< that a block takes one after the other; 1 if there are several chunks
  int64_t part_chunks = 1, parts = 1;
  bool flat = false;  ///< the tile's segments follow each other without gaps: they are copied as one
  StagedCopy matrix, vectors;
  int sum_bytes = 0;

  int term_warps() const { return kWarps / out_warps; }
  int64_t blocks() const { return detail::divide_up(tiles, block_tiles); }  ///< of a matrix and a part
  int stage_bytes() const { return matrix.shared_bytes() + vectors.shared_bytes(); }
  int shared_bytes() const { return kStages * stage_bytes() + sum_bytes; }
};

namespace detail {

inline constexpr int kStageBytes = 20480;  // of matrix and vectors: three blocks fit a processor

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

/// Few terms: a chunk holds them all, and a block takes tile after tile.
inline bool has_few_terms(const StagedSizes& sizes) {
  constexpr int64_t kManyOuts = 1024;
  const int64_t few = sizes.tensor_cores ? 64 : 64 / sizes.element_bytes;
  return sizes.terms <= few && sizes.outs >= kManyOuts;
}

inline void shape_few_terms(const StagedSizes& sizes, StagedPlan& plan) {
  constexpr int64_t kMatrixBytes = 16384, kSumBytes = 16384;
  plan.out_warps = StagedPlan::kWarps;
  if (sizes.tensor_cores) {
    const int64_t most =
        std::min(kMatrixBytes / (sizes.terms * sizes.element_bytes), kSumBytes / (plan.slots * 4));
    plan.tile_outs =
        static_cast<int>(std::clamp<uint64_t>(std::bit_floor(static_cast<uint64_t>(most)), 128, 512));
    plan.chunk = static_cast<int>(divide_up(sizes.terms, 16)) * 16;
  } else {
    plan.outs_per_lane = sizes.element_bytes == 4 && sizes.terms < 8 ? 2 : 1;
    plan.warp_outs = 32 * plan.outs_per_lane;
    plan.tile_outs = plan.warp_outs * plan.out_warps;
    plan.chunk = static_cast<int>(sizes.terms);
  }
}

inline void shape_many_terms(const StagedSizes& sizes, StagedPlan& plan) {
  int step = 16;
  if (sizes.tensor_cores) {
    plan.out_warps = sizes.outs <= 16                       ? 1
                     : sizes.outs <= 32                     ? 2
                     : sizes.outs <= 64 || !sizes.transpose ? 4
                                                            : 8;
  } else {
    step = plan.term_lanes = 4;
    const int most = sizes.element_bytes == 8 ? 2 : 4;
    plan.outs_per_lane = std::min(sizes.outs <= 8 ? 1 : sizes.outs <= 16 ? 2 : 4, most);
    plan.warp_outs = 8 * plan.outs_per_lane;
    while (plan.out_warps < 64 / plan.warp_outs && plan.out_warps * plan.warp_outs < sizes.outs)
      plan.out_warps *= 2;
  }
  plan.tile_outs = plan.warp_outs * plan.out_warps;
  const int64_t per_term =
      (std::min<int64_t>(sizes.outs, plan.tile_outs) + sizes.vectors) * sizes.element_bytes;
  const int64_t unit = int64_t{step} * plan.term_warps();
  const int64_t chunk = std::max<int64_t>(kStageBytes / per_term / unit, 1) * unit;
  plan.chunk = static_cast<int>(std::min(chunk, divide_up(sizes.terms, unit) * unit));
}

inline void cut_staged(const StagedSizes& sizes, StagedPlan& plan) {
  constexpr int64_t kAtOnce = kProcessors * 3, kSeveralWaves = 4, kFewBlocks = 40, kMostTiles = 8;
  plan.tiles = divide_up(sizes.outs, plan.tile_outs);
  plan.chunks = divide_up(sizes.terms, plan.chunk);
  const int64_t tiles = sizes.batch * plan.tiles;
  plan.part_chunks = plan.chunks;
  if (plan.chunks == 1) {
    plan.block_tiles =
        std::min(std::clamp<int64_t>(tiles / (kSeveralWaves * kAtOnce), 1, kMostTiles), plan.tiles);
    return;
  }
  // Few blocks are cut into one wave of equal parts; more of them into several waves, which are even enough.
  const int64_t wanted = tiles <= kFewBlocks ? kAtOnce / tiles : kSeveralWaves * kAtOnce / tiles;
  // The sums of all parts, written and read, are a quarter of the matrix at most, and a part has some chunks,
  // the first of which nothing hides.
  const int64_t of_table = sizes.terms * sizes.element_bytes / (32 * sizes.vectors);
  const int64_t of_chunks = tiles <= kFewBlocks ? plan.chunks / 2 : plan.chunks / 6;
  const int64_t enough = divide_up(kProcessors * 2, tiles);  // for the GPU to be busy, whatever the table
  const int64_t most = std::max(std::min(of_table, of_chunks), std::min(enough, plan.chunks / 2));
  const int64_t parts = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(most, 1));
  plan.part_chunks = divide_up(plan.chunks, parts);
  plan.parts = divide_up(plan.chunks, plan.part_chunks);
}

inline void lay_out_staged(const StagedSizes& sizes, StagedPlan& plan) {
  constexpr int64_t kShortSegment = 256;
  const int64_t e = sizes.element_bytes;
  const int64_t pitch = (sizes.transpose ? sizes.outs : sizes.terms) * e;
  const int64_t tile = std::min<int64_t>(plan.tile_outs, sizes.outs),
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

}  // namespace detail

/// Every size is at least 1, vectors are at most kMostStagedVectors. Depends on the sizes alone.
inline StagedPlan plan_staged(const StagedSizes& sizes) {
  StagedPlan plan;
  plan.slots = static_cast<int>(std::bit_ceil(static_cast<unsigned>(sizes.vectors)));
  plan.slots = std::max(plan.slots, sizes.tensor_cores ? 8 : 4);
  if (detail::has_few_terms(sizes)) {
    detail::shape_few_terms(sizes, plan);
  } else {
    detail::shape_many_terms(sizes, plan);
  }
  detail::cut_staged(sizes, plan);
  detail::lay_out_staged(sizes, plan);
  return plan;
}

}  // namespace sinter::ops
