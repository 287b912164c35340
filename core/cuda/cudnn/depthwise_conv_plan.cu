// A thread works on four neighbouring channels, lanes of a block on neighbouring fours, so that pixels are
// read and written in whole lines. What the taps read again comes from L1: a block goes through pixels in
// order. Filters lie in shared memory, in float32.
//
// Forward and the gradient of x are one computation: with stride 1 the latter is a convolution of dy with the
// turned filter. With a larger stride each pixel of dx meets only some taps.
#include <algorithm>
#include <limits>
#include <string>
#include <type_traits>

#include <sinter/core/cuda/cudnn/depthwise_conv_plan.h>
#include <sinter/core/cuda/device/block_reduce.h>
#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/core/cuda/device_traits.h>

namespace sinter::cuda {
namespace {

constexpr unsigned kThreads = 256, kMostLanes = 32, kMostParts = 64;  // that many parts: CUDA's limit
constexpr int kPack = 4;                                              // channels of a thread
constexpr int64_t kMostTaps = 8, kMostProducts = 64;                  // along an axis; for an output

/// Pixels beside each other that a thread computes at once, or, of dy, reads at once: with 3 taps across and
/// `stride` 1 or 2 across, and of any other filter, which is called stride 0.
constexpr int pixels_at_once(ConvPass pass, int stride) {
  if (stride == 0) return 1;
  return stride == 1 && pass != ConvPass::kGradWeight ? 7 : 4;
}

/// One axis of a task. Forward and for the filter, pixel i reads source i * stride - padding + tap.
struct Axis {
  int source, pixels, taps, stride, padding;
  FastDivide by_stride;
};

/// A convolution as the kernels count it: a block takes `chunk` items, each some pixels of a row, of the
/// array that it goes through: the result, or dy where the filter's gradient is wanted.
struct Task {
  int channels;
  Axis down, across;
  FastDivide by_rows, by_strips;  // of lines and items
  uint32_t items, chunk;
  bool backward, flipped;  // of the gradient of x; by the filter turned round
};

struct Place {
  uint32_t image;
  int row, first;  // first pixel
};

__device__ __forceinline__ Place place_of(const Task& task, uint32_t item, int pixels) {
  uint32_t strip, row;
  const uint32_t line = task.by_strips.divide(item, strip);
  const uint32_t image = task.by_rows.divide(line, row);
  return {image, static_cast<int>(row), static_cast<int>(strip) * pixels};
}

/// Pixel (image, row, 0) of an array, from `channel` on.
template <class T>
__device__ __forceinline__ T* line_of(T* array, const Task& task, uint32_t image, int rows, int columns,
                                      int row, int channel) {
  return array + (int64_t{image} * rows + row) * columns * task.channels + channel;
}

/// A thread's part of a pixel, loaded in one access.
template <class T>
using Pixel = std::conditional_t<sizeof(T) == 2, uint2, uint4>;

/// `element` elements behind `line`: in bytes, 32 bits suffice, which saves half of the addresses'
/// arithmetic.
template <class T>
__device__ __forceinline__ Pixel<T> load(const T* line, int element) {
  const uint32_t bytes = static_cast<uint32_t>(element) * sizeof(T);
  return *reinterpret_cast<const Pixel<T>*>(reinterpret_cast<const char*>(line) + bytes);
}

template <class T>
__device__ __forceinline__ void convert(const Pixel<T>& pixel, float (&values)[kPack]) {
  const auto pack = reinterpret_cast<const Pack<T, kPack>&>(pixel);
#pragma unroll
  for (int i = 0; i < kPack; ++i) values[i] = load_as_compute(pack.values[i]);
}

template <class T>
__device__ __forceinline__ void store(const float (&values)[kPack], T* line, int element) {
  Pack<T, kPack> pack;
#pragma unroll
  for (int i = 0; i < kPack; ++i) pack.values[i] = round_to<T>(values[i]);
  const uint32_t bytes = static_cast<uint32_t>(element) * sizeof(T);
  *reinterpret_cast<Pixel<T>*>(reinterpret_cast<char*>(line) + bytes) =
      reinterpret_cast<const Pixel<T>&>(pack);
}

/// Pixels first, first + 1, ... of a line of `columns`; zeros beside it and from the `used`th on. All are
/// asked for before any is waited for, without branches: in place of one that does not exist its neighbour
/// that does.
template <int count, class T>
__device__ __forceinline__ void load_pixels(const T* line, int channels, int columns, int first, int used,
                                            float (&values)[count][kPack]) {
  Pixel<T> pixels[count];
#pragma unroll
  for (int k = 0; k < count; ++k) {
    pixels[k] = load(line, min(max(first + k, 0), columns - 1) * channels);
  }
#pragma unroll
  for (int k = 0; k < count; ++k) {
    const bool exists = k < used && first + k >= 0 && first + k < columns;
    convert<T>(exists ? pixels[k] : Pixel<T>{}, values[k]);
  }
}

// ---- forward, and the gradient of x

/// The filters of the block's channels: filters[(tap * G + j) * tile + c] is what result channel c takes of
/// channel j of its group. Ends with a barrier.
template <int G, class T>
__device__ void stage_filters(const Task& task, const T* weight, float* filters) {
  const int tile = kPack * static_cast<int>(blockDim.x), begin = static_cast<int>(blockIdx.y) * tile;
  const int taps = task.down.taps * task.across.taps;
  const int threads = static_cast<int>(blockDim.x * blockDim.y);
  for (int i = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x); i < taps * G * tile; i += threads) {
    const int c = begin + i % tile, j = i / tile % G, tap = i / tile / G;
    if (c >= task.channels) continue;
    const int out = task.backward ? c / G * G + j : c, in = task.backward ? c % G : j;
    const int stored = task.flipped ? taps - 1 - tap : tap;
    filters[i] = load_as_compute(weight[(int64_t{out} * taps + stored) * G + in]);
  }
  __syncthreads();
}

/// sums += what a pixel gives through a tap, whose filter for the thread's channels begins at `filter`.
template <int G>
__device__ __forceinline__ void add_products(const float4 (&filter)[G], const float (&pixel)[kPack],
                                             float (&sums)[kPack]) {
#pragma unroll
  for (int j = 0; j < G; ++j) {
    const float factors[kPack] = {filter[j].x, filter[j].y, filter[j].z, filter[j].w};
#pragma unroll
    for (int i = 0; i < kPack; ++i) sums[i] += factors[i] * pixel[i / G * G + j];
  }
}

template <int G>
__device__ __forceinline__ void load_filter(const float* filters, int tap, float4 (&filter)[G]) {
  const int tile = kPack * static_cast<int>(blockDim.x);
#pragma unroll
  for (int j = 0; j < G; ++j) {
    filter[j] = reinterpret_cast<const float4*>(filters + (tap * G + j) * tile)[threadIdx.x];
  }
}

/// Three taps across, `S` pixels of the source from one result to the next.
template <class T, int G, int S>
__global__ void __launch_bounds__(kThreads, 4 - G)
    strip_kernel(Task task, const T* __restrict__ source, const T* __restrict__ weight,
                 T* __restrict__ result) {
  constexpr int kTaps = 3, kPixels = pixels_at_once(ConvPass::kForward, S);
  constexpr int kColumns = (kPixels - 1) * S + kTaps;
  extern __shared__ float4 shared[];
  auto* const filters = reinterpret_cast<float*>(shared);
  stage_filters<G>(task, weight, filters);
  const int channel = kPack * static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (channel >= task.channels) return;
  const uint32_t end = min(task.items, (blockIdx.x + 1) * task.chunk);
  for (uint32_t item = blockIdx.x * task.chunk + threadIdx.y; item < end; item += blockDim.y) {
    const Place at = place_of(task, item, kPixels);
    float sums[kPixels][kPack] = {};
#pragma unroll 1
    for (int u = 0; u < task.down.taps; ++u) {
      const int row = at.row * task.down.stride - task.down.padding + u;
      if (row < 0 || row >= task.down.source) continue;
      const T* line = line_of(source, task, at.image, task.down.source, task.across.source, row, channel);
      float pixels[kColumns][kPack];
      load_pixels(line, task.channels, task.across.source, at.first * S - task.across.padding, kColumns,
                  pixels);
#pragma unroll
      for (int v = 0; v < kTaps; ++v) {
        float4 filter[G];
        load_filter(filters, u * kTaps + v, filter);
#pragma unroll
        for (int k = 0; k < kPixels; ++k) add_products(filter, pixels[k * S + v], sums[k]);
      }
    }
    T* line = line_of(result, task, at.image, task.down.pixels, task.across.pixels, at.row, channel);
#pragma unroll
    for (int k = 0; k < kPixels; ++k) {
      const int column = at.first + k;
      if (column < task.across.pixels) store(sums[k], line, column * task.channels);
    }
  }
}

/// The taps of one axis that meet the source, in steps: tap, tap + tap_step, ..., `count` of them.
struct Walk {
  int tap, source, count;
};

/// Forward, tap u reads source at * stride - padding + u. Backward, tap u brings the pixel of dy of which
/// stride * pixel - padding + u is `at`: u is (at + padding) % stride, and so many strides more for each
/// pixel less.
__device__ __forceinline__ Walk walk(const Axis& axis, int at, bool backward) {
  if (!backward) {
    const int first = at * axis.stride - axis.padding, skipped = max(0, -first);
    return {skipped, first + skipped, min(axis.taps, axis.source - first) - skipped};
  }
  uint32_t rest;
  const auto last = static_cast<int>(
      axis.by_stride.divide(static_cast<uint32_t>(at) + static_cast<uint32_t>(axis.padding), rest));
  const int tap = static_cast<int>(rest), skipped = max(0, last - (axis.source - 1));
  const int taps =
      tap < axis.taps
          ? static_cast<int>(axis.by_stride.divide(static_cast<uint32_t>(axis.taps - 1 - tap))) + 1
          : 0;
  return {tap + skipped * axis.stride, last - skipped, min(taps, last + 1) - skipped};
}

/// Any filter and stride, a pixel of the result at once.
template <class T, int G>
__global__ void __launch_bounds__(kThreads)
    pixel_kernel(Task task, const T* __restrict__ source, const T* __restrict__ weight,
                 T* __restrict__ result) {
  extern __shared__ float4 shared[];
  auto* const filters = reinterpret_cast<float*>(shared);
  stage_filters<G>(task, weight, filters);
  const int channel = kPack * static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (channel >= task.channels) return;
  const int direction = task.backward ? -1 : 1;
  const int step_down = task.backward ? task.down.stride : 1;
  const int step_across = task.backward ? task.across.stride : 1;
  const uint32_t end = min(task.items, (blockIdx.x + 1) * task.chunk);
  for (uint32_t item = blockIdx.x * task.chunk + threadIdx.y; item < end; item += blockDim.y) {
    const Place at = place_of(task, item, 1);
    const Walk down = walk(task.down, at.row, task.backward);
    const Walk across = walk(task.across, at.first, task.backward);
    float sums[kPack] = {};
    for (int i = 0; i < down.count; ++i) {
      const T* line = line_of(source, task, at.image, task.down.source, task.across.source,
                              down.source + direction * i, channel);
      const int first_tap = (down.tap + step_down * i) * task.across.taps + across.tap;
#pragma unroll 4
      for (int k = 0; k < across.count; ++k) {
        float pixel[kPack];
        float4 filter[G];
        convert<T>(load(line, (across.source + direction * k) * task.channels), pixel);
        load_filter(filters, first_tap + step_across * k, filter);
        add_products(filter, pixel, sums);
      }
    }
    store(sums, line_of(result, task, at.image, task.down.pixels, task.across.pixels, at.row, channel),
          at.first * task.channels);
  }
}

// ---- the gradient of the filter

/// A row of partial sums for each block, in the order (tap, channel of the group, output channel). Threads
/// along y have one row of the filter each, those along z share the block's items. S is 0 for filters of up
/// to 8 taps across and any stride.
template <class T, int G, int S>
__global__ void __launch_bounds__(kThreads, 2)
    filter_kernel(Task task, const T* __restrict__ x, const T* __restrict__ dy, float* __restrict__ partial) {
  constexpr int kTaps = S == 0 ? static_cast<int>(kMostTaps) : 3;
  constexpr int kPixels = pixels_at_once(ConvPass::kGradWeight, S), kColumns = (kPixels - 1) * S + kTaps;
  __shared__ float4 shared[kThreads];
  const int channel = kPack * static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  const bool has_channels = channel < task.channels;
  const int u = static_cast<int>(threadIdx.y), taps_across = task.across.taps;
  float sums[kTaps][G][kPack] = {};
  const uint32_t end = has_channels ? min(task.items, (blockIdx.x + 1) * task.chunk) : 0;
  for (uint32_t item = blockIdx.x * task.chunk + threadIdx.z; item < end; item += blockDim.z) {
    const Place at = place_of(task, item, kPixels);
    const int row = at.row * task.down.stride - task.down.padding + u;
    if (row < 0 || row >= task.down.source) continue;
    const int used = min(kPixels, task.across.pixels - at.first);
    float gradients[kPixels][kPack], pixels[kColumns][kPack];
    load_pixels(line_of(dy, task, at.image, task.down.pixels, task.across.pixels, at.row, channel),
                task.channels, task.across.pixels, at.first, used, gradients);
    load_pixels(line_of(x, task, at.image, task.down.source, task.across.source, row, channel), task.channels,
                task.across.source, at.first * task.across.stride - task.across.padding,
                (kPixels - 1) * S + taps_across, pixels);
#pragma unroll
    for (int k = 0; k < kPixels; ++k) {
      if (k >= used) break;  // not even products with zero: what is read there may be infinite
#pragma unroll
      for (int v = 0; v < kTaps; ++v) {
#pragma unroll
        for (int j = 0; j < G; ++j) {
#pragma unroll
          for (int i = 0; i < kPack; ++i) sums[v][j][i] += gradients[k][i] * pixels[k * S + v][i / G * G + j];
        }
      }
    }
  }
  const unsigned part = blockDim.x * blockDim.y, thread = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
  for (int v = 0; v < kTaps; ++v) {
    if (v >= taps_across) break;
#pragma unroll
    for (int j = 0; j < G; ++j) {
      auto [first, second, third, fourth] = sums[v][j];
      if (blockDim.z > 1) {
        __syncthreads();
        shared[threadIdx.z * part + thread] = make_float4(first, second, third, fourth);
        __syncthreads();
        for (unsigned z = 1; threadIdx.z == 0 && z < blockDim.z; ++z) {
          const float4 other = shared[z * part + thread];
          first += other.x, second += other.y, third += other.z, fourth += other.w;
        }
      }
      if (threadIdx.z != 0 || !has_channels) continue;
      const int64_t rows = int64_t{task.down.taps} * taps_across * G;
      const int64_t place = (u * taps_across + v) * G + j;
      *reinterpret_cast<float4*>(partial + (blockIdx.x * rows + place) * task.channels + channel) =
          make_float4(first, second, third, fourth);
    }
  }
}

constexpr unsigned kElements = 32;  // of a block that adds up partial sums, and rows of its threads

/// dweight (output channel, tap, channel of the group) from `rows` rows of `products` * `channels` sums.
template <class T>
__global__ void __launch_bounds__(kElements* kElements)
    add_partial_kernel(int64_t rows, int products, int channels, const float* __restrict__ partial,
                       T* __restrict__ dweight) {
  __shared__ float shared[kElements][kElements];
  const int64_t count = int64_t{products} * channels, element = blockIdx.x * kElements + threadIdx.x;
  float sum = 0;
  if (element < count) {
    sum = add_strided<8>(partial, threadIdx.y * count + element, rows * count, kElements * count);
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || element >= count) return;
  for (unsigned row = 1; row < kElements; ++row) sum += shared[row][threadIdx.x];
  const int64_t product = element / channels, channel = element % channels;
  dweight[channel * products + product] = round_to<T>(sum);
}

// ---- the plan

Axis make_axis(const ConvProblem& problem, size_t i) {
  const bool backward = problem.pass == ConvPass::kGradInput;
  const auto x = static_cast<int>(problem.x[2 + i]), y = static_cast<int>(problem.y[2 + i]);
  return {.source = backward ? y : x,
          .pixels = backward ? x : y,
          .taps = static_cast<int>(problem.weight[2 + i]),
          .stride = static_cast<int>(problem.stride[i]),
          .padding = static_cast<int>(problem.padding[i]),
          .by_stride = FastDivide(static_cast<uint32_t>(problem.stride[i]))};
}

class DepthwiseConvPlan final : public ConvPlan {
 public:
  explicit DepthwiseConvPlan(const ConvProblem& problem)
      : pass_(problem.pass), dtype_(problem.dtype), group_(static_cast<int>(problem.weight[1])) {
    Axis down = make_axis(problem, 0), across = make_axis(problem, 1);
    const bool backward = pass_ == ConvPass::kGradInput;
    const bool is_strip = across.taps == 3 && across.stride <= 2;
    const bool flipped = backward && is_strip && down.stride == 1 && across.stride == 1;
    if (flipped) {
      for (Axis* const axis : {&down, &across}) axis->padding = axis->taps - 1 - axis->padding;
    }
    stride_ = is_strip && backward == flipped ? across.stride : 0;
    const int at_once = pixels_at_once(pass_, stride_);
    const int64_t strips = blocks_for(across.pixels, at_once);
    task_ = {.channels = static_cast<int>(problem.x[1]),
             .down = down,
             .across = across,
             .by_rows = FastDivide(static_cast<uint32_t>(down.pixels)),
             .by_strips = FastDivide(static_cast<uint32_t>(strips)),
             .items = static_cast<uint32_t>(problem.x[0] * down.pixels * strips),
             .chunk = 0,
             .backward = backward,
             .flipped = flipped};
    set_shape(device_traits(problem.device).processors);
  }

