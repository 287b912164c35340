// batch_norm_relu_max_pool on a GPU: the statistics of ops/norm, then one pass that normalises and pools.
//
// Under NHWC, with the usual windows, a thread has a pack of neighbouring channels and one column of outputs,
// and walks down a strip of rows: what the windows of two rows share is normalised once, and its maxima stay
// in registers. Neighbouring threads read neighbouring channels and columns at the same time, so that columns
// that two windows share come out of the L1 cache. NCHW takes the strips of max-pooling itself, which
// normalise what they read. Other windows take a thread for each output.
#include <limits>

#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/core/cuda/device/launch_early.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/batch_norm_relu_max_pool/batch_norm_relu_max_pool_call.h>
#include <sinter/ops/batch_norm_relu_max_pool/batch_norm_relu_max_pool_cuda.h>
#include <sinter/ops/norm/cuda/norm_packs_cuda.h>
#include <sinter/ops/norm/cuda/norm_scratch_cuda.h>
#include <sinter/ops/norm/cuda/norm_statistics_cuda.h>
#include <sinter/ops/norm/norm_math.h>
#include <sinter/ops/pool/max_pool_strips_cuda.h>
#include <sinter/ops/pool/pool_cuda.h>

namespace sinter::ops {
namespace {

/// The largest so far of `pack` windows that lie at the same pixels of neighbouring channels.
template <class C, int pack>
struct PackBest {
  C values[pack];
  int places[pack];

  __device__ void start() {
#pragma unroll
    for (int lane = 0; lane < pack; ++lane) {
      values[lane] = -std::numeric_limits<C>::infinity();
      places[lane] = 0;
    }
  }
  __device__ void take(int lane, C value, int place) {
    const bool takes = pool_takes(value, values[lane]);
    values[lane] = takes ? value : values[lane];
    places[lane] = takes ? place : places[lane];
  }
};

/// Where a pass writes.
template <class T>
struct PooledOutput {
  T* y;
  uint8_t* indices;  // null: not wanted

  /// Stores the activation of the maxima from element `out` on, which allows accesses of whole packs.
  template <int pack>
  __device__ void store(int64_t out, const PackBest<compute_type<T>, pack>& best) const {
    using C = compute_type<T>;
    cuda::Pack<T, pack> result;
    cuda::Pack<uint8_t, pack> places;
#pragma unroll
    for (int lane = 0; lane < pack; ++lane) {
      const bool on = passes<Activation::kRelu>(best.values[lane]);
      result.values[lane] = cuda::round_to<T>(on ? best.values[lane] : C{0});
      places.values[lane] = static_cast<uint8_t>(on ? best.places[lane] : int{kNoPlace});
    }
    *reinterpret_cast<cuda::Pack<T, pack>*>(y + out) = result;
    if (indices != nullptr) *reinterpret_cast<cuda::Pack<uint8_t, pack>*>(indices + out) = places;
  }
};

/// NHWC with `kernel` x `kernel` windows: a thread makes one column of a strip of outputs.
template <int kernel, int stride, int pack, class T>
__global__ void __launch_bounds__(detail::kStripThreads)
    norm_pool_strips_kernel(detail::PoolStrips strips, const T* x,
                            const Normalize<compute_type<T>>* parameters, PooledOutput<T> output) {
  using C = compute_type<T>;
  constexpr int shared = kernel > stride ? kernel - stride : 0;  // rows of a window that the next one has too
  cuda::let_next_begin();
  const int64_t thread = int64_t{blockIdx.x} * detail::kStripThreads + threadIdx.x;
  if (thread >= strips.threads) return;
  const detail::StripPlace place(strips, thread, pack);
  const int column = place.column * stride - strips.padding_x;
  const unsigned inside = detail::inside_mask<kernel>(column, strips.width);
  const int64_t row_size = int64_t{strips.width} * strips.depth;
  int row = place.first_row * stride - strips.padding_y;  // the next to be read
  int64_t from =
      (place.image * strips.height + row) * row_size + int64_t{column} * strips.depth + place.channel;
  const int64_t out_row_size = int64_t{strips.out_width} * strips.depth;
  int64_t out = (place.image * strips.out_height + place.first_row) * out_row_size +
                int64_t{place.column} * strips.depth + place.channel;
  cuda::wait_for_previous();
  const auto normalize = load_neighbours<pack>(parameters + place.channel);

  PackBest<C, pack> rows[kernel];
  const auto read_row = [&](PackBest<C, pack>& best) {
    const unsigned mask = row >= 0 && row < strips.height ? inside : 0u;
    cuda::Pack<T, pack> elements[kernel];
#pragma unroll
    for (int j = 0; j < kernel; ++j) {
      if ((mask >> j & 1u) != 0) elements[j] = load_pack<pack>(x, from + int64_t{j} * strips.depth);
    }
    best.start();
#pragma unroll
    for (int j = 0; j < kernel; ++j) {
      if ((mask >> j & 1u) == 0) continue;
#pragma unroll
      for (int lane = 0; lane < pack; ++lane) {
        best.take(lane, normalize.values[lane](cuda::load_as_compute(elements[j].values[lane])), j);
      }
    }
    ++row;
    from += row_size;
  };
#pragma unroll
  for (int i = 0; i < shared; ++i) read_row(rows[stride + i]);
#pragma unroll 1
  for (int step = place.first_row; step < place.last_row; ++step) {
#pragma unroll
    for (int i = 0; i < shared; ++i) rows[i] = rows[stride + i];
#pragma unroll
    for (int i = shared; i < kernel; ++i) read_row(rows[i]);
    PackBest<C, pack> best;
    best.start();
#pragma unroll
    for (int i = 0; i < kernel; ++i) {
#pragma unroll
      for (int lane = 0; lane < pack; ++lane) {
        best.take(lane, rows[i].values[lane], i * kernel + rows[i].places[lane]);
      }
    }
    output.store(out, best);
    out += out_row_size;
  }
}

/// What is pooled in NCHW, for max_pool_strips_kernel: planes, each with the parameters of its channel.
template <class C>
struct NormalizedPlanes {
  const Normalize<C>* parameters;
  cuda::WideDivide by_channels;

