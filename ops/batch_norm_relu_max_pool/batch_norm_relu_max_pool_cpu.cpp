// batch_norm_relu_max_pool on the CPU: statistics, then one pass that normalises and pools. Its gradient:
// that of the pooling, in dx's own memory where its dtype allows, then sums by channel and a pass over that.
#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

#include <sinter/core/op/registry.h>
#include <sinter/ops/batch_norm_relu_max_pool/batch_norm_relu_max_pool_call.h>
#include <sinter/ops/common/cpu/block_cpu.h>
#include <sinter/ops/common/cpu/channel_loops_cpu.h>
#include <sinter/ops/norm/norm_math.h>
#include <sinter/ops/norm/norm_statistics_cpu.h>
#include <sinter/ops/pool/max_pool_cpu.h>
#include <sinter/ops/pool/pool_rows_cpu.h>

namespace sinter::ops {
namespace {

// ---- forward

size_t element_of(DType dtype) {
  return size_of(accumulate_dtype(dtype));
}

/// What normalises a tensor, each an array with one element per channel.
template <class C>
struct Normalizers {
  C *mean, *scale, *shift;

  Normalize<C> of(int64_t channel) const { return {mean[channel], scale[channel], shift[channel]}; }
};

/// The call's outputs behind the statistics. `indices` may be null.
template <class T>
struct Pooled {
  T* y;
  uint8_t* indices;

  /// Stores the activation of `count` maxima from element `out` on.
  void store(const PoolBest<compute_type<T>>& best, int64_t count, int64_t out) const {
    using C = compute_type<T>;
    for (int64_t i = 0; i < count; ++i) {
      const C z = best.values[i];
      y[out + i] = static_cast<T>(passes<Activation::kRelu>(z) ? z : C{0});
    }
    if (indices == nullptr) return;
    for (int64_t i = 0; i < count; ++i) {
      const int32_t place = passes<Activation::kRelu>(best.values[i]) ? best.places[i] : int32_t{kNoPlace};
      indices[out + i] = static_cast<uint8_t>(place);
    }
  }
};

/// NCHW, row by row of every plane.
template <class T>
void pool_rows(const PoolGeometry& geometry, const T* x, const Normalizers<compute_type<T>>& normalizers,
               const Pooled<T>& pooled, compute_type<T>* scratch, int threads) {
  using C = compute_type<T>;
  constexpr C kLowest = -std::numeric_limits<C>::infinity();
  const PoolAxis &rows = geometry.y, &columns = geometry.x;
  const int64_t slot_elements = 2 * columns.out + PoolRows<C>::scratch(rows, columns),
                channels = geometry.channels;
  parallel_slots(threads, geometry.batch * channels, rows.extent * columns.extent,
                 [&](int64_t slot, int64_t begin, int64_t end) {
                   C* values = scratch + slot * slot_elements;
                   const PoolBest<C> best{values, reinterpret_cast<int32_t*>(values + columns.out)};
                   PoolRows<C> image(rows, columns, kLowest, values + 2 * columns.out);
                   for (int64_t plane = begin; plane < end; ++plane) {
                     const Normalize<C> normalize = normalizers.of(plane % channels);
                     image.restart();
                     for (int64_t oy = 0; oy < rows.out; ++oy) {
                       const auto [first, last] = rows.inside(oy);
                       image.load(x + plane * rows.extent * columns.extent, first, last, normalize);
                       std::fill_n(best.values, columns.out, kLowest);
                       std::fill_n(best.places, columns.out, 0);
                       for (int64_t row = first; row < last; ++row) {
                         const int64_t place = (row - rows.start(oy)) * columns.kernel;
                         for (int64_t tap = 0; tap < columns.kernel; ++tap) {
                           best.take(image.tap(row, tap), static_cast<int32_t>(place + tap), columns.out);
                         }
                       }
                       pooled.store(best, columns.out, (plane * rows.out + oy) * columns.out);
                     }
                   }
                 });
}

/// The rows of an image that a window covers, normalised once for all windows, in compute type C. Under NHWC.
template <class T>
class NormalizedRows {
 public:
  using C = compute_type<T>;

