// Cross-entropy on a GPU: a warp or a block for each row, which holds it in registers if it is not too long
// (resident_rows_cuda.h). Class indices cannot raise errors here: a row with
// one out of range gets a NaN as loss and as gradient.
#include <cmath>
#include <limits>

#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/elementary_math.h>
#include <sinter/ops/common/rows/resident_rows_cuda.h>
#include <sinter/ops/cross_entropy/cross_entropy.h>
#include <sinter/ops/cross_entropy/shard_cross_entropy.h>
#include <sinter/ops/cross_entropy/shard_registration.h>

namespace sinter::ops {
namespace {

constexpr int kTotalThreads = 256;
constexpr int64_t kTotalBlocks = 128;

/// The rows of a call, with either indices or probabilities as targets.
template <class T>
struct LossRows {
  using C = compute_type<T>;

  LossRows(const TensorView& logits_view, const TensorView& target, double label_smoothing, int64_t ignored)
      : logits(logits_view.as<const T>()),
        indices(target.dtype == DType::kInt64 ? target.as<const int64_t>() : nullptr),
        probabilities(indices == nullptr ? target.as<const T>() : nullptr),
        rows(logits_view.shape[0]),
        classes(logits_view.shape[1]),
        ignore_index(ignored),
        smoothing(static_cast<C>(label_smoothing)) {}

  const T* logits;
  const int64_t* indices;
  const T* probabilities;
  int64_t rows, classes, ignore_index;
  C smoothing;
  /// Rows with ignore_index are of a class elsewhere, and instead of its loss a row gives its own logit, or
  /// 0.
  bool shard = false;
};

/// What a row of a shard gives. A shard that has nothing but -infinity adds nothing to the sums of all.
template <class T>
__device__ void store_shard_row(const LossRows<T>& in, int64_t row, const T* x, compute_type<T> largest,
                                compute_type<T> log_rest, compute_type<T>* logits,
                                compute_type<T>* log_sums) {
  using C = compute_type<T>;
  const int64_t target = in.indices[row];
  C own = std::numeric_limits<C>::quiet_NaN();
  if (target == in.ignore_index) own = 0;
  if (target >= 0 && target < in.classes) own = cuda::load_as_compute(x[target]);
  logits[row] = own;
  log_sums[row] = largest == -std::numeric_limits<C>::infinity() ? largest : largest + log_rest;
}

/// sum_c of (probabilities, or 1) times (largest - x_c + log_rest), the distances that make up the loss:
/// taken from the largest logit they do not cancel. A class that weighs nothing has no part in it, however
/// far it is.
template <int kThreads, int pack, class T>
__device__ compute_type<T> sum_distances(const T* x, const T* probabilities, int64_t classes,
                                         compute_type<T> largest, compute_type<T> log_rest) {
  using C = compute_type<T>;
  C sum = 0;
  for (int64_t c = threadIdx.x % kThreads * pack; c < classes; c += kThreads * pack) {
    C values[pack], weights[pack];
    load_pack(x + c, values);
    if (probabilities != nullptr) load_pack(probabilities + c, weights);
#pragma unroll
    for (int j = 0; j < pack; ++j) {
      const C distance = largest - values[j] + log_rest;
      sum += probabilities != nullptr ? math::mul_no_nan(weights[j], distance) : distance;
    }
  }
  return RowReduce<kThreads>{}(sum, SumOf{});
}

template <int kThreads, int pack, class T>
__global__ void loss_kernel(LossRows<T> in, compute_type<T>* losses, compute_type<T>* log_sums) {
  using C = compute_type<T>;
  constexpr int kRows = kRowBlock / kThreads;
  const int thread = static_cast<int>(threadIdx.x) % kThreads;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / kThreads; row < in.rows;
       row += static_cast<int64_t>(gridDim.x) * kRows) {
    const T* x = in.logits + row * in.classes;
    LogSumExp<C> partial;
    for (int64_t c = thread * pack; c < in.classes; c += kThreads * pack) {
      C values[pack];
      load_pack(x + c, values);
#pragma unroll
      for (int j = 0; j < pack; ++j) partial.add(values[j]);
    }
    const LogSumExp<C> total = partial.reduced(RowReduce<kThreads>{});
    const C log_rest = std::log(total.sum);
    if (in.shard) {
      if (thread == 0) store_shard_row(in, row, x, total.largest, log_rest, losses, log_sums);
      continue;
    }
    // All threads of the row decide alike, so that they meet in the reductions.
    const int64_t target = in.indices != nullptr ? in.indices[row] : 0;
    C loss = 0;
    if (in.indices == nullptr || target != in.ignore_index) {
      if (target < 0 || target >= in.classes) {
        loss = std::numeric_limits<C>::quiet_NaN();
      } else {
        if (in.indices != nullptr) {
          loss = total.largest - cuda::load_as_compute(x[target]) + log_rest;
        } else {
          const T* p = in.probabilities + row * in.classes;
          loss = sum_distances<kThreads, pack>(x, p, in.classes, total.largest, log_rest);
        }
        if (in.smoothing != C{0}) {
          const C sum = sum_distances<kThreads, pack, T>(x, nullptr, in.classes, total.largest, log_rest);
          loss =
              math::mul_no_nan(C{1} - in.smoothing, loss) + in.smoothing * (sum / static_cast<C>(in.classes));
        }
      }
    }
    if (thread == 0) {
      log_sums[row] = total.largest + log_rest;
      losses[row] = loss;
    }
  }
}

/// loss_kernel for rows in registers; `weighted`: targets are probabilities.
template <class T, bool weighted>
struct ResidentLoss {
  static constexpr int kArrays = weighted ? 2 : 1;
  using C = compute_type<T>;

