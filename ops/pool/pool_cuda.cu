// Average pooling on a GPU, and the registration of all pooling kernels.
#include <utility>

#include <sinter/ops/common/cuda/axis_taps_cuda.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/pool/channels/channel_map_cuda.h>
#include <sinter/ops/pool/channels/channel_reduce_cuda.h>
#include <sinter/ops/pool/pool_cuda.h>
#include <sinter/ops/pool/pool_taps.h>

namespace sinter::ops {
namespace {

template <class T, int pack, class Index, class Counts>
struct AvgPool {
  using C = compute_type<T>;
  using I = std::make_signed_t<Index>;

  const T* x;
  T* y;
  Counts counts;

  __device__ void operator()(const PoolImages<Index>& images, I n, I oy, I ox, I channel, I out) const {
    const auto rows = images.y.inside(oy), columns = images.x.inside(ox);
    C sums[pack];
#pragma unroll
    for (int lane = 0; lane < pack; ++lane) sums[lane] = C{0};
    for (I row = rows.begin; row < rows.end; ++row) {
      I in = images.image(n, row, columns.begin, channel);
      for (I column = columns.begin; column < columns.end; ++column, in += images.depth) {
        const auto elements = *reinterpret_cast<const cuda::Pack<T, pack>*>(x + in);
#pragma unroll
        for (int lane = 0; lane < pack; ++lane) sums[lane] += cuda::load_as_compute(elements.values[lane]);
      }
    }
    const C count = static_cast<C>(counts.rows(images.y, oy) * counts.columns(images.x, ox));
    cuda::Pack<T, pack> result;
#pragma unroll
    for (int lane = 0; lane < pack; ++lane) result.values[lane] = cuda::round_to<T>(sums[lane] / count);
    *reinterpret_cast<cuda::Pack<T, pack>*>(y + out) = result;
  }
};

/// Gathers every window's share from the windows that contain the pixel.
template <class T, int pack, class Index, class Counts>
struct AvgPoolGrad {
  using C = compute_type<T>;
  using I = std::make_signed_t<Index>;

  const T* dy;
  T* dx;
  Counts counts;

