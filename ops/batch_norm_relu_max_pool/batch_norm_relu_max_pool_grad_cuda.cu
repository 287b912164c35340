// The gradient of batch_norm_relu_max_pool on a GPU. With the usual windows every pooled element adds to the
// sums what it got from the pixel that its index names; max-pooling's own gradient writes what comes in to
// dx, and the last pass of ops/norm reads it there and puts dx in its place. With other windows both passes
// gather it from the windows that hold an element: each element asks the windows, so that no two threads
// write to one place and sums have a fixed order.
#include <algorithm>

#include <sinter/ops/batch_norm_relu_max_pool/batch_norm_relu_max_pool_call.h>
#include <sinter/ops/batch_norm_relu_max_pool/batch_norm_relu_max_pool_cuda.h>
#include <sinter/ops/norm/cuda/norm_backward_terms_cuda.h>
#include <sinter/ops/norm/cuda/norm_maps_cuda.h>
#include <sinter/ops/norm/cuda/norm_sums_cuda.h>
#include <sinter/ops/pool/max_pool_strips_cuda.h>
#include <sinter/ops/pool/pool_math.h>

namespace sinter::ops {
namespace {

/// Images and the windows over them. NCHW is NHWC with every plane an image of one channel. Extents are below
/// kMostPooledExtent; offsets may be of any size.
struct WindowMap {
  BasicPoolAxis<int> y, x;
  cuda::FastDivide by_y_stride, by_x_stride;
  int64_t depth;
  cuda::WideDivide by_depth, by_width, by_height;

  WindowMap(const PoolGeometry& geometry, Layout layout)
      : y(narrow(geometry.y)),
        x(narrow(geometry.x)),
        by_y_stride(static_cast<uint32_t>(geometry.y.stride)),
        by_x_stride(static_cast<uint32_t>(geometry.x.stride)),
        depth(layout == Layout::kNHWC ? std::max<int64_t>(geometry.channels, 1) : 1),
        by_depth(depth),
        by_width(geometry.x.extent),
        by_height(geometry.y.extent) {}

  /// Where an element lies.
  struct Place {
    int64_t image, channel;
    int row, column;
  };
  __device__ Place place_of(int64_t offset) const {
    Place place;
    int64_t row, column;
    const int64_t pixel = by_depth.divide(offset, place.channel);
    place.image = by_height.divide(by_width.divide(pixel, column), row);
    place.row = static_cast<int>(row);
    place.column = static_cast<int>(column);
    return place;
  }
  /// The windows that hold a row or a column of the image.
  __device__ auto rows_of(const Place& place) const { return y.windows(place.row, By{by_y_stride}); }
  __device__ auto columns_of(const Place& place) const { return x.windows(place.column, By{by_x_stride}); }
  /// The element of the pooled images.
  __device__ int64_t pooled(const Place& place, int row, int column) const {
    return ((place.image * y.out + row) * x.out + column) * depth + place.channel;
  }
  /// Where the element lies in a window that holds it.
  __device__ int place_in(const Place& place, int row, int column) const {
    return (place.row - y.start(row)) * x.kernel + place.column - x.start(column);
  }

 private:
  struct By {
    const cuda::FastDivide& stride;
    __device__ int divide(int n) const { return static_cast<int>(stride.divide(static_cast<uint32_t>(n))); }
  };
  static BasicPoolAxis<int> narrow(const PoolAxis& axis) {
    const auto to_int = [](int64_t value) { return static_cast<int>(value); };
    return {.extent = to_int(axis.extent),
            .kernel = to_int(axis.kernel),
            .stride = to_int(axis.stride),
            .padding = to_int(axis.padding),
            .padding_after = to_int(axis.padding_after),
            .dilation = 1,
            .span = to_int(axis.kernel),
            .out = to_int(axis.out)};
  }
};

constexpr int kMost = 2;  // windows that hold an element along an axis, where all are asked at once

/// The gradient of what was pooled, gathered. `together`: under NHWC, in packs of channels of one pixel,
/// which at most 2 x 2 windows hold. All their reads are on the way before the first is looked at.
template <class T, bool together>
struct GatheredSlopes {
  using C = compute_type<T>;
  static constexpr int kMapGroups = 1;

