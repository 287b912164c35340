// What the gradient of normalisation sums up per channel, and how it maps a tensor afterwards. For .cu files.
#pragma once

#include <sinter/ops/norm/cuda/norm_packs_cuda.h>
#include <sinter/ops/norm/cuda/norm_scratch_cuda.h>
#include <sinter/ops/norm/norm_call.h>
#include <sinter/ops/norm/norm_math.h>

namespace sinter::ops {

/// What the gradient's sums have to read. kPRelu finds the activation's argument again, with an addend that
/// is normalised or not; kPReluAlone is for calls without one.
enum class GradKind { kPlain, kNormalizedAddend, kPRelu, kPReluAlone };

/// dy, or dy + dy2.
template <class T, int pack>
struct LoadedSlopes {
  HeldPack<T, pack> dy, dy2;
};

/// The gradient that comes in, and the mask of the activation.
template <class T>
struct Slopes {
  using C = compute_type<T>;

  const T *dy, *dy2;    // dy2 may be null
  const uint8_t* mask;  // null: no activation

  template <int pack, bool whole>
  __device__ LoadedSlopes<T, pack> load(int64_t offset, int valid) const {
    LoadedSlopes<T, pack> result;
    result.dy = load_pack<pack, whole>(dy, offset, valid);
    if (dy2 != nullptr) result.dy2 = load_pack<pack, whole>(dy2, offset, valid);
    return result;
  }
  __device__ void prefetch(int64_t offset) const {
    detail::prefetch(dy + offset);
    if (dy2 != nullptr) detail::prefetch(dy2 + offset);
  }
  /// The byte of the mask that has a pack's bits.
  __device__ unsigned byte(int64_t offset) const { return mask == nullptr ? ~0u : load_mask(mask, offset); }
  template <int pack>
  __device__ C at(const LoadedSlopes<T, pack>& loaded, int i) const {
    const C first = cuda::load_as_compute(loaded.dy[i]);
    return dy2 == nullptr ? first : first + cuda::load_as_compute(loaded.dy2[i]);
  }
};

template <class T>
Slopes<T> slopes_of(const NormGradCall& call) {
  return {call.dy.as<const T>(), pointer_or_null<const T>(call.dy2),
          pointer_or_null<const uint8_t>(call.mask)};
}

/// One normalised tensor's parameters, for the activation's argument under PReLU.
template <class C>
struct NormSource {
  const C *weight, *bias, *mean, *inv_std;

  __device__ Normalize<C> at(int64_t c) const {
    return make_normalize<C>(static_cast<double>(mean[c]), static_cast<double>(inv_std[c]),
                             weight == nullptr ? 1.0 : static_cast<double>(weight[c]),
                             bias == nullptr ? 0.0 : static_cast<double>(bias[c]));
  }
};

template <class C>
NormSource<C> source_of(const NormGradTensor& tensor) {
  return {pointer_or_null<const C>(tensor.weight), pointer_or_null<const C>(tensor.bias),
          pointer_or_null<const C>(tensor.mean), pointer_or_null<const C>(tensor.inv_std)};
}

/// The sums of g, the gradient of the activation's argument, of g * (x - mean), of the same with the addend,
/// and of alpha's gradient: so many of them as the kind needs. Writes g on the way where it is the addend's
/// gradient.
template <class T, GradKind kind>
struct GradientTerms {
  using C = compute_type<T>;
  static constexpr bool kAddend = kind != GradKind::kPlain, kAlpha = kind == GradKind::kPRelu;
  static constexpr int kValues = 2 + (kAddend ? 1 : 0) + (kAlpha ? 1 : 0);  // alpha's is the last
  static constexpr int kBlocks = sizeof(T) == 2 ? kGradientBlocks : 0;

  struct Nothing {};
  struct Parameter {
    std::conditional_t<kAlpha, Normalize<C>, C> main;  // or the mean alone
    std::conditional_t<!kAddend, Nothing, std::conditional_t<kAlpha, Normalize<C>, C>> addend;
    std::conditional_t<kAlpha, C, Nothing> alpha;
  };
  template <int pack>
  struct Loaded {
    LoadedSlopes<T, pack> slopes;
    HeldPack<T, pack> x;
    std::conditional_t<kAddend, HeldPack<T, pack>, Nothing> addend;
    unsigned byte;
  };

  Slopes<T> slopes;
  const T *x, *addend;
  T* dz;  // null: not wanted
  NormSource<C> main_source, addend_source;
  const C* alpha;
  int64_t alpha_step;

