#include "run/processes.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/console.h"
#include "common/stop.h"
#include "common/text.h"
#include "run/program.h"

namespace sinter::examples {
namespace {

// For the others, when one has failed: until they are asked, and until they are ended.
constexpr std::chrono::seconds kFirstGrace{3}, kGrace{20};
constexpr std::chrono::seconds kSameTime{1};

std::atomic<bool> pauses{false};  // Ctrl-Z, which reaches no other process group

void note_pause(int /*signal*/) {
  pauses = true;
}

/// A port of this machine that nobody listens on now.
int free_port() {
  const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof place;
  const bool bound = bind(file, reinterpret_cast<const sockaddr*>(&place), length) == 0 &&
                     getsockname(file, reinterpret_cast<sockaddr*>(&place), &length) == 0;
  close(file);
  if (!bound) throw Error("no port is free on this machine");
  return ntohs(place.sin_port);
}

/// A secret that nobody else knows: who comes to the port without it is turned away.
std::string job_key() {
  std::array<unsigned char, 16> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw Error("the system gives no random numbers");
  std::string key;
  for (const unsigned char byte : bytes) key += fmt::format("{:02x}", byte);
  return key;
}

/// The child's side: becomes the rank.
[[noreturn]] void become(int rank, int count, int port, const std::string& key, pid_t parent, char** argv) {
  // Of a group of its own: the terminal's Ctrl-C goes to the parent alone, which passes it on, once. There it
  // would be stopped where it writes to a terminal that lets only its foreground group do so (stty tostop).
  setpgid(0, 0);
  std::signal(SIGTTOU, SIG_IGN);
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
  set("SINTER_JOB_KEY", key);
  for (const char* name : {"SINTER_ADDRESS", "SINTER_PORT", "SINTER_INTERFACE", "SINTER_PORTS"})
    unsetenv(name);
  execv("/proc/self/exe", argv);
  _exit(127);
}

struct Child {
  pid_t id = 0;
  bool ended = false;
};

/// The processes of the run, and what came of them.
class Children {
 public:
  void add(pid_t id) { all_.push_back({id}); }

  void send(int signal) {
    for (const Child& child : all_) {
      if (!child.ended) kill(child.id, signal);
    }
    is_killing_ = is_killing_ || signal == SIGKILL;
  }

  /// Waits for all, and gives the code of the first that failed; of one that a signal has ended, if others,
  /// which fail for want of it, are seen to end at the same time.
  int wait() {
    int passed_on = 0;
    for (size_t left = all_.size(); left > 0;) {
      if (stop_signal() != passed_on) send(passed_on = stop_signal());
      if (take_save_request()) send(SIGUSR1);
      if (pauses.exchange(false)) pause();
      if (interrupted_twice()) {
        code_ = 128 + stop_signal();
        send(SIGKILL);
      }
      hurry();
      for (size_t rank = 0; rank < all_.size(); ++rank) {
        int status = 0;
        if (all_[rank].ended || waitpid(all_[rank].id, &status, WNOHANG) != all_[rank].id) continue;
        all_[rank].ended = true;
        --left;
        take(rank, status);
      }
      if (left > 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    if (killed_ > 0 && !interrupted_twice())
      complain("error: {} of {} processes had not ended {} s later and were killed", killed_, all_.size(),
               kGrace.count());
    return code_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  void take(size_t rank, int status) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    const bool by_signal = WIFSIGNALED(status);
    const int signal =
        by_signal ? WTERMSIG(status) : WEXITSTATUS(status) - 128;  // that it was asked to stop by
    if (by_signal && (signal == SIGKILL ? is_killing_ : is_hurried_ && signal == SIGTERM)) {
      if (signal == SIGKILL) ++killed_;
      return;
    }
    const bool is_request = std::find(kStopSignals.begin(), kStopSignals.end(), signal) != kStopSignals.end();
    // One that was asked by this process before it could note it ends by the signal itself, and nothing is
    // wrong.
    if (by_signal && signal != stop_signal()) complain("error: rank {} was ended by signal {}", rank, signal);
    const bool is_cause = by_signal && !by_signal_ && failed_ && Clock::now() - *failed_ < kSameTime;
    if (code_ == 0 || is_cause) code_ = by_signal ? 128 + signal : WEXITSTATUS(status);
    by_signal_ = by_signal_ || by_signal;
    // Who was asked to stop may take his time to save.
    if (!failed_ && (by_signal || !is_request)) failed_ = Clock::now();
  }

  /// Ends whoever goes on where one has failed: first by asking, which ends those at once that only wait for
  /// it to come.
  void hurry() {
    if (!failed_) return;
    if (!is_hurried_ && Clock::now() - *failed_ > kFirstGrace) {
      is_hurried_ = true;
      send(SIGTERM);
    }
    if (Clock::now() - *failed_ > kGrace) send(SIGKILL);
  }

  /// Stops the run until this process goes on.
  void pause() {
    const auto start = Clock::now();
    send(SIGSTOP);
    raise(SIGSTOP);
    send(SIGCONT);
    if (failed_) *failed_ += Clock::now() - start;
  }

  std::vector<Child> all_;
  int code_ = 0;
  bool by_signal_ = false;
  bool is_hurried_ = false;  // all were asked to end
  bool is_killing_ = false;
  int killed_ = 0;
  std::optional<Clock::time_point> failed_;
};

}  // namespace

int run_processes(char** argv, int count) {
  const int port = free_port();
  const std::string key = job_key();
  const pid_t parent = getpid();
  catch_stop_signals(SecondInterrupt::kIsTold);
  if (std::signal(SIGTSTP, note_pause) == SIG_IGN) std::signal(SIGTSTP, SIG_IGN);
  std::signal(SIGCHLD, SIG_DFL);  // where it is ignored, nobody can wait for a child
  Children children;
  for (int rank = 0; rank < count; ++rank) {
    std::fflush(nullptr);
    const pid_t id = fork();
    if (id == 0) {
      for (const int signal : kStopSignals) {
        if (std::signal(signal, SIG_DFL) == SIG_IGN) std::signal(signal, SIG_IGN);
      }
      std::signal(SIGUSR1, SIG_IGN);  // there is nothing to save before the rank catches it
      become(rank, count, port, key, parent, argv);
    }
    if (id < 0) {
      children.send(SIGKILL);
      children.wait();
      throw Error(fmt::format("rank {} of {} cannot be started", rank, count));
    }
    children.add(id);
  }
  return children.wait();
}

bool must_start(const ProcessCount& count, const ProcessEnvironment& environment) {
  if (count.count <= 1) return false;
  if (environment.launcher == "none") return true;
  if (environment.size != count.count) {
    throw Error(fmt::format("{} {}: {} has started {}", count.option, count.count, environment.launcher,
                            counted(environment.size, "process")));
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

Requests agree_on_requests(const Communicator& ranks, bool wait) {
  uint64_t bits = take_save_request() ? 1 : 0;
  for (size_t i = 0; i < kStopSignals.size(); ++i)
    bits |= uint64_t{stop_signal() == kStopSignals[i]} << (i + 1);
  bits = ranks.agree(bits);
  if (wait && ranks.size() > 1) bits |= ranks.agree(0);  // tells those of the call above
  Requests all{.stop = 0, .save = (bits & 1) != 0};
  for (size_t i = kStopSignals.size(); i-- > 0;) {
    if ((bits >> (i + 1) & 1) != 0) all.stop = kStopSignals[i];
  }
  return all;
}

}  // namespace sinter::examples
