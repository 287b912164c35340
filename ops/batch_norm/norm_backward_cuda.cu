#include <sinter/ops/batch_norm/batch_norm_math.h>
#include <sinter/ops/batch_norm/norm_cuda.h>
#include <sinter/ops/batch_norm/norm_kernels_cuda.h>
#include <sinter/ops/batch_norm/norm_scratch_cuda.h>

namespace sinter::ops {
namespace {

/// What the gradient's sums have to read. kPRelu finds the activation's argument again, and needs no addend;
/// kPReluAddend has one, normalised or not.
enum class GradKind { kPlain, kNormalizedAddend, kPRelu, kPReluAddend };

/// dy, or dy + dy2.
template <class T, int pack>
struct LoadedSlopes {
  cuda::Pack<T, pack> dy, dy2;
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
  template <int pack>
  __device__ unsigned bits(int64_t offset) const {
    return mask == nullptr ? ~0u : load_mask<pack>(mask, offset);
  }
  template <int pack>
  __device__ C at(const LoadedSlopes<T, pack>& loaded, int i) const {
    const C first = cuda::load_as_compute(loaded.dy.values[i]);
    return dy2 == nullptr ? first : first + cuda::load_as_compute(loaded.dy2.values[i]);
  }
};

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
  static constexpr bool kAddend = kind == GradKind::kNormalizedAddend || kind == GradKind::kPReluAddend;
  static constexpr bool kAlpha = kind == GradKind::kPRelu || kind == GradKind::kPReluAddend;
  static constexpr int kValues = 2 + (kAddend ? 1 : 0) + (kAlpha ? 1 : 0);  // alpha's is the last

  struct Nothing {};
  struct Parameter {
    std::conditional_t<kAlpha, Normalize<C>, C> main;  // or the mean alone
    std::conditional_t<!kAddend, Nothing, std::conditional_t<kAlpha, Normalize<C>, C>> addend;
    std::conditional_t<kAlpha, C, Nothing> alpha;
  };
  template <int pack>
  struct Loaded {
    LoadedSlopes<T, pack> slopes;
    cuda::Pack<T, pack> x;
    std::conditional_t<kAddend, cuda::Pack<T, pack>, Nothing> addend;
    unsigned bits;
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
      if constexpr (kAddend) {
        result.addend = {C{0}, C{1}, C{0}};
        if (addend_source.mean != nullptr) result.addend = addend_source.at(channel);
      }
      result.alpha = alpha[channel * alpha_step];
    } else {
      result.main = main_source.mean[channel];
      if constexpr (kAddend) result.addend = addend_source.mean[channel];
    }
    return result;
  }
  __device__ void neighbours(int64_t channel, Parameter (&result)[NormPlan::kPack]) const {
    constexpr int pack = NormPlan::kPack;
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
  template <int pack>
  __device__ Loaded<pack> load(int64_t offset) const {
    Loaded<pack> result;
    result.slopes = slopes.template load<pack, true>(offset, pack);
    result.x = load_pack<pack>(x, offset);
    if constexpr (kAddend) result.addend = load_pack<pack>(addend, offset);
    result.bits = slopes.template bits<pack>(offset);
    return result;
  }
  template <int pack>
  __device__ void add(int64_t offset, const Loaded<pack>& loaded, const Parameter (&parameters)[pack],
                      C (&sums)[kValues][pack]) const {
    cuda::Pack<T, pack> out;
#pragma unroll
    for (int i = 0; i < pack; ++i) {
      const Parameter& p = parameters[i];
      const bool on = (loaded.bits >> i & 1) != 0;
      C g = slopes.at(loaded.slopes, i);
      const C value = cuda::load_as_compute(loaded.x.values[i]);
      C added = 0;
      if constexpr (kAddend) added = cuda::load_as_compute(loaded.addend.values[i]);
      if constexpr (kAlpha) {
        C z = p.main(value);
        if constexpr (kAddend) z += p.addend(added);
        sums[kValues - 1][i] += on ? C{0} : g * z;
        g = on ? g : p.alpha * g;
        sums[1][i] += g * (value - p.main.mean);
        if constexpr (kAddend) sums[2][i] += g * (added - p.addend.mean);
      } else {
        g = on ? g : C{0};
        sums[1][i] += g * (value - p.main);
        if constexpr (kAddend) sums[2][i] += g * (added - p.addend);
      }
      sums[0][i] += g;
      out.values[i] = cuda::round_to<T>(g);
    }
    if (dz != nullptr) store_pack<pack>(dz, offset, out);
  }
};

/// Turns a channel's sums into its parameters' gradients and what the map needs of one normalised tensor.
template <class C>
struct ChannelGradient {
  NormSource<C> source;
  C *dweight, *dbias;            // null: not wanted
  NormalizeGrad<C>* parameters;  // null: not wanted

