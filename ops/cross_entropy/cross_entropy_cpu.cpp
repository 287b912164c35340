// Cross-entropy on the CPU: one pass for the loss of each row, one for the gradient.
#include <algorithm>
#include <cmath>
#include <limits>

#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/cpu/row_math_cpu.h>
#include <sinter/ops/common/elementary_math.h>
#include <sinter/ops/common/lanes.h>
#include <sinter/ops/cross_entropy/cross_entropy.h>
#include <sinter/ops/cross_entropy/shard_cross_entropy.h>
#include <sinter/ops/cross_entropy/shard_registration.h>

namespace sinter::ops {
namespace {

constexpr int64_t kGrainElements = 4096;

int64_t row_grain(int64_t classes) {
  return std::max<int64_t>(1, kGrainElements / classes);
}

/// Calls body(row, largest element, log of the sum of exponentials of the distances to it) for all rows, in
/// parallel, a group of rows at a time.
template <class T, class F>
void for_each_log_sum(const T* x, int64_t rows, int64_t classes, F body) {
  using C = compute_type<T>;
  const int64_t group = classes <= kShortRow ? kRowsAtOnce : 1, groups = (rows + group - 1) / group;
  parallel_for(groups, row_grain(classes * group), [&](int64_t begin, int64_t end) {
    alignas(64) C largest[kRowsAtOnce], sum[kRowsAtOnce];
    for (int64_t first = begin * group; first < std::min(end * group, rows); first += group) {
      const int64_t count = std::min(group, rows - first);
      rows_sum_exp(x + first * classes, count, classes, largest, sum);
      for (int64_t i = 0; i < count; ++i) body(first + i, largest[i], std::log(sum[i]));
    }
  });
}

/// The targets of a call: either indices or probabilities.
template <class T>
struct Targets {
  Targets(const TensorView& target, int64_t class_count, int64_t ignored)
      : indices(target.dtype == DType::kInt64 ? target.as<const int64_t>() : nullptr),
        probabilities(indices == nullptr ? target.as<const T>() : nullptr),
        rows(target.shape[0]),
        classes(class_count),
        ignore_index(ignored) {}

  bool ignores(int64_t row) const { return indices != nullptr && indices[row] == ignore_index; }
  void check(const char* tag) const {
    if (indices == nullptr) return;
    for (int64_t row = 0; row < rows; ++row) {
      SINTER_CHECK(ignores(row) || (indices[row] >= 0 && indices[row] < classes),
                   "[{}] expected class indices in [0, {}) or ignore_index {} but got {} in row {}", tag,
                   classes, ignore_index, indices[row], row);
    }
  }
  /// Rows that the mean is over.
  int64_t counted() const {
    return indices == nullptr ? rows : rows - std::count(indices, indices + rows, ignore_index);
  }

