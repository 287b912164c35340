// The kernel of products with up to 16 vectors that go through shared memory, as a StagedPlan cuts them. What
// multiplies is a Tile: tensor cores for the 16-bit types, else plain arithmetic. For .cu files.
#pragma once

#include <bit>

#include <sinter/core/cuda/device/most_shared_memory.h>
#include <sinter/core/cuda/device_traits.h>
#include <sinter/ops/matvec/plan/staged_plan.h>
#include <sinter/ops/matvec/staged/staged_copy_cuda.h>
#include <sinter/ops/matvec/thin_kernels_cuda.h>

namespace sinter::ops {

/// What the kernel knows of a StagedPlan and its problem; sizes in elements where they are not in bytes.
struct StagedShape {
  cuda::FastDivide by_blocks;
  int64_t a_stride, x_stride;
  int64_t tile_bytes, chunk_bytes;  // of the matrix, from a tile and from a chunk to the next
  int64_t vector_bytes;             // of the vectors, from a chunk to the next
  int64_t out_advance;              // from a block's place to its next
  int64_t last_tile;
  int32_t places, extra;  // of a block; the first `extra` blocks, or parts, have one more
  int32_t last;           // the block, or part, whose last place is the last of all
  int32_t tile_outs, step_outs, last_outs, chunk, last_terms;
  StagedSegments matrix, vectors;
  int32_t out_warps, term_warps;
  int32_t vector_count, stage_bytes, vectors_at, sums_at, log_tile_outs;
  bool transpose, dense_vectors, flat, interleaved_sums, line_sums, one_chunk;
};

/// Elements in shared memory: number `term` of line i lies i * line_step + term * term_step bytes from
/// `data`.
struct StagedView {
  const char* data;
  int32_t line_step, term_step, lines;

  /// Where a line begins; of one behind the end, the last.
  __device__ __forceinline__ const char* line(int32_t i) const {
    return data + min(i, lines - 1) * line_step;
  }
};

/// Sums in shared memory: that of out o and vector v, if there is such a vector, at o * out_step + v *
/// vector_step. There is room for those of all outs of a tile. `neighbours`: the outs are such in memory.
template <class C>
struct StagedSums {
  C* data;
  int32_t out_step, vector_step, vectors;
  bool neighbours;

  __device__ __forceinline__ void put(int32_t o, int32_t v, C sum) const {
    if (v < vectors) data[o * out_step + v * vector_step] = sum;
  }
};

/// What the threads of a block share out among them. `neighbours`: the outs are such in memory.
struct StagedShare {
  int32_t first_out, term_warp, term_warps;
  bool neighbours;
};

// ---- the kernel

/// A block's way through its places: every so-manieth chunk of a tile, or where one chunk holds all terms
/// every so-manieth tile.
struct StagedWalk {
  int64_t matrix, first_out;
  uint32_t block;  // of the matrix
  int32_t places;
  int32_t outs, terms, last_outs, last_terms;  // of a place, and of the last one

  __device__ __forceinline__ explicit StagedWalk(const StagedShape& shape) {
    matrix = shape.by_blocks.divide(blockIdx.x, block);
    const auto first = static_cast<int32_t>(shape.one_chunk ? block : blockIdx.y);
    places = shape.places + (first < shape.extra ? 1 : 0);
    first_out = int64_t{block} * shape.step_outs;
    const bool has_end = first == shape.last;
    if (shape.one_chunk) {
      terms = last_terms = shape.last_terms;
      outs = shape.step_outs;
      last_outs = has_end ? shape.last_outs : outs;
    } else {
      terms = shape.chunk;
      last_terms = has_end ? shape.last_terms : terms;
      outs = last_outs = block == shape.last_tile ? shape.last_outs : shape.step_outs;
    }
  }
};

/// The copies of a block, place after place.
template <class T>
struct StagedSource {
  static constexpr auto kSize = static_cast<int32_t>(sizeof(T));

  uintptr_t first, first_vector;
  StagedCopier matrix, vectors;
  StagedExtent places, last_place;  // of the matrix
  int32_t copied = 0;

