// A line now and then while kernels are timed: the first step of a large batch takes seconds before it
// begins.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>

namespace sinter::examples {

/// Tells of choices among kernels that follow each other for longer than two seconds, then every five: of
/// those on the thread that made it.
class TimingNotice {
 public:
  using Clock = std::chrono::steady_clock;

  explicit TimingNotice(
      std::function<void(const std::string& line)> write,
      std::function<Clock::time_point()> now = [] { return Clock::now(); });
  ~TimingNotice();
  TimingNotice(const TimingNotice&) = delete;
  TimingNotice& operator=(const TimingNotice&) = delete;

 private:
  void count();

  std::function<void(const std::string&)> write_;
  std::function<Clock::time_point()> now_;
  Clock::time_point start_{}, last_{}, shown_{};  // of the present choices
  int choices_ = 0;
  std::thread::id thread_ = std::this_thread::get_id();
};

}  // namespace sinter::examples