  size_t workspace_bytes() const override {
    if (pass_ != ConvPass::kGradWeight) return 0;
    return size_t{shape_.grid.x} * static_cast<size_t>(products() * task_.channels) * sizeof(float);
  }

  const std::string& name() const override {
    static const std::string name = "depthwise";
    return name;
  }

  void run(const Stream& stream, const ConvArrays& arrays, void* workspace) const override {
    switch (dtype_) {
      case DType::kFloat16:
        return run_typed<float16>(stream, arrays, workspace);
      case DType::kBFloat16:
        return run_typed<bfloat16>(stream, arrays, workspace);
      default:
        return run_typed<float>(stream, arrays, workspace);
    }
  }

 private:
  int64_t products() const { return int64_t{task_.down.taps} * task_.across.taps * group_; }

  void set_shape(int processors) {
    const int64_t packs = task_.channels / kPack, tiles = blocks_for(packs, kMostLanes);
    const auto lanes = static_cast<unsigned>(blocks_for(packs, tiles));
    unsigned at_once = kThreads / lanes;  // items of a block
    // As many blocks as fill the GPU a few times: each has to read its filters, or to leave sums.
    int64_t most = std::max<int64_t>(1, int64_t{processors} * 8 / tiles);
    shape_.block = dim3(lanes, at_once);
    if (pass_ == ConvPass::kGradWeight) {
      const auto rows = static_cast<unsigned>(task_.down.taps);
      at_once = std::clamp(kThreads / (lanes * rows), 1U, kMostParts);
      most = std::max<int64_t>(1, most / 2);
      shape_.block = dim3(lanes, rows, at_once);
    } else {
      shape_.shared_bytes = static_cast<size_t>(products() * lanes) * sizeof(float4);
    }
    const int64_t rounds = blocks_for(blocks_for(task_.items, at_once), most);
    task_.chunk = static_cast<uint32_t>(rounds * at_once);
    shape_.grid =
        dim3(static_cast<unsigned>(blocks_for(task_.items, task_.chunk)), static_cast<unsigned>(tiles));
  }

