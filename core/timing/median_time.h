// How many runs tell how long something takes.
#pragma once

#include <algorithm>
#include <array>

namespace sinter {

/// The median of five times, each from a call of `run`, after one call that warms up. If the first two are
/// both longer than `hopeless` it is the shorter of them, without further runs; one alone may have been
/// disturbed and decides nothing. Where the first and the one that warms up are longer than twice that, the
/// first is enough: such runs are the longest to wait for.
template <class Run>
double median_time(const Run& run, double hopeless) {
  const double warming = run();
  std::array<double, 5> times{};
  for (size_t i = 0; i < times.size(); ++i) {
    times[i] = run();
    if (i == 0 && std::min(warming, times[0]) > 2 * hopeless) return times[0];
    if (i == 1 && std::min(times[0], times[1]) > hopeless) return std::min(times[0], times[1]);
  }
  const auto middle = times.begin() + times.size() / 2;
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

}  // namespace sinter