  __device__ void finish(int64_t c, double count, bool constant, double sum, double sum_deviation) const {
    const double inverse = static_cast<double>(source.inv_std[c]);
    if (dweight != nullptr) {
      dweight[c] = static_cast<C>(sum_deviation * inverse);
      dbias[c] = static_cast<C>(sum);
    }
    if (parameters == nullptr) return;
    const double weight = source.weight == nullptr ? 1.0 : static_cast<double>(source.weight[c]);
    parameters[c] = constant
                        ? NormalizeGrad<C>{C{0}, static_cast<C>(weight * inverse), C{0}, C{0}}
                        : make_normalize_grad<C>(source.mean[c], inverse, weight, count, sum, sum_deviation);
  }
};

template <class C, GradKind kind>
struct FinishGradient {
  ChannelGradient<C> main, addend;
  C* dalpha;            // null: not wanted, or one for all channels
  double* dalpha_sums;  // by channel, of one alpha for all; else null
  double count;
  bool constant;

  __device__ void operator()(int64_t c, const double* sums) const {
    constexpr bool has_alpha = kind == GradKind::kPRelu || kind == GradKind::kPReluAddend;
    constexpr bool has_addend = kind == GradKind::kNormalizedAddend || kind == GradKind::kPReluAddend;
    main.finish(c, count, constant, sums[0], sums[1]);
    if constexpr (has_addend) {
      if (addend.source.mean != nullptr) addend.finish(c, count, constant, sums[0], sums[2]);
    }
    if constexpr (has_alpha) {
      const double of_alpha = sums[has_addend ? 3 : 2];
      if (dalpha != nullptr) dalpha[c] = static_cast<C>(of_alpha);
      if (dalpha_sums != nullptr) dalpha_sums[c] = of_alpha;
    }
  }
};

/// Where statistics are constants and no sums are wanted, parameters come without them.
template <class C>
__global__ void constant_parameters_kernel(int64_t channels, ChannelGradient<C> main,
                                           ChannelGradient<C> addend) {
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= channels) return;
  main.finish(c, 0.0, true, 0.0, 0.0);
  if (addend.source.mean != nullptr) addend.finish(c, 0.0, true, 0.0, 0.0);
}

/// One block: the sum of `count` values in a fixed order.
template <class C>
__global__ void __launch_bounds__(NormPlan::kThreads)
    sum_values_kernel(int64_t count, const double* values, C* sum) {
  __shared__ double shared[NormPlan::kThreads];
  const int id = static_cast<int>(threadIdx.x);
  double own = 0.0;
  for (int64_t i = id; i < count; i += NormPlan::kThreads) own += values[i];
  shared[id] = own;
  for (int half = NormPlan::kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (id < half) shared[id] += shared[id + half];
  }
  if (id == 0) *sum = static_cast<C>(shared[0]);
}

/// dx, and the addend's gradient if that is normalised too.
template <class T, bool two, bool has_alpha>
struct GradientMap {
  using C = compute_type<T>;

  struct Nothing {};
  struct Parameter {
    NormalizeGrad<C> main;
    std::conditional_t<two, NormalizeGrad<C>, Nothing> addend;
    std::conditional_t<has_alpha, C, Nothing> alpha;
  };
  template <int pack>
  struct Loaded {
    LoadedSlopes<T, pack> slopes;
    cuda::Pack<T, pack> x;
    std::conditional_t<two, cuda::Pack<T, pack>, Nothing> addend;
    unsigned bits;
  };

  Slopes<T> slopes;
  const T *x, *addend;  // null where statistics are constants: then the parameters do not need them
  T *dx, *daddend;      // daddend: null if not wanted
  const NormalizeGrad<C>*main_parameters, *addend_parameters;
  const C* alpha;
  int64_t alpha_step;

  __device__ Parameter parameter(int64_t channel) const {
    Parameter result;
    result.main = main_parameters[channel];
    if constexpr (two) result.addend = addend_parameters[channel];
    if constexpr (has_alpha) result.alpha = alpha[channel * alpha_step];
    return result;
  }
  __device__ void neighbours(int64_t channel, Parameter (&result)[NormPlan::kPack]) const {
    constexpr int pack = NormPlan::kPack;
    const auto main = load_neighbours<pack>(main_parameters + channel);
#pragma unroll
    for (int i = 0; i < pack; ++i) {
      result[i].main = main.values[i];
      if constexpr (has_alpha) result[i].alpha = alpha[(channel + i) * alpha_step];
    }
    if constexpr (two) {
      const auto added = load_neighbours<pack>(addend_parameters + channel);
#pragma unroll
      for (int i = 0; i < pack; ++i) result[i].addend = added.values[i];
    }
  }
  template <int pack, bool whole>
  __device__ Loaded<pack> load(int64_t offset, int valid) const {
    Loaded<pack> result;
    result.slopes = slopes.template load<pack, whole>(offset, valid);
    if (x != nullptr) result.x = load_pack<pack, whole>(x, offset, valid);
    if constexpr (two) {
      if (addend != nullptr) result.addend = load_pack<pack, whole>(addend, offset, valid);
    }
    result.bits = slopes.template bits<pack>(offset);
    return result;
  }
  template <bool whole, int pack>
  __device__ void apply(int64_t offset, int valid, const Parameter (&parameters)[pack],
                        const Loaded<pack>& loaded) const {
    cuda::Pack<T, pack> out, addend_out;
#pragma unroll
    for (int i = 0; i < pack; ++i) {
      const Parameter& p = parameters[i];
      C g = slopes.at(loaded.slopes, i);
      const bool on = (loaded.bits >> i & 1) != 0;
      if constexpr (has_alpha) {
        g = on ? g : p.alpha * g;
      } else {
        g = on ? g : C{0};
      }
      const C value = x == nullptr ? p.main.mean : cuda::load_as_compute(loaded.x.values[i]);
      out.values[i] = cuda::round_to<T>(p.main(value, g));
      if constexpr (two) {
        const C added = addend == nullptr ? p.addend.mean : cuda::load_as_compute(loaded.addend.values[i]);
        addend_out.values[i] = cuda::round_to<T>(p.addend(added, g));
      }
    }
    store_pack<pack, whole>(dx, offset, out, valid);
    if constexpr (two) {
      if (daddend != nullptr) store_pack<pack, whole>(daddend, offset, addend_out, valid);
    }
  }
};