  template <class T>
  void run_typed(const Stream& stream, const ConvArrays& arrays, void* workspace) const {
    if (group_ == 1) return run_groups<T, 1>(stream, arrays, workspace);
    run_groups<T, 2>(stream, arrays, workspace);
  }

  template <class T, int G>
  void run_groups(const Stream& stream, const ConvArrays& arrays, void* workspace) const {
    auto* const x = static_cast<T*>(arrays.x);
    auto* const weight = static_cast<T*>(arrays.weight);
    auto* const y = static_cast<T*>(arrays.y);
    if (pass_ == ConvPass::kGradWeight) {
      const auto kernel = stride_ == 1   ? filter_kernel<T, G, 1>
                          : stride_ == 2 ? filter_kernel<T, G, 2>
                                         : filter_kernel<T, G, 0>;
      auto* const partial = static_cast<float*>(workspace);
      launch(stream, shape_, kernel, task_, x, y, partial);
      const int64_t blocks = blocks_for(products() * task_.channels, kElements);
      launch(stream, {dim3(static_cast<unsigned>(blocks)), dim3(kElements, kElements), 0},
             add_partial_kernel<T>, int64_t{shape_.grid.x}, static_cast<int>(products()), task_.channels,
             partial, weight);
      return;
    }
    const auto kernel = stride_ == 1   ? strip_kernel<T, G, 1>
                        : stride_ == 2 ? strip_kernel<T, G, 2>
                                       : pixel_kernel<T, G>;
    const bool backward = pass_ == ConvPass::kGradInput;
    launch(stream, shape_, kernel, task_, backward ? y : x, weight, backward ? x : y);
  }

