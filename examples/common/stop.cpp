#include "common/stop.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace sinter::examples {
namespace {

// What a handler may touch: atomics without a lock.
std::atomic<int> caught{0};
std::atomic<bool> saves{false}, twice{false};
std::atomic<int64_t> interrupted_at{-1};  // milliseconds of the monotonic clock
static_assert(std::atomic<int64_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

enum class OnSecond { kEnd, kTell, kNothing };
OnSecond on_second = OnSecond::kEnd;  // set before the handlers

// `timeout -s INT` and launchers send one request twice, to a process and to its group.
constexpr int64_t kSamePress = 1000;  // milliseconds

int64_t now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1000 + time.tv_nsec / 1'000'000;
}

void note_stop(int signal) {
  int none = 0;
  caught.compare_exchange_strong(none, signal);
  if (signal != SIGINT || on_second == OnSecond::kNothing) return;
  int64_t first = -1;
  const int64_t time = now();
  if (interrupted_at.compare_exchange_strong(first, time) || time - first < kSamePress) return;
  twice = true;
  if (on_second == OnSecond::kTell) return;
  std::signal(SIGINT, SIG_DFL);
  std::raise(SIGINT);
}

void note_save(int /*signal*/) {
  saves = true;
}

/// System calls that a signal interrupts go on.
void set_handler(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

}  // namespace

void catch_stop_signals(SecondInterrupt second) {
  const bool is_rank = std::getenv("SINTER_CHILD") != nullptr;
  on_second = second == SecondInterrupt::kIsTold ? OnSecond::kTell
              : is_rank                          ? OnSecond::kNothing
                                                 : OnSecond::kEnd;
  struct sigaction hang_up {};
  sigaction(SIGHUP, nullptr, &hang_up);
  for (const int signal : kStopSignals) {
    if (signal != SIGHUP || hang_up.sa_handler != SIG_IGN) set_handler(signal, note_stop);
  }
}

int stop_signal() {
  return caught;
}

bool interrupted_twice() {
  return twice;
}

void catch_save_signals() {
  set_handler(SIGUSR1, note_save);
}

bool take_save_request() {
  return saves.exchange(false);
}

void ignore_write_signals(bool leaves_files) {
  std::signal(SIGXFSZ, SIG_IGN);
  if (leaves_files) std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace sinter::examples