  static __device__ __forceinline__ uintptr_t address(const T* from, int64_t bytes) {
    return reinterpret_cast<uintptr_t>(from) + static_cast<uintptr_t>(bytes);
  }
  static __device__ __forceinline__ StagedExtent extent(const StagedShape& shape, int32_t outs,
                                                        int32_t terms) {
    const int32_t segments = shape.transpose ? terms : outs,
                  length = (shape.transpose ? outs : terms) * kSize;
    return shape.flat ? StagedExtent{1, segments * length} : StagedExtent{segments, length};
  }

  /// Of one matrix, a, and its vectors.
  __device__ __forceinline__ StagedSource(const StagedShape& shape, const StagedWalk& walk, const T* a,
                                          const T* x)
      : first(address(a, walk.block * shape.tile_bytes + blockIdx.y * shape.chunk_bytes)),
        first_vector(address(x, blockIdx.y * shape.vector_bytes)),
        matrix(shape.matrix, first, address(a, shape.matrix.bytes)),
        vectors(shape.vectors, first_vector, address(x, shape.vectors.bytes)),
        places(extent(shape, walk.outs, walk.terms)),
        last_place(extent(shape, walk.last_outs, walk.last_terms)) {}

  /// Begins to copy the next place to the stage at shared address `to`. Where one chunk holds all terms the
  /// vectors are copied once, with the first place.
  __device__ __forceinline__ void copy_next(const StagedShape& shape, const StagedWalk& walk, uint32_t to,
                                            uint64_t policy) {
    const bool is_last = copied + 1 == walk.places;
    // The last place of all may be shorter than a unit, and the one before it reach behind that.
    const bool near_end = copied + 2 >= walk.places;
    const StagedExtent extent{is_last ? last_place.segments : places.segments,
                              is_last ? last_place.bytes : places.bytes};
    matrix.copy<true>(shape.matrix, extent, to, near_end, policy);
    if (!shape.one_chunk || copied == 0) {
      const int32_t line = (is_last ? walk.last_terms : walk.terms) * kSize;
      vectors.copy<false>(shape.vectors,
                          shape.dense_vectors ? StagedExtent{shape.vector_count, line}
                                              : StagedExtent{1, line * shape.vector_count},
                          to + static_cast<uint32_t>(shape.vectors_at), near_end || shape.one_chunk, policy);
    }
    ++copied;
  }
};

/// A chunk in shared memory, and what of the output it adds to.
struct StagedChunk {
  StagedView matrix, vectors;
  int64_t first_out;
  int32_t outs, terms;
};

/// What copy_next has put to shared memory, place after place.
template <class T>
struct StagedReader {
  uint32_t matrix_rest, vectors_rest;
  int64_t first_out;
  int32_t read = 0;

  __device__ __forceinline__ StagedReader(const StagedWalk& walk, const StagedSource<T>& source)
      : matrix_rest(static_cast<uint32_t>(source.first) & 15),
        vectors_rest(static_cast<uint32_t>(source.first_vector) & 15),
        first_out(walk.first_out) {}

  /// The next place's chunk, at `stage`; `first_stage` has the vectors that are copied once.
  __device__ __forceinline__ StagedChunk next(const StagedShape& shape, const StagedWalk& walk,
                                              const char* stage, const char* first_stage) {
    constexpr auto size = static_cast<int32_t>(sizeof(T));
    const bool is_last = ++read == walk.places;
    const char* const lines = (shape.one_chunk ? first_stage : stage) + shape.vectors_at;
    const int32_t outs = is_last ? walk.last_outs : walk.outs;
    const StagedChunk chunk{.matrix = {stage + matrix_rest, shape.transpose ? size : shape.matrix.step,
                                       shape.transpose ? shape.matrix.step : size, outs},
                            .vectors = {lines + vectors_rest, shape.dense_vectors ? shape.vectors.step : size,
                                        shape.dense_vectors ? size : shape.vectors.step, shape.vector_count},
                            .first_out = first_out,
                            .outs = outs,
                            .terms = is_last ? walk.last_terms : walk.terms};
    matrix_rest = StagedCopier::next_rest(shape.matrix, matrix_rest);
    vectors_rest = StagedCopier::next_rest(shape.vectors, vectors_rest);
    first_out += shape.out_advance;
    return chunk;
  }
};

/// Sums in shared memory, one slice per warp that shares the terms.
template <class C>
struct StagedTotals {
  const C* sums;
  int32_t slice, slices;

