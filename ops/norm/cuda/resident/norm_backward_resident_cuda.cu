// The gradient of normalisation of a tensor that is kept on chip between the sums and the map.
#include <sinter/ops/norm/cuda/norm_backward_terms_cuda.h>
#include <sinter/ops/norm/cuda/norm_cuda.h>
#include <sinter/ops/norm/cuda/resident/norm_resident_cuda.h>

namespace sinter::ops {
namespace {

/// A pass, as norm_resident_cuda.h says what that is; `two`: dy + dy2 comes in.
template <class T_, bool two>
struct ResidentBackward {
  using T = T_;
  using C = compute_type<T>;
  using Terms = GradientTerms<T, GradKind::kPlain>;
  using Map = GradientMap<T, false, false>;
  static constexpr int kPack = cuda::kPackSize<T>, kTensors = 2;
  static constexpr bool kChanges = true;  // g takes dy's place
  static constexpr int kChanged = 1;

  Terms terms;
  ChannelGradient<C> gradient;
  T* dx;
  double inverse_count;

  __device__ const T* source(int i) const { return i == 0 ? terms.x : terms.slopes.dy; }
  using Center = typename Terms::Parameter;
  __device__ Center center(int64_t channel) const { return terms.parameter(channel); }
  __device__ void centers(int64_t channel, Center (&means)[kPack]) const { terms.neighbours(channel, means); }

  struct Nothing {};
  struct Beside {
    std::conditional_t<two, cuda::Pack<T, kPack>, Nothing> dy2;
    unsigned byte;
  };
  __device__ Beside beside(int64_t offset) const {
    Beside result{};
    if constexpr (two) result.dy2 = load_pack<kPack>(terms.slopes.dy2, offset);
    result.byte = terms.slopes.byte(offset);
    return result;
  }
  __device__ void add(int64_t offset, cuda::Pack<T, kPack> (&packs)[2], const Beside& beside,
                      const Center (&means)[kPack], C (&sums)[2][kPack]) const {
    Terms known = terms;
    typename Terms::template Loaded<kPack> loaded{
        .slopes = {packs[1], {}}, .x = packs[0], .addend = {}, .byte = beside.byte};
    if constexpr (two) {
      loaded.slopes.dy2 = beside.dy2;
    } else {
      known.slopes.dy2 = nullptr;  // the compiler leaves out what there is for it
    }
    packs[1] = known.add(offset, loaded, means, sums);
  }

  using Known = typename ChannelGradient<C>::Known;
  using Finished = NormalizeGrad<C>;
  using Parameter = typename Map::Parameter;
  static __device__ void set(Parameter& parameter, const Finished& finished) { parameter.main = finished; }
  __device__ Known known(int64_t channel, bool) const { return gradient.known(channel); }
  __device__ Finished finish(const Known& known, const double (&sums)[2]) const {
    return gradient.map_of(known, inverse_count, sums[0], sums[1]);
  }
  __device__ void keep(int64_t channel, const Known& known, const double (&sums)[2]) const {
    gradient.keep(channel, known, sums[0], sums[1]);
  }

  struct Again {
    cuda::Pack<T, kPack> x, g;
    unsigned bits;
  };
  /// The addend's gradient, which this thread has written, is g.
  __device__ Again again(int64_t offset) const {
    const bool written = terms.dz != nullptr;
    return {load_pack<kPack>(terms.x, offset), load_pack<kPack>(written ? terms.dz : terms.slopes.dy, offset),
            written ? ~0u : own_bits<kPack>(terms.slopes.byte(offset), offset)};
  }
  static __device__ void restore(const Again& again, cuda::Pack<T, kPack> (&packs)[2]) {
    packs[0] = again.x;
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      packs[1].values[i] = (again.bits >> i & 1) != 0 ? again.g.values[i] : T{};
    }
  }

  struct Added {};
  __device__ Added added(int64_t) const {
    return {};
  }
  __device__ void map(int64_t offset, const cuda::Pack<T, kPack> (&packs)[2],
                      const Parameter (&parameters)[kPack], const Added&) const {
    const Map map_to{
        .slopes = {}, .x = terms.x, .addend = nullptr, .dx = dx, .daddend = nullptr, .channels = {}};
    __builtin_assume(map_to.x != nullptr);
    map_to.template apply<true>(offset, kPack, parameters,
                                typename Map::template Loaded<kPack>{
                                    .slopes = {packs[1], {}}, .x = packs[0], .addend = {}, .byte = ~0u});
  }
};

template <class T, bool two>
void run(const NormGradCall& call, const NormResidentPlan& plan, const Stream& stream, void* workspace) {
  using C = compute_type<T>;
  const NormSource<C> source = source_of<C>(call.main);
  const ResidentBackward<T, two> pass{.terms = {.slopes = slopes_of<T>(call),
                                                .x = call.main.x.as<const T>(),
                                                .addend = nullptr,
                                                .dz = pointer_or_null<T>(call.addend.dx),
                                                .main_source = source,
                                                .addend_source = {},
                                                .alpha = nullptr,
                                                .alpha_step = 0},
                                      .gradient = {source, pointer_or_null<C>(call.main.dweight),
                                                   pointer_or_null<C>(call.main.dbias), nullptr},
                                      .dx = call.main.dx.as<T>(),
                                      .inverse_count = 1.0 / static_cast<double>(call.view.per_channel())};
  SINTER_ASSERT(are_wide({pass.terms.x, pass.terms.dz, pass.terms.slopes.dy, pass.terms.slopes.dy2, pass.dx,
                          source.mean}),
                "[batch_norm_grad] a tensor is not aligned to 16 bytes");
  run_resident(stream, plan, pass, workspace);
}

}  // namespace

/// The sum of two gradients takes the place of one, rounded, as it is in the addend's gradient.
NormResidentPlan plan_resident(const NormGradProblem& problem) {
  const NormGradOptions& options = problem.options;
  if (!problem.aligned || !options.training || options.normalize_addend ||
      options.activation == fused::Activation::kPRelu || (problem.has_dy2 && !problem.addend_grad))
    return {};
  return plan_resident_tensors(problem.view, problem.dtype, problem.device, 2);
}

void norm_resident(const NormGradCall& call, const NormResidentPlan& plan, const Stream& stream,
                   void* workspace) {
  dispatch_float(call.main.x.dtype, "batch_norm_grad", [&]<class T> {
    if constexpr (sizeof(T) < sizeof(double)) {  // none is kept of others
      call.dy2.present ? run<T, true>(call, plan, stream, workspace)
                       : run<T, false>(call, plan, stream, workspace);
    }
  });
}

}  // namespace sinter::ops