  __device__ Parameter parameter(int64_t channel) const {
    Parameter result;
    if constexpr (kAlpha) {
      result.main = main_source.at(channel);
      result.addend = {C{0}, C{1}, C{0}};
      if (addend_source.mean != nullptr) result.addend = addend_source.at(channel);
      result.alpha = alpha[channel * alpha_step];
    } else {
      result.main = main_source.mean[channel];
      if constexpr (kAddend) result.addend = addend_source.mean[channel];
    }
    return result;
  }
  template <int pack>
  __device__ void neighbours(int64_t channel, Parameter (&result)[pack]) const {
    if constexpr (kAlpha) {
#pragma unroll
      for (int i = 0; i < pack; ++i) result[i] = parameter(channel + i);
    } else {
      const auto means = load_neighbours<pack>(main_source.mean + channel);
#pragma unroll
      for (int i = 0; i < pack; ++i) result[i].main = means.values[i];
      if constexpr (kAddend) {
        const auto added = load_neighbours<pack>(addend_source.mean + channel);
#pragma unroll
        for (int i = 0; i < pack; ++i) result[i].addend = added.values[i];
      }
    }
  }
  __device__ void prefetch(int64_t offset) const {
    slopes.prefetch(offset);
    detail::prefetch(x + offset);
    if constexpr (kAddend) detail::prefetch(addend + offset);
  }
  template <int pack>
  __device__ Loaded<pack> load(int64_t offset) const {
    Loaded<pack> result;
    result.slopes = slopes.template load<pack, true>(offset, pack);
    result.x = load_pack<pack>(x, offset);
    if constexpr (kAddend) result.addend = load_pack<pack>(addend, offset);
    result.byte = slopes.byte(offset);
    return result;
  }
  /// Returns g.
  template <int pack>
  __device__ cuda::Pack<T, pack> add(int64_t offset, const Loaded<pack>& loaded,
                                     const Parameter (&parameters)[pack], C (&sums)[kValues][pack]) const {
    const unsigned bits = own_bits<pack>(loaded.byte, offset);
    cuda::Pack<T, pack> out;
#pragma unroll
    for (int i = 0; i < pack; ++i) {
      const Parameter& p = parameters[i];
      const bool on = (bits >> i & 1) != 0;
      C g = slopes.at(loaded.slopes, i);
      const C value = cuda::load_as_compute(loaded.x[i]);
      C added = 0;
      if constexpr (kAddend) added = cuda::load_as_compute(loaded.addend[i]);
      if constexpr (kAlpha) {
        sums[3][i] += on ? C{0} : g * (p.main(value) + p.addend(added));
        g = on ? g : p.alpha * g;
        sums[1][i] += g * (value - p.main.mean);
        sums[2][i] += g * (added - p.addend.mean);
      } else {
        g = on ? g : C{0};
        sums[1][i] += g * (value - p.main);
        if constexpr (kAddend) sums[2][i] += g * (added - p.addend);
      }
      sums[0][i] += g;
      out.values[i] = cuda::round_to<T>(g);
    }
    if (dz != nullptr) store_pack<pack>(dz, offset, out);
    return out;
  }
};

/// PReLU's sums where nothing but dy and x is read, and nothing written: of dy and of dy * (x - mean), over
/// the elements that the activation passes on, then over the others. The slope and the argument are the same
/// linear functions of those for all of a channel's elements, so that no thread needs them.
template <class T>
struct GradientTerms<T, GradKind::kPReluAlone> {
  using C = compute_type<T>;
  using Parameter = C;
  static constexpr int kValues = 4, kBlocks = kGradientBlocks;
  template <int pack>
  struct Loaded {
    LoadedSlopes<T, pack> slopes;
    HeldPack<T, pack> x;
    unsigned byte;
  };

  Slopes<T> slopes;
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
    slopes.prefetch(offset);
    detail::prefetch(x + offset);
  }
  template <int pack>
  __device__ Loaded<pack> load(int64_t offset) const {
    return {slopes.template load<pack, true>(offset, pack), load_pack<pack>(x, offset), slopes.byte(offset)};
  }
  template <int pack>
  __device__ void add(int64_t offset, const Loaded<pack>& loaded, const C (&means)[pack],
                      C (&sums)[kValues][pack]) const {
    const unsigned bits = own_bits<pack>(loaded.byte, offset);
#pragma unroll
    for (int i = 0; i < pack; ++i) {
      const bool on = (bits >> i & 1) != 0;
      const C slope = slopes.at(loaded.slopes, i);
      const C passed = on ? slope : C{0}, scaled = on ? C{0} : slope;
      const C deviation = cuda::load_as_compute(loaded.x[i]) - means[i];
      sums[0][i] += passed;
      sums[1][i] += passed * deviation;
      sums[2][i] += scaled;
      sums[3][i] += scaled * deviation;
    }
  }
};

