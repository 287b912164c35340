// A learning rate that falls when a measure stops improving.
#pragma once

#include <cstdint>

#include <sinter/nn/module/module.h>

namespace sinter::nn {

struct PlateauOptions {
  double base = 0.1;      ///< the first learning rate
  double factor = 0.1;    ///< in (0, 1): what a reduction multiplies it by
  int64_t patience = 10;  ///< measures in a row that may fail to improve; the next one reduces
  /// What counts as an improvement: better than the best so far by this share of it.
  double threshold = 1e-4;
  bool threshold_is_absolute = false;  ///< by this much, rather than by this share
  bool maximize = false;               ///< larger is better, as for an accuracy
  int64_t cooldown = 0;                ///< measures after a reduction during which none is counted as bad
  double min_rate = 0.0;               ///< the rate never falls below this
  double min_change = 1e-8;            ///< reductions by less are left out
};

/// As torch's ReduceLROnPlateau. Unlike a Schedule it has a state, which belongs into checkpoints.
///
///   nn::ReduceOnPlateau plateau({.base = 0.1, .patience = 5});
///   ... sgd.step(plateau.rate()); ...
///   plateau.update(validation_loss);  // once an epoch
class ReduceOnPlateau {
 public:
  /// Throws InvalidArgument for options out of range.
  explicit ReduceOnPlateau(const PlateauOptions& options = {});

  /// The present learning rate.
  double rate() const { return rate_; }
  /// Takes a new measure and reduces the rate if it is time to. NaN is no improvement. Returns whether it
  /// was reduced.
  bool update(double measure);

  double best() const { return best_; }
  /// Measures in a row that did not improve.
  int64_t bad() const { return bad_; }

  /// For checkpoints: float64 "rate" and "best", int64 "bad" and "cooldown"; the inverse throws
  /// InvalidArgument for a state of another kind.
  State state() const;
  void load_state(const State& state);

 private:
  bool improves(double measure) const;

  PlateauOptions options_;
  double rate_;
  double best_;
  int64_t bad_ = 0;
  int64_t cooldown_ = 0;
};

}  // namespace sinter::nn