  __device__ void operator()(const PoolImages<Index>& images, I n, I iy, I ix, I channel, I in) const {
    const auto rows = images.windows_of_row(iy), columns = images.windows_of_column(ix);
    C sums[pack];
#pragma unroll
    for (int lane = 0; lane < pack; ++lane) sums[lane] = C{0};
    for (I oy = rows.begin; oy < rows.end; ++oy) {
      const I row_count = counts.rows(images.y, oy);
      for (I ox = columns.begin; ox < columns.end; ++ox) {
        const C share = C{1} / static_cast<C>(row_count * counts.columns(images.x, ox));
        const auto slopes =
            *reinterpret_cast<const cuda::Pack<T, pack>*>(dy + images.pooled(n, oy, ox, channel));
#pragma unroll
        for (int lane = 0; lane < pack; ++lane)
          sums[lane] += cuda::load_as_compute(slopes.values[lane]) * share;
      }
    }
    cuda::Pack<T, pack> result;
#pragma unroll
    for (int lane = 0; lane < pack; ++lane) result.values[lane] = cuda::round_to<T>(sums[lane]);
    *reinterpret_cast<cuda::Pack<T, pack>*>(dx + in) = result;
  }
};

/// In strips of rows, which overlapping windows read once; false if windows overlap too much for that or
/// images are too large.
template <bool gradient>
bool run_average_strips(const KernelContext& context, const PoolGeometry& geometry,
                        const PoolOptions& options) {
  if (!PoolTaps::can_describe(geometry.y) || !PoolTaps::can_describe(geometry.x)) return false;
  const bool planes = options.layout == Layout::kNCHW;
  TapExtents extents{.outer = planes ? geometry.batch * geometry.channels : geometry.batch,
                     .inner = planes ? 1 : geometry.channels,
                     .source_rows = geometry.y.extent,
                     .source_columns = geometry.x.extent,
                     .rows = geometry.y.out,
                     .columns = geometry.x.out};
  if (gradient) {
    std::swap(extents.source_rows, extents.rows);
    std::swap(extents.source_columns, extents.columns);
  }
  // A divisor that is given counts once, for the rows.
  const bool fixed = options.divisor != 0;
  const PoolTaps rows(geometry.y, options.count_include_pad, static_cast<double>(options.divisor));
  const PoolTaps columns(geometry.x, options.count_include_pad, fixed ? 1.0 : 0.0);
  bool runs = false;
  dispatch_float(context.input(0).dtype, "avg_pool2d", [&]<class T> {
    runs = launch_taps<!gradient>(context.stream(), extents, rows, columns, context.input(0).as<const T>(),
                                  context.output(0).as<T>());
  });
  return runs;
}

void run_avg_pool(const KernelContext& context) {
  const auto& options = context.attributes<PoolOptions>();
  const PoolGeometry geometry = pool_geometry(context.input(0).shape, options, "avg_pool2d");
  if (run_average_strips<false>(context, geometry, options)) return;
  dispatch_float(context.input(0).dtype, "avg_pool2d", [&]<class T> {
    const T* x = context.input(0).as<const T>();
    T* y = context.output(0).as<T>();
    with_counts(options, [&]<class Counts>(Counts counts) {
      constexpr int widest = std::is_same_v<Counts, PoolCounts> ? cuda::kPackSize<T> : 1;
      launch_pool<widest>(context.stream(), geometry, options.layout, false,
                          cuda::is_aligned(x, 16) && cuda::is_aligned(y, 16), [=]<int pack, class Index> {
                            return AvgPool<T, pack, Index, Counts>{x, y, counts};
                          });
    });
  });
}

void run_avg_pool_grad(const KernelContext& context) {
  const PoolOptions& options = context.attributes<PoolGradOptions>().pool;
  const PoolGeometry geometry = pool_geometry(context.output(0).shape, options, "avg_pool2d_grad");
  if (run_average_strips<true>(context, geometry, options)) return;
  dispatch_float(context.input(0).dtype, "avg_pool2d_grad", [&]<class T> {
    const T* dy = context.input(0).as<const T>();
    T* dx = context.output(0).as<T>();
    with_counts(options, [&]<class Counts>(Counts counts) {
      constexpr int widest = std::is_same_v<Counts, PoolCounts> ? cuda::kPackSize<T> : 1;
      launch_pool<widest>(context.stream(), geometry, options.layout, true,
                          cuda::is_aligned(dy, 16) && cuda::is_aligned(dx, 16), [=]<int pack, class Index> {
                            return AvgPoolGrad<T, pack, Index, Counts>{dy, dx, counts};
                          });
    });
  });
}

// ---- global
// -------------------------------------------------------------------------------------------------------

constexpr unsigned kThreads = 256;
constexpr int kWarp = 32;

/// Planes of up to so many pixels are one warp's work; larger ones are cut into parts.
constexpr int64_t kSmallPlane = 4096;

/// One warp per plane.
template <int pack, class T>
__global__ void __launch_bounds__(kThreads)
    average_planes_kernel(int64_t planes, int64_t pixels, const T* x, T* y) {
  using C = compute_type<T>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t stride = int64_t{gridDim.x} * (kThreads / kWarp), packs = pixels / pack;
  for (int64_t plane = int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp; plane < planes;
       plane += stride) {
    const auto* from = reinterpret_cast<const cuda::Pack<T, pack>*>(x + plane * pixels);
    C sum{0};
    for (int64_t i = lane; i < packs; i += kWarp) {
      const cuda::Pack<T, pack> elements = from[i];
#pragma unroll
      for (int j = 0; j < pack; ++j) sum += cuda::load_as_compute(elements.values[j]);
    }
    auto total = static_cast<double>(sum);
#pragma unroll
    for (int half = kWarp / 2; half > 0; half /= 2) total += __shfl_xor_sync(0xffffffffu, total, half);
    if (lane == 0) y[plane] = cuda::round_to<T>(total / static_cast<double>(pixels));
  }
}

/// One block for the channels of an image that `columns` threads take, `pack` each; its other threads share
/// the pixels with them.
template <int pack, class T>
__global__ void __launch_bounds__(kThreads)
    average_pixels_kernel(int64_t pixels, int64_t channels, int64_t tiles, int columns, const T* x, T* y) {
  using C = compute_type<T>;
  constexpr int64_t kShortSum = 64;  // pixels that are summed in the compute type before they go to doubles
  __shared__ double sums[kThreads * pack];
  const int id = static_cast<int>(threadIdx.x), column = id % columns, lane = id / columns,
            lanes = static_cast<int>(kThreads) / columns;
  const int64_t image = blockIdx.x / tiles, tile = blockIdx.x - image * tiles;
  const int64_t channel = (tile * columns + column) * pack;
  double total[pack] = {};
  if (channel < channels) {
    const T* const from = x + image * pixels * channels + channel;
    for (int64_t first = lane; first < pixels; first += kShortSum * lanes) {
      const int64_t last = min(pixels, first + kShortSum * lanes);
      C sum[pack] = {};
#pragma unroll 8
      for (int64_t pixel = first; pixel < last; pixel += lanes) {
        const auto elements = *reinterpret_cast<const cuda::Pack<T, pack>*>(from + pixel * channels);
#pragma unroll
        for (int i = 0; i < pack; ++i) sum[i] += cuda::load_as_compute(elements.values[i]);
      }
#pragma unroll
      for (int i = 0; i < pack; ++i) total[i] += static_cast<double>(sum[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < pack; ++i) sums[i * static_cast<int>(kThreads) + id] = total[i];
  __syncthreads();
  for (int at = id; at < columns * pack; at += static_cast<int>(kThreads)) {
    const int64_t to = tile * columns * pack + at;
    if (to >= channels) return;
    const double* const from = sums + at % pack * static_cast<int>(kThreads) + at / pack;
    double sum = 0.0;
    for (int l = 0; l < lanes; ++l) sum += from[l * columns];
    y[image * channels + to] = cuda::round_to<T>(sum / static_cast<double>(pixels));
  }
}

/// The terms of a sum over all elements.
template <class T>
struct ElementTerms {
  using Compute = compute_type<T>;
  struct Parameter {};
  static constexpr int kValues = 1;

  const T* x;

  __device__ Parameter parameter(int64_t) const { return {}; }
  template <int pack>
  __device__ void add(int64_t offset, const Parameter (&)[pack], Compute (&sums)[1][pack]) const {
    const auto elements = *reinterpret_cast<const cuda::Pack<T, pack>*>(x + offset);
#pragma unroll
    for (int lane = 0; lane < pack; ++lane) sums[0][lane] += cuda::load_as_compute(elements.values[lane]);
  }
};

template <class T>
struct StoreMean {
  T* means;

  __device__ void operator()(int64_t i, const double* sums, double count) const {
    means[i] = cuda::round_to<T>(sums[0] / count);
  }
};

template <class T>
void global_avg_pool(const KernelContext& context) {
  const Shape& shape = context.input(0).shape;
  const T* x = context.input(0).as<const T>();
  T* y = context.output(0).as<T>();
  const Stream& stream = context.stream();
  constexpr int pack = cuda::kPackSize<T>;
  const bool aligned = cuda::is_aligned(x, 16);
  const ChannelSums<ElementTerms<T>> op{ElementTerms<T>{x}};
  auto* table = context.workspace<double>();
  if (context.output(0).numel() == 0) return;
  if (context.attributes<GlobalPoolOptions>().layout == Layout::kNHWC) {
    const bool wide = aligned && shape[3] % pack == 0;
    const ChannelPlan plan = plan_channel_rows(shape[0], shape[1] * shape[2], shape[3], wide ? pack : 1);
    if (plan.parts == 1) {
      const cuda::LaunchShape blocks{dim3(static_cast<unsigned>(shape[0] * plan.tiles)), dim3(kThreads)};
      const auto kernel = wide ? average_pixels_kernel<pack, T> : average_pixels_kernel<1, T>;
      cuda::launch(stream, blocks, kernel, plan.items, shape[3], plan.tiles, plan.columns, x, y);
      return;
    }
    const auto reduce = wide ? reduce_rows<pack, ChannelSums<ElementTerms<T>>, StoreMean<T>>
                             : reduce_rows<1, ChannelSums<ElementTerms<T>>, StoreMean<T>>;
    reduce(stream, shape[0], shape[1] * shape[2], shape[3], op, table, StoreMean<T>{y});
    return;
  }
  const int64_t planes = shape[0] * shape[1], pixels = shape[2] * shape[3];
  if (pixels > kSmallPlane) {
    reduce_channels<T>(stream, {.outer = 1, .channels = planes, .inner = pixels}, aligned, op, table,
                       StoreMean<T>{y});
    return;
  }
  const auto kernel =
      aligned && pixels % pack == 0 ? average_planes_kernel<pack, T> : average_planes_kernel<1, T>;
  cuda::launch(stream, cuda::grid_stride_shape(planes, kThreads / kWarp, kThreads), kernel, planes, pixels, x,
               y);
}

size_t global_avg_pool_workspace(const KernelQuery& query) {
  const Shape& shape = query.input(0).shape;
  const size_t element = size_of(query.input(0).dtype);
  if (query.attributes<GlobalPoolOptions>().layout == Layout::kNHWC) {
    const auto bytes = [&](int64_t pack) {
      if (shape[3] % pack != 0) return size_t{0};
      return plan_channel_rows(shape[0], shape[1] * shape[2], shape[3], pack).table_bytes(1);
    };
    return std::max(bytes(1), bytes(16 / static_cast<int64_t>(element)));
  }
  const int64_t pixels = shape[2] * shape[3];
  if (pixels <= kSmallPlane) return 0;
  return reduce_channels_bytes({.outer = 1, .channels = shape[0] * shape[1], .inner = pixels}, 1, element);
}

void run_global_avg_pool(const KernelContext& context) {
  dispatch_float(context.input(0).dtype, "global_avg_pool2d", [&]<class T> { global_avg_pool<T>(context); });
}

/// Spreads a plane's gradient, scaled.
template <class C>
struct ScaledValue {
  C share;

  __device__ C operator()(C value) const { return value * share; }
};

template <class T>
struct PlaneGradient {
  const T* dy;

  __device__ compute_type<T> operator()(int64_t plane) const { return cuda::load_as_compute(dy[plane]); }
};

/// Packs of a thread, a block apart: their loads are on the way together.
constexpr int kSpreadPacks = 4;

/// NHWC: pixel i / packs of image i / packs / pixels takes channels i % packs.
template <int pack, class Index, class T>
__global__ void __launch_bounds__(kThreads)
    spread_pixels_kernel(int64_t count, IndexDivide<Index> by_packs, IndexDivide<Index> by_pixels,
                         int64_t packs, compute_type<T> share, const T* dy, T* dx) {
  const int64_t first = int64_t{blockIdx.x} * kThreads * kSpreadPacks + threadIdx.x;
  cuda::Pack<T, pack> slopes[kSpreadPacks] = {};
#pragma unroll
  for (int k = 0; k < kSpreadPacks; ++k) {
    const int64_t i = first + int64_t{k} * kThreads;
    if (i >= count) break;
    Index vector;
    const Index image = by_pixels.divide(by_packs.divide(static_cast<Index>(i), vector));
    slopes[k] =
        reinterpret_cast<const cuda::Pack<T, pack>*>(dy)[static_cast<int64_t>(image) * packs + vector];
  }
#pragma unroll
  for (int k = 0; k < kSpreadPacks; ++k) {
    const int64_t i = first + int64_t{k} * kThreads;
    if (i >= count) break;
    cuda::Pack<T, pack> result;
#pragma unroll
    for (int lane = 0; lane < pack; ++lane) {
      result.values[lane] = cuda::round_to<T>(cuda::load_as_compute(slopes[k].values[lane]) * share);
    }
    reinterpret_cast<cuda::Pack<T, pack>*>(dx)[i] = result;
  }
}

template <class T>
void global_avg_pool_grad(const KernelContext& context) {
  const auto& options = context.attributes<GlobalPoolOptions>();
  const T* dy = context.input(0).as<const T>();
  T* dx = context.output(0).as<T>();
  const int64_t numel = context.output(0).numel(), channels = context.input(0).shape[1];
  const int64_t pixels = options.height * options.width;
  if (numel == 0) return;
  using C = compute_type<T>;
  const C share = C{1} / static_cast<C>(pixels);
  if (options.layout == Layout::kNCHW) {
    map_channels(context.stream(), {.outer = 1, .channels = context.input(0).numel(), .inner = pixels},
                 PlaneGradient<T>{dy}, ScaledValue<C>{share}, dx);
    return;
  }
  dispatch_index(numel, [&]<class Index> {
    const auto run = [&]<int pack>() {
      const int64_t packs = channels / pack, count = numel / pack;
      cuda::launch(context.stream(), cuda::grid_stride_shape(count, kSpreadPacks * kThreads, kThreads),
                   spread_pixels_kernel<pack, Index, T>, count, IndexDivide<Index>(static_cast<Index>(packs)),
                   IndexDivide<Index>(static_cast<Index>(pixels)), packs, share, dy, dx);
    };
    constexpr int widest = cuda::kPackSize<T>;
    if (channels % widest == 0 && cuda::is_aligned(dy, 16) && cuda::is_aligned(dx, 16)) {
      run.template operator()<widest>();
    } else {
      run.template operator()<1>();
    }
  });
}

void run_global_avg_pool_grad(const KernelContext& context) {
  dispatch_float(context.input(0).dtype, "global_avg_pool2d_grad",
                 [&]<class T> { global_avg_pool_grad<T>(context); });
}

}  // namespace

void register_pool_cuda(OpRegistry& registry);
void register_pool_cuda(OpRegistry& registry) {
  const auto add_kernel = [&registry](const char* op, void (*run)(const KernelContext&),
                                      size_t (*workspace)(const KernelQuery&) = nullptr) {
    registry.add_kernel(op, {.device = DeviceType::kCuda, .workspace_bytes = workspace, .run = run});
  };
  add_kernel("max_pool2d", run_max_pool_cuda);
  add_kernel("max_pool2d_grad", run_max_pool_grad_cuda);
  add_kernel("avg_pool2d", run_avg_pool);
  add_kernel("avg_pool2d_grad", run_avg_pool_grad);
  add_kernel("global_avg_pool2d", run_global_avg_pool, global_avg_pool_workspace);
  add_kernel("global_avg_pool2d_grad", run_global_avg_pool_grad);
}

}  // namespace sinter::ops
