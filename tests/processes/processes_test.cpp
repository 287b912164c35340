// Several real processes on this machine: sums, training, and how they meet.
#include <thread>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sinter/nn/checkpoint/safetensors.h>
#include <sinter/nn/module/module.h>

#include "processes/workers.h"

namespace sinter {
namespace {

using testing::Ended;
using testing::expect_all_well;
using testing::free_port;
using testing::Workers;

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
