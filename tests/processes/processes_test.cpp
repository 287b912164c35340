// Several real processes on this machine: sums, training, and what the others learn when one of them goes.
#include <csignal>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sinter/core/comm/communicator.h>
#include <sinter/nn/checkpoint/safetensors.h>
#include <sinter/nn/module/module.h>

#include "common/temporary_folder.h"

namespace sinter {
namespace {

using Clock = std::chrono::steady_clock;
using Variables = std::vector<std::pair<std::string, std::string>>;

int free_port() {
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
    const pid_t id = fork();
    if (id == 0) {
      for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
      if (std::freopen(output.c_str(), "w", stderr) == nullptr) _exit(126);
      std::vector<char*> words = {const_cast<char*>(SINTER_TEST_WORKER)};
      for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
      words.push_back(nullptr);
      execv(SINTER_TEST_WORKER, words.data());
      _exit(127);
    }
    ids_.push_back(id);
    ended_.emplace_back();
  }
  void start_all(int size, const std::vector<std::string>& arguments, int port) {
    for (int rank = 0; rank < size; ++rank) start(arguments, variables_of(rank, size, port));
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
  testing::TemporaryFolder folder_;
  std::vector<pid_t> ids_;
  std::vector<Ended> ended_;
};

void expect_all_well(const std::vector<Ended>& ended) {
  for (size_t i = 0; i < ended.size(); ++i)
    EXPECT_EQ(ended[i].code, 0) << "rank " << i << ": " << ended[i].error;
}

class ProcessesTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ProcessesTest, ::testing::Values(2, 4));

TEST_P(ProcessesTest, CollectivesGiveWhatTheySay) {
  Workers workers;
  workers.start_all(GetParam(), {"collectives"}, free_port());
  expect_all_well(workers.wait(60));
}

nn::State trained(int size, const std::string& way) {
  const testing::TemporaryFolder folder;
  const std::string file = (folder / "weights.safetensors").string();
  Workers workers;
  workers.start_all(size, {way, file}, free_port());
  expect_all_well(workers.wait(60));
  return nn::read_safetensors(file).tensors;
}

void expect_near(const nn::State& a, const nn::State& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) {
    if (!is_float(tensor.dtype())) continue;  // counts of batches
    const auto x = tensor.to_vector<float>(), y = b.at(name).to_vector<float>();
    for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], tolerance) << name << " " << i;
  }
}

// Promise 1: N ranks with a batch of B/N each give the weights of one with B, up to the order of sums.
TEST_P(ProcessesTest, TrainsTheWeightsOfOneProcess) {
  const nn::State one = trained(1, "job");
  const nn::State many = trained(GetParam(), "job");
  expect_near(one, many, 1e-5);
  expect_near(many, trained(GetParam(), "job"), 0.0);  // from run to run
  expect_near(one, trained(GetParam(), "eager"), 1e-5);
  expect_near(one, trained(GetParam(), "unbucketed"), 1e-5);
  expect_near(trained(1, "accumulate"), trained(GetParam(), "accumulate"), 1e-5);
}

// The same with batch norms over all ranks.
TEST_P(ProcessesTest, TrainsTheWeightsOfOneProcessWithNormsOverAllRanks) {
  const nn::State one = trained(1, "norms.job");
  const nn::State many = trained(GetParam(), "norms.job");
  expect_near(one, many, 1e-5);
  expect_near(many, trained(GetParam(), "norms.job"), 0.0);  // from run to run
  expect_near(one, trained(GetParam(), "norms.eager"), 1e-5);
}

TEST_P(ProcessesTest, NormsOverPartsOfDifferentSizesAreThoseOfTheWhole) {
  Workers workers;
  workers.start_all(GetParam(), {"norms.parts"}, free_port());
  expect_all_well(workers.wait(60));
}