  static int64_t scratch(const PoolGeometry& geometry) {
    return inner_kernel(geometry.y) * geometry.x.extent * geometry.channels;
  }
  NormalizedRows(const PoolGeometry& geometry, const T* x, C* memory)
      : geometry_(geometry), x_(x), memory_(memory) {}

  /// Makes the rows [begin, end) of an image available; within an image, neither ever decreases.
  void load(int64_t image, int64_t begin, int64_t end, const Normalizers<C>& normalizers) {
    if (image != image_) image_ = image, next_ = 0;
    for (int64_t row = std::max(next_, begin); row < end; ++row) normalize(row, normalizers);
    next_ = std::max(next_, end);
  }
  const C* pixel(int64_t row, int64_t column) const { return slot(row) + column * geometry_.channels; }

 private:
  C* slot(int64_t row) const {
    return memory_ + row % inner_kernel(geometry_.y) * geometry_.x.extent * geometry_.channels;
  }
  void normalize(int64_t row, const Normalizers<C>& normalizers) const {
    const int64_t depth = geometry_.channels, columns = geometry_.x.extent;
    const T* from = x_ + (image_ * geometry_.y.extent + row) * columns * depth;
    C* to = slot(row);
    const C *mean = normalizers.mean, *scale = normalizers.scale, *shift = normalizers.shift;
    for (int64_t column = 0; column < columns; ++column, from += depth, to += depth) {
      SINTER_IVDEP
      for (int64_t c = 0; c < depth; ++c)
        to[c] = Normalize<C>{mean[c], scale[c], shift[c]}(static_cast<C>(from[c]));
    }
  }

