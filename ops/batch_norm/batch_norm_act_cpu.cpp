#include <algorithm>
#include <type_traits>

#include <sinter/ops/batch_norm/batch_norm_math.h>
#include <sinter/ops/batch_norm/norm_statistics_cpu.h>

namespace sinter::ops {
namespace {

size_t element_of(DType dtype) {
  return size_of(accumulate_dtype(dtype));
}

/// One slope per channel, or one for all.
template <class C>
double slope_of(const TensorView& alpha, int64_t channel) {
  return alpha.present ? double{alpha.as<const C>()[alpha.numel() == 1 ? 0 : channel]} : 1.0;
}

/// Normalises one tensor; absent statistics stand for one that stays as it is.
template <class C>
Normalize<C> normalizer(const NormTensor& tensor, const double* mean, const double* inv_std, int64_t c) {
  if (mean == nullptr) return {C{0}, C{1}, C{0}};
  return make_normalize<C>(mean[c], inv_std[c], value_or<C>(tensor.weight, c, 1.0),
                           value_or<C>(tensor.bias, c, 0.0));
}

/// The same from the statistics that the gradient is given.
template <class C>
Normalize<C> normalizer(const NormGradTensor& tensor, int64_t c) {
  if (!tensor.mean.present) return {C{0}, C{1}, C{0}};
  return make_normalize<C>(double{tensor.mean.as<const C>()[c]}, double{tensor.inv_std.as<const C>()[c]},
                           value_or<C>(tensor.weight, c, 1.0), value_or<C>(tensor.bias, c, 0.0));
}

/// Sets bit i % 8 of byte i / 8 where signs[i] is not 0.
void pack_mask(const uint8_t* signs, int64_t count, uint8_t* mask) {
  parallel_for(mask_bytes(count), 4096, [=](int64_t begin, int64_t end) {
    for (int64_t byte = begin; byte < end; ++byte) {
      const int64_t bits = std::min<int64_t>(8, count - byte * 8);
      unsigned value = 0;
      for (int64_t bit = 0; bit < bits; ++bit) {
        value |= static_cast<unsigned>(signs[byte * 8 + bit] != 0) << bit;
      }
      mask[byte] = static_cast<uint8_t>(value);
    }
  });
}

// ---- forward

/// Where a forward call's scratch lies: mean and inv_std of both tensors (double), the signs of all elements
/// (bytes), then that of the statistics, whose place the parameters of the last pass take.
struct ForwardScratch {
  double *mean, *inv_std, *addend_mean, *addend_inv_std;
  uint8_t* signs;
  void* rest;

