// The gradient of normalisation in passes over memory: sums, finish, map.
#include <sinter/ops/common/channels/split_reduce_cuda.h>
#include <sinter/ops/norm/cuda/norm_backward_terms_cuda.h>
#include <sinter/ops/norm/cuda/norm_cuda.h>
#include <sinter/ops/norm/cuda/norm_maps_cuda.h>
#include <sinter/ops/norm/cuda/norm_sums_cuda.h>

namespace sinter::ops {
namespace {

template <class C, GradKind kind>
struct FinishGradient {
  static constexpr bool kAddend = kind == GradKind::kNormalizedAddend || kind == GradKind::kPRelu;

  ChannelGradient<C> main, addend;
  const C* alpha;
  int64_t alpha_step;
  C* dalpha;            // null: not wanted, or one for all channels
  double* dalpha_sums;  // by channel, of one alpha for all; else null
  double count;
  bool constant;

  struct Known {
    typename ChannelGradient<C>::Known main, addend;
    Normalize<C> argument;
    double alpha;
  };
  __device__ Known known(int64_t c) const {
    Known result{};
    result.main = main.known(c);
    if constexpr (kAddend) {
      if (addend.source.mean != nullptr) result.addend = addend.known(c);
    }
    if constexpr (kind == GradKind::kPReluAlone) {
      result.argument = main.source.at(c);
      result.alpha = static_cast<double>(alpha[c * alpha_step]);
    }
    return result;
  }
  __device__ void operator()(int64_t c, const Known& known, const double* sums) const {
    if constexpr (kind == GradKind::kPReluAlone) {
      main.finish(c, known.main, count, constant, sums[0] + known.alpha * sums[2],
                  sums[1] + known.alpha * sums[3]);
      keep_alpha(c, static_cast<double>(known.argument.scale) * sums[3] +
                        static_cast<double>(known.argument.shift) * sums[2]);
    } else {
      main.finish(c, known.main, count, constant, sums[0], sums[1]);
    }
    if constexpr (kAddend) {
      if (addend.source.mean != nullptr) addend.finish(c, known.addend, count, constant, sums[0], sums[2]);
    }
    if constexpr (kind == GradKind::kPRelu) keep_alpha(c, sums[3]);
  }

 private:
  __device__ void keep_alpha(int64_t c, double of_alpha) const {
    if (dalpha != nullptr) dalpha[c] = static_cast<C>(of_alpha);
    if (dalpha_sums != nullptr) dalpha_sums[c] = of_alpha;
  }
};

/// One gradient call over tensors of type T. Workspace: the map's parameters of both tensors, alpha's sums by
/// channel, then the table of the sums.
template <class T>
class Backward {
 public:
  using C = compute_type<T>;
  static constexpr int kPlanePack = NormPlan::kGroup;  // elements that a thread takes at once by planes

  Backward(const NormGradCall& call, const Stream& stream, void* workspace)
      : call_(call),
        stream_(stream),
        view_(call.view),
        two_(call.options.normalize_addend),
        slopes_(slopes_of<T>(call)) {
    NormScratch scratch(workspace);
    auto* parameters = scratch.take<NormalizeGrad<C>>(view_.channels);
    auto* addend_parameters = scratch.take<NormalizeGrad<C>>(two_ ? view_.channels : 0);
    dalpha_sums_ = scratch.take<double>(call.alpha.present ? view_.channels : 0);
    table_ = static_cast<C*>(scratch.rest());
    main_ = {source_of<C>(call.main), pointer_or_null<C>(call.main.dweight),
             pointer_or_null<C>(call.main.dbias), parameters};
    addend_ = {two_ ? source_of<C>(call.addend) : NormSource<C>{}, pointer_or_null<C>(call.addend.dweight),
               pointer_or_null<C>(call.addend.dbias), addend_parameters};
  }

  void run() {
    if (view_.channels == 0) {
      if (sums_alphas()) sum_alphas();
      return;
    }
    if (call_.alpha.present) {
      call_.addend.x.present ? reduce<GradKind::kPRelu>() : reduce<GradKind::kPReluAlone>();
    } else if (two_) {
      reduce<GradKind::kNormalizedAddend>();
    } else {
      reduce<GradKind::kPlain>();
    }
    // Where g has been written, the activation's gradient is in it.
    const bool has_alpha = call_.alpha.present && dz() == nullptr;
    if (two_) {
      has_alpha ? map<true, true>() : map<true, false>();
    } else {
      has_alpha ? map<false, true>() : map<false, false>();
    }
    if (sums_alphas()) sum_alphas();
  }

 private:
  /// The gradient of an addend that is not normalised, or null.
  T* dz() const { return two_ ? nullptr : pointer_or_null<T>(call_.addend.dx); }
  int64_t alpha_step() const { return call_.alpha.present && call_.alpha.numel() != 1 ? 1 : 0; }
  bool sums_alphas() const { return call_.dalpha.present && alpha_step() == 0; }