  const int64_t* indices;
  const T* probabilities;
  int64_t rows, classes, ignore_index;
};

/// The loss of one row whose log-sum is `largest + log_rest`, from distances to `largest`: these do not
/// cancel. A class that weighs nothing has no part in it, however far it is.
template <class T>
compute_type<T> row_loss(const Targets<T>& targets, int64_t row, const T* x, compute_type<T> largest,
                         compute_type<T> log_rest, compute_type<T> smoothing) {
  using C = compute_type<T>;
  const int64_t classes = targets.classes;
  const auto distance = [=](int64_t c) { return largest - static_cast<C>(x[c]) + log_rest; };
  C loss = 0;
  if (targets.indices != nullptr) {
    loss = distance(targets.indices[row]);
  } else {
    const T* p = targets.probabilities + row * classes;
    loss =
        lane_sum<C>(classes, [=](int64_t c) { return math::mul_no_nan(static_cast<C>(p[c]), distance(c)); });
  }
  if (smoothing == C{0}) return loss;
  const C uniform = lane_sum<C>(classes, distance) / static_cast<C>(classes);
  return math::mul_no_nan(C{1} - smoothing, loss) + smoothing * uniform;
}

size_t cross_entropy_workspace(const KernelQuery& query) {
  if (query.attributes<CrossEntropyOptions>().reduction == Reduction::kNone) return 0;
  return static_cast<size_t>(query.input(0).shape[0]) * size_of(query.output(0).dtype);
}

void run_cross_entropy(const KernelContext& context) {
  const TensorView& logits = context.input(0);
  const auto& options = context.attributes<CrossEntropyOptions>();
  const int64_t rows = logits.shape[0], classes = logits.shape[1];
  dispatch_float(logits.dtype, "cross_entropy", [&]<class T> {
    using C = compute_type<T>;
    const Targets<T> targets(context.input(1), classes, options.ignore_index);
    targets.check("cross_entropy");
    const C smoothing = static_cast<C>(options.label_smoothing);
    const bool reduced = options.reduction != Reduction::kNone;
    C* losses = reduced ? context.workspace<C>() : context.output(0).as<C>();
    C* log_sums = context.output(1).as<C>();
    for_each_log_sum(logits.as<const T>(), rows, classes, [&](int64_t row, C largest, C log_rest) {
      const T* x = logits.as<const T>() + row * classes;
      log_sums[row] = largest + log_rest;
      losses[row] = targets.ignores(row) ? C{0} : row_loss(targets, row, x, largest, log_rest, smoothing);
    });
    if (!reduced) return;
    double total = 0;
    for (int64_t row = 0; row < rows; ++row) total += static_cast<double>(losses[row]);
    if (options.reduction == Reduction::kMean) total /= static_cast<double>(targets.counted());
    *context.output(0).as<C>() = static_cast<C>(total);
  });
}

/// One row of dlogits and, unless null, of dtarget, for `scale` times the gradient of the row's loss.
template <class T>
void row_gradient(const Targets<T>& targets, int64_t row, const T* x, compute_type<T> log_sum,
                  compute_type<T> scale, compute_type<T> smoothing, T* dlogits, T* dtarget) {
  using C = compute_type<T>;
  constexpr int64_t kPiece = 256;
  alignas(64) C softmax[kPiece];
  const int64_t classes = targets.classes;
  if (scale == C{0}) {  // a row that weighs nothing, even if it has a NaN
    std::fill_n(dlogits, classes, T{});
    if (dtarget != nullptr) std::fill_n(dtarget, classes, T{});
    return;
  }
  const C kept = C{1} - smoothing;
  const C uniform = smoothing / static_cast<C>(classes);
  const T* p = targets.probabilities != nullptr ? targets.probabilities + row * classes : nullptr;
  C mass = C{1};
  if (p != nullptr)
    mass = kept * lane_sum<C>(classes, [=](int64_t c) { return static_cast<C>(p[c]); }) + smoothing;
  for (int64_t first = 0; first < classes; first += kPiece) {
    const int64_t width = std::min(kPiece, classes - first);
    for (int64_t c = 0; c < width; ++c) softmax[c] = static_cast<C>(x[first + c]) - log_sum;
    if (dtarget != nullptr) {
      for (int64_t c = 0; c < width; ++c) {
        dtarget[first + c] = static_cast<T>(
            math::mul_no_nan_derivative(static_cast<C>(p[first + c]), softmax[c], -scale * kept));
      }
    }
    exp_in_place(softmax, width);
    if (p != nullptr) {
      for (int64_t c = 0; c < width; ++c) {
        const C q = kept * static_cast<C>(p[first + c]) + uniform;
        dlogits[first + c] = static_cast<T>(scale * (mass * softmax[c] - q));
      }
    } else {
      const int64_t hit = targets.indices[row] - first;
      if (hit >= 0 && hit < width) softmax[hit] -= kept;
      for (int64_t c = 0; c < width; ++c) dlogits[first + c] = static_cast<T>(scale * (softmax[c] - uniform));
    }
  }
}

/// The log-sums of rows among the classes of one rank, and the logit of the row's class, or 0 if that is
/// elsewhere. A shard that has nothing but -infinity adds nothing to the sums of all.
void run_shard_sums(const KernelContext& context) {
  const TensorView& logits = context.input(0);
  const int64_t rows = logits.shape[0], classes = logits.shape[1];
  dispatch_float(logits.dtype, "shard_log_sums", [&]<class T> {
    using C = compute_type<T>;
    const Targets<T> targets(context.input(1), classes, kElsewhere);
    targets.check("shard_log_sums");
    C *own = context.output(0).as<C>(), *log_sums = context.output(1).as<C>();
    for_each_log_sum(logits.as<const T>(), rows, classes, [&](int64_t row, C largest, C log_rest) {
      const T* x = logits.as<const T>() + row * classes;
      log_sums[row] = largest == -std::numeric_limits<C>::infinity() ? largest : largest + log_rest;
      own[row] = targets.ignores(row) ? C{0} : static_cast<C>(x[targets.indices[row]]);
    });
  });
}

void run_shard_grad(const KernelContext& context) {
  const TensorView& logits = context.input(0);
  const int64_t rows = logits.shape[0], classes = logits.shape[1];
  dispatch_float(logits.dtype, "shard_cross_entropy_grad", [&]<class T> {
    using C = compute_type<T>;
    const Targets<T> targets(context.input(1), classes, kElsewhere);
    targets.check("shard_cross_entropy_grad");
    const C *log_sums = context.input(2).as<const C>(), *dloss = context.input(3).as<const C>();
    parallel_for(rows, row_grain(classes), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t at = row * classes;
        row_gradient<T>(targets, row, logits.as<const T>() + at, log_sums[row], dloss[row], C{0},
                        context.output(0).as<T>() + at, nullptr);
      }
    });
  });
}

