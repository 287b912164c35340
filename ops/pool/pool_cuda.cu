// Average pooling on a GPU, and the registration of all pooling kernels.
#include <utility>

#include <sinter/ops/common/channels/channel_reduce_cuda.h>
#include <sinter/ops/common/cuda/axis_taps_cuda.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/pool/pool_cuda.h>
#include <sinter/ops/pool/pool_taps.h>

namespace sinter::ops {
namespace {

template <class T, int pack, class Index>
struct AvgPool {
  using C = compute_type<T>;
  using I = std::make_signed_t<Index>;

  const T* x;
  T* y;
  PoolCounts counts;

  AvgPool at(int64_t images, int64_t pooled) const { return {x + images, y + pooled, counts}; }
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
template <class T, int pack, class Index>
struct AvgPoolGrad {
  using C = compute_type<T>;
  using I = std::make_signed_t<Index>;

  const T* dy;
  T* dx;
  PoolCounts counts;

  AvgPoolGrad at(int64_t images, int64_t pooled) const { return {dy + pooled, dx + images, counts}; }
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
                        const PoolAttributes& options) {
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

/// Windows and images of any size; make_body as launch_pool has it.
template <class T, class MakeBody>
void launch_average(const KernelContext& context, const PoolGeometry& geometry, Layout layout,
                    bool over_images, MakeBody make_body) {
  if (!fits_32_bits(geometry, layout)) {
    return launch_pool<1, int64_t>(context.stream(), geometry, layout, over_images, false, make_body);
  }
  const bool wide =
      cuda::is_aligned(context.input(0).data, 16) && cuda::is_aligned(context.output(0).data, 16);
  launch_pool<cuda::kPackSize<T>>(context.stream(), geometry, layout, over_images, wide, make_body);
}

void run_avg_pool(const KernelContext& context) {
  const auto& options = context.attributes<PoolAttributes>();
  const PoolGeometry geometry = pool_geometry(context.input(0).shape, options, "avg_pool2d");
  if (run_average_strips<false>(context, geometry, options)) return;
  dispatch_float(context.input(0).dtype, "avg_pool2d", [&]<class T> {
    launch_average<T>(context, geometry, options.layout, false, [&]<int pack, class Index> {
      return AvgPool<T, pack, Index>{context.input(0).as<const T>(), context.output(0).as<T>(),
                                     counts_of(options)};
    });
  });
}

void run_avg_pool_grad(const KernelContext& context) {
  const PoolAttributes& options = context.attributes<PoolGradOptions>().pool;
  const PoolGeometry geometry = pool_geometry(context.output(0).shape, options, "avg_pool2d_grad");
  if (run_average_strips<true>(context, geometry, options)) return;
  dispatch_float(context.input(0).dtype, "avg_pool2d_grad", [&]<class T> {
    launch_average<T>(context, geometry, options.layout, true, [&]<int pack, class Index> {
      return AvgPoolGrad<T, pack, Index>{context.input(0).as<const T>(), context.output(0).as<T>(),
                                         counts_of(options)};
    });
  });
}

// ---- global: one channel_reduce

template <class T>
struct MeanTerms {
  using C = compute_type<T>;
  template <int pack, bool one_sum>
  static constexpr int kInFlight = one_sum && sizeof(T) == 2 ? 4 : 8;
  template <int pack>
  using Loaded = cuda::Pack<T, pack>;
  struct Nothing {};

  const T* x;

  MeanTerms at(int64_t element, int64_t) const { return {x + element}; }
  template <int pack>
  __device__ __forceinline__ Loaded<pack> load(uint32_t i) const {
    return reinterpret_cast<const Loaded<pack>*>(x)[i];
  }
  template <int pack>
  __device__ __forceinline__ Loaded<pack> load_some(uint32_t i, int from, int to) const {
    Loaded<pack> loaded = {};
#pragma unroll
    for (int e = 0; e < pack; ++e) {
      if (e >= from && e < to) loaded.values[e] = x[int64_t{i} * pack + e];
    }
    return loaded;
  }
  template <int pack, class Channels>
  __device__ __forceinline__ Nothing parameters(const Channels&) const {
    return {};
  }
  template <int pack, int n>
  __device__ __forceinline__ void add(const Loaded<pack>& loaded, Nothing, uint32_t, int from, int to,
                                      C (&sums)[n]) const {
#pragma unroll
    for (int e = 0; e < pack; ++e) {
      const bool counts = n == pack || (e >= from && e < to);
      sums[e % n] += counts ? cuda::load_as_compute(loaded.values[e]) : C{0};
    }
  }
};

template <class T>
struct StoreMean {
  T* means;
  double pixels;

  __device__ void operator()(int64_t i, compute_type<T> sum) const {
    means[i] = cuda::round_to<T>(static_cast<double>(sum) / pixels);
  }
};

/// NCHW is one row of planes, NHWC a matrix of pixels and channels for each image.
ChannelReduction means_of(const Shape& x, Layout layout, DType dtype, int device) {
  const auto element = static_cast<int64_t>(size_of(dtype));
  const cuda::DeviceTraits& traits = cuda::device_traits(device);
  if (layout == Layout::kNCHW) return {{1, {1, x[0] * x[1], x[2] * x[3]}}, element, traits};
  return {{x[0], {x[1] * x[2], x[3], 1}}, element, traits};
}

size_t global_avg_pool_workspace(const KernelQuery& query) {
  const TensorSpec& x = query.input(0);
  return means_of(x.shape, query.attributes<GlobalPoolOptions>().layout, x.dtype, x.device.index)
      .table_bytes(size_of(accumulate_dtype(x.dtype)));
}

void run_global_avg_pool(const KernelContext& context) {
  const TensorView& x = context.input(0);
  const ChannelReduction of = means_of(x.shape, context.attributes<GlobalPoolOptions>().layout, x.dtype,
                                       context.stream().device.index);
  dispatch_float(x.dtype, "global_avg_pool2d", [&]<class T> {
    channel_reduce<T>(
        context.stream(), of, cuda::is_aligned(x.data, 16), MeanTerms<T>{x.as<const T>()},
        context.workspace<compute_type<T>>(),
        StoreMean<T>{context.output(0).as<T>(), static_cast<double>(of.shape.view.per_channel())});
  });
}

constexpr unsigned kThreads = 256;

/// Packs of a thread, a block apart: their loads are on the way together.
constexpr int kSpreadPacks = 4;

/// dx (groups, pixels, inner) from the means of dy (groups, inner). `vectors`: a pack lies in one pixel.
template <int pack, bool vectors, class T>
__global__ void __launch_bounds__(kThreads)
    spread_kernel(int64_t count, cuda::WideDivide by_inner, cuda::WideDivide by_pixels, int64_t pixels,
                  int64_t inner, compute_type<T> share, const T* dy, T* dx) {
  const int64_t first = int64_t{blockIdx.x} * kThreads * kSpreadPacks + threadIdx.x;
  cuda::Pack<T, pack> slopes[kSpreadPacks] = {};
#pragma unroll
  for (int k = 0; k < kSpreadPacks; ++k) {
    const int64_t element = (first + int64_t{k} * kThreads) * pack;
    if (element >= count) break;
    int64_t channel, pixel;
    int64_t group = by_pixels.divide(by_inner.divide(element, channel), pixel);
    if constexpr (vectors) {
      slopes[k] = *reinterpret_cast<const cuda::Pack<T, pack>*>(dy + group * inner + channel);
    } else {
      T slope = dy[group * inner + channel];
#pragma unroll
      for (int e = 0; e < pack; ++e) {
        if (element + e >= count) break;
        slopes[k].values[e] = slope;
        if (++channel == inner) {
          channel = 0;
          if (++pixel == pixels) pixel = 0, ++group;
        }
        if ((inner > 1 || pixel == 0) && element + e + 1 < count) slope = dy[group * inner + channel];
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kSpreadPacks; ++k) {
    const int64_t element = (first + int64_t{k} * kThreads) * pack;
    if (element >= count) break;
#pragma unroll
    for (int e = 0; e < pack; ++e) {
      slopes[k].values[e] = cuda::round_to<T>(cuda::load_as_compute(slopes[k].values[e]) * share);
    }
    if (vectors || element + pack <= count) {
      *reinterpret_cast<cuda::Pack<T, pack>*>(dx + element) = slopes[k];
    } else {
      for (int e = 0; element + e < count; ++e) dx[element + e] = slopes[k].values[e];
    }
  }
}

void run_global_avg_pool_grad(const KernelContext& context) {
  const auto& options = context.attributes<GlobalPoolOptions>();
  const TensorView &dy = context.input(0), &dx = context.output(0);
  const int64_t count = dx.numel(), pixels = options.height * options.width;
  const int64_t inner = options.layout == Layout::kNCHW ? 1 : dy.shape[1];
  if (count == 0) return;
  dispatch_float(dy.dtype, "global_avg_pool2d_grad", [&]<class T> {
    const auto run = [&]<int pack, bool vectors>() {
      const int64_t packs = cuda::blocks_for(count, pack);
      cuda::launch(context.stream(), cuda::grid_stride_shape(packs, kSpreadPacks * kThreads, kThreads),
                   spread_kernel<pack, vectors, T>, count, cuda::WideDivide(inner), cuda::WideDivide(pixels),
                   pixels, inner, compute_type<T>{1} / static_cast<compute_type<T>>(pixels), dy.as<const T>(),
                   dx.as<T>());
    };
    constexpr int widest = cuda::kPackSize<T>;
    if (!cuda::is_aligned(dx.data, 16)) return run.template operator()<1, false>();
    if (inner % widest == 0 && cuda::is_aligned(dy.data, 16)) return run.template operator()<widest, true>();
    run.template operator()<widest, false>();
  });
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