  template <int pack>
  struct Windows {
    cuda::Pack<T, pack> dy[kMost * kMost];
    cuda::Pack<uint8_t, pack> indices[kMost * kMost];
    int places[kMost * kMost];
  };
  template <int pack>
  struct Sums {
    C values[pack];
  };
  template <int pack>
  using Loaded = std::conditional_t<together, Windows<pack>, Sums<pack>>;

  const T* dy;
  const uint8_t* indices;
  WindowMap map;

  /// Of the pack at element `offset`; only the first `valid` elements are there, all of them if `whole`.
  template <int pack, bool whole>
  __device__ Loaded<pack> load(int64_t offset, int valid) const {
    Loaded<pack> result;
    if constexpr (together) {
      const auto place = map.place_of(offset);
      const auto rows = map.rows_of(place), columns = map.columns_of(place);
#pragma unroll
      for (int i = 0; i < kMost * kMost; ++i) {
        const int row = rows.begin + i / kMost, column = columns.begin + i % kMost;
        // No index is that. The rest must have values too: compilers draw their own conclusions from what has
        // none.
        result.places[i] = -1;
        result.dy[i] = {};
        result.indices[i] = {};
        if (row < rows.end && column < columns.end) {
          const int64_t at = map.pooled(place, row, column);
          result.dy[i] = *reinterpret_cast<const cuda::Pack<T, pack>*>(dy + at);
          result.indices[i] = *reinterpret_cast<const cuda::Pack<uint8_t, pack>*>(indices + at);
          result.places[i] = map.place_in(place, row, column);
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < pack; ++i) result.values[i] = i < valid ? gather(offset + i) : C{0};
    }
    return result;
  }

  template <int pack>
  __device__ C at(const Loaded<pack>& loaded, int lane) const {
    if constexpr (together) {
      C sum = 0;
#pragma unroll
      for (int i = 0; i < kMost * kMost; ++i) {
        const bool is_here = static_cast<int>(loaded.indices[i].values[lane]) == loaded.places[i];
        sum += is_here ? cuda::load_as_compute(loaded.dy[i].values[lane]) : C{0};
      }
      return sum;
    } else {
      return loaded.values[lane];
    }
  }

 private:
  __device__ C gather(int64_t offset) const {
    const auto place = map.place_of(offset);
    const auto rows = map.rows_of(place), columns = map.columns_of(place);
    C sum = 0;
    for (int row = rows.begin; row < rows.end; ++row) {
      for (int column = columns.begin; column < columns.end; ++column) {
        const int64_t at = map.pooled(place, row, column);
        if (static_cast<int>(indices[at]) == map.place_in(place, row, column)) {
          sum += cuda::load_as_compute(dy[at]);
        }
      }
    }
    return sum;
  }
};

/// The gradient of what was pooled, read from where it was put before.
template <class T>
struct StoredSlopes {
  using C = compute_type<T>;
  static constexpr int kMapGroups = 2;  // as in the gradient of a batch norm by itself
  template <int pack>
  using Loaded = cuda::Pack<T, pack>;

  const T* dz;  // the memory of dx: each thread reads its elements before it stores them

  template <int pack, bool whole>
  __device__ Loaded<pack> load(int64_t offset, int valid) const {
    return load_pack<pack, whole>(dz, offset, valid);
  }
  template <int pack>
  __device__ C at(const Loaded<pack>& loaded, int lane) const {
    return cuda::load_as_compute(loaded.values[lane]);
  }
};

/// The sums of dz and of dz * (x - mean), from the pooled side: each element of dy goes to one x, or to none.
template <class T>
struct PickedTerms {
  using C = compute_type<T>;
  using Parameter = C;
  static constexpr int kValues = 2, kTensors = 1, kBlocks = 0;
  template <int pack>
  struct Loaded {
    cuda::Pack<T, pack> dy, x;
  };

  const T* dy;
  const uint8_t* indices;
  const T* x;
  const C* mean;
  BasicPoolAxis<int> rows, columns;
  cuda::FastDivide by_kernel;  // by the columns of a window
  int64_t depth;
  cuda::WideDivide by_depth, by_width, by_height;  // of the pooled images

