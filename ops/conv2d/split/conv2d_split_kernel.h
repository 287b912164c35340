// The kernel of conv2d_split_cuda.cu: a convolution of channels-last images in 16 bits as a product of
// matrices, of which nothing but the operands lies in memory: (pixels, taps * channels) times (taps *
// channels, output channels). Where there are few tiles of results for many processors, as with one image,
// the blocks of a cluster share a tile: each sums up a part of the taps and channels, then each adds up all
// parts of some rows, always in the same order. For .cu files.
#pragma once

#include <sinter/core/cuda/device/cluster.h>
#include <sinter/core/cuda/device/launch_early.h>
#include <sinter/core/cuda/device/tensor_core.h>
#include <sinter/ops/conv2d/conv2d_act_cuda.h>

namespace sinter::ops::detail {

/// What a block computes: kRows pixels by `columns` output channels, kDepth taps and channels at a time.
template <int columns>
struct SplitTile {
  static constexpr int kRows = 64, kColumns = columns, kDepth = 64, kStages = 4;
  static constexpr int kThreads = 128;  // warps of 32 rows by half of the columns
  static constexpr int kPitch =
      kDepth + 8;  // elements from row to row in shared memory: no bank serves two rows
  static constexpr int kSumPitch = columns + 8;  // floats
  static constexpr size_t kStageElements = static_cast<size_t>(kRows + columns) * kPitch;
  static constexpr size_t kSharedBytes = kStages * kStageElements * 2;
  static_assert(kSharedBytes >= sizeof(float) * kRows * kSumPitch);
};

struct SplitConv {
  int height, width, channels;  // of x
  int outputs, pixels, depth;   // channels and pixels of all images of y; taps * channels
  int down, right, up_padding, left_padding, down_step, right_step;  // strides, paddings, dilations
  cuda::FastDivide image_pixels, row_pixels, channels_of, taps_across;
};

/// The copies of one thread from memory: a column of 8 elements of some rows of both matrices.
template <class T, int columns>
class SplitLoader {
  using Tile = SplitTile<columns>;
  static constexpr int kRowsApart = Tile::kThreads / 8;
  static constexpr int kPixels = Tile::kRows / kRowsApart, kFilters = columns / kRowsApart;

 public:
  __device__ SplitLoader(const SplitConv& conv, const T* x, const T* weight, int first_pixel,
                         int first_filter)
      : conv_(conv),
        x_(x),
        weight_(weight),
        row_(static_cast<int>(threadIdx.x) / 8),
        column_(static_cast<int>(threadIdx.x) % 8 * 8),
        filter_(first_filter + row_) {
#pragma unroll
    for (int i = 0; i < kPixels; ++i) {
      const int pixel = first_pixel + row_ + i * kRowsApart;
      uint32_t within, across;
      const uint32_t image = conv.image_pixels.divide(static_cast<uint32_t>(pixel), within);
      const uint32_t down = conv.row_pixels.divide(within, across);
      image_[i] = static_cast<int>(image) * conv.height * conv.width;
      // Of rows behind the last pixel: above every image.
      top_[i] = pixel < conv.pixels ? static_cast<int>(down) * conv.down - conv.up_padding : -(1 << 30);
      left_[i] = static_cast<int>(across) * conv.right - conv.left_padding;
    }
  }

  /// Lets part `part` of the filters come nearer, whoever may still write them.
  __device__ void prefetch_filters(int part) const {
    const int at = part * Tile::kDepth;
    if (column_ != 0 || at >= conv_.depth) return;
#pragma unroll
    for (int i = 0; i < kFilters; ++i) {
      const int filter = filter_ + i * kRowsApart;
      if (filter < conv_.outputs) cuda::prefetch(weight_ + static_cast<int64_t>(filter) * conv_.depth + at);
    }
  }

