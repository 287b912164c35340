#include <sinter/core/cuda/device_traits.h>
#include <sinter/ops/batch_norm/batch_norm_math.h>
#include <sinter/ops/batch_norm/norm_cuda.h>
#include <sinter/ops/batch_norm/norm_kernels_cuda.h>
#include <sinter/ops/batch_norm/norm_scratch_cuda.h>

namespace sinter::ops {
namespace {

// ---- statistics

/// Where three of a channel's elements lie, spread over all of them; channel c's are c * inner behind.
struct PilotPlaces {
  int64_t first[3] = {0, 0, 0};
  int64_t inner = 0;

  explicit PilotPlaces(const ChannelView& view) : inner(view.inner) {
    const int64_t count = view.per_channel();
    if (count == 0) return;
    for (int64_t i = 0; i < 3; ++i) {
      const int64_t element = (2 * i + 1) * (count / 6) + (2 * i + 1) * (count % 6) / 6;
      first[i] = element / view.inner * view.channels * view.inner + element % view.inner;
    }
  }
};

/// The sums of x - pilot and of its square. The pilot is the median of three of the channel's elements: close
/// to its mean on the scale of its deviation, so that the sums keep their digits whatever the mean. An
/// element that some share f of a channel takes lies at most sqrt(1 / f) deviations from the mean; only where
/// two of the three are equally rare would about 1 / f times float's rounding be lost.
template <class T>
struct StatisticsTerms {
  using C = compute_type<T>;
  using Parameter = C;
  static constexpr int kValues = 2;
  template <int pack>
  using Loaded = cuda::Pack<T, pack>;

  const T* x;
  PilotPlaces places;

  __device__ C parameter(int64_t channel) const {
    const int64_t own = channel * places.inner;
    const C a = cuda::load_as_compute(x[places.first[0] + own]);
    const C b = cuda::load_as_compute(x[places.first[1] + own]);
    const C c = cuda::load_as_compute(x[places.first[2] + own]);
    return median(a, b, c);
  }
  __device__ void neighbours(int64_t channel, C (&pilots)[NormPlan::kPack]) const {
    constexpr int pack = NormPlan::kPack;
    const auto a = load_pack<pack>(x, places.first[0] + channel),
               b = load_pack<pack>(x, places.first[1] + channel),
               c = load_pack<pack>(x, places.first[2] + channel);
#pragma unroll
    for (int i = 0; i < pack; ++i) {
      pilots[i] = median(cuda::load_as_compute(a.values[i]), cuda::load_as_compute(b.values[i]),
                         cuda::load_as_compute(c.values[i]));
    }
  }
  static __device__ C median(C a, C b, C c) {
    return max(min(a, b), min(max(a, b), c));
  }
  template <int pack>
  __device__ Loaded<pack> load(int64_t offset) const {
    return load_pack<pack>(x, offset);
  }
  template <int pack>
  __device__ void add(int64_t, const Loaded<pack>& loaded, const C (&pilots)[pack],
                      C (&sums)[2][pack]) const {
#pragma unroll
    for (int i = 0; i < pack; ++i) {
      const C deviation = cuda::load_as_compute(loaded.values[i]) - pilots[i];
      sums[0][i] += deviation;
      sums[1][i] += deviation * deviation;
    }
  }
};

/// Turns the statistics of a channel into what the map and the gradient need.
template <class C>
struct ChannelStatistics {
  const C *weight, *bias;         // null: 1 and 0
  C *running_mean, *running_var;  // null: not kept
  C *mean, *inv_std;
  Normalize<C>* parameters;
  double epsilon, momentum;

  __device__ void use(int64_t c, double mean_of, double variance) const {
    const double inverse = 1.0 / sqrt(variance + epsilon);
    mean[c] = static_cast<C>(mean_of);
    inv_std[c] = static_cast<C>(inverse);
    parameters[c] =
        make_normalize<C>(mean_of, inverse, weight == nullptr ? 1.0 : static_cast<double>(weight[c]),
                          bias == nullptr ? 0.0 : static_cast<double>(bias[c]));
  }
  /// An empty batch moves nothing.
  __device__ void learn(int64_t c, const Moments& moments) const {
    const double count = moments.count;
    if (running_mean != nullptr && count > 0.0) {
      running_mean[c] =
          static_cast<C>(moved_running(static_cast<double>(running_mean[c]), moments.mean, momentum));
      running_var[c] = static_cast<C>(
          moved_running(static_cast<double>(running_var[c]), moments.squares / (count - 1.0), momentum));
    }
    use(c, moments.mean, count > 0.0 ? moments.squares / count : 0.0);
  }
};

template <class T>
struct FinishStatistics {
  using C = compute_type<T>;
  ChannelStatistics<C> statistics;
  StatisticsTerms<T> terms;
  double count;