  template <class Row, class Reduce>
  __device__ void run(const Row& row, int64_t number, int64_t first, Reduce reduce) const {
    typename Row::Values values;
    row.load(in.logits + first, -std::numeric_limits<C>::infinity(), values);
    C largest = -std::numeric_limits<C>::infinity(), sum = 0;
    row.each([&](int, C value) { largest = MaxOf{}(largest, value); }, values);
    largest = reduce(largest, MaxOf{});
    row.each([&](int, C value) { sum += std::exp(value - largest); }, values);
    const C log_rest = std::log(reduce(sum, SumOf{}));
    if constexpr (!weighted) {
      if (in.shard) {
        if (row.leads()) {
          store_shard_row(in, number, in.logits + first, largest, log_rest, losses, log_sums);
        }
        return;
      }
    }
    const int64_t target = weighted ? 0 : in.indices[number];
    C loss = 0;
    if (weighted || target != in.ignore_index) {
      if (target < 0 || target >= in.classes) {
        loss = std::numeric_limits<C>::quiet_NaN();
      } else {
        if constexpr (!weighted) {
          loss = largest - cuda::load_as_compute(in.logits[first + target]) + log_rest;
        } else {
          typename Row::Values weights;
          row.load(in.probabilities + first, C{0}, weights);
          C cross = 0;
          row.each(
              [&](int, C value, C weight) { cross += math::mul_no_nan(weight, largest - value + log_rest); },
              values, weights);
          loss = reduce(cross, SumOf{});
        }
        if (in.smoothing != C{0}) {
          C distances = 0;
          row.each(
              [&](int column, C value) {
                if (row.is_inside(column)) distances += largest - value + log_rest;
              },
              values);
          const C mean = reduce(distances, SumOf{}) / static_cast<C>(in.classes);
          loss = math::mul_no_nan(C{1} - in.smoothing, loss) + in.smoothing * mean;
        }
      }
    }
    if (row.leads()) {
      log_sums[number] = largest + log_rest;
      losses[number] = loss;
    }
  }

