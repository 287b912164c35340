// How many runs tell how long something takes.
#pragma once

#include <algorithm>
#include <array>

namespace sinter {

/// The median of five times, each from a call of `run`. If the first two are both longer than `hopeless` it
/// is the shorter of them, without further runs; one alone may have been disturbed and decides nothing.
template <class Run>
double median_time(const Run& run, double hopeless) {
  std::array<double, 5> times{};
  for (size_t i = 0; i < times.size(); ++i) {
    times[i] = run();
    if (i == 1 && std::min(times[0], times[1]) > hopeless) return std::min(times[0], times[1]);
  }
  const auto middle = times.begin() + times.size() / 2;
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

}  // namespace sinter