  static size_t signs_bytes(int64_t count) { return (static_cast<size_t>(count) + 15) / 16 * 16; }
  static size_t bytes(const ChannelLoop& loop, size_t element) {
    return static_cast<size_t>(loop.view().channels) * 4 * sizeof(double) + signs_bytes(loop.view().numel()) +
           std::max(moments_bytes(loop, element), 7 * static_cast<size_t>(loop.width()) * element);
  }
  ForwardScratch(const ChannelLoop& loop, void* workspace) : mean(static_cast<double*>(workspace)) {
    const int64_t channels = loop.view().channels;
    inv_std = mean + channels;
    addend_mean = inv_std + channels;
    addend_inv_std = addend_mean + channels;
    signs = reinterpret_cast<uint8_t*>(addend_inv_std + channels);
    rest = signs + signs_bytes(loop.view().numel());
  }
};

template <class T>
void forward(const NormCall& call, void* workspace) {
  using C = compute_type<T>;
  const ChannelLoop loop(call.view());
  const ForwardScratch scratch(loop, workspace);
  const bool two = call.options.normalize_addend;
  norm_statistics<T>(call.options, call.main, loop, scratch.mean, scratch.inv_std, scratch.rest);
  if (two) {
    norm_statistics<T>(call.options, call.addend, loop, scratch.addend_mean, scratch.addend_inv_std,
                       scratch.rest);
  }
  const auto parameters = loop.expand<C, 7>(static_cast<C*>(scratch.rest), [&](int64_t c) {
    const Normalize<C> main = normalizer<C>(call.main, scratch.mean, scratch.inv_std, c);
    const Normalize<C> addend =
        normalizer<C>(call.addend, two ? scratch.addend_mean : nullptr, scratch.addend_inv_std, c);
    return std::array<C, 7>{main.mean,
                            main.scale,
                            main.shift,
                            addend.mean,
                            addend.scale,
                            addend.shift,
                            static_cast<C>(slope_of<C>(call.alpha, c))};
  });
  const T* x = call.main.x.as<const T>();
  T* y = call.y.as<T>();
  uint8_t* signs = scratch.signs;
  const bool relu = call.options.activation == Activation::kRelu;
  const auto run = [&]<bool adds>(const T* addend) {
    loop.for_each(parameters, [=](int64_t i, const std::array<C, 7>& p) {
      C z = Normalize<C>{p[0], p[1], p[2]}(static_cast<C>(x[i]));
      if constexpr (adds) z += Normalize<C>{p[3], p[4], p[5]}(static_cast<C>(addend[i]));
      signs[i] = passes(z);
      y[i] = static_cast<T>(passes(z) ? z : relu ? C{0} : p[6] * z);
    });
  };
  if (call.addend.x.present) {
    run.template operator()<true>(call.addend.x.as<const T>());
  } else {
    run.template operator()<false>(nullptr);
  }
  if (call.mask.present) pack_mask(signs, loop.view().numel(), call.mask.as<uint8_t>());
}

void run_forward(const KernelContext& context) {
  const NormCall call(context, context.attributes<BatchNormActOptions>());
  dispatch_float(call.main.x.dtype, "batch_norm_act",
                 [&]<class T> { forward<T>(call, context.workspace()); });
}

size_t forward_bytes(const KernelQuery& query) {
  const TensorSpec& x = query.input(0);
  return ForwardScratch::bytes(norm_loop(x.shape, query.attributes<BatchNormActOptions>().layout),
                               element_of(x.dtype));
}

// ---- gradient

/// The gradient of the activation's argument at element i, before and after the activation.
template <class T>
struct Slopes {
  using C = compute_type<T>;

  const T *dy, *dy2;
  const uint8_t* mask;
  bool relu;

  explicit Slopes(const NormGradCall& call)
      : dy(call.dy.as<const T>()),
        dy2(call.dy2.present ? call.dy2.as<const T>() : nullptr),
        mask(call.mask.present ? call.mask.as<const uint8_t>() : nullptr),
        relu(call.options.activation == Activation::kRelu) {}