// Promise 6: centres that are divided among the ranks train as those of one process.
TEST_P(ProcessesTest, TrainsTheCentresOfOneProcess) {
  for (const char* kind : {"faces.arc", "faces.cos", "faces.all"}) {
    const nn::State one = trained(1, kind);
    expect_near(one, trained(GetParam(), kind), 1e-5);
  }
  expect_near(trained(1, "faces.arc"), trained(GetParam(), "faces.arc.eager"), 1e-5);
}

TEST_P(ProcessesTest, SampledCentresAreTheSameFromRunToRunAndGoOnOnOtherNumbersOfRanks) {
  const testing::TemporaryFolder folder;
  const std::string file = (folder / "faces.safetensors").string();
  Workers workers;
  workers.start_all(GetParam(), {"faces.arc.sampled", file}, free_port());
  expect_all_well(workers.wait(60));
  const nn::State first = nn::read_safetensors(file).tensors;
  expect_near(first, trained(GetParam(), "faces.arc.sampled"), 0.0);
  for (const int size : {1, 3, GetParam()}) {
    Workers others;
    others.start_all(size, {"reload.arc.sampled", file}, free_port());
    expect_all_well(others.wait(60));
  }
}

class FaultTest : public ::testing::TestWithParam<std::tuple<int, const char*>> {};
INSTANTIATE_TEST_SUITE_P(Kinds, FaultTest,
                         ::testing::Combine(::testing::Values(2, 4),
                                            ::testing::Values("kill", "stop", "exception", "midway",
                                                              "save")));

// Promise 3: whoever is left says who is gone, and ends.
TEST_P(FaultTest, IsNamedOnAllOthers) {
  const auto [size, kind] = GetParam();
  Workers workers;
  workers.start_all(size, {std::string("fault.") + kind}, free_port());
  const std::string name = "rank " + std::to_string(size - 1) + " (";
  const std::string process =
      "process " + std::to_string(workers.id(static_cast<size_t>(size) - 1)) + ") is lost";
  const std::vector<Ended>& ended = workers.wait(20, size - 1);
  for (int rank = 0; rank < size - 1; ++rank) {
    const Ended& one = ended[static_cast<size_t>(rank)];
    EXPECT_EQ(one.code, 3) << "rank " << rank << ": " << one.error;
    EXPECT_NE(one.error.find(name), std::string::npos) << one.error;
    EXPECT_NE(one.error.find(process), std::string::npos) << one.error;
    EXPECT_NE(one.error.find("here in all_reduce, operation"), std::string::npos) << one.error;
    if (std::string(kind) == "exception") {
      EXPECT_NE(one.error.find("it failed"), std::string::npos) << one.error;
    }
    RecordProperty("seconds_of_rank_" + std::to_string(rank), std::to_string(one.seconds));
  }
}

TEST(ProcessesFault, OfRankZeroIsNamedToo) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    Workers workers;
    workers.start_all(3, {"fault.none"}, free_port());
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    kill(workers.id(0), signal);
    const std::vector<Ended>& ended = workers.wait(20, 0);
    for (size_t rank = 1; rank < 3; ++rank) {
      EXPECT_EQ(ended[rank].code, 3) << ended[rank].error;
      EXPECT_NE(ended[rank].error.find("rank 0 ("), std::string::npos) << ended[rank].error;
    }
  }
}

TEST(ProcessesFault, ARankThatDoesNotTakePartIsNamedWhenTheTimeIsOver) {
  Workers workers;
  workers.start_all(2, {"timeout"}, free_port());
  const Ended& first = workers.wait(20)[0];
  EXPECT_EQ(first.code, 3);
  EXPECT_NE(first.error.find("barrier, operation 1 of rank 0 has failed"), std::string::npos) << first.error;
  EXPECT_NE(first.error.find("furthest behind is rank 1"), std::string::npos) << first.error;
}

TEST(Rendezvous, NamesWhoDoesNotCome) {
  Workers workers;
  const int port = free_port();
  workers.start({"late"}, Workers::variables_of(0, 3, port));
  workers.start({"late"}, Workers::variables_of(2, 3, port));
  for (const Ended& ended : workers.wait(20)) {
    EXPECT_EQ(ended.code, 3);
    EXPECT_NE(ended.error.find("of 3 ranks these did not come within 2 s: 1"), std::string::npos)
        << ended.error;
  }
}

