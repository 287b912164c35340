// Several real processes on this machine: sums, training, and how they meet.
#include <algorithm>
#include <atomic>
#include <thread>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sinter/core/runtime/backend.h>
#include <sinter/nn/checkpoint/safetensors.h>
#include <sinter/nn/module/module.h>

#include "processes/workers.h"

namespace sinter {
namespace {

using testing::Ended;
using testing::expect_all_well;
using testing::free_port;
using testing::Variables;
using testing::Workers;

const testing::Variables kWithoutGloo = {{"SINTER_GLOO", "off"}};

/// Starts so many workers with the same words, of which none may find anything wrong.
void expect_well(int size, const std::vector<std::string>& words, const testing::Variables& variables = {}) {
  Workers workers;
  workers.start_all(size, words, free_port(), variables);
  expect_all_well(workers.wait(60));
}

class ProcessesTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ProcessesTest, ::testing::Values(2, 4));

TEST_P(ProcessesTest, CollectivesGiveWhatTheySay) {
  expect_well(GetParam(), {"collectives"});
}

// The same where all goes through rank 0.
TEST_P(ProcessesTest, CollectivesGiveWhatTheySayWithoutGloo) {
  expect_well(GetParam(), {"collectives"}, kWithoutGloo);
}

TEST_P(ProcessesTest, CollectivesGiveWhatTheySayOverChosenPortsAndIpv6) {
  for (const char* address : {"127.0.0.1", "localhost", "::1"}) {
    const int port = free_port();
    Workers workers;
    workers.start_all(
        GetParam(), {"collectives"}, port,
        {{"MASTER_ADDR", address}, {"SINTER_PORTS", "23500-23540"}, {"SINTER_JOB_KEY", "a key"}});
    expect_all_well(workers.wait(60));
  }
}

nn::State trained(int size, const std::string& way, const testing::Variables& variables = {}) {
  const testing::TemporaryFolder folder;
  const std::string file = (folder / "weights.safetensors").string();
  Workers workers;
  workers.start_all(size, {way, file}, free_port(), variables);
  const bool on_gpus =
      std::ranges::any_of(variables, [](const auto& entry) { return entry.first == "WORKER_ON_GPU"; });
  expect_all_well(workers.wait(on_gpus ? 180 : 60));  // contexts and NCCL take a while to start
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

TEST_P(ProcessesTest, TrainsTheWeightsOfOneProcessWithoutGloo) {
  const nn::State many = trained(GetParam(), "job", kWithoutGloo);
  expect_near(trained(1, "job"), many, 1e-5);
  expect_near(many, trained(GetParam(), "job", kWithoutGloo), 0.0);  // from run to run
}

// Sums that the model itself asks for are no gradients': they are made where they stand.
TEST_P(ProcessesTest, TrainsTheWeightsOfOneProcessWithSumsInTheForwardPass) {
  const nn::State one = trained(1, "sums.job");
  const nn::State many = trained(GetParam(), "sums.job");
  expect_near(one, many, 1e-5);
  expect_near(many, trained(GetParam(), "sums.job"), 0.0);  // from run to run
  expect_near(one, trained(GetParam(), "sums.eager"), 1e-5);
  expect_near(one, trained(GetParam(), "sums.unbucketed"), 1e-5);
  expect_near(trained(1, "sums.accumulate"), trained(GetParam(), "sums.accumulate"), 1e-5);
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
  expect_well(GetParam(), {"norms.parts"});
}

TEST_P(ProcessesTest, TrainsWhatIsBesideTheModelAndItsAverageAsOneProcess) {
  const nn::State one = trained(1, "beside.job");
  expect_near(one, trained(GetParam(), "beside.job"), 1e-5);
  expect_near(one, trained(GetParam(), "beside.eager"), 1e-5);
}

TEST_P(ProcessesTest, PartsOfDifferentSizesAreRefusedOnAllRanks) {
  expect_well(GetParam(), {"parts"});
}

TEST_P(ProcessesTest, OperationsThatDifferAreToldOnAllRanks) {
  for (const testing::Variables& variables : {testing::Variables(), kWithoutGloo}) {
    expect_well(GetParam(), {"differences"}, variables);
  }
}

// They would be summed into each other, for their sizes are the same.
TEST_P(ProcessesTest, GradientsOfOtherParametersAreRefusedOnAllRanks) {
  expect_well(GetParam(), {"gradients"});
}

// They are no part of what a trace takes for constants: other ranks may not be tracing.
TEST_P(ProcessesTest, SumsOfConstantsAreMadeInEachStep) {
  expect_well(GetParam(), {"constant"});
}

// Each rank draws its part of what one process draws, and all stand alike afterwards.
TEST_P(ProcessesTest, DropsWhatOneProcessDrops) {
  const nn::State one = trained(1, "dropping.job");
  expect_near(one, trained(1, "dropping.eager"), 1e-5);
  expect_near(one, trained(GetParam(), "dropping.job"), 1e-5);
  expect_near(one, trained(GetParam(), "dropping.eager"), 1e-5);
}

TEST_P(ProcessesTest, TheNumberOfUpdatesOfAnAverageIsThatOfRankZero) {
  expect_well(GetParam(), {"average"});
}

TEST_P(ProcessesTest, AllRanksOfAJobRunTheKernelThatRankZeroChose) {
  expect_well(GetParam(), {"kernels"}, {{"SINTER_CACHE_DIR", ""}});
}

// Groups of parameters tear layers apart: what counts is when gradients are there.
TEST_P(ProcessesTest, SumsRunBesideTheBackwardPassWhateverTheOrderOfParameters) {
  expect_well(GetParam(), {"order"});
}

// Promise 6: centres that are divided among the ranks train as those of one process.
TEST_P(ProcessesTest, TrainsTheCentresOfOneProcess) {
  for (const char* kind : {"faces.arc", "faces.cos", "faces.all", "faces.adaface", "faces.elastic",
                           "faces.magface", "faces.curricular", "faces.subcentres"}) {
    const nn::State one = trained(1, kind);
    expect_near(one, trained(GetParam(), kind), 1e-5);
  }
  expect_near(trained(1, "faces.arc"), trained(GetParam(), "faces.arc.eager"), 1e-5);
}

TEST_P(ProcessesTest, SampledCentresAreTheSameFromRunToRunAndGoOnOnOtherNumbersOfRanks) {
  const testing::TemporaryFolder folder;
  const std::string file = (folder / "faces.safetensors").string();
  expect_well(GetParam(), {"faces.arc.sampled", file});
  const nn::State first = nn::read_safetensors(file).tensors;
  expect_near(first, trained(GetParam(), "faces.arc.sampled"), 0.0);
  for (const int size : {1, 3, GetParam()}) {
    Workers others;
    others.start_all(size, {"reload.arc.sampled", file}, free_port());
    expect_all_well(others.wait(60));
  }
}

// Each rank on a GPU of its own: embeddings and gradients go through NCCL, and jobs are captured.
TEST(GpuRanks, TrainTheCentresOfOneProcess) {
  const Device gpu = Device::cuda();
  if (!is_available(gpu) || backend_of(gpu).device_count() < 2) GTEST_SKIP() << "needs two GPUs";
  const Variables on_gpus{{"WORKER_ON_GPU", "1"}};
  for (const char* kind : {"faces.arc", "faces.subcentres"}) {
    const nn::State one = trained(1, kind, on_gpus);
    expect_near(one, trained(2, kind, on_gpus), 1e-5);
    expect_near(one, trained(2, std::string(kind) + ".eager", on_gpus), 1e-5);
  }
  const nn::State sampled = trained(2, "faces.arc.sampled", on_gpus);
  expect_near(sampled, trained(2, "faces.arc.sampled", on_gpus), 0.0);  // from run to run
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

/// Ranks 0 and 1 of two, between which `stranger` comes, who says what it is in its variables; all but it
/// work together, and it ends soon with this message.
void expect_turned_away(const Variables& stranger, const std::string& message, const Variables& own = {}) {
  const int port = free_port();
  Workers workers;
  const auto start = [&](int rank, const Variables& more) {
    Variables variables = Workers::variables_of(rank, 2, port);
    variables.insert(variables.end(), more.begin(), more.end());
    workers.start({"collectives"}, variables);
  };
  start(0, own);
  start(1, stranger);
  EXPECT_EQ(workers.wait(10, 0)[1].code, 3);
  EXPECT_NE(workers.wait(0)[1].error.find(message), std::string::npos) << workers.wait(0)[1].error;
  start(1, own);
  const std::vector<Ended>& ended = workers.wait(30);
  EXPECT_EQ(ended[0].code, 0) << ended[0].error;
  EXPECT_EQ(ended[2].code, 0) << ended[2].error;
}

// Two jobs that were given one port, mistakes, and whoever has no business there.
TEST(Rendezvous, WhoIsOfAnotherJobIsTurnedAwayAndDisturbsNobody) {
  expect_turned_away({{"WORLD_SIZE", "3"}}, "says that there are 3 ranks, rank 0 that there are 2");
  expect_turned_away({{"RANK", "2"}, {"WORLD_SIZE", "3"}},
                     "says that there are 3 ranks, rank 0 that there are 2");
  expect_turned_away({{"WORKER_PURPOSE", "other"}}, "was started with other options than rank 0");
  expect_turned_away({{"SINTER_JOB_KEY", "key"}}, "does not know the job's key");
  expect_turned_away({{"SINTER_JOB_KEY", "kex"}}, "does not know the job's key", {{"SINTER_JOB_KEY", "key"}});
  expect_turned_away({}, "does not know the job's key", {{"SINTER_JOB_KEY", "key"}});
  expect_turned_away({{"TORCHELASTIC_RUN_ID", "7"}}, "another job listens there",
                     {{"TORCHELASTIC_RUN_ID", "8"}});
}

TEST(Rendezvous, ARankThatSumsWithSomethingElseIsTurnedAwayByName) {
  if (testing::has_gloo()) expect_turned_away(kWithoutGloo, "sums with no Gloo, but rank 0");
}

TEST(Rendezvous, ARankThatComesTwiceIsTurnedAway) {
  Workers workers;
  const int port = free_port();
  workers.start({"late"}, Workers::variables_of(0, 3, port));
  workers.start({"late"}, Workers::variables_of(1, 3, port));
  workers.start({"late"}, Workers::variables_of(1, 3, port));
  const std::vector<Ended>& ended = workers.wait(20);
  for (const Ended& each : ended) {
    EXPECT_EQ(each.code, 3);
    EXPECT_NE(each.error.find("came though there is already rank 1 ("), std::string::npos) << each.error;
  }
  EXPECT_NE(ended[0].error.find("did not come within 2 s: 2; one was turned away"), std::string::npos)
      << ended[0].error;
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

/// A connection to a port of this machine, for which it waits.
int connect_to(int port) {
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_port = htons(static_cast<uint16_t>(port));
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (int attempt = 0; attempt < 2000; ++attempt) {
    const int file = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(file, reinterpret_cast<sockaddr*>(&place), sizeof place) == 0) return file;
    close(file);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return -1;
}

/// A message as processes send them.
std::string message_of(uint32_t kind, const std::string& text) {
  std::string message = "1TNS";
  const auto bytes = static_cast<uint32_t>(text.size());
  message.append(reinterpret_cast<const char*>(&kind), 4).append(reinterpret_cast<const char*>(&bytes), 4);
  return message + text;
}

std::string packed(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    const auto bytes = static_cast<uint32_t>(word.size());
    text.append(reinterpret_cast<const char*>(&bytes), 4);
    text += word;
  }
  return text;
}

/// What comes next, as far as it comes in time.
std::string answer_of(int file) {
  const timeval limit{5, 0};
  setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  char bytes[4096];
  const ssize_t got = recv(file, bytes, sizeof bytes, 0);
  return got > 0 ? std::string(bytes, static_cast<size_t>(got)) : std::string();
}

// Connections that are none of ours come first, say nothing or nonsense, and stay.
TEST(Rendezvous, StrangersDisturbNobody) {
  const int port = free_port();
  Workers workers;
  workers.start({"collectives"}, Workers::variables_of(0, 2, port));
  std::vector<int> strangers;
  const std::vector<std::string> hello = {"sinter-2", "9.9.9", "", "", "", "\x1b[2J", "2", "1", "77", "n"};
  const std::string words[] = {"",
                               "GET / HTTP/1.1\r\n\r\n",
                               std::string("1TNS\x01\0\0\0\xff\xff\xff\x7f", 12),
                               std::string("1TNS\x01\0\0\0\x08\0\0\0\xff\xff\xff\xff", 16),
                               message_of(1, packed({"", "3", "1", "\x1b[2J", "77"})),  // of an older version
                               message_of(1, packed(hello)),  // stays without a proof
                               message_of(1, packed(hello)) + message_of(11, "proof"),  // has a wrong one
                               message_of(1, packed(hello)) + message_of(7, ""),
                               message_of(11, "proof"),
                               message_of(1, packed({"sinter-2", "", "", "", "", "", "2", "-1", "0", ""}))};
  for (const std::string& text : words) {
    const int file = connect_to(port);
    ASSERT_GE(file, 0);
    send(file, text.data(), text.size(), MSG_NOSIGNAL);
    strangers.push_back(file);
  }
  for (int i = 0; i < 200; ++i) strangers.push_back(connect_to(port));  // more than rank 0 keeps
  workers.start({"collectives"}, Workers::variables_of(1, 2, port));
  expect_all_well(workers.wait(30));
  EXPECT_EQ(workers.wait(0)[0].error.find('\x1b'), std::string::npos);
  for (const int file : strangers) close(file);
}

TEST(Rendezvous, AnOlderVersionIsTurnedAwayByName) {
  const int port = free_port();
  Workers workers;
  workers.start({"late"}, Workers::variables_of(0, 2, port));
  const int file = connect_to(port);
  ASSERT_GE(file, 0);
  const std::string text = message_of(1, packed({"", "2", "1", "host", "77"}));
  send(file, text.data(), text.size(), MSG_NOSIGNAL);
  const std::string answer = answer_of(file);
  EXPECT_NE(answer.find("rank 1 (host, process 77) is of an older Sinter, but rank 0 ("), std::string::npos)
      << answer;
  close(file);
}

TEST(Rendezvous, RankZeroThatGoesIsNamedAtOnceAndNotWhenTheTimeIsOver) {
  const int port = free_port();
  Workers workers;
  workers.start({"collectives"}, Workers::variables_of(0, 3, port));
  close(connect_to(port));  // it listens
  workers.start({"collectives"}, Workers::variables_of(1, 3, port));
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  kill(workers.id(0), SIGKILL);
  const Ended second = workers.wait(10)[1];
  EXPECT_EQ(second.code, 3);
  EXPECT_LT(second.seconds, 5.0);
  EXPECT_NE(second.error.find("went away before all 3 ranks had come"), std::string::npos) << second.error;
}

TEST(Rendezvous, TheFirstReasonIsTold) {
  const int port = free_port();
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_port = htons(static_cast<uint16_t>(port));
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&place), sizeof place), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  Workers workers;
  workers.start({"late"}, Workers::variables_of(1, 2, port));
  close(accept(listener, nullptr, nullptr));
  close(listener);
  const Ended first = workers.wait(10)[0];
  EXPECT_EQ(first.code, 3);
  EXPECT_NE(first.error.find("what listens there is no rank 0 of this job; then: Connection refused"),
            std::string::npos)
      << first.error;
}

// Gloo takes whoever connects to a rank's port first for the rank.
TEST(Rendezvous, AStrangerAtAPortOfGloosDoesNotTakeARanksPlace) {
  if (!testing::has_gloo()) GTEST_SKIP() << "a build without Gloo";
  constexpr int kFirst = 23600;
  std::atomic<bool> ended = false;
  std::vector<int> strangers;
  std::thread stranger([&] {  // comes to each port once
    for (int port = kFirst; port < kFirst + 6; ++port) {
      for (int file = -1; file < 0 && !ended;) {
        sockaddr_in place{};
        place.sin_family = AF_INET;
        place.sin_port = htons(static_cast<uint16_t>(port));
        place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        file = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(file, reinterpret_cast<sockaddr*>(&place), sizeof place) == 0) {
          strangers.push_back(file);
        } else {
          close(file);
          file = -1;
        }
      }
    }
  });
  Workers workers;
  workers.start_all(2, {"collectives"}, free_port(),
                    {{"SINTER_PORTS", fmt::format("{}-{}", kFirst, kFirst + 5)}});
  const std::vector<Ended>& all = workers.wait(40);
  ended = true;
  stranger.join();
  for (const Ended& each : all) {
    EXPECT_EQ(each.code, 0) << each.error;
    EXPECT_EQ(each.error.find(".cc:"), std::string::npos) << each.error;
  }
  for (const int file : strangers) close(file);
}

}  // namespace
}  // namespace sinter
