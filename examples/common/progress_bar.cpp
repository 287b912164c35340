#include "common/progress_bar.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/core.h>

#include "common/console.h"
#include "common/text.h"

namespace sinter::examples {
namespace {

constexpr auto kPlainInterval = std::chrono::seconds(5);
constexpr auto kRedrawInterval = std::chrono::milliseconds(100);
constexpr size_t kDetails = 5;  // percent, loss, learning rate, speed, ETA
constexpr size_t kLoss = 1;
constexpr size_t kLearningRate = 2;
constexpr size_t kShortestBar = 8;
constexpr size_t kLongestBar = 40;
constexpr const char* kClearLine = "\r\x1b[K";

std::string bar(double fraction, size_t length) {
  const auto full = static_cast<size_t>(fraction * static_cast<double>(length));
  std::string text(full, '=');
  if (full < length) text += '>';
  text.resize(length, ' ');
  return '[' + text + ']';
}

}  // namespace

ProgressBar::Output ProgressBar::to(std::FILE* stream) {
  Output output;
  output.write = [stream](const std::string& text) {
    if (is_quiet()) return;
    std::fwrite(text.data(), 1, text.size(), stream);  // one call, one write: nothing flickers
    std::fflush(stream);
  };
  output.width = [stream] { return terminal_columns(stream); };
  return output;
}

ProgressBar::ProgressBar(std::string title, int64_t total, Output output)
    : title_(std::move(title)),
      total_(std::max<int64_t>(total, 1)),
      output_(std::move(output)),
      start_(output_.now()),
      last_shown_(start_) {}

ProgressBar::~ProgressBar() {
  try {
    finish();
  } catch (...) {  // a destructor must not throw, and the bar is not worth an abort
  }
}

bool ProgressBar::due() const {
  if (output_.width() > 0) return !shown_ || output_.now() - last_shown_ >= kRedrawInterval;
  return plain_due(last_step_ + 1);
}

bool ProgressBar::plain_due(int64_t step) const {
  return step < total_ && step * 10 / total_ > tenths_ && output_.now() - last_shown_ >= kPlainInterval;
}

void ProgressBar::update(const Progress& progress) {
  last_step_ = progress.step;
  const auto now = output_.now();
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const int columns = output_.width();
  if (columns <= 0) {
    if (!plain_due(progress.step)) return;
    tenths_ = progress.step * 10 / total_;
    last_shown_ = now;
    output_.write(title_ + details(progress, kDetails, seconds) + '\n');
    return;
  }
  if (shown_ && now - last_shown_ < kRedrawInterval && progress.step < total_) return;
  shown_ = true;
  last_shown_ = now;
  // The text comes first and the rest of the line is cleared after it, so that it is never empty in between.
  output_.write('\r' + line(progress, static_cast<size_t>(columns), seconds) + "\x1b[K");
}

void ProgressBar::finish() {
  if (!shown_) return;
  shown_ = false;
  output_.write(kClearLine);
}

// The first `parts` details, each with two blanks before it.
std::string ProgressBar::details(const Progress& progress, size_t parts, double seconds) const {
  const double fraction = static_cast<double>(progress.step) / static_cast<double>(total_);
  const double rate = seconds > 0 ? static_cast<double>(progress.items) / seconds : 0;
  const double left = progress.step > 0 ? seconds * (1 - fraction) / fraction : -1;
  const std::string all[kDetails] = {fmt::format("  {:3.0f}%", std::floor(100 * fraction)),
                                     fmt::format("  loss {:.4f}", progress.loss),
                                     fmt::format("  lr {:.4g}", progress.learning_rate),
                                     fmt::format("  {:.0f} img/s", rate), "  ETA " + format_duration(left)};
  std::string text;
  for (size_t i = 0; i < parts; ++i) {
    if (progress.training || (i != kLoss && i != kLearningRate)) text += all[i];
  }
  return text;
}

std::string ProgressBar::line(const Progress& progress, size_t columns, double seconds) const {
  const size_t room = columns - 1;  // a full last column would wrap
  const double fraction =
      std::clamp(static_cast<double>(progress.step) / static_cast<double>(total_), 0.0, 1.0);
  for (size_t parts = kDetails; parts > 0; --parts) {
    const std::string text = details(progress, parts, seconds);
    const size_t used = title_.size() + text.size() + 3;  // a blank and two brackets
    if (used + kShortestBar <= room)
      return title_ + ' ' + bar(fraction, std::min(room - used, kLongestBar)) + text;
  }
  return (title_ + details(progress, 1, seconds)).substr(0, room);
}

std::string format_duration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "--:--";
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  const int64_t hours = whole / 3600, minutes = whole / 60 % 60, rest = whole % 60;
  if (hours >= 48) return fmt::format("{}d {:02}h", hours / 24, hours % 24);
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, rest);
  return fmt::format("{}:{:02}", minutes, rest);
}

}  // namespace sinter::examples
