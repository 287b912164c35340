#include "common/stop.h"

#include <csignal>

namespace sinter::examples {
namespace {

volatile std::sig_atomic_t caught = 0;

void handle(int signal) {
  caught = signal;
  std::signal(signal, SIG_DFL);
}

}  // namespace

void catch_stop_signals() {
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
