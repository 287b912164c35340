#include "run/processes.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
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
  set("SINTER_CHILD", "1");  // common/stop.cpp: a second Ctrl-C is its parent's
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
    if (stop_signal() != passed_on) send_all(children, passed_on = stop_signal());
    if (take_save_request()) send_all(children, SIGUSR1);
    if (interrupted_twice()) {
      code = 128 + stop_signal();
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
      if (WIFSIGNALED(status) && !interrupted_twice())
        complain("error: rank {} was ended by signal {}", &child - children.data(), WTERMSIG(status));
      if (code == 0) code = own;
      // Who was asked to stop may take his time to save.
      const bool in_order = WIFEXITED(status) && std::find(kStopSignals.begin(), kStopSignals.end(),
                                                           own - 128) != kStopSignals.end();
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
  catch_stop_signals(SecondInterrupt::kIsTold);
  std::vector<Child> children;
  for (int rank = 0; rank < count; ++rank) {
    std::fflush(nullptr);
    const pid_t id = fork();
    if (id == 0) {
      for (const int signal : kStopSignals) {
        if (std::signal(signal, SIG_DFL) == SIG_IGN) std::signal(signal, SIG_IGN);
      }
      std::signal(SIGUSR1, SIG_IGN);  // there is nothing to save before the rank catches it
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

Requests agree_on_requests(const Communicator& ranks) {
  const Requests own = {.stop = stop_signal(), .save = take_save_request()};
  if (ranks.size() == 1) return own;
  std::vector<int64_t> counts = {own.save ? 1 : 0};
  for (const int signal : kStopSignals) counts.push_back(own.stop == signal ? 1 : 0);
  const Tensor all = Tensor::from_values(counts, {static_cast<int64_t>(counts.size())});
  ranks.all_reduce_(all);
  const int64_t* const sums = all.data<int64_t>();
  const auto stop = std::find_if(sums + 1, sums + counts.size(), [](int64_t sum) { return sum > 0; });
  return {.stop = stop == sums + counts.size() ? 0 : kStopSignals[static_cast<size_t>(stop - sums - 1)],
          .save = sums[0] > 0};
}

}  // namespace sinter::examples
