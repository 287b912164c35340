#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/batch_norm/batch_norm_math.h>
#include <sinter/ops/common/channel_map_cuda.h>
#include <sinter/ops/common/channel_reduce_cuda.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::ops {
namespace {

ChannelView view_of(const Shape& shape, Layout layout) {
  return channel_view(shape, shape.rank() == 4 && layout == Layout::kNHWC ? 3 : 1);
}

/// Bytes of `count` parameters of type P in front of other scratch.
template <class P>
size_t parameter_bytes(int64_t count) {
  constexpr size_t kAlignment = 256;
  return (static_cast<size_t>(count) * sizeof(P) + kAlignment - 1) / kAlignment * kAlignment;
}

/// An optional parameter of the op, or null.
template <class C>
C* pointer_or_null(const TensorView& parameter) {
  return parameter.present ? parameter.as<C>() : nullptr;
}

// ---- forward
// ------------------------------------------------------------------------------------------------------

/// An Op of channel_reduce_cuda.h: mean and sum of squared deviations. A thread's pilot for a chunk is the
/// chunk's own first element: one of n values lies at most sqrt(n) standard deviations of all of them from
/// their mean, so that the shifted sums lose at most a factor n (at most 64) of the compute type's accuracy,
/// whatever the mean.
template <class T>
struct BatchMoments {
  using C = compute_type<T>;
  static constexpr int kValues = 2;

  const T* x;

  template <int pack, int step>
  struct Thread {
    C pilots[pack], deviations[pack], squares[pack];
    double values[2][pack] = {};
    double count = 0.0;

    static __device__ cuda::Pack<T, pack> load(const BatchMoments& op, int64_t offset) {
      return *reinterpret_cast<const cuda::Pack<T, pack>*>(op.x + offset);
    }
    __device__ void start(const BatchMoments&, int64_t) {}
    __device__ void begin(const BatchMoments& op, int64_t offset) {
      const cuda::Pack<T, pack> first = load(op, offset);
#pragma unroll
      for (int lane = 0; lane < pack; ++lane) {
        pilots[lane] = cuda::load_as_compute(first.values[lane]);
        deviations[lane] = squares[lane] = C{0};
      }
    }
    __device__ void add(const BatchMoments& op, int64_t offset) {
      const cuda::Pack<T, pack> elements = load(op, offset);
#pragma unroll
      for (int lane = 0; lane < pack; ++lane) {
        const C deviation = cuda::load_as_compute(elements.values[lane]) - pilots[lane];
        deviations[lane] += deviation;
        squares[lane] += deviation * deviation;
      }
    }
    __device__ void flush(int n) {
#pragma unroll
      for (int lane = 0; lane < pack; ++lane) {
        Moments moments{count, values[0][lane], values[1][lane]};
        moments.merge(moments_about(static_cast<double>(pilots[lane]), static_cast<double>(n),
                                    static_cast<double>(deviations[lane]),
                                    static_cast<double>(squares[lane])));
        values[0][lane] = moments.mean;
        values[1][lane] = moments.squares;
      }
      count += n;
    }
  };

  static __device__ void merge(double* a, double count, const double* b, double other) {
    Moments moments{count, a[0], a[1]};
    moments.merge({other, b[0], b[1]});
    a[0] = moments.mean;
    a[1] = moments.squares;
  }
};

/// Turns the statistics of a channel into what the second pass and the gradient need.
template <class C>
struct FinishStatistics {
  const C *weight, *bias;         // null: 1 and 0
  C *running_mean, *running_var;  // null: not kept
  C *mean, *inv_std;
  Normalize<C>* parameters;
  double epsilon, momentum;

  __device__ void set(int64_t c, double mean_of, double variance) const {
    const double inverse = 1.0 / sqrt(variance + epsilon);
    mean[c] = static_cast<C>(mean_of);
    inv_std[c] = static_cast<C>(inverse);
    parameters[c] =
        make_normalize<C>(mean_of, inverse, weight == nullptr ? 1.0 : static_cast<double>(weight[c]),
                          bias == nullptr ? 0.0 : static_cast<double>(bias[c]));
  }
  /// In training: values are mean and sum of squared deviations. An empty batch moves nothing.
  __device__ void operator()(int64_t c, const double* values, double count) const {
    if (running_mean != nullptr && count > 0.0) {
      running_mean[c] =
          static_cast<C>(moved_running(static_cast<double>(running_mean[c]), values[0], momentum));
      running_var[c] = static_cast<C>(
          moved_running(static_cast<double>(running_var[c]), values[1] / (count - 1.0), momentum));
    }
    set(c, values[0], count > 0.0 ? values[1] / count : 0.0);
  }
};

/// In inference the statistics are the running ones.
template <class C>
__global__ void running_statistics_kernel(int64_t channels, FinishStatistics<C> finish) {
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c < channels) {
    finish.set(c, static_cast<double>(finish.running_mean[c]), static_cast<double>(finish.running_var[c]));
  }
}