  __device__ __forceinline__ C at(int32_t i) const {
    C sum = sums[i];
#pragma unroll 1
    for (int32_t k = 1; k < slices; ++k) sum += sums[k * slice + i];
    return sum;
  }
  /// `count` sums from a multiple of 16 bytes on.
  template <int count>
  __device__ __forceinline__ void load(int32_t i, C (&values)[count]) const {
    constexpr int words = 16 / static_cast<int>(sizeof(C));
#pragma unroll
    for (int j = 0; j < count; j += words) {
      const auto first = *reinterpret_cast<const cuda::Pack<C, words>*>(sums + i + j);
#pragma unroll
      for (int w = 0; w < words; ++w) values[j + w] = first.values[w];
    }
#pragma unroll 1
    for (int32_t k = 1; k < slices; ++k) {
#pragma unroll
      for (int j = 0; j < count; ++j) values[j] += sums[k * slice + i + j];
    }
  }
};

/// Sums of a tile where they are neighbours in y, a pack of 16 bytes to a thread: sums 0 to count - 1 lie in
/// lines of 2^log_line, of which `length` are written, `line_step` elements apart in y.
template <class T, class C>
__device__ __forceinline__ void write_packs(T* to, int64_t line_step, int32_t count, int32_t length,
                                            int32_t log_line, const StagedTotals<C>& totals) {
  constexpr int32_t per = cuda::kPackSize<T>;
  for (int32_t i = static_cast<int32_t>(threadIdx.x) * per; i < count; i += StagedPlan::kThreads * per) {
    const int32_t place = i & ((1 << log_line) - 1);
    T* const here = to + (i >> log_line) * line_step + place;
    if (place + per <= length) {
      C values[per];
      totals.load(i, values);
      cuda::Pack<T, per> pack;
#pragma unroll
      for (int32_t j = 0; j < per; ++j) pack.values[j] = cuda::round_to<T>(values[j]);
      *reinterpret_cast<cuda::Pack<T, per>*>(here) = pack;
    } else {
      for (int32_t j = 0; place + j < length; ++j) here[j] = cuda::round_to<T>(totals.at(i + j));
    }
  }
}

/// A tile's sums, of all warps that share its terms, to y or the table.
template <class T, class C>
__device__ __forceinline__ void write_staged(const StagedShape& shape, const ThinOutput& output,
                                             const StagedChunk& chunk, int64_t matrix, int32_t slice,
                                             const C* sums, T* y, C* table) {
  const StagedTotals<C> totals{sums, slice, shape.term_warps};
  const auto thread = static_cast<int32_t>(threadIdx.x);
  if (shape.interleaved_sums) {
    constexpr int32_t kLogLine = 30;  // one line
    T* const to = y + matrix * output.matrix + chunk.first_out * shape.vector_count;
    const int32_t count = chunk.outs * shape.vector_count;
    if ((reinterpret_cast<uintptr_t>(to) & 15) == 0)
      return write_packs(to, 0, count, count, kLogLine, totals);
    for (int32_t i = thread; i < count; i += StagedPlan::kThreads) to[i] = cuda::round_to<T>(totals.at(i));
    return;
  }
  const int32_t count = shape.vector_count << shape.log_tile_outs;
  if (shape.line_sums) {
    T* const to = y + matrix * output.matrix + chunk.first_out;
    const auto rest = reinterpret_cast<uintptr_t>(to) | static_cast<uintptr_t>(output.vector) * sizeof(T);
    if ((rest & 15) == 0) {
      return write_packs(to, output.vector, count, chunk.outs, shape.log_tile_outs, totals);
    }
  }
  for (int32_t i = thread; i < count; i += StagedPlan::kThreads) {
    const int32_t v = i >> shape.log_tile_outs, o = i & (shape.tile_outs - 1);
    if (o < chunk.outs) {
      output.write(matrix, chunk.first_out + o, v, shape.vector_count, totals.at(i), y, table);
    }
  }
}

/// Block (matrix and tiles, part) of a StagedPlan.
template <class Tile, class T>
__global__ void __launch_bounds__(StagedPlan::kThreads, Tile::kBlocks)
    staged_product_kernel(const __grid_constant__ StagedShape shape,
                          const __grid_constant__ ThinOutput output, const T* __restrict__ a,
                          const T* __restrict__ x, T* __restrict__ y, compute_type<T>* __restrict__ table) {
  using C = compute_type<T>;
  extern __shared__ __align__(16) char staged_memory[];
  cuda::let_next_begin();
  const auto stages = static_cast<uint32_t>(__cvta_generic_to_shared(staged_memory));
  const StagedWalk walk(shape);
  StagedSource<T> source(shape, walk, a + walk.matrix * shape.a_stride, x + walk.matrix * shape.x_stride);
  StagedReader<T> reader(walk, source);
  const uint64_t policy = leaves_first();
  const int32_t warp = static_cast<int32_t>(threadIdx.x / 32), out_warp = warp & (shape.out_warps - 1);
  const int32_t term_warp = warp / shape.out_warps, slice = shape.tile_outs * Tile::kSlots;
  const StagedSums<C> to{reinterpret_cast<C*>(staged_memory + shape.sums_at) + term_warp * slice,
                         shape.interleaved_sums ? shape.vector_count : 1,
                         shape.interleaved_sums ? 1 : shape.tile_outs, shape.vector_count, shape.transpose};
  int32_t stage = 0;
#pragma unroll 1
  for (int32_t ahead = 0; ahead < StagedPlan::kStages - 1; ++ahead) {
    if (ahead < walk.places) {
      source.copy_next(shape, walk, stages + static_cast<uint32_t>(ahead * shape.stage_bytes), policy);
    }
    end_copy_group();
  }
  Tile tile;
  tile.clear();
#pragma unroll 1
  for (int32_t place = 0; place < walk.places; ++place) {
    wait_for_copies<StagedPlan::kStages - 2>();
    __syncthreads();  // the chunk is there for all, and all are done with the one before it and with its sums
    if (source.copied < walk.places) {
      const int32_t free_stage = stage == 0 ? StagedPlan::kStages - 1 : stage - 1;
      source.copy_next(shape, walk, stages + static_cast<uint32_t>(free_stage * shape.stage_bytes), policy);
    }
    end_copy_group();
    const StagedChunk chunk =
        reader.next(shape, walk, staged_memory + stage * shape.stage_bytes, staged_memory);
    stage = stage + 1 == StagedPlan::kStages ? 0 : stage + 1;
    StagedShare share{out_warp * Tile::kOuts, term_warp, shape.term_warps, shape.transpose};
    if (shape.one_chunk) {
      if (place == 0) tile.hold(chunk.matrix, chunk.vectors, share, chunk.terms);
      for (; share.first_out < chunk.outs; share.first_out += shape.out_warps * Tile::kOuts) {
        tile.clear();
        tile.add_held(chunk.matrix, chunk.vectors, share, chunk.terms);
        tile.put(share.first_out, to);
      }
    } else {
      const bool has_outs = share.first_out < chunk.outs;
      if (has_outs) tile.add(chunk.matrix, chunk.vectors, share, chunk.terms);
      if (place + 1 < walk.places) continue;
      if (has_outs) tile.put(share.first_out, to);
    }
    __syncthreads();
    write_staged(shape, output, chunk, walk.matrix, slice,
                 reinterpret_cast<const C*>(staged_memory + shape.sums_at), y, table);
  }
}

// ---- host

/// A product that goes through shared memory.
template <class T>
struct StagedLaunch {
  const Stream& stream;
  const ThinProblem& problem;
  const StagedPlan& plan;
  const T *a, *x;
  T* y;
  compute_type<T>* table;
  ThinBias bias;

