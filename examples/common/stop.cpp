#include "common/stop.h"

#include <csignal>
#include <cstdlib>
#include <ctime>

namespace sinter::examples {
namespace {

volatile std::sig_atomic_t caught = 0;
volatile std::sig_atomic_t is_child = 0;  // of run_processes()
volatile std::time_t since = 0;

void handle(int signal) {
  // A signal for a whole group of processes comes to a child twice, once from its parent.
  constexpr std::time_t kTwice = 2;
  if (is_child != 0 && caught == signal && std::time(nullptr) - since <= kTwice) return;
  if (caught == signal) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
    return;
  }
  caught = signal;
  since = std::time(nullptr);
  if (is_child == 0) std::signal(signal, SIG_DFL);
}

}  // namespace

void catch_stop_signals() {
  is_child = std::getenv("SINTER_CHILD") != nullptr ? 1 : 0;
  std::signal(SIGINT, handle);
  std::signal(SIGTERM, handle);
  if (std::signal(SIGHUP, handle) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
}

int stop_signal() {
  return caught;
}

void ignore_write_signals(bool leaves_files) {
  std::signal(SIGXFSZ, SIG_IGN);
  if (leaves_files) std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace sinter::examples
