#include "common/timeline.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <fstream>
#include <iterator>
#include <numeric>
#include <sstream>

#include <fmt/core.h>
#include <unistd.h>

namespace sinter::examples {

void Timeline::add(const std::string& name, double begin, double end) {
  const std::lock_guard lock(mutex_);
  const auto has_name = [&](const Part& part) { return part.name == name; };
  if (std::none_of(parts_.begin(), parts_.end(), has_name)) parts_.push_back({name, begin, end});
}

std::string Timeline::text() const {
  constexpr double kColumns = 56;
  std::vector<Part> parts;
  {
    const std::lock_guard lock(mutex_);
    parts = parts_;
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return a.begin < b.begin; });
  double last = 1e-9;
  size_t longest = 0;
  for (const Part& part : parts) {
    last = std::max(last, part.end);
    longest = std::max(longest, part.name.size());
  }
  std::string text;
  for (const auto& [name, begin, end] : parts) {
    const auto from = static_cast<size_t>(kColumns * std::clamp(begin / last, 0.0, 1.0));
    const auto to = std::max(from, static_cast<size_t>(kColumns * std::clamp(end / last, 0.0, 1.0)));
    text += fmt::format("  {:<{}} {:7.2f} s  |{:<57}|\n", name, longest, end - begin,
                        std::string(from, ' ') + std::string(to - from + 1, '#'));
  }
  return text;
}

std::string mean_and_deviation(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0.0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return fmt::format("{:.2f}, deviation {:.2f}", mean, std::sqrt(squares / std::max(count - 1, 1.0)));
}

Timeline::Clock::time_point process_start() {
  using Seconds = std::chrono::duration<double>;
  // Field 22 counts clock ticks since the machine started. The second, a name in brackets, may have spaces.
  std::ifstream file("/proc/self/stat");
  std::string stat((std::istreambuf_iterator<char>(file)), {});
  stat.erase(0, stat.rfind(')') + 1);
  std::istringstream fields(stat);
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  double ticks = 0.0;
  timespec now{};
  const auto moment = Timeline::Clock::now();
  if (!(fields >> ticks) || clock_gettime(CLOCK_BOOTTIME, &now) != 0) return moment;
  const double age = static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) -
                     ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  return moment - std::chrono::duration_cast<Timeline::Clock::duration>(Seconds(std::max(age, 0.0)));
}

}  // namespace sinter::examples