  const PoolGeometry& geometry_;
  const T* x_;
  C* memory_;
  int64_t image_ = -1, next_ = 0;  // rows of image_ before next_ have been loaded
};

/// NHWC, pixel by pixel. Planes of NCHW are images of one channel each; `planes` says how many belong to an
/// image, 1 under NHWC.
template <class T>
void pool_pixels(const PoolGeometry& geometry, int64_t planes, const T* x,
                 const Normalizers<compute_type<T>>& normalizers, const Pooled<T>& pooled,
                 compute_type<T>* scratch, int threads) {
  using C = compute_type<T>;
  const PoolAxis &rows = geometry.y, &columns = geometry.x;
  const int64_t depth = geometry.channels, slot_elements = 2 * depth + NormalizedRows<T>::scratch(geometry);
  parallel_slots(
      threads, geometry.batch * rows.out, columns.out * inner_kernel(rows) * inner_kernel(columns) * depth,
      [&](int64_t slot, int64_t begin, int64_t end) {
        C* values = scratch + slot * slot_elements;
        const PoolBest<C> best{values, reinterpret_cast<int32_t*>(values + depth)};
        NormalizedRows<T> normalized(geometry, x, values + 2 * depth);
        for (int64_t line = begin; line < end; ++line) {
          const int64_t image = line / rows.out, oy = line % rows.out, channel = image % planes;
          const auto [top, bottom] = rows.inside(oy);
          normalized.load(
              image, top, bottom,
              {normalizers.mean + channel, normalizers.scale + channel, normalizers.shift + channel});
          for (int64_t ox = 0; ox < columns.out; ++ox) {
            const auto [left, right] = columns.inside(ox);
            std::fill_n(best.values, depth, -std::numeric_limits<C>::infinity());
            std::fill_n(best.places, depth, 0);
            for (int64_t row = top; row < bottom; ++row) {
              const int64_t place = (row - rows.start(oy)) * columns.kernel - columns.start(ox);
              for (int64_t column = left; column < right; ++column) {
                best.take(normalized.pixel(row, column), static_cast<int32_t>(place + column), depth);
              }
            }
            pooled.store(best, depth, (line * columns.out + ox) * depth);
          }
        }
      });
}

/// Workspace: mean and inv_std in double precision, the normalisers, then scratch of the statistics, whose
/// place that of the threads takes.
template <class T>
void forward(const NormCall& call, const PoolGeometry& geometry, Layout layout, const Pooled<T>& pooled,
             void* workspace, int threads) {
  using C = compute_type<T>;
  const int64_t channels = call.view.channels;
  auto* mean = static_cast<double*>(workspace);
  double* inv_std = mean + channels;
  C* arrays = reinterpret_cast<C*>(inv_std + channels);
  const Normalizers<C> normalizers{arrays, arrays + channels, arrays + 2 * channels};
  C* rest = arrays + 4 * channels;
  norm_statistics<T>(call.options, call.main, ChannelLoop(call.view), mean, inv_std, rest);
  for (int64_t c = 0; c < channels; ++c) {
    const auto normalize = make_normalize<C>(mean[c], inv_std[c], value_or<C>(call.main.weight, c, 1.0),
                                             value_or<C>(call.main.bias, c, 0.0));
    normalizers.mean[c] = normalize.mean;
    normalizers.scale[c] = normalize.scale;
    normalizers.shift[c] = normalize.shift;
  }
  if (call.view.numel() == 0) return;
  const T* x = call.main.x.as<const T>();
  if (works_on_rows(geometry, layout)) {
    pool_rows(geometry, x, normalizers, pooled, rest, threads);
  } else {
    const int64_t planes = layout == Layout::kNCHW ? channels : 1;
    pool_pixels(pixels_of(geometry, layout), planes, x, normalizers, pooled, rest, threads);
  }
}

/// Elements of scratch of one thread: the best of a row of outputs, or of a pixel's channels, with their
/// places, and rows of the image. float and int32 count alike; for double the places waste half of their
/// room.
int64_t slot_size(const PoolGeometry& geometry, Layout layout) {
  if (works_on_rows(geometry, layout))
    return 2 * geometry.x.out + PoolRows<float>::scratch(geometry.y, geometry.x);
  const PoolGeometry pixels = pixels_of(geometry, layout);
  return 2 * pixels.channels + NormalizedRows<float>::scratch(pixels);
}

size_t forward_bytes(const KernelQuery& query) {
  const auto& options = query.attributes<BatchNormReluMaxPoolOptions>();
  const TensorSpec& x = query.input(NormPoolInput::kX);
  const ChannelView view = norm_view(x.shape, options.layout);
  const size_t element = element_of(x.dtype), channels = static_cast<size_t>(view.channels);
  const PoolGeometry geometry = pool_geometry(x.shape, options.pool(), "batch_norm_relu_max_pool");
  const size_t slots = static_cast<size_t>(query.threads() * slot_size(geometry, options.layout)) * element;
  return channels * (2 * sizeof(double) + 4 * element) +
         std::max(moments_bytes(ChannelLoop(view), element), slots);
}

void run_forward(const KernelContext& context) {
  const auto& options = context.attributes<BatchNormReluMaxPoolOptions>();
  const NormCall call = norm_pool_call(context);
  const PoolGeometry geometry = pool_geometry(call.main.x.shape, options.pool(), "batch_norm_relu_max_pool");
  uint8_t* indices = options.save_indices ? context.output(NormPoolOutput::kIndices).as<uint8_t>() : nullptr;
  dispatch_float(call.main.x.dtype, "batch_norm_relu_max_pool", [&]<class T> {
    forward<T>(call, geometry, options.layout, {call.y.as<T>(), indices}, context.workspace(),
               context.threads());
  });
}

// ---- gradient

constexpr size_t kSums = 2;           // of dz, and of dz * (x - mean)
constexpr size_t kMapParameters = 4;  // of NormalizeGrad

/// dz, the gradient behind the normalisation, has found its place: `dz` is dx, or an array of its own.
/// Workspace: the sums, then the table and scratch that they come from, whose place the map's parameters
/// take.
template <class T>
void normalize_backward(const NormGradCall& call, const compute_type<T>* dz, void* workspace) {
  using C = compute_type<T>;
  const ChannelLoop loop(call.view);
  const int64_t channels = call.view.channels, width = loop.width();
  const T* x = call.main.x.as<const T>();
  const C *mean = call.main.mean.as<const C>(), *inv_std = call.main.inv_std.as<const C>();
  double* sums = static_cast<double*>(workspace);
  double *deviations = sums + channels, *table = deviations + channels;
  C* lanes = reinterpret_cast<C*>(table + loop.entries() * int64_t{kSums} * width);
  const auto means = loop.expand<C, 1>(lanes, [&](int64_t c) { return std::array<C, 1>{mean[c]}; });
  loop.sum<kSums>(means, table, lanes + width, [=](int64_t i, const std::array<C, 1>& p) {
    return std::array<C, kSums>{dz[i], dz[i] * (static_cast<C>(x[i]) - p[0])};
  });
  loop.fold(table, int64_t{kSums} * width, sums);
  loop.fold(table + width, int64_t{kSums} * width, deviations);
  for (int64_t c = 0; call.options.parameter_grads && c < channels; ++c) {
    call.main.dweight.as<C>()[c] = static_cast<C>(deviations[c] * double{inv_std[c]});
    call.main.dbias.as<C>()[c] = static_cast<C>(sums[c]);
  }
  const double share = 1.0 / static_cast<double>(call.view.per_channel());
  using Parameters = std::array<C, kMapParameters>;
  // Behind the sums, which they are made of.
  C* const arrays = reinterpret_cast<C*>(table);
  const auto parameters = loop.expand<C, kMapParameters>(arrays, [&](int64_t c) {
    const NormalizeGrad<C> gradient = make_normalize_grad<C>(
        mean[c], double{inv_std[c]}, value_or<C>(call.main.weight, c, 1.0), share, sums[c], deviations[c]);
    return Parameters{gradient.mean, gradient.scale, gradient.slope, gradient.offset};
  });
  T* dx = call.main.dx.as<T>();
  loop.for_each(parameters, [=](int64_t i, const Parameters& p) {
    const NormalizeGrad<C> gradient{p[0], p[1], p[2], p[3]};
    dx[i] = static_cast<T>(gradient(static_cast<C>(x[i]), dz[i]));
  });
}

/// Bytes of dz where dx cannot hold it: in 16 bits.
size_t slopes_bytes(const TensorSpec& x) {
  return is_half(x.dtype) ? (static_cast<size_t>(x.shape.numel()) * sizeof(float) + 63) / 64 * 64 : 0;
}

size_t backward_bytes(const KernelQuery& query) {
  const auto& options = query.attributes<BatchNormReluMaxPoolGradOptions>();
  const TensorSpec& x = query.input(NormPoolGradInput::kX);
  const ChannelView view = norm_view(x.shape, options.pool.layout);
  const ChannelLoop loop(view);
  const size_t element = element_of(x.dtype), lanes = static_cast<size_t>(loop.width()) * element;
  return slopes_bytes(x) + static_cast<size_t>(view.channels) * kSums * sizeof(double) +
         std::max(loop.sum_bytes(kSums, element) + lanes, kMapParameters * lanes);
}

void run_backward(const KernelContext& context) {
  using In = NormPoolGradInput;
  const auto& options = context.attributes<BatchNormReluMaxPoolGradOptions>();
  const NormGradCall call = norm_pool_grad_call(context);
  const TensorView& x = call.main.x;
  const PoolGeometry geometry = pool_geometry(x.shape, options.pool, "batch_norm_relu_max_pool_grad");
  dispatch_float(x.dtype, "batch_norm_relu_max_pool_grad", [&]<class T> {
    using C = compute_type<T>;
    auto* workspace = context.workspace<char>();
    C* dz = nullptr;
    if constexpr (std::is_same_v<T, C>) {
      dz = call.main.dx.as<T>();
    } else {
      dz = reinterpret_cast<C*>(workspace);
      workspace += slopes_bytes({x.shape, x.dtype, Device::cpu()});
    }
    max_pool_slopes<T>(geometry, options.pool.layout, context.input(In::kDy).as<const T>(),
                       context.input(In::kIndices).as<const uint8_t>(), dz, context.threads());
    normalize_backward<T>(call, dz, workspace);
  });
}

}  // namespace

void register_batch_norm_relu_max_pool_cpu(OpRegistry& registry);
void register_batch_norm_relu_max_pool_cpu(OpRegistry& registry) {
  registry.add_kernel("batch_norm_relu_max_pool",
                      {.device = DeviceType::kCpu, .workspace_bytes = forward_bytes, .run = run_forward});
  registry.add_kernel("batch_norm_relu_max_pool_grad",
                      {.device = DeviceType::kCpu, .workspace_bytes = backward_bytes, .run = run_backward});
}

}  // namespace sinter::ops