  __device__ void operator()(int64_t c, const double* sums) const {
    if (count == 0.0) return statistics.learn(c, {});
    statistics.learn(c, moments_about(static_cast<double>(terms.parameter(c)), count, sums[0], sums[1]));
  }
};

/// Statistics that need no pass: those of given sums over `count` elements, or the running ones.
template <class C>
__global__ void known_statistics_kernel(int64_t channels, ChannelStatistics<C> statistics, const C* sums,
                                        double count) {
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= channels) return;
  if (sums == nullptr) {
    statistics.use(c, static_cast<double>(statistics.running_mean[c]),
                   static_cast<double>(statistics.running_var[c]));
  } else {
    statistics.learn(
        c, moments_of_sums(count, static_cast<double>(sums[c]), static_cast<double>(sums[channels + c])));
  }
}

/// Fills mean, inv_std and `parameters` of one tensor.
template <class T>
void find_statistics(const NormCall& call, const NormTensor& tensor, const Stream& stream,
                     Normalize<compute_type<T>>* parameters, void* table) {
  using C = compute_type<T>;
  const ChannelView view = call.view();
  const ChannelStatistics<C> statistics{.weight = pointer_or_null<const C>(tensor.weight),
                                        .bias = pointer_or_null<const C>(tensor.bias),
                                        .running_mean = pointer_or_null<C>(tensor.running_mean),
                                        .running_var = pointer_or_null<C>(tensor.running_var),
                                        .mean = tensor.mean.as<C>(),
                                        .inv_std = tensor.inv_std.as<C>(),
                                        .parameters = parameters,
                                        .epsilon = call.options.epsilon,
                                        .momentum = call.options.momentum};
  const double count = static_cast<double>(view.per_channel());
  if (!call.options.training || (tensor.sums.present && count > 0.0)) {
    cuda::launch(stream, cuda::grid_stride_shape(view.channels, 256), known_statistics_kernel<C>,
                 view.channels, statistics,
                 call.options.training ? tensor.sums.as<const C>() : static_cast<const C*>(nullptr), count);
    return;
  }
  const T* x = tensor.x.as<const T>();
  const StatisticsTerms<T> terms{x, PilotPlaces(view)};
  const NormPlan plan = plan_norm_sums(simplified_norm_view(view), allows_packs<T>({x}),
                                       norm_blocks(stream.device.index, kStatisticsBlocks));
  sum_channels<T, 4>(stream, plan, terms, static_cast<C*>(table));
  finish_channels<2>(stream, plan, static_cast<const C*>(table),
                     FinishStatistics<T>{statistics, terms, count});
}

// ---- the map

enum class Addend { kNone, kPlain, kNormalized };

/// y = act(norm(x) + addend) and the mask.
template <class T, Addend kind, Activation activation>
struct NormalizeMap {
  using C = compute_type<T>;
  static constexpr bool kAdds = kind != Addend::kNone, kNormalizes = kind == Addend::kNormalized;
  static constexpr bool kAlpha = activation == Activation::kPRelu;

  struct Nothing {};
  struct Parameter {
    Normalize<C> main;
    std::conditional_t<kNormalizes, Normalize<C>, Nothing> addend;
    std::conditional_t<kAlpha, C, Nothing> alpha;
  };
  template <int pack>
  struct Loaded {
    cuda::Pack<T, pack> x;
    std::conditional_t<kAdds, cuda::Pack<T, pack>, Nothing> addend;
  };

  const T *x, *addend;
  T* y;
  uint8_t* mask;  // null: not wanted
  const Normalize<C>*main_parameters, *addend_parameters;
  const C* alpha;
  int64_t alpha_step;

