// Forward normalisation of a tensor that is kept on chip between its statistics and its map.
#include <sinter/ops/norm/cuda/norm_cuda.h>
#include <sinter/ops/norm/cuda/norm_forward_terms_cuda.h>
#include <sinter/ops/norm/cuda/resident/norm_resident_cuda.h>

namespace sinter::ops {
namespace {

/// A pass, as norm_resident_cuda.h says what that is.
template <class T_, AddendKind kind, bool prelu>
struct ResidentForward {
  using T = T_;
  using C = compute_type<T>;
  static constexpr int kPack = cuda::kPackSize<T>, kTensors = 1;
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

template <class T, AddendKind kind, bool prelu>
void run(const NormCall& call, const NormResidentPlan& plan, const Stream& stream, void* workspace) {
  const double count = static_cast<double>(call.view.per_channel());
  const ResidentForward<T, kind, prelu> pass{.terms = {call.main.x.as<const T>(), PilotPlaces(call.view)},
                                             .statistics = statistics_of<T>(call, call.main),
                                             .map_to = map_of<T, kind, prelu>(call, nullptr, nullptr),
                                             .count = count,
                                             .inverse_count = 1.0 / count};
  SINTER_ASSERT(are_wide({pass.terms.x, pass.map_to.addend, pass.map_to.y}),
                "[batch_norm] a tensor is not aligned to 16 bytes");
  run_resident(stream, plan, pass, workspace);
}

template <class T, AddendKind kind>
void run(const NormCall& call, const NormResidentPlan& plan, const Stream& stream, void* workspace) {
  call.options.activation == fused::Activation::kPRelu ? run<T, kind, true>(call, plan, stream, workspace)
                                                       : run<T, kind, false>(call, plan, stream, workspace);
}

}  // namespace

NormResidentPlan plan_resident(const NormProblem& problem) {
  const NormOptions& options = problem.options;
  if (!problem.aligned || !options.training || options.statistics_given || problem.has_sums ||
      options.normalize_addend)
    return {};
  return plan_resident_tensors(problem.view, problem.dtype, problem.device, 1);
}

void norm_resident(const NormCall& call, const NormResidentPlan& plan, const Stream& stream,
                   void* workspace) {
  dispatch_float(call.main.x.dtype, "batch_norm", [&]<class T> {
    if constexpr (sizeof(T) < sizeof(double)) {  // none is kept of others
      call.addend.x.present ? run<T, AddendKind::kPlain>(call, plan, stream, workspace)
                            : run<T, AddendKind::kNone>(call, plan, stream, workspace);
    }
  });
}

}  // namespace sinter::ops
