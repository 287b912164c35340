// The kernel of products with up to 16 vectors that go through shared memory, as a StagedPlan cuts them. What
// multiplies is a Tile: tensor cores for the 16-bit types, else plain arithmetic. For .cu files.
#pragma once

#include <atomic>
#include <bit>

#include <sinter/core/cuda/device_traits.h>
#include <sinter/ops/matvec/staged_plan.h>
#include <sinter/ops/matvec/thin_kernels_cuda.h>

namespace sinter::ops {

/// What the kernel knows of a StagedPlan and its problem; sizes in elements, pitches in bytes.
struct StagedShape {
  cuda::FastDivide by_blocks, by_matrix_units, by_vector_units;
  int64_t outs, terms, a_stride, x_stride;
  int64_t tiles, chunks, block_tiles, part_chunks;
  int64_t matrix_pitch, vector_pitch;  // in global memory
  int32_t matrix_step, vector_step;    // of segments in shared memory
  int32_t tile_outs, chunk, out_warps, term_warps;
  int32_t vectors, stage_bytes, vectors_at, sums_at, log_tile_outs;
  bool transpose, dense_vectors, flat, interleaved_sums;
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

/// Sums in shared memory: that of out o and vector v, if there are such, at o * out_step + v * vector_step.
template <class C>
struct StagedSums {
  C* data;
  int32_t out_step, vector_step, outs, vectors;

  __device__ __forceinline__ void put(int32_t o, int32_t v, C sum) const {
    if (o < outs && v < vectors) data[o * out_step + v * vector_step] = sum;
  }
};

/// What the threads of a block share out among them.
struct StagedShare {
  int32_t first_out, term_warp, term_warps;
};

// ---- copies to shared memory that run beside the arithmetic

/// 16 bytes to shared memory, of which `used` come from memory and the others are zero. A matrix is read
/// once: its data are the first to leave L2.
template <bool once>
__device__ __forceinline__ void copy_unit(uint32_t to, uintptr_t from, uint32_t used, uint64_t policy) {
  if constexpr (once) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;"
                 :
                 : "r"(to), "l"(from), "r"(used), "l"(policy)
                 : "memory");
  } else {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(to), "l"(from), "r"(used)
                 : "memory");
  }
}
__device__ __forceinline__ void end_copy_group() {
  asm volatile("cp.async.commit_group;" : : : "memory");
}
template <int pending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(pending) : "memory");
}
__device__ __forceinline__ uint64_t leaves_first() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/// `segments` segments of `bytes` bytes from `source` on, as StagedCopy says. The first of them begins at
/// `to` plus the rest of its address modulo 16. Memory in front of a segment is read up to the last multiple
/// of 16, which lies in the same allocation; behind it nothing is read.
template <bool once>
__device__ __forceinline__ void copy_segments(uint32_t to, const void* source, int64_t pitch, int32_t step,
                                              uint32_t segments, int32_t bytes,
                                              const cuda::FastDivide& by_units, uint64_t policy) {
  const auto first = reinterpret_cast<uintptr_t>(source);
  to += static_cast<uint32_t>(first & 15);
  const uint32_t count = segments * by_units.divisor();
  for (uint32_t i = threadIdx.x; i < count; i += StagedPlan::kThreads) {
    uint32_t unit;
    const uint32_t segment = by_units.divide(i, unit);
    const uintptr_t begin = first + segment * pitch;
    const int32_t at = static_cast<int32_t>(16 * unit) - static_cast<int32_t>(begin & 15);
    if (at < bytes) {
      copy_unit<once>(to + segment * step + at, begin + at, static_cast<uint32_t>(min(16, bytes - at)),
                      policy);
    }
  }
}

// ---- the kernel

/// A chunk of a tile: where it begins in a matrix, and how much of it there is.
struct StagedPlace {
  int64_t out, term;
  int32_t outs, terms;

  __device__ __forceinline__ StagedPlace(const StagedShape& shape, int64_t tile, int64_t chunk)
      : out(tile * shape.tile_outs),
        term(chunk * shape.chunk),
        outs(static_cast<int32_t>(min(int64_t{shape.tile_outs}, shape.outs - out))),
        terms(static_cast<int32_t>(min(int64_t{shape.chunk}, shape.terms - term))) {}
};

/// One matrix and its vectors.
template <class T>
struct StagedSource {
  const T *a, *x;