  StagedSegments segments(const StagedCopy& copy, int64_t advance, int64_t bytes) const {
    const int log_lanes = copy.log_lanes(), groups = StagedPlan::kThreads >> log_lanes;
    return {.pitch = copy.pitch,
            .group_pitch = copy.pitch * groups,
            .advance = advance,
            .bytes = bytes,
            .step = copy.shared_pitch,
            .group_step = copy.shared_pitch * groups,
            .log_lanes = log_lanes};
  }

  StagedShape shape() const {
    const auto size = static_cast<int64_t>(sizeof(T));
    const bool one_chunk = plan.chunks == 1, dense = problem.x_element == 1;
    const bool to_y = plan.parts == 1 && bias.data == nullptr;
    const int64_t stride = one_chunk ? plan.blocks() : plan.parts,
                  count = one_chunk ? plan.tiles : plan.chunks;
    const int64_t tile = plan.step_outs * (problem.transpose ? 1 : problem.in()) * size,
                  chunk = plan.chunk * (problem.transpose ? problem.out() : 1) * size,
                  vectors = plan.chunk * (dense ? 1 : problem.vectors) * size;
    return {.by_blocks = cuda::FastDivide(static_cast<uint32_t>(plan.blocks())),
            .a_stride = problem.a_stride,
            .x_stride = problem.x_stride,
            .tile_bytes = tile,
            .chunk_bytes = chunk,
            .vector_bytes = vectors,
            .out_advance = one_chunk ? stride * plan.step_outs : 0,
            .last_tile = plan.tiles - 1,
            .places = static_cast<int32_t>(count / stride),
            .extra = static_cast<int32_t>(count % stride),
            .last = static_cast<int32_t>((count - 1) % stride),
            .tile_outs = plan.tile_outs,
            .step_outs = plan.step_outs,
            .last_outs = static_cast<int32_t>(problem.out() - (plan.tiles - 1) * plan.step_outs),
            .chunk = plan.chunk,
            .last_terms = static_cast<int32_t>(problem.in() - (plan.chunks - 1) * plan.chunk),
            .matrix = segments(plan.matrix, stride * (one_chunk ? tile : chunk),
                               problem.rows * problem.columns * size),
            .vectors = segments(plan.vectors, one_chunk ? 0 : stride * vectors,
                                problem.in() * problem.vectors * size),
            .out_warps = plan.out_warps,
            .term_warps = plan.term_warps(),
            .vector_count = problem.vectors,
            .stage_bytes = plan.stage_bytes(),
            .vectors_at = plan.matrix.shared_bytes(),
            .sums_at = StagedPlan::kStages * plan.stage_bytes(),
            .log_tile_outs = std::countr_zero(static_cast<unsigned>(plan.tile_outs)),
            .transpose = problem.transpose,
            .dense_vectors = dense,
            .flat = plan.flat,
            .interleaved_sums = to_y && problem.y_vector == 1 && problem.y_element == problem.vectors,
            .line_sums = to_y && problem.y_element == 1,
            .one_chunk = one_chunk};
  }

  template <class Tile>
  void run() const {
    const auto kernel = staged_product_kernel<Tile, T>;
    static cuda::MostSharedMemory memory;
    memory.allow(kernel, stream.device.index);
    const ThinOutput output(problem, plan.parts, bias);
    const cuda::LaunchShape grid{
        .grid = dim3(static_cast<unsigned>(problem.batch * plan.blocks()), static_cast<unsigned>(plan.parts)),
        .block = dim3(StagedPlan::kThreads),
        .shared_bytes = static_cast<size_t>(plan.shared_bytes())};
    cuda::launch(stream, grid, kernel, shape(), output, a, x, y, table);
    fold_thin_parts<T>(stream, problem, output, table, y);
  }
};

}  // namespace sinter::ops
