// Forward normalisation as the kernels see it that keep a tensor on chip. For .cu files. norm_resident_cuda.h
// says what a pass is.
#pragma once

#include <sinter/ops/norm/cuda/norm_forward_terms_cuda.h>

namespace sinter::ops {

/// Statistics and map of a tensor that is kept on chip between them.
template <class T_, AddendKind kind, bool prelu, int pack = cuda::kPackSize<T_>>
struct ResidentForward {
  using T = T_;
  using C = compute_type<T>;
  static constexpr int kPack = pack, kTensors = 1;
  static constexpr bool kChanges = false;
  using Map = NormalizeMap<T, kind, prelu>;

  StatisticsTerms<T> terms;
  ChannelStatistics<C> statistics;
  Map map_to;
  double count, inverse_count;

  __device__ const T* source(int) const { return terms.x; }
  using Center = C;
  __device__ Center center(int64_t channel) const { return terms.parameter(channel); }
  __device__ void centers(int64_t channel, C (&pilots)[kPack]) const { terms.neighbours(channel, pilots); }

  /// Sends for what the map reads beside x.
  __device__ void prefetch(int64_t offset) const {
    if constexpr (Map::kAdds) detail::prefetch(map_to.addend + offset);
  }
  struct Beside {};
  __device__ Beside beside(int64_t) const { return {}; }
  __device__ void add(int64_t offset, cuda::Pack<T, kPack> (&packs)[1], const Beside&,
                      const C (&pilots)[kPack], C (&sums)[2][kPack]) const {
    terms.template add<kPack>(offset, packs[0], pilots, sums);
  }

  struct Nothing {};
  using Slope = std::conditional_t<Map::kAlpha, C, Nothing>;
  struct Known {
    C pilot;
    typename ChannelStatistics<C>::Known channel;
    Slope alpha;
  };
  struct WithSlope {
    Normalize<C> main;
    Slope alpha;
  };
  using Finished = std::conditional_t<Map::kAlpha, WithSlope, Normalize<C>>;
  using Parameter = typename Map::Parameter;
  static __device__ void set(Parameter& parameter, const Finished& finished) {
    if constexpr (Map::kAlpha) {
      parameter.main = finished.main;
      parameter.alpha = finished.alpha;
    } else {
      parameter.main = finished;
    }
  }
  __device__ Known known(int64_t channel, bool keeps) const {
    Known result{terms.parameter(channel), statistics.known(channel, keeps), {}};
    if constexpr (Map::kAlpha) result.alpha = map_to.channels.alpha[channel * map_to.channels.alpha_step];
    return result;
  }
  __device__ Moments moments(const Known& known, const double (&sums)[2]) const {
    const double mean = sums[0] * inverse_count, squares = sums[1] - sums[0] * mean;
    return {count, static_cast<double>(known.pilot) + mean, squares < 0.0 ? 0.0 : squares};
  }
  __device__ Finished finish(const Known& known, const double (&sums)[2]) const {
    const Moments all = moments(known, sums);
    const Normalize<C> main = statistics.use(known.channel, all.mean, all.squares * inverse_count);
    if constexpr (Map::kAlpha) {
      return {main, known.alpha};
    } else {
      return main;
    }
  }
  __device__ void keep(int64_t channel, const Known& known, const double (&sums)[2]) const {
    statistics.learn(channel, known.channel, moments(known, sums));
  }

  using Added = typename Map::template Loaded<kPack>;
  __device__ Added added(int64_t offset) const {
    Added result{};
    if constexpr (Map::kAdds) result.addend = load_pack<kPack>(map_to.addend, offset);
    return result;
  }
  __device__ void map(int64_t offset, const cuda::Pack<T, kPack> (&packs)[1],
                      const Parameter (&parameters)[kPack], Added& added) const {
    added.x = packs[0];
    map_to.template apply<true>(offset, kPack, parameters, added);
  }
};

template <class T, AddendKind kind, bool prelu, int pack>
ResidentForward<T, kind, prelu, pack> forward_pass_of(const NormCall& call) {
  const double count = static_cast<double>(call.view.per_channel());
  const ResidentForward<T, kind, prelu, pack> pass{
      .terms = {call.main.x.as<const T>(), PilotPlaces(call.view)},
      .statistics = statistics_of<T>(call, call.main),
      .map_to = map_of<T, kind, prelu>(call, nullptr, nullptr),
      .count = count,
      .inverse_count = 1.0 / count};
  SINTER_ASSERT(pack == 1 || are_wide({pass.terms.x, pass.map_to.addend, pass.map_to.y}),
                "[batch_norm] a tensor is not aligned to 16 bytes");
  return pass;
}

/// Calls body<T, kind, prelu>() for what the call is.
template <class Body>
void dispatch_forward(const NormCall& call, const Body& body) {
  const auto with_kind = [&]<class T, AddendKind kind>() {
    call.options.activation == Activation::kPRelu ? body.template operator()<T, kind, true>()
                                                  : body.template operator()<T, kind, false>();
  };
  dispatch_float(call.main.x.dtype, "batch_norm", [&]<class T> {
    call.addend.x.present ? with_kind.template operator()<T, AddendKind::kPlain>()
                          : with_kind.template operator()<T, AddendKind::kNone>();
  });
}

/// Whether the kernels that keep a tensor on chip have what the call needs.
inline bool can_be_kept(const NormProblem& problem) {
  const NormOptions& options = problem.options;
  return options.training && !options.statistics_given && !problem.has_sums && !options.normalize_addend;
}

}  // namespace sinter::ops
