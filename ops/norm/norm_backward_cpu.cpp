// The gradient of batch normalisation on the CPU: sums per channel, then one pass over each normalised
// tensor.
#include <algorithm>
#include <type_traits>

#include <sinter/ops/common/cpu/block_cpu.h>
#include <sinter/ops/norm/norm_cpu.h>
#include <sinter/ops/norm/norm_math.h>
#include <sinter/ops/norm/norm_signs_cpu.h>
#include <sinter/ops/norm/norm_statistics_cpu.h>

namespace sinter::ops {
namespace {

/// How g, the gradient of the activation's argument, comes from that of y, `dy`.
enum class Way {
  kDirect,  ///< it is dy, and there is no addend that is normalised
  kMasked,  ///< dy where the activation passes its argument on
  kPRelu    ///< the same, and scaled by the slope elsewhere
};

/// `two_dys`: dy + dy2 stands for dy.
template <class T, Way way, bool two_dys>
struct Slopes {
  using C = compute_type<T>;

  const T *dy, *dy2;
  const Sign* signs;  // not read by kDirect

  Slopes(const NormGradCall& call, const Sign* signs_of_mask)
      : dy(call.dy.as<const T>()), dy2(call.dy2.as<const T>()), signs(signs_of_mask) {}

  C incoming(int64_t i) const {
    if constexpr (two_dys) return static_cast<C>(dy[i]) + static_cast<C>(dy2[i]);
    return static_cast<C>(dy[i]);
  }
  /// g; `alpha` counts under PReLU.
  C operator()(int64_t i, C alpha) const {
    if constexpr (way == Way::kDirect) return incoming(i);
    const auto on = static_cast<WideBool<C>>(signs[i]);
    return way == Way::kMasked ? select(on, incoming(i), C{0}) : incoming(i) * select(on, C{1}, alpha);
  }
};

/// What is summed up per channel: g and g * (x - mean); where the addend is read, g * (addend - its mean);
/// and alpha's terms, the last.
constexpr size_t sums_of(Way way, bool adds) {
  return size_t{2} + (adds ? 1 : 0) + (way == Way::kPRelu ? 1 : 0);
}
/// Arrays of parameters that the sums need: the means; or, to find PReLU's argument again, the normalisations
/// and the slope.
constexpr size_t parameters_of(Way way, bool adds) {
  return way == Way::kPRelu ? (adds ? 7 : 4) : adds ? 2 : 1;
}
/// The place of the addend's mean among them.
constexpr size_t addend_at(Way way) {
  return way == Way::kPRelu ? 3 : 1;
}
constexpr size_t kMapParameters = 5;  // that a map needs at most

template <class C>
Normalize<C> normalizer(const NormGradTensor& tensor, int64_t c) {
  if (!tensor.mean.present) return {C{0}, C{1}, C{0}};  // stays as it is
  return make_normalize<C>(double{tensor.mean.as<const C>()[c]}, double{tensor.inv_std.as<const C>()[c]},
                           value_or<C>(tensor.weight, c, 1.0), value_or<C>(tensor.bias, c, 0.0));
}

/// Sums per channel, value after value.
template <class T, bool adds, Way way, bool two_dys>
void add_up(const NormGradCall& call, const ChannelLoop& loop, const Slopes<T, way, two_dys>& slopes,
            double* sums) {
  using C = compute_type<T>;
  constexpr size_t kSums = sums_of(way, adds), kParameters = parameters_of(way, adds);
  constexpr bool has_alpha = way == Way::kPRelu;
  using Parameters = std::array<C, kParameters>;
  const int64_t channels = loop.view().channels, width = loop.width();
  double* table = sums + int64_t{kSums} * channels;
  C* lanes = reinterpret_cast<C*>(table + loop.entries() * int64_t{kSums} * width);
  const auto parameters = loop.expand<C, kParameters>(lanes, [&](int64_t c) {
    Parameters values{};
    if constexpr (has_alpha) {
      const auto put = [&](size_t first, const Normalize<C>& of) {
        values[first] = of.mean, values[first + 1] = of.scale, values[first + 2] = of.shift;
      };
      put(0, normalizer<C>(call.main, c));
      if constexpr (adds) put(addend_at(way), normalizer<C>(call.addend, c));
      values.back() = slope_of<C>(call.alpha, c);
    } else {
      values[0] = call.main.mean.as<const C>()[c];
      if constexpr (adds) values[addend_at(way)] = call.addend.mean.as<const C>()[c];
    }
    return values;
  });
  const T* x = call.main.x.as<const T>();
  const T* addend = call.addend.x.as<const T>();
  loop.sum<kSums>(
      parameters, table, lanes + int64_t{kParameters} * width, [=](int64_t i, const Parameters& p) {
        const C g = slopes(i, p.back()), value = static_cast<C>(x[i]);
        std::array<C, kSums> terms{g, g * (value - p[0])};
        if constexpr (adds) terms[2] = g * (static_cast<C>(addend[i]) - p[addend_at(way)]);
        if constexpr (has_alpha) {
          C z = Normalize<C>{p[0], p[1], p[2]}(value);
          if constexpr (adds) z += Normalize<C>{p[3], p[4], p[5]}(static_cast<C>(addend[i]));
          terms.back() = select(static_cast<WideBool<C>>(slopes.signs[i]), C{0}, slopes.incoming(i) * z);
        }
        return terms;
      });
  for (int64_t k = 0; k < int64_t{kSums}; ++k) {
    loop.fold(table + k * width, int64_t{kSums} * width, sums + k * channels);
  }
}

/// Stores the gradients of one tensor's parameters. `sums`: of g; `deviations`: of g * (x - mean).
template <class C>
void store_parameters(const NormGradTensor& tensor, const double* sums, const double* deviations,
                      int64_t channels) {
  if (!tensor.dweight.present) return;
  for (int64_t c = 0; c < channels; ++c) {
    tensor.dweight.as<C>()[c] = static_cast<C>(deviations[c] * double{tensor.inv_std.as<const C>()[c]});
    tensor.dbias.as<C>()[c] = static_cast<C>(sums[c]);
  }
}

template <class C>
void store_dalpha(const NormGradCall& call, const double* terms, int64_t channels) {
  if (!call.dalpha.present) return;
  C* dalpha = call.dalpha.as<C>();
  if (call.dalpha.numel() == channels) {
    std::transform(terms, terms + channels, dalpha, [](double term) { return static_cast<C>(term); });
    return;
  }
  double sum = 0.0;
  for (int64_t c = 0; c < channels; ++c) sum += terms[c];
  dalpha[0] = static_cast<C>(sum);
}

/// to = scale_of(channel) * g.
template <class T, Way way, bool two_dys, class Scale>
void scale_slopes(const NormGradCall& call, const ChannelLoop& loop, const Slopes<T, way, two_dys>& slopes,
                  T* to, compute_type<T>* lanes, Scale scale_of) {
  using C = compute_type<T>;
  constexpr bool has_alpha = way == Way::kPRelu;  // then the slope is the last parameter
  constexpr size_t kParameters = has_alpha ? 2 : 1;
  using Parameters = std::array<C, kParameters>;
  const auto parameters = loop.expand<C, kParameters>(lanes, [&](int64_t c) {
    Parameters values{};
    if constexpr (has_alpha) values.back() = slope_of<C>(call.alpha, c);
    values[0] = scale_of(c);
    return values;
  });
  loop.for_each(parameters,
                [=](int64_t i, const Parameters& p) { to[i] = static_cast<T>(slopes(i, p.back()) * p[0]); });
}

/// to = g, whatever the channels are.
template <class T, Way way, bool two_dys>
void store_slopes(const Slopes<T, way, two_dys>& slopes, T* to, int64_t count) {
  static_assert(way != Way::kPRelu);
  parallel_for(count, 16384, [=](int64_t begin, int64_t end) {
    SINTER_IVDEP
    for (int64_t i = begin; i < end; ++i) to[i] = static_cast<T>(slopes(i, compute_type<T>{0}));
  });
}

/// The pass over one normalised tensor behind the sums: dx from g and, in training, x.
template <class T, Way way, bool two_dys>
void map_tensor(const NormGradCall& call, const NormGradTensor& tensor, const ChannelLoop& loop,
                const Slopes<T, way, two_dys>& slopes, const double* sums, const double* deviations,
                compute_type<T>* lanes) {
  using C = compute_type<T>;
  const auto inv_std_of = [&](int64_t c) { return double{tensor.inv_std.as<const C>()[c]}; };
  const auto weight_of = [&](int64_t c) { return value_or<C>(tensor.weight, c, 1.0); };
  T* dx = tensor.dx.as<T>();
  if (!call.options.training) {
    scale_slopes(call, loop, slopes, dx, lanes,
                 [&](int64_t c) { return static_cast<C>(inv_std_of(c) * weight_of(c)); });
    return;
  }
  constexpr bool has_alpha = way == Way::kPRelu;  // then the slope is the last parameter
  constexpr size_t kParameters = has_alpha ? 5 : 4;
  using Parameters = std::array<C, kParameters>;
  const double share = 1.0 / static_cast<double>(loop.view().per_channel());
  const auto parameters = loop.expand<C, kParameters>(lanes, [&](int64_t c) {
    const NormalizeGrad<C> gradient = make_normalize_grad<C>(tensor.mean.as<const C>()[c], inv_std_of(c),
                                                             weight_of(c), share, sums[c], deviations[c]);
    Parameters values{};
    if constexpr (has_alpha) values.back() = slope_of<C>(call.alpha, c);
    values[0] = gradient.mean, values[1] = gradient.scale;
    values[2] = gradient.slope, values[3] = gradient.offset;
    return values;
  });
  const T* x = tensor.x.as<const T>();
  loop.for_each(parameters, [=](int64_t i, const Parameters& p) {
    const NormalizeGrad<C> gradient{p[0], p[1], p[2], p[3]};
    dx[i] = static_cast<T>(gradient(static_cast<C>(x[i]), slopes(i, p.back())));
  });
}

/// The signs of the activation's arguments, for calls that are not direct; all are kOn without an activation.
const Sign* find_signs(const NormGradCall& call, Sign* signs) {
  const int64_t count = call.view.numel();
  if (call.mask.present) {
    unpack_signs(call.mask.as<const uint8_t>(), count, signs);
  } else {
    std::fill_n(signs, count, Sign::kOn);
  }
  return signs;
}

/// The sums need the addend: if it is normalised, and under PReLU to find the argument again.
bool reads_addend(const NormGradCall& call) {
  return call.options.normalize_addend ||
         (call.options.activation == fused::Activation::kPRelu && call.addend.x.present);
}

/// Workspace: the sums; then the table and scratch that they come from, whose place the parameters of the
/// last passes take.
template <class T, Way way, bool two_dys>
void backward(const NormGradCall& call, const Sign* signs, void* workspace) {
  using C = compute_type<T>;
  const ChannelLoop loop(call.view);
  const Slopes<T, way, two_dys> slopes(call, signs);
  const int64_t channels = loop.view().channels;
  const bool adds = reads_addend(call);
  double* sums = static_cast<double*>(workspace);
  if constexpr (way == Way::kMasked && (!two_dys || std::is_same_v<T, C>)) {
    // g once, for all that reads it afterwards, where that does not round it: as the addend's gradient; or,
    // because signs and floats side by side are slow in short runs, where dx will be.
    const bool is_short = !loop.by_rows() && call.view.inner < kShortOfSigns && !adds;
    if (call.gives_dz() || is_short) {
      const TensorView& g = call.gives_dz() ? call.addend.dx : call.main.dx;
      store_slopes(slopes, g.as<T>(), call.view.numel());
      NormGradCall direct = call;
      direct.options.activation = fused::Activation::kNone;
      direct.dy = g;
      direct.dy2 = direct.mask = {};
      direct.addend = {};
      return backward<T, Way::kDirect, false>(direct, nullptr, workspace);
    }
  }
  if (call.options.training || call.options.parameter_grads) {
    if constexpr (way == Way::kDirect) {
      add_up<T, false>(call, loop, slopes, sums);
    } else {
      adds ? add_up<T, true>(call, loop, slopes, sums) : add_up<T, false>(call, loop, slopes, sums);
    }
  }
  const auto kinds = static_cast<int64_t>(sums_of(way, adds));
  const double *deviations = sums + channels, *addend_deviations = deviations + channels;
  store_parameters<C>(call.main, sums, deviations, channels);
  store_parameters<C>(call.addend, sums, addend_deviations, channels);
  store_dalpha<C>(call, sums + (kinds - 1) * channels, channels);
  C* lanes = reinterpret_cast<C*>(sums + kinds * channels);
  map_tensor(call, call.main, loop, slopes, sums, deviations, lanes);
  if (call.gives_dz()) {
    scale_slopes(call, loop, slopes, call.addend.dx.as<T>(), lanes, [](int64_t) { return C{1}; });
  } else if constexpr (way != Way::kDirect) {
    if (call.addend.dx.present) map_tensor(call, call.addend, loop, slopes, sums, addend_deviations, lanes);
  }
}

template <class T, Way way>
void backward(const NormGradCall& call, const Sign* signs, void* workspace) {
  call.dy2.present ? backward<T, way, true>(call, signs, workspace)
                   : backward<T, way, false>(call, signs, workspace);
}

/// Neither signs nor an addend are read.
bool is_direct(const NormGradOptions& options) {
  return options.activation == fused::Activation::kNone && !options.normalize_addend;
}

}  // namespace

size_t norm_cpu_bytes(const NormGradProblem& problem) {
  const ChannelLoop loop(problem.view);
  const size_t element = size_of(accumulate_dtype(problem.dtype));
  const NormGradOptions& options = problem.options;
  const bool direct = is_direct(options);
  const Way way = options.activation == fused::Activation::kPRelu ? Way::kPRelu : Way::kMasked;
  const bool adds = options.normalize_addend || way == Way::kPRelu;  // at most
  const size_t sums = sums_of(way, adds), lanes = static_cast<size_t>(loop.width()) * element;
  return (direct ? 0 : signs_bytes(problem.view.numel())) +
         static_cast<size_t>(problem.view.channels) * sums * sizeof(double) +
         std::max(loop.sum_bytes(sums, element) + parameters_of(way, adds) * lanes, kMapParameters * lanes);
}

void norm_cpu(const NormGradCall& call, void* workspace) {
  const bool direct = is_direct(call.options);
  const Sign* signs = direct ? nullptr : find_signs(call, static_cast<Sign*>(workspace));
  void* rest = static_cast<char*>(workspace) + (direct ? 0 : signs_bytes(call.view.numel()));
  dispatch_float(call.main.x.dtype, "batch_norm_grad", [&]<class T> {
    if (direct) {
      backward<T, Way::kDirect>(call, signs, rest);
    } else if (call.options.activation == fused::Activation::kPRelu) {
      backward<T, Way::kPRelu>(call, signs, rest);
    } else {
      backward<T, Way::kMasked>(call, signs, rest);
    }
  });
}

}  // namespace sinter::ops