  LossRows<T> in;
  C* losses;
  C* log_sums;
};

/// One row of the gradient: scale * (mass * softmax - q), with q the smoothed target distribution and mass
/// its sum. A row that weighs nothing, whose scale is 0, has none, even if it has a NaN.
template <int kThreads, int pack, class T>
__global__ void gradient_kernel(LossRows<T> in, const compute_type<T>* log_sums, const compute_type<T>* dloss,
                                bool loss_per_row, const int64_t* divisor, T* dlogits, T* dtarget) {
  using C = compute_type<T>;
  constexpr int kRows = kRowBlock / kThreads;
  const int thread = static_cast<int>(threadIdx.x) % kThreads;
  const C kept = C{1} - in.smoothing;
  const C uniform = in.smoothing / static_cast<C>(in.classes);
  const C divided = divisor != nullptr ? static_cast<C>(*divisor) : C{1};
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / kThreads; row < in.rows;
       row += static_cast<int64_t>(gridDim.x) * kRows) {
    const int64_t first = row * in.classes;
    const T* p = in.probabilities != nullptr ? in.probabilities + first : nullptr;
    const int64_t target = in.indices != nullptr ? in.indices[row] : -1;
    const bool absent = in.indices != nullptr && target == in.ignore_index, ignored = absent && !in.shard;
    C scale = dloss[loss_per_row ? row : 0] / divided;
    if (in.indices != nullptr && !absent && (target < 0 || target >= in.classes))
      scale = std::numeric_limits<C>::quiet_NaN();
    C mass = 1;
    if (p != nullptr) {
      C sum = 0;
      for (int64_t c = thread * pack; c < in.classes; c += kThreads * pack) {
        C weights[pack];
        load_pack(p + c, weights);
#pragma unroll
        for (int j = 0; j < pack; ++j) sum += weights[j];
      }
      mass = kept * RowReduce<kThreads>{}(sum, SumOf{}) + in.smoothing;
    }
    const C log_sum = log_sums[row];
    for (int64_t c = thread * pack; c < in.classes; c += kThreads * pack) {
      C values[pack], weights[pack], gradients[pack];
      load_pack(in.logits + first + c, values);
      if (p != nullptr) load_pack(p + c, weights);
#pragma unroll
      for (int j = 0; j < pack; ++j) {
        values[j] -= log_sum;
        const C share = p != nullptr ? kept * weights[j] : (c + j == target ? kept : C{0});
        const C gradient = scale * (mass * std::exp(values[j]) - (share + uniform));
        gradients[j] = ignored || scale == C{0} ? C{0} : gradient;
      }
      store_pack(dlogits + first + c, gradients);
      if (dtarget != nullptr) {
#pragma unroll
        for (int j = 0; j < pack; ++j) {
          values[j] = math::mul_no_nan_derivative(weights[j], values[j], -scale * kept);
        }
        store_pack(dtarget + first + c, values);
      }
    }
  }
}

/// gradient_kernel for rows in registers; `weighted`: targets are probabilities.
template <class T, bool weighted>
struct ResidentGradient {
  static constexpr int kArrays = weighted ? 2 : 1;
  using C = compute_type<T>;

