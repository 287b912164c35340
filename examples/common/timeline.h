// Where the seconds of a program go, as bars of text.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

namespace sinter::examples {

/// Parts of a program with their begin and end; some may run beside others, on other threads.
class Timeline {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Timeline(Clock::time_point start = Clock::now()) : start_(start) {}

  /// Seconds since the start.
  double now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  /// Runs `work` and notes when it ran; gives what it gives.
  template <class Work>
  auto time(const std::string& name, Work&& work) {
    const double begin = now();
    if constexpr (std::is_void_v<std::invoke_result_t<Work>>) {
      work();
      add(name, begin, now());
    } else {
      auto result = work();
      add(name, begin, now());
      return result;
    }
  }
  /// Notes a part, in seconds since the start, unless one of that name is there: what is repeated is shown
  /// once.
  void add(const std::string& name, double begin, double end);
  /// A line for each part, in the order in which they began.
  std::string text() const;

 private:
  struct Part {
    std::string name;
    double begin = 0.0, end = 0.0;
  };

  Clock::time_point start_;
  mutable std::mutex mutex_;
  std::vector<Part> parts_;
};

/// "90.53, deviation 0.12", of at least one value.
std::string mean_and_deviation(const std::vector<double>& values);

/// When the system started this process, to a hundredth of a second; now, where the system does not tell.
Timeline::Clock::time_point process_start();

}  // namespace sinter::examples