  template <GradKind kind>
  GradientTerms<T, kind> terms_of() const {
    if constexpr (kind == GradKind::kPReluAlone) {
      return {slopes_, call_.main.x.as<const T>(), main_.source.mean};
    } else {
      return usual_terms_of<kind>();
    }
  }
  template <GradKind kind>
  GradientTerms<T, kind> usual_terms_of() const {
    return {.slopes = slopes_,
            .x = call_.main.x.as<const T>(),
            .addend = pointer_or_null<const T>(call_.addend.x),
            .dz = dz(),
            .main_source = main_.source,
            .addend_source = addend_.source,
            .alpha = pointer_or_null<const C>(call_.alpha),
            .alpha_step = alpha_step()};
  }

  template <bool two, bool has_alpha>
  GradientMap<T, two, has_alpha> map_of(const Slopes<T>& slopes) const {
    return {.slopes = slopes,
            .x = call_.options.training ? call_.main.x.as<const T>() : nullptr,
            .addend = call_.options.training ? pointer_or_null<const T>(call_.addend.x) : nullptr,
            .dx = call_.main.dx.as<T>(),
            .daddend = two ? pointer_or_null<T>(call_.addend.dx) : nullptr,
            .channels = {main_.parameters, addend_.parameters, pointer_or_null<const C>(call_.alpha),
                         alpha_step()}};
  }

  /// Sums up, where sums are needed, and finishes the channels.
  template <GradKind kind>
  void reduce() {
    const auto terms = terms_of<kind>();
    const bool wide = has_norm_packs<T> &&
                      are_wide({call_.main.x.as<const T>(), pointer_or_null<const T>(call_.addend.x), dz(),
                                slopes_.dy, slopes_.dy2, main_.source.mean, addend_.source.mean});
    const ChannelView view = simplified_norm_view(view_);
    const int plane_pack = view.inner % NormPlan::kGroup == 0 ? kPlanePack : kSumPack<T>;
    NormPlan plan = plan_norm_sums(view, wide ? kSumPack<T> : 1, wide ? plane_pack : 1,
                                   norm_blocks(stream_.device.index, kGradientBlocks));
    if (!call_.reduces()) plan.parts = 0;
    // In flight per thread: so many that registers for two blocks remain.
    constexpr bool alone = kind == GradKind::kPReluAlone, large = kPlanePack * sizeof(T) > 16;
    constexpr int packs = alone && sizeof(T) == 2             ? 3
                          : alone || kind == GradKind::kPlain ? 4
                          : kind == GradKind::kPRelu          ? 1
                                                              : 2;
    constexpr int plane_packs = alone && large ? 2 : packs;
    constexpr int straddling = large ? std::min(packs + 1, 4) : std::min(plane_packs, 3);
    sum_channels<T, packs, plane_packs, kPlanePack, straddling>(stream_, plan, terms, table_);
    const FinishGradient<C, kind> finish{
        .main = main_,
        .addend = addend_,
        .alpha = pointer_or_null<const C>(call_.alpha),
        .alpha_step = alpha_step(),
        .dalpha = alpha_step() == 1 ? pointer_or_null<C>(call_.dalpha) : nullptr,
        .dalpha_sums = sums_alphas() ? dalpha_sums_ : nullptr,
        .count = static_cast<double>(view_.per_channel()),
        .constant = !call_.options.training};
    finish_channels<GradientTerms<T, kind>::kValues>(stream_, plan, static_cast<const C*>(table_), finish);
  }

  template <bool two, bool has_alpha>
  void map() {
    Slopes<T> slopes = slopes_;
    if (dz() != nullptr) slopes = {dz(), nullptr, nullptr};
    const auto map = map_of<two, has_alpha>(slopes);
    const bool wide = are_wide({map.x, map.addend, map.dx, map.daddend, map.slopes.dy, map.slopes.dy2});
    map_channels_of<T, two ? 1 : 2, 1, kPlanePack>(stream_, simplified_norm_view(view_), wide, map);
  }

  void sum_alphas() {
    split_reduce(stream_, view_.channels, 1, static_cast<const double*>(dalpha_sums_),
                 StoreSums<C>{call_.dalpha.as<C>()});
  }

  const NormGradCall& call_;
  Stream stream_;
  ChannelView view_;
  bool two_;
  Slopes<T> slopes_;
  ChannelGradient<C> main_{}, addend_{};
  double* dalpha_sums_ = nullptr;
  C* table_ = nullptr;
};

}  // namespace

size_t norm_streaming_bytes(const NormGradProblem& problem) {
  const auto channels = static_cast<size_t>(problem.view.channels);
  const bool two = problem.options.normalize_addend,
             has_alpha = problem.options.activation == fused::Activation::kPRelu;
  const size_t parameters =
      NormScratch::bytes(channels * (problem.dtype == DType::kFloat64 ? sizeof(NormalizeGrad<double>)
                                                                      : sizeof(NormalizeGrad<float>)));
  const int values = has_alpha ? 4 : two ? 3 : 2;
  return parameters * (two ? 2 : 1) + (has_alpha ? NormScratch::bytes(channels * sizeof(double)) : 0) +
         norm_table_bytes(problem.view, problem.dtype, problem.device, kGradientBlocks, values);
}

void norm_streaming(const NormGradCall& call, const Stream& stream, void* workspace) {
  dispatch_float(call.main.x.dtype, "batch_norm_grad",
                 [&]<class T> { Backward<T>(call, stream, workspace).run(); });
}

}  // namespace sinter::ops