  template <class Row, class Reduce>
  __device__ void run(const Row& row, int64_t number, int64_t first, Reduce reduce) const {
    typename Row::Values values;
    row.load(in.logits + first, C{0}, values);
    const C kept = C{1} - in.smoothing, uniform = in.smoothing / static_cast<C>(in.classes);
    const C divided = divisor != nullptr ? static_cast<C>(*divisor) : C{1};
    const C log_sum = log_sums[number];
    C scale = dloss[loss_per_row ? number : 0] / divided;
    if constexpr (!weighted) {
      const int64_t target = in.indices[number];
      const bool absent = target == in.ignore_index, ignored = absent && !in.shard;
      const bool is_class = target >= 0 && target < in.classes;
      if (!absent && !is_class) scale = std::numeric_limits<C>::quiet_NaN();
      const int at = is_class && !absent ? static_cast<int>(target) : -1;
      row.each(
          [&](int column, C& value) {
            const C share = column == at ? kept : C{0};
            const C gradient = scale * (std::exp(value - log_sum) - (share + uniform));
            value = ignored || scale == C{0} ? C{0} : gradient;
          },
          values);
      row.store(dlogits + first, values);
    } else {
      typename Row::Values weights;
      row.load(in.probabilities + first, C{0}, weights);
      C sum = 0;
      row.each([&](int, C weight) { sum += weight; }, weights);
      const C mass = kept * reduce(sum, SumOf{}) + in.smoothing;
      row.each(
          [&](int, C& value, C& weight) {
            const C log_share = value - log_sum;
            const C gradient = scale * (mass * std::exp(log_share) - (kept * weight + uniform));
            value = scale == C{0} ? C{0} : gradient;
            weight = math::mul_no_nan_derivative(weight, log_share, -scale * kept);
          },
          values, weights);
      row.store(dlogits + first, values);
      if (dtarget != nullptr) row.store(dtarget + first, weights);
    }
  }

  LossRows<T> in;
  const C* log_sums;
  const C* dloss;
  bool loss_per_row;
  const int64_t* divisor;
  T* dlogits;
  T* dtarget;
};

/// What the blocks of the first stage of a total leave for the second.
struct Totals {
  double sums[kTotalBlocks];
  int64_t counts[kTotalBlocks];
};

/// For every block, the sum of its losses (none: null) and the number of its rows that are not ignored.
template <class C>
__global__ void totals_kernel(int64_t rows, const C* losses, const int64_t* indices, int64_t ignore_index,
                              Totals* totals) {
  double sum = 0;
  int64_t count = 0;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kTotalThreads + threadIdx.x; row < rows;
       row += static_cast<int64_t>(gridDim.x) * kTotalThreads) {
    if (losses != nullptr) sum += static_cast<double>(losses[row]);
    count += indices == nullptr || indices[row] != ignore_index ? 1 : 0;
  }
  sum = RowReduce<kTotalThreads>{}(sum, SumOf{});
  count = RowReduce<kTotalThreads>{}(count, SumOf{});
  if (threadIdx.x == 0) {
    totals->sums[blockIdx.x] = sum;
    totals->counts[blockIdx.x] = count;
  }
}

/// The loss (unless null) and the number of rows (unless null) from `blocks` parts; one warp.
template <class C>
__global__ void finish_kernel(int blocks, const Totals* totals, bool mean, C* loss, int64_t* rows) {
  double sum = 0;
  int64_t count = 0;
  for (int block = static_cast<int>(threadIdx.x); block < blocks; block += 32) {
    sum += totals->sums[block];
    count += totals->counts[block];
  }
  sum = reduce_warp(sum, SumOf{});
  count = reduce_warp(count, SumOf{});
  if (threadIdx.x != 0) return;
  if (loss != nullptr) *loss = static_cast<C>(mean ? sum / static_cast<double>(count) : sum);
  if (rows != nullptr) *rows = count;
}

template <class T>
void launch_total(const Stream& stream, const LossRows<T>& rows, const compute_type<T>* losses, bool mean,
                  Totals* totals, compute_type<T>* loss, int64_t* counted) {
  using C = compute_type<T>;
  const auto shape = cuda::grid_stride_shape(rows.rows, kTotalThreads * 4, kTotalThreads, kTotalBlocks);
  cuda::launch(stream, shape, totals_kernel<C>, rows.rows, losses, rows.indices, rows.ignore_index, totals);
  const cuda::LaunchShape one_warp{dim3(1), dim3(32)};
  cuda::launch(stream, one_warp, finish_kernel<C>, static_cast<int>(shape.grid.x), totals, mean, loss,
               counted);
}

