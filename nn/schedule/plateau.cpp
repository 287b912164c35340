#include <algorithm>
#include <cmath>
#include <limits>

#include <sinter/core/base/error.h>
#include <sinter/nn/schedule/plateau.h>

namespace sinter::nn {
namespace {

double scalar_of(const State& state, const char* name, DType dtype) {
  const auto found = state.find(name);
  SINTER_CHECK(found != state.end() && found->second.defined() && found->second.dtype() == dtype &&
                   found->second.rank() == 0,
               "[plateau] expected a {} scalar '{}' in the state", dtype, name);
  return found->second.item();
}

}  // namespace

ReduceOnPlateau::ReduceOnPlateau(const PlateauOptions& options)
    : options_(options),
      rate_(options.base),
      best_(options.maximize ? -std::numeric_limits<double>::infinity()
                             : std::numeric_limits<double>::infinity()) {
  SINTER_CHECK(options.base >= 0.0 && std::isfinite(options.base),
               "[plateau] expected a finite base >= 0 but got {}", options.base);
  SINTER_CHECK(options.factor > 0.0 && options.factor < 1.0,
               "[plateau] expected a factor in (0, 1) but got {}", options.factor);
  SINTER_CHECK(options.patience >= 0 && options.cooldown >= 0,
               "[plateau] expected a patience and a cooldown >= 0 but got {} and {}", options.patience,
               options.cooldown);
  SINTER_CHECK(options.threshold >= 0.0 && options.min_rate >= 0.0 && options.min_change >= 0.0,
               "[plateau] expected a threshold, min_rate and min_change >= 0 but got {}, {} and {}",
               options.threshold, options.min_rate, options.min_change);
}

bool ReduceOnPlateau::improves(double measure) const {
  if (options_.threshold_is_absolute) {
    return options_.maximize ? measure > best_ + options_.threshold : measure < best_ - options_.threshold;
  }
  return options_.maximize ? measure > best_ * (1.0 + options_.threshold)
                           : measure < best_ * (1.0 - options_.threshold);
}

bool ReduceOnPlateau::update(double measure) {
  if (improves(measure)) {
    best_ = measure;
    bad_ = 0;
  } else {
    ++bad_;
  }
  if (cooldown_ > 0) {
    --cooldown_;
    bad_ = 0;
  }
  if (bad_ <= options_.patience) return false;
  cooldown_ = options_.cooldown;
  bad_ = 0;
  const double reduced = std::max(rate_ * options_.factor, options_.min_rate);
  if (!(rate_ - reduced > options_.min_change)) return false;
  rate_ = reduced;
  return true;
}

State ReduceOnPlateau::state() const {
  return {{"rate", Tensor::scalar(rate_)},
          {"best", Tensor::scalar(best_)},
          {"bad", Tensor::scalar(bad_)},
          {"cooldown", Tensor::scalar(cooldown_)}};
}

void ReduceOnPlateau::load_state(const State& state) {
  const double rate = scalar_of(state, "rate", DType::kFloat64);
  const double best = scalar_of(state, "best", DType::kFloat64);
  const double bad = scalar_of(state, "bad", DType::kInt64);
  const double cooldown = scalar_of(state, "cooldown", DType::kInt64);
  rate_ = rate;
  best_ = best;
  bad_ = static_cast<int64_t>(bad);
  cooldown_ = static_cast<int64_t>(cooldown);
}

}  // namespace sinter::nn