  __device__ Normalize<C> of(int64_t plane) const {
    int64_t channel = 0;
    by_channels.divide(plane, channel);
    return parameters[channel];
  }
  __device__ void finish(C& value, int& place) const {
    const bool on = passes<Activation::kRelu>(value);
    value = on ? value : C{0};
    place = on ? place : int{kNoPlace};
  }
};

/// A pack of outputs by itself, for launch_pool.
template <class T, int pack, class Index>
struct NormMaxPool {
  using C = compute_type<T>;
  using I = std::make_signed_t<Index>;

  const T* x;
  const Normalize<C>* parameters;
  PooledOutput<T> output;
  IndexDivide<Index> by_planes;  // divides by the planes of an image: 1 under NHWC

  __device__ void operator()(const PoolImages<Index>& images, I n, I oy, I ox, I channel, I out) const {
    const auto rows = images.y.inside(oy), columns = images.x.inside(ox);
    Index plane;
    by_planes.divide(static_cast<Index>(n), plane);
    Normalize<C> normalize[pack];
#pragma unroll
    for (int lane = 0; lane < pack; ++lane) {
      normalize[lane] = parameters[static_cast<int64_t>(plane) + channel + lane];
    }
    PackBest<C, pack> best;
    best.start();
    for (I row = rows.begin; row < rows.end; ++row) {
      const I row_place = (row - images.y.start(oy)) * images.x.kernel - images.x.start(ox);
      for (I column = columns.begin; column < columns.end; ++column) {
        const auto elements = load_pack<pack>(x, images.image(n, row, column, channel));
        const int place = static_cast<int>(row_place + column);
#pragma unroll
        for (int lane = 0; lane < pack; ++lane) {
          best.take(lane, normalize[lane](cuda::load_as_compute(elements.values[lane])), place);
        }
      }
    }
    output.store(out, best);
  }
};

/// False if there is no kernel for these windows: nothing was launched.
template <int kernel, int stride, class T>
bool try_strips(const Stream& stream, const PoolGeometry& geometry, const T* x,
                const Normalize<compute_type<T>>* parameters, const PooledOutput<T>& output) {
  constexpr int pack = kNormPack<T>;
  if (!detail::has_windows(geometry, kernel, stride)) return false;
  const detail::PoolStrips strips =
      detail::plan_strips(geometry, Layout::kNHWC, geometry.y.out, geometry.x.out, pack);
  if (strips.threads == 0) return false;
  cuda::launch_early(stream, detail::strips_shape(strips), norm_pool_strips_kernel<kernel, stride, pack, T>,
                     strips, x, parameters, output);
  return true;
}

/// Workspace: what normalises the channels, then the table of the sums.
template <class T>
void forward(const NormCall& call, const PoolGeometry& geometry, Layout layout, uint8_t* indices,
             const Stream& stream, void* workspace) {
  using C = compute_type<T>;
  const int64_t channels = call.view.channels;
  if (channels == 0) return;
  NormScratch scratch(workspace);
  auto* parameters = scratch.take<Normalize<C>>(channels);
  find_statistics<T>(call, call.main, stream, parameters, scratch.rest());
  if (call.view.numel() == 0) return;
  const T* x = call.main.x.as<const T>();
  const PooledOutput<T> output{call.y.as<T>(), indices};
  constexpr int widest = kNormPack<T>;
  const bool wide = allows_packs<T>({x, output.y}) && cuda::is_aligned(indices, widest);
  if constexpr (widest > 1) {
    if (layout == Layout::kNHWC && wide && channels % widest == 0) {
      if (try_strips<3, 2>(stream, geometry, x, parameters, output) ||
          try_strips<2, 2>(stream, geometry, x, parameters, output) ||
          try_strips<3, 1>(stream, geometry, x, parameters, output)) {
        return;
      }
    }
  }
  if (layout == Layout::kNCHW &&
      try_max_pool_strips(stream, geometry, x, output.y, indices,
                          NormalizedPlanes<C>{parameters, cuda::WideDivide(channels)})) {
    return;
  }
  const int64_t planes = layout == Layout::kNCHW ? channels : 1;
  launch_pool<widest>(stream, geometry, layout, /*over_images=*/false, wide, [=]<int pack, class Index> {
    return NormMaxPool<T, pack, Index>{x, parameters, output, IndexDivide<Index>(planes)};
  });
}

size_t forward_bytes(const KernelQuery& query) {
  const auto& options = query.attributes<BatchNormReluMaxPoolOptions>();
  const TensorSpec& x = query.input(NormPoolInput::kX);
  const ChannelView view = norm_view(x.shape, options.layout);
  const size_t parameter = x.dtype == DType::kFloat64 ? sizeof(Normalize<double>) : sizeof(Normalize<float>);
  return NormScratch::bytes(static_cast<size_t>(view.channels) * parameter) +
         norm_table_bytes(view, x.dtype, x.device.index, kStatisticsBlocks, 2);
}

void run_forward(const KernelContext& context) {
  const auto& options = context.attributes<BatchNormReluMaxPoolOptions>();
  const NormCall call = norm_pool_call(context);
  const PoolGeometry geometry = pool_geometry(call.main.x.shape, options.pool(), "batch_norm_relu_max_pool");
  uint8_t* indices = options.save_indices ? context.output(NormPoolOutput::kIndices).as<uint8_t>() : nullptr;
  dispatch_float(call.main.x.dtype, "batch_norm_relu_max_pool", [&]<class T> {
    forward<T>(call, geometry, options.layout, indices, context.stream(), context.workspace());
  });
}

}  // namespace

void register_batch_norm_relu_max_pool_cuda(OpRegistry& registry);
void register_batch_norm_relu_max_pool_cuda(OpRegistry& registry) {
  registry.add_kernel("batch_norm_relu_max_pool",
                      {.device = DeviceType::kCuda, .workspace_bytes = forward_bytes, .run = run_forward});
  registry.add_kernel("batch_norm_relu_max_pool_grad", {.device = DeviceType::kCuda,
                                                        .workspace_bytes = norm_pool_grad_cuda_bytes,
                                                        .run = run_norm_pool_grad_cuda});
}

}  // namespace sinter::ops