  __device__ C parameter(int64_t channel) const { return mean[channel]; }
  template <int pack>
  __device__ void neighbours(int64_t channel, C (&means)[pack]) const {
    const auto loaded = load_neighbours<pack>(mean + channel);
#pragma unroll
    for (int i = 0; i < pack; ++i) means[i] = loaded.values[i];
  }
  __device__ void prefetch(int64_t offset) const {
    detail::prefetch(dy + offset);
  }
  /// A pack lies in one pixel, or all images have one channel.
  template <int pack>
  __device__ Loaded<pack> load(int64_t offset) const {
    Loaded<pack> result{load_pack<pack>(dy, offset), {}};
    int64_t channel, column, row;
    int64_t image = by_height.divide(by_width.divide(by_depth.divide(offset, channel), column), row);
#pragma unroll
    for (int i = 0; i < pack; ++i) {
      const auto picked =
          pixel_of(indices[offset + i], image, static_cast<int>(row), static_cast<int>(column));
      if (picked >= 0) {
        result.x.values[i] = x[picked + channel];
      } else {
        result.dy.values[i] = T{};
      }
      if (depth > 1) {
        ++channel;
      } else if (++column == columns.out) {
        column = 0;
        if (++row == rows.out) {
          row = 0;
          ++image;
        }
      }
    }
    return result;
  }
  template <int pack>
  __device__ void add(int64_t, const Loaded<pack>& loaded, const C (&means)[pack], C (&sums)[2][pack]) const {
#pragma unroll
    for (int i = 0; i < pack; ++i) {
      const C dz = cuda::load_as_compute(loaded.dy.values[i]);
      sums[0][i] += dz;
      sums[1][i] += dz * (cuda::load_as_compute(loaded.x.values[i]) - means[i]);
    }
  }

 private:
  /// Where the pixel begins that `index` names in a window; -1: there is none.
  __device__ int64_t pixel_of(uint8_t index, int64_t image, int row, int column) const {
    uint32_t across = 0;
    const int down = static_cast<int>(by_kernel.divide(index, across));
    const int y = rows.start(row) + down, at = columns.start(column) + static_cast<int>(across);
    const bool is_pixel = down < rows.kernel && y >= 0 && y < rows.extent && at >= 0 && at < columns.extent;
    return is_pixel ? ((image * rows.extent + y) * columns.extent + at) * depth : int64_t{-1};
  }
};

/// The sums of dz and of dz * (x - mean), over all of x.
template <class T, class Slopes>
struct PooledTerms {
  using C = compute_type<T>;
  using Parameter = C;
  static constexpr int kValues = 2, kTensors = 1, kBlocks = 0;
  template <int pack>
  struct Loaded {
    typename Slopes::template Loaded<pack> slopes;
    cuda::Pack<T, pack> x;
  };

  Slopes slopes;
  const T* x;
  const C* mean;

  __device__ C parameter(int64_t channel) const { return mean[channel]; }
  template <int pack>
  __device__ void neighbours(int64_t channel, C (&means)[pack]) const {
    const auto loaded = load_neighbours<pack>(mean + channel);
#pragma unroll
    for (int i = 0; i < pack; ++i) means[i] = loaded.values[i];
  }
  __device__ void prefetch(int64_t offset) const {
    detail::prefetch(x + offset);
  }
  template <int pack>
  __device__ Loaded<pack> load(int64_t offset) const {
    return {slopes.template load<pack, true>(offset, pack), load_pack<pack>(x, offset)};
  }
  template <int pack>
  __device__ void add(int64_t, const Loaded<pack>& loaded, const C (&means)[pack], C (&sums)[2][pack]) const {
#pragma unroll
    for (int i = 0; i < pack; ++i) {
      const C dz = slopes.template at<pack>(loaded.slopes, i);
      sums[0][i] += dz;
      sums[1][i] += dz * (cuda::load_as_compute(loaded.x.values[i]) - means[i]);
    }
  }
};

/// dx.
template <class T, class Slopes>
struct PooledGradientMap {
  using C = compute_type<T>;
  static constexpr int kBlocks = 0;
  using Channels = MapParameters<NormalizeGrad<C>, C, false, false>;
  using Parameter = typename Channels::Parameter;
  template <int pack>
  struct Loaded {
    typename Slopes::template Loaded<pack> slopes;
    cuda::Pack<T, pack> x;
  };

  Slopes slopes;
  const T* x;
  T* dx;
  Channels channels;

