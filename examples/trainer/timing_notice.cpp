#include "trainer/timing_notice.h"

#include <utility>

#include <fmt/core.h>

#include <sinter/core/timing/choose_plan.h>

namespace sinter::examples {
namespace {

using namespace std::chrono_literals;

constexpr auto kQuiet = 2s, kBetweenLines = 5s;
constexpr auto kApart = 10s;  // choices so far from each other belong to different steps

}  // namespace

TimingNotice::TimingNotice(std::function<void(const std::string& line)> write,
                           std::function<Clock::time_point()> now)
    : write_(std::move(write)), now_(std::move(now)) {
  on_timed_choice([this] { count(); });
}

TimingNotice::~TimingNotice() {
  on_timed_choice({});
}

void TimingNotice::count() {
  if (std::this_thread::get_id() != thread_) return;
  const Clock::time_point now = now_();
  if (choices_ == 0 || now - last_ > kApart) {
    start_ = now;
    shown_ = start_ + kQuiet - kBetweenLines;
    choices_ = 0;
  }
  last_ = now;
  ++choices_;
  if (now - shown_ < kBetweenLines) return;
  shown_ = now;
  write_(fmt::format("timing kernels for new shapes, once: {} chosen in {:.0f} s\n", choices_,
                     std::chrono::duration<double>(now - start_).count()));
}

}  // namespace sinter::examples