  __device__ Parameter parameter(int64_t channel) const {
    Parameter result;
    result.main = main_parameters[channel];
    if constexpr (kNormalizes) result.addend = addend_parameters[channel];
    if constexpr (kAlpha) result.alpha = alpha[channel * alpha_step];
    return result;
  }
  __device__ void neighbours(int64_t channel, Parameter (&result)[NormPlan::kPack]) const {
    constexpr int pack = NormPlan::kPack;
    const auto main = load_neighbours<pack>(main_parameters + channel);
#pragma unroll
    for (int i = 0; i < pack; ++i) {
      result[i].main = main.values[i];
      if constexpr (kAlpha) result[i].alpha = alpha[(channel + i) * alpha_step];
    }
    if constexpr (kNormalizes) {
      const auto added = load_neighbours<pack>(addend_parameters + channel);
#pragma unroll
      for (int i = 0; i < pack; ++i) result[i].addend = added.values[i];
    }
  }
  template <int pack, bool whole>
  __device__ Loaded<pack> load(int64_t offset, int valid) const {
    Loaded<pack> result;
    result.x = load_pack<pack, whole>(x, offset, valid);
    if constexpr (kAdds) result.addend = load_pack<pack, whole>(addend, offset, valid);
    return result;
  }
  template <bool whole, int pack>
  __device__ void apply(int64_t offset, int valid, const Parameter (&parameters)[pack],
                        const Loaded<pack>& loaded) const {
    cuda::Pack<T, pack> result;
    unsigned bits = 0;
#pragma unroll
    for (int i = 0; i < pack; ++i) {
      C z = parameters[i].main(cuda::load_as_compute(loaded.x.values[i]));
      if constexpr (kAdds) {
        const C added = cuda::load_as_compute(loaded.addend.values[i]);
        if constexpr (kNormalizes) {
          z += parameters[i].addend(added);
        } else {
          z += added;
        }
      }
      if constexpr (activation != Activation::kNone) {
        const bool on = passes(z);
        if (on && (whole || i < valid)) bits |= 1u << i;
        if constexpr (kAlpha) {
          z = on ? z : parameters[i].alpha * z;
        } else {
          z = on ? z : C{0};
        }
      }
      result.values[i] = cuda::round_to<T>(z);
    }
    store_pack<pack, whole>(y, offset, result, valid);
    if (activation != Activation::kNone && mask != nullptr) mask[offset >> 3] = static_cast<uint8_t>(bits);
  }
};

template <class T, Addend kind, Activation activation>
void map_forward(const NormCall& call, const Stream& stream,
                 const Normalize<compute_type<T>>* main_parameters,
                 const Normalize<compute_type<T>>* addend_parameters) {
  using C = compute_type<T>;
  const NormalizeMap<T, kind, activation> map{
      .x = call.main.x.as<const T>(),
      .addend = pointer_or_null<const T>(call.addend.x),
      .y = call.y.as<T>(),
      .mask = pointer_or_null<uint8_t>(call.mask),
      .main_parameters = main_parameters,
      .addend_parameters = addend_parameters,
      .alpha = pointer_or_null<const C>(call.alpha),
      .alpha_step = call.alpha.present && call.alpha.numel() != 1 ? 1 : 0};
  map_channels_of<T, 2, 2>(stream, simplified_norm_view(call.view()),
                           allows_packs<T>({map.x, map.addend, map.y}), map);
}

template <class T, Addend kind>
void map_forward(const NormCall& call, const Stream& stream,
                 const Normalize<compute_type<T>>* main_parameters,
                 const Normalize<compute_type<T>>* addend_parameters) {
  switch (call.options.activation) {
    case Activation::kNone:
      return map_forward<T, kind, Activation::kNone>(call, stream, main_parameters, addend_parameters);
    case Activation::kRelu:
      return map_forward<T, kind, Activation::kRelu>(call, stream, main_parameters, addend_parameters);
    case Activation::kPRelu:
      return map_forward<T, kind, Activation::kPRelu>(call, stream, main_parameters, addend_parameters);
  }
}

/// Workspace: the parameters of the map, for both tensors, then the table of the sums.
template <class T>
void forward(const NormCall& call, const Stream& stream, void* workspace) {
  using C = compute_type<T>;
  const int64_t channels = call.view().channels;
  if (channels == 0) return;
  const bool two = call.options.normalize_addend;
  NormScratch scratch(workspace);
  auto* main_parameters = scratch.take<Normalize<C>>(channels);
  auto* addend_parameters = scratch.take<Normalize<C>>(two ? channels : 0);
  find_statistics<T>(call, call.main, stream, main_parameters, scratch.rest());
  if (two) find_statistics<T>(call, call.addend, stream, addend_parameters, scratch.rest());
  if (!call.addend.x.present) {
    map_forward<T, Addend::kNone>(call, stream, main_parameters, addend_parameters);
  } else if (two) {
    map_forward<T, Addend::kNormalized>(call, stream, main_parameters, addend_parameters);
  } else {
    map_forward<T, Addend::kPlain>(call, stream, main_parameters, addend_parameters);
  }
}

}  // namespace

size_t norm_forward_bytes(const NormProblem& problem) {
  const size_t parameters = NormScratch::bytes(
      static_cast<size_t>(problem.view.channels) *
      (problem.dtype == DType::kFloat64 ? sizeof(Normalize<double>) : sizeof(Normalize<float>)));
  return parameters * (problem.two_tensors ? 2 : 1) +
         (problem.training ? norm_table_bytes(problem, kStatisticsBlocks, 2) : 0);
}

void norm_forward(const NormCall& call, const Stream& stream, void* workspace) {
  dispatch_float(call.main.x.dtype, "batch_norm", [&]<class T> { forward<T>(call, stream, workspace); });
}

}  // namespace sinter::ops