struct ApplyNormalize {
  template <class C>
  __device__ C operator()(const Normalize<C>& parameters, C x) const {
    return parameters(x);
  }
};

/// Workspace: the parameters of the second pass, then the table of the first.
template <class T>
void normalize(const KernelContext& context) {
  using C = compute_type<T>;
  const auto& options = context.attributes<BatchNormOptions>();
  const ChannelView view = view_of(context.input(0).shape, options.layout);
  const T* x = context.input(0).as<const T>();
  const FinishStatistics<C> finish{.weight = pointer_or_null<const C>(context.input(1)),
                                   .bias = pointer_or_null<const C>(context.input(2)),
                                   .running_mean = pointer_or_null<C>(context.input(3)),
                                   .running_var = pointer_or_null<C>(context.input(4)),
                                   .mean = context.output(1).as<C>(),
                                   .inv_std = context.output(2).as<C>(),
                                   .parameters = context.workspace<Normalize<C>>(),
                                   .epsilon = options.epsilon,
                                   .momentum = options.momentum};
  if (view.channels == 0) return;
  if (options.training) {
    auto* table =
        reinterpret_cast<double*>(context.workspace<char>() + parameter_bytes<Normalize<C>>(view.channels));
    reduce_channels<T>(context.stream(), view, cuda::is_aligned(x, 16), BatchMoments<T>{x}, table, finish);
  } else {
    cuda::launch(context.stream(), cuda::grid_stride_shape(view.channels, 256), running_statistics_kernel<C>,
                 view.channels, finish);
  }
  map_channels(context.stream(), view, ParameterArray<Normalize<C>>{finish.parameters}, ApplyNormalize{},
               context.output(0).as<T>(), x);
}

size_t batch_norm_workspace(const KernelQuery& query) {
  const auto& options = query.attributes<BatchNormOptions>();
  const ChannelView view = view_of(query.input(0).shape, options.layout);
  const DType dtype = query.input(0).dtype;
  const size_t parameters = dtype == DType::kFloat64 ? parameter_bytes<Normalize<double>>(view.channels)
                                                     : parameter_bytes<Normalize<float>>(view.channels);
  return parameters + (options.training ? reduce_channels_bytes(view, 2, size_of(dtype)) : 0);
}

void run_batch_norm(const KernelContext& context) {
  dispatch_float(context.input(0).dtype, "batch_norm", [&]<class T> { normalize<T>(context); });
}

// ---- gradient
// -----------------------------------------------------------------------------------------------------

/// The sums of dy and of dy * (x - mean).
template <class T>
struct GradientTerms {
  using Compute = compute_type<T>;
  using Parameter = Compute;
  static constexpr int kValues = 2;

  const T *x, *dy;
  const Compute* mean;

  __device__ Parameter parameter(int64_t channel) const { return mean[channel]; }
  template <int pack>
  __device__ void add(int64_t offset, const Parameter (&means)[pack], Compute (&sums)[2][pack]) const {
    using Elements = cuda::Pack<T, pack>;
    const Elements values = *reinterpret_cast<const Elements*>(x + offset);
    const Elements slopes = *reinterpret_cast<const Elements*>(dy + offset);
#pragma unroll
    for (int lane = 0; lane < pack; ++lane) {
      const Compute slope = cuda::load_as_compute(slopes.values[lane]);
      sums[0][lane] += slope;
      sums[1][lane] += slope * (cuda::load_as_compute(values.values[lane]) - means[lane]);
    }
  }
};

/// Stores a channel's gradients and the parameters of the second pass, each if wanted.
template <class C>
struct FinishGradient {
  const C *weight, *mean, *inv_std;
  C *dweight, *dbias;            // null: not wanted
  NormalizeGrad<C>* parameters;  // null: not wanted

