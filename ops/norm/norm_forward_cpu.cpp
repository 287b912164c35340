// Forward batch normalisation on the CPU: the statistics, then one pass that normalises, adds and activates.
#include <algorithm>

#include <sinter/ops/norm/norm_cpu.h>
#include <sinter/ops/norm/norm_math.h>
#include <sinter/ops/norm/norm_signs_cpu.h>
#include <sinter/ops/norm/norm_statistics_cpu.h>

namespace sinter::ops {
namespace {

size_t element_of(DType dtype) {
  return size_of(accumulate_dtype(dtype));
}

/// Arrays of parameters that the pass over the tensor needs.
constexpr size_t parameters_of(bool two, fused::Activation activation) {
  return size_t{3} + (two ? 3 : 0) + (activation == fused::Activation::kPRelu ? 1 : 0);
}

/// Where a call's scratch lies: mean and inv_std (double) of each tensor that is normalised, the signs of all
/// elements if their mask is wanted, then that of the statistics, whose place the parameters of the
/// last pass take.
struct Scratch {
  double *mean, *inv_std, *addend_mean, *addend_inv_std;
  Sign* signs;
  void* rest;

  static size_t front_bytes(const ChannelView& view, const NormOptions& options, bool has_mask) {
    const size_t statistics = static_cast<size_t>(view.channels) * 2 * sizeof(double);
    const bool has_signs = has_mask && options.activation != fused::Activation::kNone;
    const size_t signs = has_signs ? signs_bytes(view.numel()) : 0;
    return statistics * (options.normalize_addend ? 2 : 1) + signs;
  }
  Scratch(const NormCall& call, void* workspace)
      : mean(static_cast<double*>(workspace)),
        inv_std(mean + call.view.channels),
        addend_mean(inv_std + call.view.channels),
        addend_inv_std(addend_mean + call.view.channels),
        signs(reinterpret_cast<Sign*>(call.options.normalize_addend ? addend_inv_std + call.view.channels
                                                                    : addend_mean)),
        rest(static_cast<char*>(workspace) + front_bytes(call.view, call.options, call.mask.present)) {}
};

template <class C>
Normalize<C> normalizer(const NormTensor& tensor, const double* mean, const double* inv_std, int64_t c) {
  return make_normalize<C>(mean[c], inv_std[c], value_or<C>(tensor.weight, c, 1.0),
                           value_or<C>(tensor.bias, c, 0.0));
}

/// The pass behind the statistics: y and the signs of the activation's arguments.
template <class T, AddendKind kind, fused::Activation activation,
          bool stores_signs = activation != fused::Activation::kNone>
void map_tensor(const NormCall& call, const ChannelLoop& loop, const Scratch& scratch) {
  using C = compute_type<T>;
  constexpr bool two = kind == AddendKind::kNormalized;
  constexpr size_t count = parameters_of(two, activation);
  const auto parameters = loop.expand<C, count>(static_cast<C*>(scratch.rest), [&](int64_t c) {
    const Normalize<C> main = normalizer<C>(call.main, scratch.mean, scratch.inv_std, c);
    std::array<C, count> values{main.mean, main.scale, main.shift};
    if constexpr (two) {
      const Normalize<C> addend = normalizer<C>(call.addend, scratch.addend_mean, scratch.addend_inv_std, c);
      values[3] = addend.mean, values[4] = addend.scale, values[5] = addend.shift;
    }
    if constexpr (activation == fused::Activation::kPRelu) values.back() = slope_of<C>(call.alpha, c);
    return values;
  });
  const T* x = call.main.x.as<const T>();
  const T* addend = call.addend.x.as<const T>();
  T* y = call.y.as<T>();
  Sign* signs = scratch.signs;
  loop.for_each(parameters, [=](int64_t i, const std::array<C, count>& p) {
    C z = Normalize<C>{p[0], p[1], p[2]}(static_cast<C>(x[i]));
    if constexpr (two) {
      z += Normalize<C>{p[3], p[4], p[5]}(static_cast<C>(addend[i]));
    } else if constexpr (kind == AddendKind::kPlain) {
      z += static_cast<C>(addend[i]);
    }
    if constexpr (activation != fused::Activation::kNone) {
      const auto on = widen<C>(passes<activation>(z));
      if constexpr (stores_signs) signs[i] = static_cast<Sign>(on);
      z = activation == fused::Activation::kRelu ? select(on, z, C{0}) : z * select(on, C{1}, p.back());
    }
    y[i] = static_cast<T>(z);
  });
  if (!call.mask.present) return;
  const int64_t elements = loop.view().numel();
  if constexpr (stores_signs) {
    pack_signs(signs, elements, call.mask.as<uint8_t>());
  } else if constexpr (activation == fused::Activation::kRelu && std::is_same_v<T, C>) {
    pack_relu(y, elements, call.mask.as<uint8_t>());
  }
}

template <class T, AddendKind kind>
void map_tensor(const NormCall& call, const ChannelLoop& loop, const Scratch& scratch) {
  switch (call.options.activation) {
    case fused::Activation::kNone:
      return map_tensor<T, kind, fused::Activation::kNone>(call, loop, scratch);
    case fused::Activation::kRelu:
      if (!call.mask.present)
        return map_tensor<T, kind, fused::Activation::kRelu, false>(call, loop, scratch);
      if constexpr (std::is_same_v<T,
                                   compute_type<T>>) {  // else y, from which the signs would come, is rounded
        if (!loop.by_rows() && loop.view().inner < kShortOfSigns)
          return map_tensor<T, kind, fused::Activation::kRelu, false>(call, loop, scratch);
      }
      return map_tensor<T, kind, fused::Activation::kRelu>(call, loop, scratch);
    case fused::Activation::kPRelu:
      if (!call.mask.present)
        return map_tensor<T, kind, fused::Activation::kPRelu, false>(call, loop, scratch);
      return map_tensor<T, kind, fused::Activation::kPRelu>(call, loop, scratch);
  }
}

template <class T>
void forward(const NormCall& call, void* workspace) {
  const ChannelLoop loop(call.view);
  const Scratch scratch(call, workspace);
  norm_statistics(call.options, call.main, loop, scratch.mean, scratch.inv_std, scratch.rest);
  switch (call.addend_kind()) {
    case AddendKind::kNone:
      return map_tensor<T, AddendKind::kNone>(call, loop, scratch);
    case AddendKind::kPlain:
      return map_tensor<T, AddendKind::kPlain>(call, loop, scratch);
    case AddendKind::kNormalized:
      norm_statistics(call.options, call.addend, loop, scratch.addend_mean, scratch.addend_inv_std,
                      scratch.rest);
      return map_tensor<T, AddendKind::kNormalized>(call, loop, scratch);
  }
}

}  // namespace

size_t norm_cpu_bytes(const NormProblem& problem) {
  const ChannelLoop loop(problem.view);
  const size_t element = element_of(problem.dtype);
  const NormOptions& options = problem.options;
  return Scratch::front_bytes(problem.view, options, problem.has_mask) +
         std::max(moments_bytes(loop, element), parameters_of(options.normalize_addend, options.activation) *
                                                    static_cast<size_t>(loop.width()) * element);
}

void norm_cpu(const NormCall& call, void* workspace) {
  dispatch_float(call.main.x.dtype, "batch_norm", [&]<class T> { forward<T>(call, workspace); });
}

}  // namespace sinter::ops
