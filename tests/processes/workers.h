// Starts processes of tests/processes/worker.cpp and tells how they ended.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/temporary_folder.h"

namespace sinter::testing {

using Clock = std::chrono::steady_clock;
using Variables = std::vector<std::pair<std::string, std::string>>;

/// Whether this build sums on CPUs with Gloo.
constexpr bool has_gloo() {
#ifdef SINTER_WITH_GLOO
  return true;
#else
  return false;
#endif
}

inline int free_port() {
  const int file = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof place;
  bind(file, reinterpret_cast<sockaddr*>(&place), length);
  getsockname(file, reinterpret_cast<sockaddr*>(&place), &length);
  close(file);
  return ntohs(place.sin_port);
}

struct Ended {
  int code = -1;  // 128 + signal for a signal
  double seconds = 0.0;
  std::string error;
};

/// Processes of tests/processes/worker.cpp, ended with this object.
class Workers {
 public:
  Workers() = default;
  ~Workers() {
    for (const pid_t id : ids_) {
      if (id > 0) kill(id, SIGKILL);
      if (id > 0) waitpid(id, nullptr, 0);
    }
  }

  void start(const std::vector<std::string>& arguments, const Variables& variables) {
    const std::string output = (folder_ / ("error" + std::to_string(ids_.size()))).string();
    // Beside this program, wherever the build is.
    const std::string program =
        std::filesystem::read_symlink("/proc/self/exe").replace_filename("processes_worker").string();
    if (!std::filesystem::exists(program)) throw std::runtime_error(program + " is not there");
    const pid_t id = fork();
    if (id == 0) {
      for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
      if (std::freopen(output.c_str(), "w", stderr) == nullptr) _exit(126);
      std::vector<char*> words = {const_cast<char*>(program.c_str())};
      for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
      words.push_back(nullptr);
      execv(program.c_str(), words.data());
      _exit(127);
    }
    ids_.push_back(id);
    ended_.emplace_back();
  }
  void start_all(int size, const std::vector<std::string>& arguments, int port, const Variables& more = {}) {
    for (int rank = 0; rank < size; ++rank) {
      Variables variables = variables_of(rank, size, port);
      variables.insert(variables.end(), more.begin(), more.end());
      start(arguments, variables);
    }
  }
  static Variables variables_of(int rank, int size, int port) {
    return {{"RANK", std::to_string(rank)},
            {"WORLD_SIZE", std::to_string(size)},
            {"MASTER_ADDR", "127.0.0.1"},
            {"MASTER_PORT", std::to_string(port)}};
  }
  pid_t id(size_t rank) const { return ids_[rank]; }

  /// Waits for all but `except`.
  const std::vector<Ended>& wait(double limit, int except = -1) {
    const auto start = Clock::now();
    for (size_t left = 1; left > 0;) {
      left = 0;
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      for (size_t i = 0; i < ids_.size(); ++i) {
        int status = 0;
        if (ids_[i] > 0 && waitpid(ids_[i], &status, WNOHANG) == ids_[i]) {
          ids_[i] = 0;
          ended_[i].code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
          ended_[i].seconds = seconds;
        }
        left += ids_[i] > 0 && static_cast<int>(i) != except ? size_t{1} : size_t{0};
      }
      if (seconds > limit) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    for (size_t i = 0; i < ended_.size(); ++i) {
      std::ifstream file(folder_ / ("error" + std::to_string(i)));
      std::ostringstream text;
      text << file.rdbuf();
      ended_[i].error = text.str();
    }
    return ended_;
  }

 private:
  TemporaryFolder folder_;
  std::vector<pid_t> ids_;
  std::vector<Ended> ended_;
};

inline void expect_all_well(const std::vector<Ended>& ended) {
  for (size_t i = 0; i < ended.size(); ++i)
    EXPECT_EQ(ended[i].code, 0) << "rank " << i << ": " << ended[i].error;
}

}  // namespace sinter::testing