  __device__ void operator()(int64_t c, const double* sums, double count) const {
    const double inverse = static_cast<double>(inv_std[c]);
    if (dweight != nullptr) {
      dweight[c] = static_cast<C>(sums[1] * inverse);
      dbias[c] = static_cast<C>(sums[0]);
    }
    if (parameters != nullptr) {
      const double scale = weight == nullptr ? 1.0 : static_cast<double>(weight[c]);
      parameters[c] = make_normalize_grad<C>(mean[c], inverse, scale, count, sums[0], sums[1]);
    }
  }
};

struct ApplyNormalizeGrad {
  template <class C>
  __device__ C operator()(const NormalizeGrad<C>& parameters, C x, C dy) const {
    return parameters(x, dy);
  }
};

/// dx / dy in inference.
template <class C>
struct ConstantScale {
  const C *weight, *inv_std;

  __device__ C operator()(int64_t c) const {
    const double scale = weight == nullptr ? 1.0 : static_cast<double>(weight[c]);
    return static_cast<C>(static_cast<double>(inv_std[c]) * scale);
  }
};

struct ApplyScale {
  template <class C>
  __device__ C operator()(C scale, C dy) const {
    return dy * scale;
  }
};

/// Workspace: the parameters of the second pass, then the table of the first.
template <class T>
void normalize_grad(const KernelContext& context) {
  using C = compute_type<T>;
  const auto& options = context.attributes<BatchNormGradOptions>();
  const ChannelView view = view_of(context.input(0).shape, options.layout);
  const GradientTerms<T> terms{context.input(0).as<const T>(), context.input(1).as<const T>(),
                               context.input(3).as<const C>()};
  const C* weight = pointer_or_null<const C>(context.input(2));
  const C* inv_std = context.input(4).as<const C>();
  T* dx = context.output(0).as<T>();
  auto* parameters = context.workspace<NormalizeGrad<C>>();
  if (options.training || options.parameter_grads) {
    auto* table = reinterpret_cast<double*>(context.workspace<char>() +
                                            parameter_bytes<NormalizeGrad<C>>(view.channels));
    const FinishGradient<C> finish{.weight = weight,
                                   .mean = terms.mean,
                                   .inv_std = inv_std,
                                   .dweight = options.parameter_grads ? context.output(1).as<C>() : nullptr,
                                   .dbias = options.parameter_grads ? context.output(2).as<C>() : nullptr,
                                   .parameters = options.training ? parameters : nullptr};
    const bool aligned = cuda::is_aligned(terms.x, 16) && cuda::is_aligned(terms.dy, 16);
    reduce_channels<T>(context.stream(), view, aligned, ChannelSums<GradientTerms<T>>{terms}, table, finish);
  }
  if (options.training) {
    map_channels(context.stream(), view, ParameterArray<NormalizeGrad<C>>{parameters}, ApplyNormalizeGrad{},
                 dx, terms.x, terms.dy);
  } else {
    map_channels(context.stream(), view, ConstantScale<C>{weight, inv_std}, ApplyScale{}, dx, terms.dy);
  }
}

size_t batch_norm_grad_workspace(const KernelQuery& query) {
  const auto& options = query.attributes<BatchNormGradOptions>();
  if (!options.training && !options.parameter_grads) return 0;
  const ChannelView view = view_of(query.input(0).shape, options.layout);
  const DType dtype = query.input(0).dtype;
  const size_t parameters = dtype == DType::kFloat64 ? parameter_bytes<NormalizeGrad<double>>(view.channels)
                                                     : parameter_bytes<NormalizeGrad<float>>(view.channels);
  return parameters + reduce_channels_bytes(view, 2, size_of(dtype));
}

void run_batch_norm_grad(const KernelContext& context) {
  dispatch_float(context.input(0).dtype, "batch_norm_grad", [&]<class T> { normalize_grad<T>(context); });
}

}  // namespace

void register_batch_norm_cuda(OpRegistry& registry);
void register_batch_norm_cuda(OpRegistry& registry) {
  registry.add_kernel(
      "batch_norm",
      {.device = DeviceType::kCuda, .workspace_bytes = batch_norm_workspace, .run = run_batch_norm});
  registry.add_kernel("batch_norm_grad", {.device = DeviceType::kCuda,
                                          .workspace_bytes = batch_norm_grad_workspace,
                                          .run = run_batch_norm_grad});
}

}  // namespace sinter::ops