/// Turns a channel's sums into its parameters' gradients and what the map needs of one normalised tensor.
template <class C>
struct ChannelGradient {
  NormSource<C> source;
  C *dweight, *dbias;            // null: not wanted
  NormalizeGrad<C>* parameters;  // null: not wanted

  /// What belongs to a channel beside its elements.
  struct Known {
    C mean, inv_std, weight;
  };
  __device__ Known known(int64_t c) const {
    return {source.mean[c], source.inv_std[c], source.weight == nullptr ? C{1} : source.weight[c]};
  }
  /// The map where the statistics depend on the elements.
  static __device__ NormalizeGrad<C> map_of(const Known& known, double inverse_count, double sum,
                                            double sum_deviation) {
    return make_normalize_grad<C>(known.mean, static_cast<double>(known.inv_std),
                                  static_cast<double>(known.weight), inverse_count, sum, sum_deviation);
  }
  __device__ void keep(int64_t c, const Known& known, double sum, double sum_deviation) const {
    if (dweight == nullptr) return;
    dweight[c] = static_cast<C>(sum_deviation * static_cast<double>(known.inv_std));
    dbias[c] = static_cast<C>(sum);
  }

  __device__ void finish(int64_t c, const Known& all, double count, bool constant, double sum,
                         double sum_deviation) const {
    keep(c, all, sum, sum_deviation);
    if (parameters == nullptr) return;
    parameters[c] = constant ? NormalizeGrad<C>{C{0},
                                                static_cast<C>(static_cast<double>(all.weight) *
                                                               static_cast<double>(all.inv_std)),
                                                C{0}, C{0}}
                             : map_of(all, 1.0 / count, sum, sum_deviation);
  }
};

/// dx, and the addend's gradient if that is normalised too.
template <class T, bool two, bool has_alpha>
struct GradientMap {
  using C = compute_type<T>;
  static constexpr int kBlocks = 2;

  using Channels = MapParameters<NormalizeGrad<C>, C, two, has_alpha>;
  using Parameter = typename Channels::Parameter;
  struct Nothing {};
  template <int pack>
  struct Loaded {
    LoadedSlopes<T, pack> slopes;
    HeldPack<T, pack> x;
    std::conditional_t<two, HeldPack<T, pack>, Nothing> addend;
    unsigned byte;
  };

  Slopes<T> slopes;
  const T *x, *addend;  // null where statistics are constants: then the parameters do not need them
  T *dx, *daddend;      // daddend: null if not wanted
  Channels channels;

  template <int pack, bool whole>
  __device__ Loaded<pack> load(int64_t offset, int valid) const {
    Loaded<pack> result;
    result.slopes = slopes.template load<pack, whole>(offset, valid);
    if (x != nullptr) result.x = load_pack<pack, whole>(x, offset, valid);
    if constexpr (two) {
      if (addend != nullptr) result.addend = load_pack<pack, whole>(addend, offset, valid);
    }
    result.byte = slopes.byte(offset);
    return result;
  }
  template <bool whole, int pack>
  __device__ void apply(int64_t offset, int valid, const Parameter (&parameters)[pack],
                        const Loaded<pack>& loaded) const {
    const unsigned bits = own_bits<pack>(loaded.byte, offset);
    cuda::Pack<T, pack> out, addend_out;
#pragma unroll
    for (int i = 0; i < pack; ++i) {
      const Parameter& p = parameters[i];
      C g = slopes.at(loaded.slopes, i);
      const bool on = (bits >> i & 1) != 0;
      if constexpr (has_alpha) {
        g = on ? g : p.alpha * g;
      } else {
        g = on ? g : C{0};
      }
      const C value = x == nullptr ? p.main.mean : cuda::load_as_compute(loaded.x[i]);
      out.values[i] = cuda::round_to<T>(p.main(value, g));
      if constexpr (two) {
        const C added = addend == nullptr ? p.addend.mean : cuda::load_as_compute(loaded.addend[i]);
        addend_out.values[i] = cuda::round_to<T>(p.addend(added, g));
      }
    }
    store_pack<pack, whole>(dx, offset, out, valid);
    if constexpr (two) {
      if (daddend != nullptr) store_pack<pack, whole>(daddend, offset, addend_out, valid);
    }
  }
};

}  // namespace sinter::ops
