// One line that says how training goes, redrawn in place on a terminal and printed now and then elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>

namespace sinter::examples {

/// What the line shows beside the bar itself.
struct Progress {
  int64_t step = 0;   ///< steps done of this bar's total
  int64_t items = 0;  ///< images seen so far
  double loss = 0;
  double learning_rate = 0;
  bool training = true;  ///< false: there are no loss and learning rate to show
};

/// On a terminal: "epoch 3/30 [=====>    ]  52%  loss 1.2345  lr 0.1000  1234 img/s  ETA 0:12", at most ten
/// times a second, cut to the terminal's width as it is at that moment: the bar shrinks first, then the
/// details go from the right. Elsewhere (a file, a pipe): such a line without the bar at every tenth of the
/// way, but at most one in five seconds, and none at the end, which the caller's own line tells.
class ProgressBar {
 public:
  using Clock = std::chrono::steady_clock;

  struct Output {
    std::function<void(const std::string&)> write;  ///< gets text as it is, with control characters
    std::function<int()> width;                     ///< columns of the terminal; 0 if it is none
    std::function<Clock::time_point()> now = [] { return Clock::now(); };
  };
  /// Writes to a stream, such as stderr.
  static Output to(std::FILE* stream);

  /// `total` > 0 steps.
  ProgressBar(std::string title, int64_t total, Output output = to(stderr));
  /// Clears the line if finish() was not called, so that an error's message starts on a clean one.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Shows the progress if it is time to.
  void update(const Progress& progress);
  /// Removes the bar; whoever prints the epoch's line does so next.
  void finish();
  /// Whether the next update will show anything, for callers who must fetch the loss from a device first.
  bool due() const;

 private:
  bool plain_due(int64_t step) const;
  std::string details(const Progress& progress, size_t parts, double seconds) const;
  std::string line(const Progress& progress, size_t columns, double seconds) const;

  std::string title_;
  int64_t total_;
  Output output_;
  Clock::time_point start_;
  Clock::time_point last_shown_;
  bool shown_ = false;
  int64_t tenths_ = 0;  // shown without a terminal
  int64_t last_step_ = 0;
};

/// "0:07", "12:34", "1:02:03", "2d 03h"; "--:--" for what is unknown (negative or not finite).
std::string format_duration(double seconds);

}  // namespace sinter::examples
