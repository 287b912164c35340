// How often, and for how long together, the candidates of one choice are run.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <span>

namespace sinter {

/// What one run took.
struct RunTime {
  double microseconds = 0;
  /// Of them, what the host may have kept the device waiting for: a candidate's first run loads its code.
  double host_microseconds = 0;
};

/// The budget of one choice. What a choice saves is a share of the best time, and what disturbs a measurement
/// is so and so long whatever is run: so candidates of microseconds are run often, and all of them; those of
/// milliseconds are run once or twice, and no longer together than a constant.
class TimeBudget {
 public:
  static constexpr double kSlower = 1.5;  // times the best time: fewer runs are enough to tell
  static constexpr double kLong = 1e4;    // microseconds on a GPU that no disturbance changes much
  static constexpr double kForAll = 3e5;  // microseconds of all runs of all candidates

  /// Microseconds of a candidate: the median of five calls of `run`, which gives a RunTime, after one call
  /// that warms up. Fewer are enough where they take long: an odd number that lasts `long_enough` together;
  /// and none after the one that warms up, if that lasts so long without the host's part. Fewer also where
  /// others are better: if the first two are both kSlower than the best so far it is the shorter of them, one
  /// alone may have been disturbed and decides nothing; and the first if it and the one that warms up are
  /// slower than twice that.
  template <class Run>
  double measure(const Run& run, double long_enough = kLong) {
    const double time = median(run, long_enough);
    best_ = std::min(best_, time);
    return time;
  }

  /// Whether no further candidate is worth the time, beyond the few that any choice is made among.
  bool is_spent() const { return spent_ > kForAll; }
  /// The least time so far; infinity before the first.
  double best() const { return best_; }

 private:
  template <class Run>
  double median(const Run& run, double long_enough) {
    const double slow = kSlower * best_;
    const RunTime first = run();
    const double at_least = first.microseconds - first.host_microseconds;
    spent_ += at_least;
    if (at_least >= long_enough) return at_least;
    std::array<double, 5> times{};
    double together = 0;
    for (size_t i = 0; i < times.size(); ++i) {
      times[i] = run().microseconds;
      together += times[i];
      spent_ += times[i];
      if (i == 0 && std::min(first.microseconds, times[0]) > 2 * slow) return times[0];
      if (i == 1 && std::min(times[0], times[1]) > slow) return std::min(times[0], times[1]);
      if (i % 2 == 0 && together >= long_enough) return middle(std::span(times).first(i + 1));
    }
    return middle(times);
  }

  static double middle(std::span<double> times) {
    const auto middle = times.begin() + std::ssize(times) / 2;
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
  }

  double best_ = std::numeric_limits<double>::infinity(), spent_ = 0;
};

}  // namespace sinter