/// One gradient call over tensors of type T. Workspace: the map's parameters of both tensors, alpha's sums by
/// channel, then the table of the sums.
template <class T>
class Backward {
 public:
  using C = compute_type<T>;

  Backward(const NormGradCall& call, const Stream& stream, void* workspace)
      : call_(call),
        stream_(stream),
        view_(call.view()),
        two_(call.options.normalize_addend),
        slopes_{call.dy.as<const T>(), pointer_or_null<const T>(call.dy2),
                pointer_or_null<const uint8_t>(call.mask)} {
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
    if (!call_.reduces()) {
      cuda::launch(stream_, cuda::grid_stride_shape(view_.channels, 256), constant_parameters_kernel<C>,
                   view_.channels, main_, addend_);
    } else if (call_.alpha.present && call_.addend.x.present) {
      reduce<GradKind::kPReluAddend>();
    } else if (call_.alpha.present) {
      reduce<GradKind::kPRelu>();
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
  void reduce() {
    const GradientTerms<T, kind> terms{.slopes = slopes_,
                                       .x = call_.main.x.as<const T>(),
                                       .addend = pointer_or_null<const T>(call_.addend.x),
                                       .dz = dz(),
                                       .main_source = main_.source,
                                       .addend_source = addend_.source,
                                       .alpha = pointer_or_null<const C>(call_.alpha),
                                       .alpha_step = alpha_step()};
    const bool wide = allows_packs<T>({terms.x, terms.addend, terms.dz, slopes_.dy, slopes_.dy2,
                                       terms.main_source.mean, terms.addend_source.mean});
    const NormPlan plan =
        plan_norm_sums(simplified_norm_view(view_), wide, norm_blocks(stream_.device.index, kGradientBlocks));
    constexpr int unroll = kind == GradKind::kPlain ? 4 : kind == GradKind::kPReluAddend ? 1 : 2;
    sum_channels<T, unroll>(stream_, plan, terms, table_);
    const FinishGradient<C, kind> finish{
        .main = main_,
        .addend = addend_,
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
    const GradientMap<T, two, has_alpha> map{
        .slopes = slopes,
        .x = call_.options.training ? call_.main.x.as<const T>() : nullptr,
        .addend = call_.options.training ? pointer_or_null<const T>(call_.addend.x) : nullptr,
        .dx = call_.main.dx.as<T>(),
        .daddend = two ? pointer_or_null<T>(call_.addend.dx) : nullptr,
        .main_parameters = main_.parameters,
        .addend_parameters = addend_.parameters,
        .alpha = pointer_or_null<const C>(call_.alpha),
        .alpha_step = alpha_step()};
    const bool wide =
        allows_packs<T>({map.x, map.addend, map.dx, map.daddend, map.slopes.dy, map.slopes.dy2});
    map_channels_of<T, two ? 1 : 2, 1>(stream_, simplified_norm_view(view_), wide, map);
  }

  void sum_alphas() {
    cuda::launch(stream_, {dim3(1), dim3(NormPlan::kThreads)}, sum_values_kernel<C>, view_.channels,
                 dalpha_sums_, call_.dalpha.as<C>());
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

size_t norm_backward_bytes(const NormProblem& problem) {
  const auto channels = static_cast<size_t>(problem.view.channels);
  const size_t parameters =
      NormScratch::bytes(channels * (problem.dtype == DType::kFloat64 ? sizeof(NormalizeGrad<double>)
                                                                      : sizeof(NormalizeGrad<float>)));
  const int values = problem.has_alpha ? 4 : problem.two_tensors ? 3 : 2;
  return parameters * (problem.two_tensors ? 2 : 1) +
         (problem.has_alpha ? NormScratch::bytes(channels * sizeof(double)) : 0) +
         norm_table_bytes(problem, kGradientBlocks, values);
}

void norm_backward(const NormGradCall& call, const Stream& stream, void* workspace) {
  dispatch_float(call.main.x.dtype, "batch_norm_grad",
                 [&]<class T> { Backward<T>(call, stream, workspace).run(); });
}

}  // namespace sinter::ops
