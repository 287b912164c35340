// What forward normalisation sums up per channel, and how it maps a tensor afterwards. For .cu files.
#pragma once

#include <limits>

#include <sinter/ops/norm/cuda/norm_packs_cuda.h>
#include <sinter/ops/norm/cuda/norm_scratch_cuda.h>
#include <sinter/ops/norm/norm_call.h>
#include <sinter/ops/norm/norm_math.h>

namespace sinter::ops {

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
  static constexpr int kValues = 2, kBlocks = kStatisticsBlocks;
  template <int pack>
  using Loaded = HeldPack<T, pack>;

  const T* x;
  PilotPlaces places;

  __device__ C parameter(int64_t channel) const {
    const int64_t own = channel * places.inner;
    const C a = cuda::load_as_compute(x[places.first[0] + own]);
    const C b = cuda::load_as_compute(x[places.first[1] + own]);
    const C c = cuda::load_as_compute(x[places.first[2] + own]);
    return median(a, b, c);
  }
  template <int pack>
  __device__ void neighbours(int64_t channel, C (&pilots)[pack]) const {
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
  __device__ void prefetch(int64_t offset) const {
    detail::prefetch(x + offset);
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
      const C deviation = cuda::load_as_compute(loaded[i]) - pilots[i];
      sums[0][i] += deviation;
      sums[1][i] += deviation * deviation;
    }
  }
};

/// Turns the statistics of a channel into what the map and the gradient need.
template <class C>
struct ChannelStatistics {
  const C *weight = nullptr, *bias = nullptr;  // null: 1 and 0
  C *running_mean, *running_var;               // null: not kept
  C *mean, *inv_std;
  double epsilon, momentum;

  /// What belongs to a channel beside its elements.
  struct Known {
    C weight = 1, bias = 0, running_mean = 0, running_var = 0;
  };
  __device__ Known known(int64_t c, bool learns = true) const {
    Known result;
    if (weight != nullptr) result.weight = weight[c];
    if (bias != nullptr) result.bias = bias[c];
    if (learns && running_mean != nullptr) {
      result.running_mean = running_mean[c];
      result.running_var = running_var[c];
    }
    return result;
  }
  __device__ double inverse_of(double variance) const { return rsqrt(variance + epsilon); }
  /// The map of a channel of this mean and variance.
  __device__ Normalize<C> use(const Known& known, double mean_of, double variance) const {
    return make_normalize<C>(mean_of, inverse_of(variance), static_cast<double>(known.weight),
                             static_cast<double>(known.bias));
  }
  __device__ void keep(int64_t c, double mean_of, double variance) const {
    mean[c] = static_cast<C>(mean_of);
    inv_std[c] = static_cast<C>(inverse_of(variance));
  }
  /// An empty batch moves nothing.
  __device__ void learn(int64_t c, const Known& known, const Moments& moments) const {
    if (running_mean != nullptr && moments.count > 0.0) {
      running_mean[c] =
          static_cast<C>(moved_running(static_cast<double>(known.running_mean), moments.mean, momentum));
      running_var[c] = static_cast<C>(moved_running(static_cast<double>(known.running_var),
                                                    moments.squares / (moments.count - 1.0), momentum));
    }
    keep(c, moments.mean, variance_of(moments));
  }
  static __device__ double variance_of(const Moments& moments) {
    return moments.count > 0.0 ? moments.squares / moments.count : 0.0;
  }
};

template <class T>
ChannelStatistics<compute_type<T>> statistics_of(const NormCall& call, const NormTensor& tensor) {
  using C = compute_type<T>;
  return {.weight = pointer_or_null<const C>(tensor.weight),
          .bias = pointer_or_null<const C>(tensor.bias),
          .running_mean = pointer_or_null<C>(tensor.running_mean),
          .running_var = pointer_or_null<C>(tensor.running_var),
          .mean = tensor.mean.as<C>(),
          .inv_std = tensor.inv_std.as<C>(),
          .epsilon = call.options.epsilon,
          .momentum = call.options.momentum};
}

// ---- the map

/// y = act(norm(x) + addend) and the mask. ReLU and nothing are one kernel: what is at most `limit` becomes
/// 0, and nothing is at most NaN.
template <class T, AddendKind kind, bool prelu>
struct NormalizeMap {
  using C = compute_type<T>;
  static constexpr bool kAdds = kind != AddendKind::kNone, kNormalizes = kind == AddendKind::kNormalized;
  static constexpr bool kAlpha = prelu;
  static constexpr int kBlocks = kNormalizes || (kAdds && kAlpha) ? 2 : 3;

  using Channels = MapParameters<Normalize<C>, C, kNormalizes, kAlpha>;
  using Parameter = typename Channels::Parameter;
  struct Nothing {};
  template <int pack>
  struct Loaded {
    HeldPack<T, pack> x;
    std::conditional_t<kAdds, HeldPack<T, pack>, Nothing> addend;
  };

  const T *x, *addend;
  T* y;
  uint8_t* mask;  // null: not wanted
  C limit;        // of ReLU: 0; else NaN
  Channels channels;

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
      C z = parameters[i].main(cuda::load_as_compute(loaded.x[i]));
      if constexpr (kAdds) {
        const C added = cuda::load_as_compute(loaded.addend[i]);
        if constexpr (kNormalizes) {
          z += parameters[i].addend(added);
        } else {
          z += added;
        }
      }
      if constexpr (kAlpha) {
        const bool on = passes<fused::Activation::kPRelu>(z);
        if (on && (whole || i < valid)) bits |= 1u << i;
        z = on ? z : parameters[i].alpha * z;
      } else {
        const bool on = !(z <= limit);
        if (on && (whole || i < valid)) bits |= 1u << i;
        z = on ? z : C{0};
      }
      result.values[i] = cuda::round_to<T>(z);
    }
    store_pack<pack, whole>(y, offset, result, valid);
    if (mask != nullptr) store_mask<pack>(mask, offset, bits);
  }
};

template <class T, AddendKind kind, bool prelu>
NormalizeMap<T, kind, prelu> map_of(const NormCall& call, const Normalize<compute_type<T>>* main_parameters,
                                    const Normalize<compute_type<T>>* addend_parameters) {
  using C = compute_type<T>;
  return {.x = call.main.x.as<const T>(),
          .addend = pointer_or_null<const T>(call.addend.x),
          .y = call.y.as<T>(),
          .mask = pointer_or_null<uint8_t>(call.mask),
          .limit = call.options.activation == fused::Activation::kRelu ? C{0}
                                                                       : std::numeric_limits<C>::quiet_NaN(),
          .channels = {main_parameters, addend_parameters, pointer_or_null<const C>(call.alpha),
                       call.alpha.present && call.alpha.numel() != 1 ? 1 : 0}};
}

}  // namespace sinter::ops
