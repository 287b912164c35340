// A block has a tile of output columns and rows; each of its warps takes one output row at a time. It blends
// the input rows under it into shared memory, lanes along memory, then each lane sums up its columns there.
// Pieces of fixed size make any scale fit. Warps share nothing, so none waits for another.
#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/common/cuda/image_value_cuda.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/resize_images/resize_images.h>
#include <sinter/ops/resize_images/resize_images_math.h>

namespace sinter::ops {
namespace {

constexpr int kWarps = 8;
constexpr int kTileRows = 32;
constexpr int kLaneColumns = 2;
constexpr int kTileColumns = 32 * kLaneColumns;
constexpr int kPieceFloats = 512;
constexpr int kLaneFloats = kPieceFloats / 32;
constexpr int kLoads = 8;  // of a lane at a time
constexpr unsigned kPrepareThreads = 128;

struct ResizeProblem {
  const uint8_t* pixels;
  int64_t bytes;
  const int64_t* extents;
  const double* boxes;
  int64_t images;
  int64_t height, width;  // of the output
  int64_t row_tiles, column_tiles;
  bool channels_last;
  ResizeFilter filter;
};

/// The geometry of each image once, as its divisions cost more than the rest of a thread's work.
__global__ void prepare_kernel(ResizeProblem problem, int64_t channels, ResampleImage* images) {
  const int64_t n = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (n >= problem.images) return;
  images[n] = resample_image(problem.pixels, problem.bytes, channels, problem.extents + 3 * n,
                             problem.boxes + 5 * n, problem.height, problem.width, problem.filter);
}

/// The floats of blended row `rows` from pixel `first` on, `count` of them, into `blended`.
template <int kChannels>
__device__ __forceinline__ void blend_rows(const ResampleImage& image, const ResampleTaps& rows,
                                           float inverse_total, int first, int count, float* blended) {
  const int lane = static_cast<int>(threadIdx.x);
  float sums[kLaneFloats] = {};
  const uint8_t* from = image.pixels + rows.first * image.row_bytes + int64_t{first} * kChannels + lane;
  for (int k = rows.first; k < rows.last; ++k, from += image.row_bytes) {
    const float weight = image.rows.weight(rows, k) * inverse_total;
#pragma unroll
    for (int j = 0; j < kLaneFloats; j += kLoads) {
      if (j * 32 >= count) break;
#pragma unroll
      for (int load = 0; load < kLoads; ++load) {
        const int at = (j + load) * 32;
        if (at + lane < count) sums[j + load] += weight * static_cast<float>(from[at]);
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kLaneFloats; ++j) {
    const int at = j * 32 + lane;
    if (at < count) blended[at] = sums[j];
  }
}

/// One lane's columns of one row before normalisation.
template <int kChannels>
struct RowValues {
  float values[kLaneColumns][kChannels];
};

template <int kChannels>
__device__ __forceinline__ RowValues<kChannels> resample_row(const ResampleImage& image, int64_t out_row,
                                                             const ResampleTaps (&columns)[kLaneColumns],
                                                             int begin, int end, float* blended) {
  constexpr int kPiece = kPieceFloats / kChannels;
  RowValues<kChannels> result{};
  float totals[kLaneColumns] = {};
  const ResampleTaps rows = image.rows.taps(out_row);
  const float inverse_total = 1.0f / image.rows.total_weight(rows);
  for (int piece = begin; piece < end; piece += kPiece) {
    const int piece_end = end - piece > kPiece ? piece + kPiece : end;
    blend_rows<kChannels>(image, rows, inverse_total, piece, (piece_end - piece) * kChannels, blended);
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kLaneColumns; ++j) {
      const int first = columns[j].first > piece ? columns[j].first : piece;
      const int last = columns[j].last < piece_end ? columns[j].last : piece_end;
      const float* from = blended + (first - piece) * kChannels;
      for (int k = first; k < last; ++k, from += kChannels) {
        const float weight = image.columns.weight(columns[j], k);
        totals[j] += weight;
#pragma unroll
        for (int c = 0; c < kChannels; ++c) result.values[j][c] += weight * from[c];
      }
    }
    __syncwarp();
  }
#pragma unroll
  for (int j = 0; j < kLaneColumns; ++j) {
    const float inverse = totals[j] > 0.0f ? 1.0f / totals[j] : 0.0f;
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      result.values[j][c] *= inverse;
      if (image.columns.overshoots()) result.values[j][c] = cut_to_pixels(result.values[j][c]);
    }
  }
  return result;
}

/// Copies `count` elements from shared memory, 16 bytes an access where the output allows it.
template <class T>
__device__ void store_run(T* to, const T* from, int count) {
  constexpr int kPack = cuda::kPackSize<T>;
  const int lane = static_cast<int>(threadIdx.x);
  if (reinterpret_cast<uintptr_t>(to) % 16 == 0 && count % kPack == 0) {
    using Pack = cuda::Pack<T, kPack>;
    for (int i = lane; i < count / kPack; i += 32) {
      reinterpret_cast<Pack*>(to)[i] = reinterpret_cast<const Pack*>(from)[i];
    }
  } else {
    for (int i = lane; i < count; i += 32) to[i] = from[i];
  }
}

template <class T, int kChannels>
__global__ void __launch_bounds__(32 * kWarps, 4)
    resize_kernel(ResizeProblem problem, const ResampleImage* __restrict__ images,
                  const __grid_constant__ ChannelScales scales, T* __restrict__ batch) {
  __shared__ alignas(16) float shared[kWarps][kPieceFloats];
  static_assert(kTileColumns * kChannels * sizeof(T) <= sizeof(shared[0]), "a row of results fits");
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const int64_t tiles = problem.row_tiles * problem.column_tiles;
  const int64_t n = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  const int64_t tile_row = tile / problem.column_tiles * kTileRows;
  const int64_t tile_column = tile % problem.column_tiles * kTileColumns;
  const ResampleImage image = images[n];
  const int count = static_cast<int>(problem.width - tile_column < kTileColumns ? problem.width - tile_column
                                                                                : kTileColumns);
  const auto taps_of = [&](int64_t column) {
    return image.columns.taps(image.mirrored ? problem.width - 1 - column : column);
  };
  ResampleTaps columns[kLaneColumns];
#pragma unroll
  for (int j = 0; j < kLaneColumns; ++j) {
    const int column = j * 32 + lane;
    if (column < count) columns[j] = taps_of(tile_column + column);
  }
  const ResampleTaps left = taps_of(tile_column), right = taps_of(tile_column + count - 1);
  const int begin = left.first < right.first ? left.first : right.first;
  const int end = left.last > right.last ? left.last : right.last;

  T* results = reinterpret_cast<T*>(shared[warp]);
  const int64_t plane = problem.height * problem.width;
  for (int64_t y = tile_row + warp; y < tile_row + kTileRows && y < problem.height; y += kWarps) {
    RowValues<kChannels> row{};
    if (image.pixels != nullptr) {
      row = resample_row<kChannels>(image, y, columns, begin, end, shared[warp]);
    }
#pragma unroll
    for (int j = 0; j < kLaneColumns; ++j) {
      const int column = j * 32 + lane;
#pragma unroll
      for (int c = 0; c < kChannels; ++c) {
        const int at = problem.channels_last ? column * kChannels + c : c * kTileColumns + column;
        results[at] = image_element<T>(row.values[j][c] * scales.scale[c] + scales.shift[c]);
      }
    }
    __syncwarp();
    const int64_t position = y * problem.width + tile_column;
    T* to = batch + n * kChannels * plane;
    if (problem.channels_last) {
      store_run(to + position * kChannels, results, count * kChannels);
    } else {
#pragma unroll
      for (int c = 0; c < kChannels; ++c) {
        store_run(to + c * plane + position, results + c * kTileColumns, count);
      }
    }
    __syncwarp();
  }
}

void run_resize_images(const KernelContext& context) {
  if (context.output(0).numel() == 0) return;
  const auto& [output, channels, filter] = context.attributes<ResizeImagesAttributes>();
  const ResizeProblem problem{.pixels = context.input(0).as<const uint8_t>(),
                              .bytes = context.input(0).numel(),
                              .extents = context.input(1).as<const int64_t>(),
                              .boxes = context.input(2).as<const double>(),
                              .images = context.input(1).shape[0],
                              .height = output.height,
                              .width = output.width,
                              .row_tiles = cuda::blocks_for(output.height, kTileRows),
                              .column_tiles = cuda::blocks_for(output.width, kTileColumns),
                              .channels_last = output.layout == Layout::kNHWC,
                              .filter = filter};
  const int64_t blocks = problem.images * problem.row_tiles * problem.column_tiles;
  SINTER_CHECK(blocks <= INT32_MAX, "[resize_images] expected at most {} tiles of {} x {} but got {}",
               INT32_MAX, kTileRows, kTileColumns, blocks);
  const cuda::LaunchShape shape{dim3(static_cast<unsigned>(blocks)), dim3(32, kWarps), 0};
  auto* images = context.workspace<ResampleImage>();
  cuda::launch(context.stream(), cuda::grid_stride_shape(problem.images, kPrepareThreads, kPrepareThreads),
               prepare_kernel, problem, channels, images);
  const ChannelScales scales = channel_scales(output, channels);
  dispatch_image_output(output.dtype, [&, channels = channels]<class T> {
    cuda::launch(context.stream(), shape, channels == 3 ? resize_kernel<T, 3> : resize_kernel<T, 1>, problem,
                 images, scales, context.output(0).as<T>());
  });
}

size_t resize_images_workspace(const KernelQuery& query) {
  return static_cast<size_t>(query.input(1).shape[0]) * sizeof(ResampleImage);
}

}  // namespace

void register_resize_images_cuda(OpRegistry& registry);
void register_resize_images_cuda(OpRegistry& registry) {
  registry.add_kernel(
      "resize_images",
      {.device = DeviceType::kCuda, .workspace_bytes = resize_images_workspace, .run = run_resize_images});
}

}  // namespace sinter::ops