  C incoming(int64_t i) const {
    const C first = static_cast<C>(dy[i]);
    return dy2 == nullptr ? first : first + static_cast<C>(dy2[i]);
  }
  bool passes(int64_t i) const { return mask == nullptr || (mask[i / 8] >> (i % 8) & 1) != 0; }
  C operator()(int64_t i, C alpha) const {
    const C slope = incoming(i);
    return passes(i) ? slope : relu ? C{0} : alpha * slope;
  }
};

constexpr size_t kSums = 4;  // of g, g * (x - mean), g * (addend - its mean), and alpha's terms

/// Sums per channel, value after value; writes g where it is the addend's gradient.
template <class T>
void gradient_sums(const NormGradCall& call, const ChannelLoop& loop, double* sums) {
  using C = compute_type<T>;
  const int64_t channels = loop.view().channels, width = loop.width();
  double* table = sums + int64_t{kSums} * channels;
  C* lanes = reinterpret_cast<C*>(table + loop.entries() * int64_t{kSums} * width);
  const auto parameters = loop.expand<C, 7>(lanes, [&](int64_t c) {
    const Normalize<C> main = normalizer<C>(call.main, c), addend = normalizer<C>(call.addend, c);
    return std::array<C, 7>{main.mean,
                            main.scale,
                            main.shift,
                            addend.mean,
                            addend.scale,
                            addend.shift,
                            static_cast<C>(slope_of<C>(call.alpha, c))};
  });
  const Slopes<T> slopes(call);
  const T* x = call.main.x.as<const T>();
  const T* addend = call.addend.x.present ? call.addend.x.as<const T>() : nullptr;
  T* dz = call.addend.dx.present && !call.options.normalize_addend ? call.addend.dx.as<T>() : nullptr;
  const bool has_alpha = call.alpha.present;
  loop.sum<kSums>(parameters, table, lanes + 7 * width, [=](int64_t i, const std::array<C, 7>& p) {
    const C g = slopes(i, p[6]), value = static_cast<C>(x[i]);
    const C added = addend == nullptr ? C{0} : static_cast<C>(addend[i]);
    if (dz != nullptr) dz[i] = static_cast<T>(g);
    C alpha_term = 0;
    if (has_alpha && !slopes.passes(i)) {
      alpha_term = slopes.incoming(i) *
                   (Normalize<C>{p[0], p[1], p[2]}(value) + Normalize<C>{p[3], p[4], p[5]}(added));
    }
    return std::array<C, kSums>{g, g * (value - p[0]), g * (added - p[3]), alpha_term};
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

/// The second pass over one tensor: dx from g and x.
template <class T>
void tensor_gradient(const NormGradCall& call, const NormGradTensor& tensor, const ChannelLoop& loop,
                     const double* sums, const double* deviations, compute_type<T>* lanes) {
  using C = compute_type<T>;
  const double count = static_cast<double>(loop.view().per_channel());
  const bool training = call.options.training;
  const auto parameters = loop.expand<C, 5>(lanes, [&](int64_t c) {
    const double inv_std = double{tensor.inv_std.as<const C>()[c]},
                 weight = value_or<C>(tensor.weight, c, 1.0);
    const NormalizeGrad<C> gradient =
        training ? make_normalize_grad<C>(tensor.mean.as<const C>()[c], inv_std, weight, 1.0 / count, sums[c],
                                          deviations[c])
                 : NormalizeGrad<C>{C{0}, static_cast<C>(weight * inv_std), C{0}, C{0}};
    return std::array<C, 5>{gradient.mean, gradient.scale, gradient.slope, gradient.offset,
                            static_cast<C>(slope_of<C>(call.alpha, c))};
  });
  const Slopes<T> slopes(call);
  const T* x = tensor.x.as<const T>();
  T* dx = tensor.dx.as<T>();
  loop.for_each(parameters, [=](int64_t i, const std::array<C, 5>& p) {
    const C value = training ? static_cast<C>(x[i]) : p[0];
    dx[i] = static_cast<T>(NormalizeGrad<C>{p[0], p[1], p[2], p[3]}(value, slopes(i, p[4])));
  });
}

/// Workspace: the sums, then the table and scratch that they come from, whose place the parameters of the
/// second pass take.
template <class T>
void backward(const NormGradCall& call, void* workspace) {
  using C = compute_type<T>;
  const ChannelLoop loop(call.view());
  const int64_t channels = loop.view().channels;
  double* sums = static_cast<double*>(workspace);
  if (call.reduces()) gradient_sums<T>(call, loop, sums);
  const double *deviations = sums + channels, *addend_deviations = deviations + channels;
  store_parameters<C>(call.main, sums, deviations, channels);
  store_parameters<C>(call.addend, sums, addend_deviations, channels);
  store_dalpha<C>(call, addend_deviations + channels, channels);
  C* lanes = reinterpret_cast<C*>(sums + int64_t{kSums} * channels);
  tensor_gradient<T>(call, call.main, loop, sums, deviations, lanes);
  if (call.options.normalize_addend && call.addend.dx.present) {
    tensor_gradient<T>(call, call.addend, loop, sums, addend_deviations, lanes);
  }
}

void run_backward(const KernelContext& context) {
  const NormGradCall call(context, context.attributes<BatchNormActGradOptions>());
  dispatch_float(call.main.x.dtype, "batch_norm_act_grad",
                 [&]<class T> { backward<T>(call, context.workspace()); });
}

size_t backward_bytes(const KernelQuery& query) {
  const TensorSpec& x = query.input(0);
  const ChannelLoop loop = norm_loop(x.shape, query.attributes<BatchNormActGradOptions>().layout);
  return static_cast<size_t>(loop.view().channels) * kSums * sizeof(double) +
         loop.sum_bytes(kSums, element_of(x.dtype)) +
         7 * static_cast<size_t>(loop.width()) * element_of(x.dtype);
}

}  // namespace

void register_batch_norm_act_cpu(OpRegistry& registry) {
  registry.add_kernel("batch_norm_act", {.device = DeviceType::kCpu,
                                         .can_run = wants_own_kernel<BatchNormActOptions>,
                                         .workspace_bytes = forward_bytes,
                                         .run = run_forward});
  registry.add_kernel("batch_norm_act_grad", {.device = DeviceType::kCpu,
                                              .can_run = wants_own_kernel<BatchNormActGradOptions>,
                                              .workspace_bytes = backward_bytes,
                                              .run = run_backward});
}

}  // namespace sinter::ops