  template <int pack, bool whole>
  __device__ Loaded<pack> load(int64_t offset, int valid) const {
    return {slopes.template load<pack, whole>(offset, valid), load_pack<pack, whole>(x, offset, valid)};
  }
  template <bool whole, int pack>
  __device__ void apply(int64_t offset, int valid, const Parameter (&parameters)[pack],
                        const Loaded<pack>& loaded) const {
    cuda::Pack<T, pack> out;
#pragma unroll
    for (int i = 0; i < pack; ++i) {
      const C dz = slopes.template at<pack>(loaded.slopes, i);
      out.values[i] = cuda::round_to<T>(parameters[i].main(cuda::load_as_compute(loaded.x.values[i]), dz));
    }
    store_pack<pack, whole>(dx, offset, out, valid);
  }
};

template <class C>
struct FinishPooled {
  ChannelGradient<C> gradient;
  double count;

  using Known = typename ChannelGradient<C>::Known;
  __device__ Known known(int, int64_t c) const { return gradient.known(c); }
  __device__ void operator()(int, int64_t c, const Known& known, const double* sums) const {
    gradient.finish(c, known, count, /*constant=*/false, sums[0], sums[1]);
  }
};

/// Workspace: the map's parameters, then the table of the sums, which go over `summed`. `wide`: all pointers
/// allow accesses of whole packs, `sums_wide`: those that the sums read by packs.
template <class T, int sum_packs, class Terms, class Slopes>
void backward(const NormGradCall& call, const ChannelView& summed, const Terms& terms, bool sums_wide,
              const Slopes& slopes, bool wide, const Stream& stream, void* workspace) {
  using C = compute_type<T>;
  NormScratch scratch(workspace);
  auto* parameters = scratch.take<NormalizeGrad<C>>(call.view.channels);
  auto* table = static_cast<C*>(scratch.rest());
  const NormPlan plan =
      plan_norm_sums(simplified_norm_view(summed), sums_wide ? kNormPack<T> : 1,
                     sums_wide ? NormPlan::kGroup : 1, norm_blocks(stream.device.index, kGradientBlocks));
  sum_channels<T, sum_packs, sum_packs, NormPlan::kGroup>(stream, plan, terms, table);
  const FinishPooled<C> finish{.gradient = {source_of<C>(call.main), pointer_or_null<C>(call.main.dweight),
                                            pointer_or_null<C>(call.main.dbias), parameters},
                               .count = static_cast<double>(call.view.per_channel())};
  finish_channels<2>(stream, plan, static_cast<const C*>(table), finish);
  const PooledGradientMap<T, Slopes> map{
      slopes, call.main.x.as<const T>(), call.main.dx.as<T>(), {parameters, nullptr, nullptr, 0}};
  map_channels_of<T, Slopes::kMapGroups, 1, NormPlan::kGroup>(stream, simplified_norm_view(call.view), wide,
                                                              map);
}

/// Both passes gather. One pack in flight is up to five reads of 16 bytes; with two there would be registers
/// for one block only.
template <class T, bool together>
void backward_gathered(const NormGradCall& call, const GatheredSlopes<T, together>& slopes, bool wide,
                       const Stream& stream, void* workspace) {
  using C = compute_type<T>;
  const PooledTerms<T, GatheredSlopes<T, together>> terms{slopes, call.main.x.as<const T>(),
                                                          call.main.mean.as<const C>()};
  backward<T, 1>(call, call.view, terms, wide, slopes, wide, stream, workspace);
}

/// Puts the gradient of what was pooled into dx. False if there is no kernel for these windows: nothing was
/// launched. Indices of kNoPlace name no place in those windows.
template <class T>
bool try_unpool(const PoolGeometry& geometry, Layout layout, const T* dy, const uint8_t* indices, T* dx,
                const Stream& stream) {
  constexpr int pack = cuda::kPackSize<T>;
  if (layout == Layout::kNHWC && geometry.channels % pack == 0 && cuda::is_aligned(dy, 16) &&
      cuda::is_aligned(dx, 16) && cuda::is_aligned(indices, pack)) {
    return try_max_pool_grad_strips<pack>(stream, geometry, layout, dy, indices, dx);
  }
  return try_max_pool_grad_strips<1>(stream, geometry, layout, dy, indices, dx);
}

/// What was pooled lies in dx; the sums are taken from the pooled side, where nothing has been rounded.
template <class T>
void backward_picked(const NormGradCall& call, const PoolGeometry& geometry, Layout layout, const T* dy,
                     const uint8_t* indices, const WindowMap& windows, bool wide, const Stream& stream,
                     void* workspace) {
  using C = compute_type<T>;
  const T* dx = call.main.dx.as<T>();
  const PickedTerms<T> terms{.dy = dy,
                             .indices = indices,
                             .x = call.main.x.as<const T>(),
                             .mean = call.main.mean.as<const C>(),
                             .rows = windows.y,
                             .columns = windows.x,
                             .by_kernel = cuda::FastDivide(static_cast<uint32_t>(geometry.x.kernel)),
                             .depth = windows.depth,
                             .by_depth = windows.by_depth,
                             .by_width = cuda::WideDivide(geometry.x.out),
                             .by_height = cuda::WideDivide(geometry.y.out)};
  const bool sums_wide = allows_packs<T>({dy, call.main.mean.as<const void>()});
  const ChannelView pooled = norm_view(geometry.output_shape(layout), layout);
  backward<T, 1>(call, pooled, terms, sums_wide, StoredSlopes<T>{dx}, wide, stream, workspace);
}

template <class T>
void backward(const NormGradCall& call, const PoolGeometry& geometry, Layout layout, const T* dy,
              const uint8_t* indices, const Stream& stream, void* workspace) {
  if (call.view.channels == 0) return;
  const WindowMap windows(geometry, layout);
  const bool wide =
      allows_packs<T>({call.main.x.as<const T>(), call.main.dx.as<T>(), call.main.mean.as<const void>()});
  if (try_unpool<T>(geometry, layout, dy, indices, call.main.dx.as<T>(), stream)) {
    return backward_picked<T>(call, geometry, layout, dy, indices, windows, wide, stream, workspace);
  }
  if constexpr (sizeof(T) < sizeof(double)) {
    const auto is_shallow = [](const PoolAxis& axis) { return axis.kernel <= 2 * axis.stride; };
    if (layout == Layout::kNHWC && wide && call.view.channels % NormPlan::kGroup == 0 &&
        allows_packs<T>({dy}) && cuda::is_aligned(indices, NormPlan::kGroup) && is_shallow(geometry.y) &&
        is_shallow(geometry.x)) {
      return backward_gathered<T, true>(call, {dy, indices, windows}, wide, stream, workspace);
    }
  }
  backward_gathered<T, false>(call, {dy, indices, windows}, wide, stream, workspace);
}

}  // namespace

size_t norm_pool_grad_cuda_bytes(const KernelQuery& query) {
  const auto& options = query.attributes<BatchNormReluMaxPoolGradOptions>();
  const TensorSpec& x = query.input(NormPoolGradInput::kX);
  const ChannelView view = norm_view(x.shape, options.pool.layout);
  const size_t parameter =
      x.dtype == DType::kFloat64 ? sizeof(NormalizeGrad<double>) : sizeof(NormalizeGrad<float>);
  const ChannelView pooled = norm_view(query.input(NormPoolGradInput::kDy).shape, options.pool.layout);
  const auto table = [&](const ChannelView& summed) {
    return norm_table_bytes(summed, x.dtype, x.device.index, kGradientBlocks, 2);
  };
  return NormScratch::bytes(static_cast<size_t>(view.channels) * parameter) +
         std::max(table(view), table(pooled));
}

void run_norm_pool_grad_cuda(const KernelContext& context) {
  using In = NormPoolGradInput;
  const auto& options = context.attributes<BatchNormReluMaxPoolGradOptions>();
  const NormGradCall call = norm_pool_grad_call(context);
  const PoolGeometry geometry =
      pool_geometry(call.main.x.shape, options.pool, "batch_norm_relu_max_pool_grad");
  dispatch_float(call.main.x.dtype, "batch_norm_relu_max_pool_grad", [&]<class T> {
    backward<T>(call, geometry, options.pool.layout, context.input(In::kDy).as<const T>(),
                context.input(In::kIndices).as<const uint8_t>(), context.stream(), context.workspace());
  });
}

}  // namespace sinter::ops
