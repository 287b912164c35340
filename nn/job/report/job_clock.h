// PhaseClock: how long the phases of making a job take.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace sinter::nn {

class PhaseClock {
 public:
  using Phases = std::vector<std::pair<std::string, double>>;  // name, ms
  explicit PhaseClock(Phases& phases) : phases_(phases) {}

  /// Ends a phase, which began with the end of the one before.
  void finish(std::string name) {
    const auto now = std::chrono::steady_clock::now();
    phases_.emplace_back(std::move(name), std::chrono::duration<double, std::milli>(now - start_).count());
    start_ = now;
  }

 private:
  Phases& phases_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace sinter::nn