  /// Part `part` of the filters into a stage.
  __device__ void load_filters(int part, T* stage) const {
    const int at = part * Tile::kDepth + column_;
    T* const to = stage + Tile::kRows * Tile::kPitch;
#pragma unroll
    for (int i = 0; i < kFilters; ++i) {
      const int filter = filter_ + i * kRowsApart;
      const bool there = at < conv_.depth && filter < conv_.outputs;
      const T* const from = weight_ + (there ? static_cast<int64_t>(filter) * conv_.depth + at : 0);
      cuda::copy_to_shared(to + (row_ + i * kRowsApart) * Tile::kPitch + column_, from, there);
    }
  }

  /// Part `part` of what the pixels read into a stage.
  __device__ void load_pixels(int part, T* stage) const {
    const int at = part * Tile::kDepth + column_;
    uint32_t channel, tap_across;
    const uint32_t tap = conv_.channels_of.divide(static_cast<uint32_t>(at), channel);
    const uint32_t tap_down = conv_.taps_across.divide(tap, tap_across);
    const int down = static_cast<int>(tap_down) * conv_.down_step;
    const int across = static_cast<int>(tap_across) * conv_.right_step;
#pragma unroll
    for (int i = 0; i < kPixels; ++i) {
      const int y = top_[i] + down, x = left_[i] + across;
      const bool there = at < conv_.depth && static_cast<unsigned>(y) < static_cast<unsigned>(conv_.height) &&
                         static_cast<unsigned>(x) < static_cast<unsigned>(conv_.width);
      const int64_t from =
          there ? static_cast<int64_t>(image_[i] + y * conv_.width + x) * conv_.channels + channel : 0;
      cuda::copy_to_shared(stage + (row_ + i * kRowsApart) * Tile::kPitch + column_, x_ + from, there);
    }
  }

 private:
  const SplitConv& conv_;
  const T *x_, *weight_;
  int row_, column_, filter_;
  int image_[kPixels], top_[kPixels], left_[kPixels];
};

/// The sums of one warp: 32 rows by half of the columns.
template <class T, int columns>
class SplitSums {
  using Tile = SplitTile<columns>;
  static constexpr int kAcross = columns / 2 / 8;  // products of 8 columns

 public:
  __device__ SplitSums()
      : lane_(static_cast<int>(threadIdx.x) % 32),
        row_(static_cast<int>(threadIdx.x) / 32 % 2 * 32),
        column_(static_cast<int>(threadIdx.x) / 64 * (columns / 2)) {}

  __device__ void add(const T* stage) {
    const T* const pixels = stage + (row_ + lane_ % 16) * Tile::kPitch + lane_ / 16 * 8;
    const T* const filters =
        stage + (Tile::kRows + column_ + lane_ % 8 + lane_ / 16 * 8) * Tile::kPitch + lane_ / 8 % 2 * 8;
#pragma unroll
    for (int depth = 0; depth < Tile::kDepth; depth += 16) {
      uint32_t a[2][4];
      cuda::load_matrices(a[0], pixels + depth);
      cuda::load_matrices(a[1], pixels + 16 * Tile::kPitch + depth);
#pragma unroll
      for (int j = 0; j < kAcross; j += 2) {
        uint32_t b[4];
        cuda::load_matrices(b, filters + j * 8 * Tile::kPitch + depth);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          cuda::multiply_add<T>(sums_[i][j], a[i], b[0], b[1]);
          cuda::multiply_add<T>(sums_[i][j + 1], a[i], b[2], b[3]);
        }
      }
    }
  }

  __device__ void write(float* to) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < kAcross; ++j) {
        float* const at =
            to + (row_ + 16 * i + lane_ / 4) * Tile::kSumPitch + column_ + 8 * j + lane_ % 4 * 2;
        at[0] = sums_[i][j][0];
        at[1] = sums_[i][j][1];
        at[8 * Tile::kSumPitch] = sums_[i][j][2];
        at[8 * Tile::kSumPitch + 1] = sums_[i][j][3];
      }
    }
  }

 private:
  int lane_, row_, column_;
  float sums_[2][kAcross][4] = {};
};