  __device__ __forceinline__ const T* matrix_at(const StagedShape& shape, const StagedPlace& place) const {
    return a + (shape.transpose ? place.term * shape.outs + place.out : place.out * shape.terms + place.term);
  }
  __device__ __forceinline__ const T* vectors_at(const StagedShape& shape, const StagedPlace& place) const {
    return x + (shape.dense_vectors ? place.term : place.term * shape.vectors);
  }
  /// Begins to copy a chunk to the stage at shared address `to`.
  __device__ __forceinline__ void copy(const StagedShape& shape, const StagedPlace& place, uint32_t to,
                                       uint64_t policy) const {
    constexpr auto size = static_cast<int32_t>(sizeof(T));
    const int32_t segments = shape.transpose ? place.terms : place.outs,
                  length = shape.transpose ? place.outs : place.terms;
    copy_segments<true>(to, matrix_at(shape, place), shape.matrix_pitch, shape.matrix_step,
                        shape.flat ? 1 : segments, (shape.flat ? segments : 1) * length * size,
                        shape.by_matrix_units, policy);
    copy_segments<false>(to + shape.vectors_at, vectors_at(shape, place), shape.vector_pitch,
                         shape.vector_step, shape.dense_vectors ? shape.vectors : 1,
                         (shape.dense_vectors ? 1 : shape.vectors) * place.terms * size,
                         shape.by_vector_units, policy);
  }
  __device__ __forceinline__ StagedView matrix(const StagedShape& shape, const StagedPlace& place,
                                               const char* stage) const {
    constexpr auto size = static_cast<int32_t>(sizeof(T));
    const auto rest = reinterpret_cast<uintptr_t>(matrix_at(shape, place)) & 15;
    return {stage + rest, shape.transpose ? size : shape.matrix_step,
            shape.transpose ? shape.matrix_step : size, place.outs};
  }
  __device__ __forceinline__ StagedView vectors(const StagedShape& shape, const StagedPlace& place,
                                                const char* stage) const {
    constexpr auto size = static_cast<int32_t>(sizeof(T));
    const auto rest = reinterpret_cast<uintptr_t>(vectors_at(shape, place)) & 15;
    return {stage + shape.vectors_at + rest, shape.dense_vectors ? shape.vector_step : size,
            shape.dense_vectors ? size : shape.vector_step, shape.vectors};
  }
};