/// Calls `function.operator()<threads of a row, pack>(shape)`.
template <class T, class F>
void dispatch_rows(const LossRows<T>& rows, bool packed, F&& function) {
  constexpr int pack = cuda::kPackSize<T>;
  if (rows.classes <= kWarpRow) {
    const auto shape = cuda::grid_stride_shape(rows.rows, kRowBlock / 32, kRowBlock);
    packed ? function.template operator()<32, pack>(shape) : function.template operator()<32, 1>(shape);
  } else {
    const auto shape = cuda::grid_stride_shape(rows.rows, 1, kRowBlock);
    packed ? function.template operator()<kRowBlock, pack>(shape)
           : function.template operator()<kRowBlock, 1>(shape);
  }
}

/// The loss and the log-sum of every row.
template <class T>
void launch_loss(const Stream& stream, const LossRows<T>& rows, compute_type<T>* losses,
                 compute_type<T>* log_sums) {
  if (rows.rows == 0) return;
  const auto resident = [&]<bool weighted>() {
    return launch_resident_rows<T>(stream, rows.rows, rows.classes,
                                   ResidentLoss<T, weighted>{rows, losses, log_sums},
                                   {rows.logits, rows.probabilities});
  };
  const bool weighted = rows.probabilities != nullptr;
  if (weighted ? resident.template operator()<true>() : resident.template operator()<false>()) return;
  dispatch_rows(rows, rows_are_packed<T>(rows.classes, {rows.logits, rows.probabilities}),
                [&]<int kThreads, int pack>(const cuda::LaunchShape& shape) {
                  cuda::launch(stream, shape, loss_kernel<kThreads, pack, T>, rows, losses, log_sums);
                });
}

/// The gradients that a call asks for.
template <class T>
struct LossGradient {
  using C = compute_type<T>;
  const C* log_sums;
  const C* dloss;
  bool loss_per_row;
  const int64_t* divisor;
  T* dlogits;
  T* dtarget = nullptr;
};

template <class T>
void launch_gradient(const Stream& stream, const LossRows<T>& rows, const LossGradient<T>& to) {
  if (rows.rows == 0) return;
  // Null pointers count as aligned. Aligned rows are read once as well: log_sums are known.
  const bool packed =
      rows_are_packed<T>(rows.classes, {rows.logits, rows.probabilities, to.dlogits, to.dtarget});
  const auto resident = [&]<bool weighted>() {
    return launch_resident_rows<T>(stream, rows.rows, rows.classes,
                                   ResidentGradient<T, weighted>{rows, to.log_sums, to.dloss, to.loss_per_row,
                                                                 to.divisor, to.dlogits, to.dtarget},
                                   {rows.logits, rows.probabilities, to.dlogits, to.dtarget});
  };
  const bool weighted = rows.probabilities != nullptr;
  if (!packed && (weighted ? resident.template operator()<true>() : resident.template operator()<false>())) {
    return;
  }
  dispatch_rows(rows, packed, [&]<int kThreads, int pack>(const cuda::LaunchShape& shape) {
    cuda::launch(stream, shape, gradient_kernel<kThreads, pack, T>, rows, to.log_sums, to.dloss,
                 to.loss_per_row, to.divisor, to.dlogits, to.dtarget);
  });
}

size_t cross_entropy_workspace(const KernelQuery& query) {
  if (query.attributes<CrossEntropyOptions>().reduction == Reduction::kNone) return 0;
  return sizeof(Totals) + static_cast<size_t>(query.input(0).shape[0]) * size_of(query.output(0).dtype);
}

void run_cross_entropy(const KernelContext& context) {
  const auto& options = context.attributes<CrossEntropyOptions>();
  const TensorView& logits = context.input(0);
  dispatch_float(logits.dtype, "cross_entropy", [&]<class T> {
    using C = compute_type<T>;
    const LossRows<T> rows(logits, context.input(1), options.label_smoothing, options.ignore_index);
    const bool reduced = options.reduction != Reduction::kNone;
    auto* totals = context.workspace<Totals>();
    C* losses = reduced ? reinterpret_cast<C*>(totals + 1) : context.output(0).as<C>();
    C* log_sums = context.output(1).as<C>();
    launch_loss<T>(context.stream(), rows, losses, log_sums);
    if (!reduced) return;
    launch_total<T>(context.stream(), rows, losses, options.reduction == Reduction::kMean, totals,
                    context.output(0).as<C>(), nullptr);
  });
}