/// Adds up what the blocks of the cluster have for some of the rows, and writes results.
template <class T, class S, int columns>
__device__ void finish_split_rows(const SplitConv& conv, const float* sums, int blocks, int rank,
                                  int first_pixel, int first_filter, const TypedBiasAct<T, S>& what, T* y) {
  using Tile = SplitTile<columns>;
  constexpr int kPacks = columns / 8;
  const int rows = Tile::kRows / blocks;
  for (int i = static_cast<int>(threadIdx.x); i < rows * kPacks; i += Tile::kThreads) {
    const int row = rank * rows + i / kPacks, column = i % kPacks * 8;
    const int pixel = first_pixel + row, filter = first_filter + column;
    if (pixel >= conv.pixels || filter >= conv.outputs) continue;
    float values[8] = {};
    for (int block = 0; block < blocks; ++block) {
      const float* const part =
          cuda::shared_of(sums, static_cast<unsigned>(block)) + row * Tile::kSumPitch + column;
#pragma unroll
      for (int j = 0; j < 8; j += 4) {
        const auto four = *reinterpret_cast<const cuda::Pack<float, 4>*>(part + j);
#pragma unroll
        for (int k = 0; k < 4; ++k) values[j + k] += four.values[k];
      }
    }
    const int64_t place = (static_cast<int64_t>(pixel) * conv.outputs + filter) / 8;
    write_bias_act<8>(what, values, place, filter, true, y);
  }
}

/// Grid: (tiles of pixels * blocks of a cluster, tiles of filters).
template <class T, class S, int columns>
__global__ void __launch_bounds__(SplitTile<columns>::kThreads)
    conv2d_split_kernel(const __grid_constant__ SplitConv conv, int blocks, const T* x, const T* weight,
                        const TypedBiasAct<T, S> what, T* y) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  using Tile = SplitTile<columns>;
  extern __shared__ __align__(128) unsigned char conv2d_split_shared[];
  T* const stages = reinterpret_cast<T*>(conv2d_split_shared);
  const int rank = static_cast<int>(blockIdx.x) % blocks;
  const int first_pixel = static_cast<int>(blockIdx.x) / blocks * Tile::kRows;
  const int first_filter = static_cast<int>(blockIdx.y) * columns;
  const int parts = (conv.depth + Tile::kDepth - 1) / Tile::kDepth;
  const int begin = parts * rank / blocks, end = parts * (rank + 1) / blocks;
  const SplitLoader<T, columns> loader(conv, x, weight, first_pixel, first_filter);
  const auto stage = [&](int part) { return stages + (part - begin) % Tile::kStages * Tile::kStageElements; };

  cuda::let_next_begin();
  for (int part = begin; part < end; ++part) loader.prefetch_filters(part);
  cuda::wait_for_previous();
  for (int part = begin; part < begin + Tile::kStages - 1; ++part) {
    if (part < end) {
      loader.load_filters(part, stage(part));
      loader.load_pixels(part, stage(part));
    }
    cuda::end_copies();
  }
  SplitSums<T, columns> sums;
  for (int part = begin; part < end; ++part) {
    cuda::wait_for_copies<Tile::kStages - 2>();
    __syncthreads();  // and all have done with the stage before this one, which is loaded next
    if (const int next = part + Tile::kStages - 1; next < end) {
      loader.load_filters(next, stage(next));
      loader.load_pixels(next, stage(next));
    }
    cuda::end_copies();
    sums.add(stage(part));
  }
  cuda::wait_for_copies<0>();
  __syncthreads();
  float* const own = reinterpret_cast<float*>(conv2d_split_shared);
  sums.write(own);
  cuda::synchronize_cluster();
  finish_split_rows<T, S, columns>(conv, own, blocks, rank, first_pixel, first_filter, what, y);
  cuda::synchronize_cluster();  // nobody ends while others read its sums
#endif
}

}  // namespace sinter::ops::detail