/// A tile's sums, of all warps that share its terms, to y or the table.
template <class T, class C>
__device__ __forceinline__ void write_staged(const StagedShape& shape, const ThinOutput& output,
                                             const StagedPlace& place, int64_t matrix, int32_t slice,
                                             const C* sums, T* y, C* table) {
  const auto total = [&](int32_t i) {
    C sum = sums[i];
    for (int32_t warp = 1; warp < shape.term_warps; ++warp) sum += sums[warp * slice + i];
    return sum;
  };
  if (shape.interleaved_sums) {
    T* to = y + matrix * output.matrix + place.out * shape.vectors;
    for (int32_t i = threadIdx.x; i < place.outs * shape.vectors; i += StagedPlan::kThreads) {
      to[i] = cuda::round_to<T>(total(i));
    }
    return;
  }
  for (int32_t i = threadIdx.x; i < shape.vectors << shape.log_tile_outs; i += StagedPlan::kThreads) {
    const int32_t v = i >> shape.log_tile_outs, o = i & (shape.tile_outs - 1);
    if (o < place.outs) output.write(matrix, place.out + o, v, shape.vectors, total(i), y, table);
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
  uint32_t block;
  const int64_t matrix = shape.by_blocks.divide(blockIdx.x, block);
  const StagedSource<T> source{a + matrix * shape.a_stride, x + matrix * shape.x_stride};
  const int64_t first_tile = block * shape.block_tiles, first_chunk = blockIdx.y * shape.part_chunks;
  const auto chunks = static_cast<int32_t>(min(shape.part_chunks, shape.chunks - first_chunk));
  const auto steps = static_cast<int32_t>(min(shape.block_tiles, shape.tiles - first_tile)) * chunks;
  const uint64_t policy = leaves_first();
  // Either there is one tile, or each has one chunk.
  const auto place_of = [&](int32_t step) {
    return chunks > 1 ? StagedPlace(shape, first_tile, first_chunk + step)
                      : StagedPlace(shape, first_tile + step, first_chunk);
  };
  const int32_t warp = static_cast<int32_t>(threadIdx.x / 32), out_warp = warp & (shape.out_warps - 1);
  const int32_t term_warp = warp / shape.out_warps, slice = shape.tile_outs * Tile::kSlots;
  C* const sums = reinterpret_cast<C*>(staged_memory + shape.sums_at);
  int32_t stage = 0;
#pragma unroll 1
  for (int32_t step = 0; step < StagedPlan::kStages - 1; ++step) {
    if (step < steps) source.copy(shape, place_of(step), stages + step * shape.stage_bytes, policy);
    end_copy_group();
  }
  Tile tile;
  tile.clear();
#pragma unroll 1
  for (int32_t step = 0; step < steps; ++step) {
    wait_for_copies<StagedPlan::kStages - 2>();
    __syncthreads();  // the chunk is there for all, and all are done with the one before it and with its sums
    const int32_t ahead = step + StagedPlan::kStages - 1;
    if (ahead < steps) {
      const int32_t free_stage = stage == 0 ? StagedPlan::kStages - 1 : stage - 1;
      source.copy(shape, place_of(ahead), stages + free_stage * shape.stage_bytes, policy);
    }
    end_copy_group();
    const StagedPlace place = place_of(step);
    const char* const here = staged_memory + stage * shape.stage_bytes;
    const StagedView left = source.matrix(shape, place, here), right = source.vectors(shape, place, here);
    const bool is_last = chunks == 1 || step + 1 == steps;
    for (int32_t o = out_warp * Tile::kOuts; o < place.outs; o += shape.out_warps * Tile::kOuts) {
      tile.add(left, right, {o, term_warp, shape.term_warps}, place.terms);
      if (!is_last) continue;
      tile.put(o, StagedSums<C>{sums + term_warp * slice, shape.interleaved_sums ? shape.vectors : 1,
                                shape.interleaved_sums ? 1 : shape.tile_outs, place.outs, shape.vectors});
      tile.clear();
    }
    if (is_last) {
      __syncthreads();
      write_staged(shape, output, place, matrix, slice, sums, y, table);
    }
    stage = stage + 1 == StagedPlan::kStages ? 0 : stage + 1;
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

  StagedShape shape() const {
    return {.by_blocks = cuda::FastDivide(static_cast<uint32_t>(plan.blocks())),
            .by_matrix_units = cuda::FastDivide(static_cast<uint32_t>(plan.matrix.units())),
            .by_vector_units = cuda::FastDivide(static_cast<uint32_t>(plan.vectors.units())),
            .outs = problem.out(),
            .terms = problem.in(),
            .a_stride = problem.a_stride,
            .x_stride = problem.x_stride,
            .tiles = plan.tiles,
            .chunks = plan.chunks,
            .block_tiles = plan.block_tiles,
            .part_chunks = plan.part_chunks,
            .matrix_pitch = plan.matrix.pitch,
            .vector_pitch = plan.vectors.pitch,
            .matrix_step = plan.matrix.shared_pitch,
            .vector_step = plan.vectors.shared_pitch,
            .tile_outs = plan.tile_outs,
            .chunk = plan.chunk,
            .out_warps = plan.out_warps,
            .term_warps = plan.term_warps(),
            .vectors = problem.vectors,
            .stage_bytes = plan.stage_bytes(),
            .vectors_at = plan.matrix.shared_bytes(),
            .sums_at = StagedPlan::kStages * plan.stage_bytes(),
            .log_tile_outs = std::countr_zero(static_cast<unsigned>(plan.tile_outs)),
            .transpose = problem.transpose,
            .dense_vectors = problem.x_element == 1,
            .flat = plan.flat,
            .interleaved_sums = plan.parts == 1 && bias.data == nullptr && problem.y_vector == 1 &&
                                problem.y_element == problem.vectors};
  }

  template <class Tile>
  void run() const {
    const auto kernel = staged_product_kernel<Tile, T>;
    // The device's most for every plan: a thread must not take away what another is about to launch with.
    static std::atomic<uint64_t> allowed = 0;  // bit i: on device i
    const int device = stream.device.index;
    const uint64_t bit = device < 64 ? uint64_t{1} << device : 0;
    if ((allowed.load(std::memory_order_acquire) & bit) == 0) {
      cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(cuda::device_traits(device).most_shared_bytes)),
                  "cudaFuncSetAttribute");
      allowed.fetch_or(bit, std::memory_order_release);
    }
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