struct GradientWorkspace {
  Totals totals;
  int64_t counted;
};

size_t cross_entropy_grad_workspace(const KernelQuery& query) {
  const bool mean = query.attributes<CrossEntropyGradAttributes>().reduction == Reduction::kMean;
  return mean ? sizeof(GradientWorkspace) : 0;
}

void run_cross_entropy_grad(const KernelContext& context) {
  const auto& attributes = context.attributes<CrossEntropyGradAttributes>();
  const TensorView& logits = context.input(0);
  if (logits.numel() == 0) return;
  dispatch_float(logits.dtype, "cross_entropy_grad", [&]<class T> {
    using C = compute_type<T>;
    const LossRows<T> rows(logits, context.input(1), attributes.label_smoothing, attributes.ignore_index);
    int64_t* counted = nullptr;
    if (attributes.reduction == Reduction::kMean) {
      auto* workspace = context.workspace<GradientWorkspace>();
      counted = &workspace->counted;
      launch_total<T>(context.stream(), rows, nullptr, true, &workspace->totals, nullptr, counted);
    }
    launch_gradient<T>(context.stream(), rows,
                       {.log_sums = context.input(2).as<const C>(),
                        .dloss = context.input(3).as<const C>(),
                        .loss_per_row = attributes.reduction == Reduction::kNone,
                        .divisor = counted,
                        .dlogits = context.output(0).as<T>(),
                        .dtarget = attributes.target_gradient ? context.output(1).as<T>() : nullptr});
  });
}

template <class T>
LossRows<T> shard_rows(const KernelContext& context) {
  LossRows<T> rows(context.input(0), context.input(1), 0.0, kElsewhere);
  rows.shard = true;
  return rows;
}

void run_shard_sums(const KernelContext& context) {
  dispatch_float(context.input(0).dtype, "shard_log_sums", [&]<class T> {
    using C = compute_type<T>;
    launch_loss<T>(context.stream(), shard_rows<T>(context), context.output(0).as<C>(),
                   context.output(1).as<C>());
  });
}

void run_shard_grad(const KernelContext& context) {
  dispatch_float(context.input(0).dtype, "shard_cross_entropy_grad", [&]<class T> {
    using C = compute_type<T>;
    launch_gradient<T>(context.stream(), shard_rows<T>(context),
                       {.log_sums = context.input(2).as<const C>(),
                        .dloss = context.input(3).as<const C>(),
                        .loss_per_row = true,
                        .divisor = nullptr,
                        .dlogits = context.output(0).as<T>()});
  });
}

}  // namespace

void register_cross_entropy_cuda(OpRegistry& registry);
void register_cross_entropy_cuda(OpRegistry& registry) {
  registry.add_kernel(
      "cross_entropy",
      {.device = DeviceType::kCuda, .workspace_bytes = cross_entropy_workspace, .run = run_cross_entropy});
  registry.add_kernel("cross_entropy_grad", {.device = DeviceType::kCuda,
                                             .workspace_bytes = cross_entropy_grad_workspace,
                                             .run = run_cross_entropy_grad});
  registry.add_kernel("shard_log_sums", {.device = DeviceType::kCuda, .run = run_shard_sums});
  registry.add_kernel("shard_cross_entropy", {.device = DeviceType::kCuda, .run = run_shard_cross_entropy});
  registry.add_kernel("shard_cross_entropy_grad", {.device = DeviceType::kCuda, .run = run_shard_grad});
}

}  // namespace sinter::ops
