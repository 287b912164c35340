// A warp or a block for each row of a cross-entropy, which holds it in registers if it is not too long
// (resident_rows_cuda.h). Class indices cannot raise errors here: a row with one out of range gets a NaN as
// loss and as gradient.
#include <cmath>
#include <limits>

#include <sinter/ops/common/elementary_math.h>
#include <sinter/ops/common/rows/resident_rows_cuda.h>
#include <sinter/ops/cross_entropy/loss_rows_cuda.h>

namespace sinter::ops {
namespace {

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
template <int pack, class T>
__device__ compute_type<T> sum_distances(const T* x, const T* probabilities, int64_t classes,
                                         compute_type<T> largest, compute_type<T> log_rest) {
  using C = compute_type<T>;
  C sum = 0;
  for (int64_t c = threadIdx.x * pack; c < classes; c += kRowBlock * pack) {
    C values[pack], weights[pack];
    load_pack(x + c, values);
    if (probabilities != nullptr) load_pack(probabilities + c, weights);
#pragma unroll
    for (int j = 0; j < pack; ++j) {
      const C distance = largest - values[j] + log_rest;
      sum += probabilities != nullptr ? math::mul_no_nan(weights[j], distance) : distance;
    }
  }
  return RowReduce<kRowBlock>{}(sum, SumOf{});
}

/// A block for each row, which reads it twice.
template <int pack, class T>
__global__ void loss_kernel(LossRows<T> in, compute_type<T>* losses, compute_type<T>* log_sums) {
  using C = compute_type<T>;
  for (int64_t row = blockIdx.x; row < in.rows; row += gridDim.x) {
    const T* x = in.logits + row * in.classes;
    LogSumExp<C> partial;
    for (int64_t c = threadIdx.x * pack; c < in.classes; c += kRowBlock * pack) {
      C values[pack];
      load_pack(x + c, values);
#pragma unroll
      for (int j = 0; j < pack; ++j) partial.add(values[j]);
    }
    const LogSumExp<C> total = partial.reduced(RowReduce<kRowBlock>{});
    const C log_rest = std::log(total.sum);
    if (in.shard) {
      if (threadIdx.x == 0) store_shard_row(in, row, x, total.largest, log_rest, losses, log_sums);
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
          loss = sum_distances<pack>(x, p, in.classes, total.largest, log_rest);
        }
        if (in.smoothing != C{0}) {
          const C sum = sum_distances<pack, T>(x, nullptr, in.classes, total.largest, log_rest);
          loss =
              math::mul_no_nan(C{1} - in.smoothing, loss) + in.smoothing * (sum / static_cast<C>(in.classes));
        }
      }
    }
    if (threadIdx.x == 0) {
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

}  // namespace

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
  const bool packed = rows_are_packed<T>(rows.classes, {rows.logits, rows.probabilities});
  cuda::launch(stream, cuda::grid_stride_shape(rows.rows, 1, kRowBlock),
               packed ? loss_kernel<cuda::kPackSize<T>, T> : loss_kernel<1, T>, rows, losses, log_sums);
}

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
  const auto run = [&]<int kThreads, int pack>() {
    cuda::launch(stream, cuda::grid_stride_shape(rows.rows, kRowBlock / kThreads, kRowBlock),
                 gradient_kernel<kThreads, pack, T>, rows, to.log_sums, to.dloss, to.loss_per_row, to.divisor,
                 to.dlogits, to.dtarget);
  };
  if (!packed) return run.template operator()<kRowBlock, 1>();
  constexpr int pack = cuda::kPackSize<T>;
  rows.classes <= kWarpRow ? run.template operator()<32, pack>() : run.template operator()<kRowBlock, pack>();
}

#define SINTER_LOSS_ROWS(T)                                                                         \
  template void launch_loss(const Stream&, const LossRows<T>&, compute_type<T>*, compute_type<T>*); \
  template void launch_gradient(const Stream&, const LossRows<T>&, const LossGradient<T>&)
SINTER_LOSS_ROWS(float);
SINTER_LOSS_ROWS(double);
SINTER_LOSS_ROWS(float16);
SINTER_LOSS_ROWS(bfloat16);
#undef SINTER_LOSS_ROWS

}  // namespace sinter::ops