TEST(Rendezvous, RefusesARankThatComesTwice) {
  Workers workers;
  const int port = free_port();
  workers.start({"collectives"}, Workers::variables_of(0, 3, port));
  workers.start({"collectives"}, Workers::variables_of(1, 3, port));
  workers.start({"collectives"}, Workers::variables_of(1, 3, port));
  for (const Ended& ended : workers.wait(20)) {
    EXPECT_EQ(ended.code, 3);
    EXPECT_NE(ended.error.find("came though there is already rank 1 ("), std::string::npos) << ended.error;
  }
}

TEST(Rendezvous, RefusesAJobOfAnotherSize) {
  Workers workers;
  const int port = free_port();
  workers.start({"collectives"}, Workers::variables_of(0, 2, port));
  workers.start({"collectives"}, Workers::variables_of(1, 3, port));
  for (const Ended& ended : workers.wait(20)) {
    EXPECT_EQ(ended.code, 3);
    EXPECT_NE(ended.error.find("says that there are 3 ranks, rank 0 that there are 2"), std::string::npos)
        << ended.error;
  }
}

TEST(Rendezvous, TellsOfAPortThatIsInUse) {
  const int port = free_port();
  const int file = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_port = htons(static_cast<uint16_t>(port));
  ASSERT_EQ(bind(file, reinterpret_cast<sockaddr*>(&place), sizeof place), 0);
  ASSERT_EQ(listen(file, 1), 0);
  Workers workers;
  workers.start({"late"}, Workers::variables_of(0, 2, port));
  const Ended first = workers.wait(20)[0];
  EXPECT_EQ(first.code, 3);
  EXPECT_NE(first.error.find(fmt::format("rank 0 cannot listen: port {} of", port)), std::string::npos)
      << first.error;
  // Somebody listens there, but says nothing.
  Workers others;
  others.start({"late"}, Workers::variables_of(1, 2, port));
  const Ended second = others.wait(20)[0];
  EXPECT_EQ(second.code, 3);
  EXPECT_NE(second.error.find("no rank 0 of this job"), std::string::npos) << second.error;
  close(file);
  Workers alone;
  alone.start({"late"}, Workers::variables_of(1, 2, port));
  const Ended third = alone.wait(20)[0];
  EXPECT_EQ(third.code, 3);
  EXPECT_NE(third.error.find("Connection refused"), std::string::npos) << third.error;
}

// Connections that are none of ours come first, say nothing or nonsense, and stay.
TEST(Rendezvous, StrangersDisturbNobody) {
  const int port = free_port();
  Workers workers;
  workers.start({"collectives"}, Workers::variables_of(0, 2, port));
  std::vector<int> strangers;
  const std::string words[] = {"", "GET / HTTP/1.1\r\n\r\n",
                               std::string("1TNS\x01\0\0\0\xff\xff\xff\x7f", 12),
                               std::string("1TNS\x01\0\0\0\x08\0\0\0\xff\xff\xff\xff", 16)};
  for (const std::string& text : words) {
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_port = htons(static_cast<uint16_t>(port));
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int file = -1;
    for (int attempt = 0; attempt < 500; ++attempt) {
      file = socket(AF_INET, SOCK_STREAM, 0);
      if (connect(file, reinterpret_cast<sockaddr*>(&place), sizeof place) == 0) break;
      close(file);
      file = -1;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ASSERT_GE(file, 0);
    send(file, text.data(), text.size(), MSG_NOSIGNAL);
    strangers.push_back(file);
  }
  workers.start({"collectives"}, Workers::variables_of(1, 2, port));
  expect_all_well(workers.wait(30));
  for (const int file : strangers) close(file);
}

}  // namespace
}  // namespace sinter