void run_cross_entropy_grad(const KernelContext& context) {
  const TensorView& logits = context.input(0);
  const auto& attributes = context.attributes<CrossEntropyGradAttributes>();
  const int64_t rows = logits.shape[0], classes = logits.shape[1];
  dispatch_float(logits.dtype, "cross_entropy_grad", [&]<class T> {
    using C = compute_type<T>;
    const Targets<T> targets(context.input(1), classes, attributes.ignore_index);
    targets.check("cross_entropy_grad");
    const C smoothing = static_cast<C>(attributes.label_smoothing);
    const C* log_sums = context.input(2).as<const C>();
    const C* dloss = context.input(3).as<const C>();
    const bool mean = attributes.reduction == Reduction::kMean;
    const C divisor = mean ? static_cast<C>(targets.counted()) : C{1};
    T* dtarget = attributes.target_gradient ? context.output(1).as<T>() : nullptr;
    parallel_for(rows, row_grain(classes), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t at = row * classes;
        T* dlogits = context.output(0).as<T>() + at;
        const C loss_scale = dloss[attributes.reduction == Reduction::kNone ? row : 0] / divisor;
        const C scale = targets.ignores(row) ? C{0} : loss_scale;
        row_gradient(targets, row, logits.as<const T>() + at, log_sums[row], scale, smoothing, dlogits,
                     dtarget != nullptr ? dtarget + at : nullptr);
      }
    });
  });
}

}  // namespace

void register_cross_entropy_cpu(OpRegistry& registry);
void register_cross_entropy_cpu(OpRegistry& registry) {
  registry.add_kernel(
      "cross_entropy",
      {.device = DeviceType::kCpu, .workspace_bytes = cross_entropy_workspace, .run = run_cross_entropy});
  registry.add_kernel("cross_entropy_grad", {.device = DeviceType::kCpu, .run = run_cross_entropy_grad});
  registry.add_kernel("shard_log_sums", {.device = DeviceType::kCpu, .run = run_shard_sums});
  registry.add_kernel("shard_cross_entropy", {.device = DeviceType::kCpu, .run = run_shard_cross_entropy});
  registry.add_kernel("shard_cross_entropy_grad", {.device = DeviceType::kCpu, .run = run_shard_grad});
}

}  // namespace sinter::ops
