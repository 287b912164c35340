#include "run/processes.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/console.h"
#include "common/stop.h"
#include "run/program.h"

namespace sinter::examples {
namespace {

constexpr std::chrono::seconds kGrace{20};  // for the others, when one has failed

volatile std::sig_atomic_t asked = 0;
volatile std::sig_atomic_t insists = 0;  // the same signal came again
volatile std::time_t since = 0;

void note(int signal) {
  // One that is sent to a whole group of processes may come twice (common/stop.cpp).
  constexpr std::time_t kTwice = 2;
  if (asked == signal && std::time(nullptr) - since > kTwice) insists = 1;
  if (asked != signal) since = std::time(nullptr);
  asked = signal;
}

/// A port that nobody listens on now.
int free_port() {
  const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  socklen_t length = sizeof place;
  const bool bound = bind(file, reinterpret_cast<const sockaddr*>(&place), length) == 0 &&
                     getsockname(file, reinterpret_cast<sockaddr*>(&place), &length) == 0;
  close(file);
  if (!bound) throw Error("no port is free on this machine");
  return ntohs(place.sin_port);
}

/// The child's side: becomes the rank.
[[noreturn]] void become(int rank, int count, int port, pid_t parent, char** argv) {
  // Of a group of its own: the terminal's Ctrl-C goes to the parent alone, which passes it on, once.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);
  const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); };
  set("RANK", std::to_string(rank));
  set("LOCAL_RANK", std::to_string(rank));
  set("WORLD_SIZE", std::to_string(count));
  set("LOCAL_WORLD_SIZE", std::to_string(count));
  set("SINTER_CHILD", "1");  // common/stop.cpp: its signals may come twice
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", std::to_string(port));
  execv("/proc/self/exe", argv);
  _exit(127);
}

struct Child {
  pid_t id = 0;
  bool ended = false;
};

void send_all(const std::vector<Child>& children, int signal) {
  for (const Child& child : children) {
    if (!child.ended) kill(child.id, signal);
  }
}

/// Waits for all, and gives the code of the first that failed.
int wait_for_all(std::vector<Child>& children) {
  using Clock = std::chrono::steady_clock;
  int code = 0, passed_on = 0;
  std::optional<Clock::time_point> until;
  for (size_t left = children.size(); left > 0;) {
    if (asked != 0 && asked != passed_on) {
      passed_on = asked;
      send_all(children, passed_on);
    }
    if (insists != 0) {
      code = 128 + asked;
      send_all(children, SIGKILL);
    }
    if (until && Clock::now() > *until) send_all(children, SIGKILL);
    for (Child& child : children) {
      int status = 0;
      if (child.ended || waitpid(child.id, &status, WNOHANG) != child.id) continue;
      child.ended = true;
      --left;
      const int own = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      if (own == 0) continue;
      if (WIFSIGNALED(status) && insists == 0)
        complain("error: rank {} was ended by signal {}", &child - children.data(), WTERMSIG(status));
      if (code == 0) code = own;
      // Who was asked to stop may take his time to save.
      const bool in_order = WIFEXITED(status) && (own == 129 || own == 130 || own == 143);
      if (!in_order && !until) until = Clock::now() + kGrace;
    }
    if (left > 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return code;
}

}  // namespace

int run_processes(char** argv, int count) {
  const int port = free_port();
  const pid_t parent = getpid();
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, note);
  if (std::signal(SIGHUP, note) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
  std::vector<Child> children;
  for (int rank = 0; rank < count; ++rank) {
    std::fflush(nullptr);
    const pid_t id = fork();
    if (id == 0) {
      for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
      become(rank, count, port, parent, argv);
    }
    if (id < 0) {
      send_all(children, SIGKILL);
      wait_for_all(children);
      throw Error(fmt::format("rank {} of {} cannot be started", rank, count));
    }
    children.push_back({id});
  }
  return wait_for_all(children);
}

bool must_start(const ProcessCount& count, const ProcessEnvironment& environment) {
  if (count.count <= 1) return false;
  if (environment.launcher == "none") return true;
  if (environment.size != count.count) {
    throw Error(fmt::format("{} {}: {} has started {} processes", count.option, count.count,
                            environment.launcher, environment.size));
  }
  return false;
}

Device device_of_rank(const std::string& asked, int gpus, int processes,
                      const ProcessEnvironment& environment) {
  const bool is_open = asked == "auto" || asked == "cuda";
  const bool by_rank = gpus > 0 || (is_open && processes == 1 && environment.size > 1);
  if (processes > 1 && asked == "auto") return Device::cpu();
  if (!by_rank || (gpus == 0 && !is_available(Device::cuda()))) return choose_device(asked);
  return Device::cuda(environment.local_rank);
}

int threads_of_rank(int asked, const ProcessEnvironment& environment) {
  if (asked > 0 || environment.local_size <= 1) return asked;
  return std::max(static_cast<int>(std::thread::hardware_concurrency()) / environment.local_size, 1);
}

int agree_on_stop(const Communicator& ranks) {
  constexpr std::array<int, 3> kSignals = {SIGTERM, SIGINT, SIGHUP};
  const int own = stop_signal();
  if (ranks.size() == 1) return own;
  std::vector<int64_t> counts;
  for (const int signal : kSignals) counts.push_back(own == signal ? 1 : 0);
  const Tensor all = Tensor::from_values(counts, {static_cast<int64_t>(counts.size())});
  ranks.all_reduce_(all);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    if (all.data<int64_t>()[i] > 0) return kSignals[i];
  }
  return 0;
}

}  // namespace sinter::examples