  ConvPass pass_;
  DType dtype_;
  int group_, stride_;
  Task task_;
  LaunchShape shape_;
};

}  // namespace

bool is_depthwise_conv(const ConvProblem& problem) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max() / 4;
  const auto& [n, channels, height, width] = problem.x;
  const auto& [filters, group, taps_down, taps_across] = problem.weight;
  const bool is_known = is_half(problem.dtype) || problem.dtype == DType::kFloat32;
  const bool has_groups = (group == 1 || group == 2) && filters == channels && channels % kPack == 0;
  const bool is_small =
      std::max(taps_down, taps_across) <= kMostTaps && taps_down * taps_across * group <= kMostProducts;
  const int64_t pixels = std::max(height * width, problem.y[2] * problem.y[3]);
  const int64_t line = std::max(width, problem.y[3]) * channels;
  return is_known && has_groups && is_small && problem.layout == Layout::kNHWC &&
         problem.dilation == std::array<int64_t, 2>{1, 1} && !problem.sums && !problem.epilogue.is_there() &&
         line <= most && pixels > 0 && pixels <= most && n <= most / pixels;
}

std::unique_ptr<ConvPlan> make_depthwise_conv_plan(const ConvProblem& problem) {
  return std::make_unique<DepthwiseConvPlan>(problem);
}

}  // namespace sinter::cuda
