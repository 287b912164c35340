// Margins on the CPU: all elements as those of other classes, then the own class of each row over them.
#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/cpu/elementwise_cpu.h>
#include <sinter/ops/margin/margin.h>
#include <sinter/ops/margin/margin_math.h>

namespace sinter::ops {
namespace {

void check_labels(const TensorView& labels, int64_t classes, const char* tag) {
  const auto* values = labels.as<const int64_t>();
  for (int64_t row = 0; row < labels.numel(); ++row) {
    SINTER_CHECK(values[row] == kNoPositive || (values[row] >= 0 && values[row] < classes),
                 "[{}] expected labels in [0, {}), or {} for none of these classes, but got {} in row {}",
                 tag, classes, kNoPositive, values[row], row);
  }
}

/// Calls body(row, place of its own class or -1).
template <class F>
void for_each_own(const TensorView& labels, int64_t classes, F body) {
  const auto* values = labels.as<const int64_t>();
  for (int64_t row = 0; row < labels.numel(); ++row) {
    body(row, values[row] == kNoPositive ? int64_t{-1} : row * classes + values[row]);
  }
}

template <class C>
struct OtherLogit {
  MarginMath<C> math;
  C operator()(C cosine) const { return math.other(cosine); }
};

template <class C>
struct Scaled {
  C scale;
  C operator()(C dlogit) const { return scale * dlogit; }
};

template <class C>
struct ScaledUnlessFiltered {
  C scale;
  C operator()(C dlogit, C logit) const { return MarginMath<C>::is_filtered(logit) ? C{0} : scale * dlogit; }
};

void run_combined_margin(const KernelContext& context) {
  const TensorView &cosine = context.input(0), &labels = context.input(1), &logits = context.output(0);
  const int64_t classes = cosine.shape[1];
  check_labels(labels, classes, "combined_margin");
  dispatch_float(cosine.dtype, "combined_margin", [&]<class T> {
    using C = compute_type<T>;
    const MarginMath<C> math(context.attributes<CombinedMarginOptions>());
    const RowMargins<C> margins{context.input(2).as<const C>(), context.input(3).as<const C>()};
    map_elements<T, C>(cosine, logits, OtherLogit<C>{math});
    for_each_own(labels, classes, [&](int64_t row, int64_t at) {
      const C own = at < 0 ? C{0} : static_cast<C>(cosine.as<const T>()[at]);
      context.output(1).as<C>()[row] = own;
      if (at >= 0) logits.as<C>()[at] = math.own(own, margins.of(math, row));
    });
  });
}

void run_combined_margin_grad(const KernelContext& context) {
  const TensorView &dlogits = context.input(0), &labels = context.input(1), &dcosine = context.output(0);
  const auto& options = context.attributes<CombinedMarginGradAttributes>().options;
  const int64_t classes = dlogits.shape[1];
  check_labels(labels, classes, "combined_margin_grad");
  dispatch_float(dcosine.dtype, "combined_margin_grad", [&]<class T> {
    using C = compute_type<T>;
    const MarginMath<C> math(options);
    const RowMargins<C> margins{context.input(4).as<const C>(), nullptr};
    if (options.interclass_filter > 0) {
      map_elements<C, T>(dlogits, context.input(2), dcosine, ScaledUnlessFiltered<C>{math.scale});
    } else {
      map_elements<C, T>(dlogits, dcosine, Scaled<C>{math.scale});
    }
    for_each_own(labels, classes, [&](int64_t row, int64_t at) {
      if (at < 0) return;
      const C slope = math.own_slope(context.input(3).as<const C>()[row], margins.of(math, row));
      dcosine.as<T>()[at] = static_cast<T>(slope * dlogits.as<const C>()[at]);
    });
  });
}

}  // namespace

void register_margin_cpu(OpRegistry& registry);
void register_margin_cpu(OpRegistry& registry) {
  registry.add_kernel("combined_margin", {.device = DeviceType::kCpu, .run = run_combined_margin});
  registry.add_kernel("combined_margin_grad", {.device = DeviceType::kCpu, .run = run_combined_margin_grad});
}

}  // namespace sinter::ops
