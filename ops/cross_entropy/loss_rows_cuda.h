// The rows of a cross-entropy on a GPU, and of a shard of one: their losses and gradients. For .cu files.
#pragma once

#include <sinter/core/op/kernel.h>

namespace sinter::ops {

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

/// The loss and the log-sum of every row; of a shard's row its own logit, or 0.
template <class T>
void launch_loss(const Stream& stream, const LossRows<T>& rows, compute_type<T>* losses,
                 compute_type<T>* log_sums);

template <class T>
void launch_gradient(const Stream& stream, const LossRows<T>& rows, const LossGradient<T>& to);

}  // namespace sinter::ops
