// What the others learn when one of several real processes goes, fails or takes no part.
#include <filesystem>

#include <sinter/core/runtime/backend.h>

#include "processes/workers.h"

namespace sinter {
namespace {

using testing::Clock;
using testing::Ended;
using testing::expect_all_well;
using testing::free_port;
using testing::Variables;
using testing::Workers;

constexpr double kMostSeconds = 20.0;  // in which all others must have ended

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

// The same where all goes through rank 0.
TEST(ProcessesFault, IsNamedOnAllOthersWithoutGloo) {
  for (const char* kind : {"kill", "stop", "exception", "midway"}) {
    Workers workers;
    workers.start_all(3, {std::string("fault.") + kind}, free_port(), {{"SINTER_GLOO", "off"}});
    const std::string process = "process " + std::to_string(workers.id(2)) + ") is lost";
    const std::vector<Ended>& ended = workers.wait(20, 2);
    for (size_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(ended[rank].code, 3) << kind << ": " << ended[rank].error;
      EXPECT_NE(ended[rank].error.find(process), std::string::npos) << ended[rank].error;
      EXPECT_NE(ended[rank].error.find("here in all_reduce, operation"), std::string::npos)
          << ended[rank].error;
    }
  }
}

// As by Ctrl-Z or a scheduler that suspends jobs: nobody can tell the others' silence from its own.
TEST(ProcessesFault, ThereIsNoneWhereAllAreStoppedAndGoOn) {
  Workers workers;
  workers.start_all(2, {"fault.none"}, free_port());
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  for (const size_t rank : {size_t{0}, size_t{1}}) kill(workers.id(rank), SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(6));  // heartbeat_timeout is 4
  for (const size_t rank : {size_t{0}, size_t{1}}) kill(workers.id(rank), SIGCONT);
  const std::vector<Ended>& ended = workers.wait(2.0);
  for (size_t rank = 0; rank < 2; ++rank) EXPECT_EQ(ended[rank].code, -1) << ended[rank].error;
  kill(workers.id(1), SIGKILL);  // and it is a job still
  EXPECT_EQ(workers.wait(10)[0].code, 3);
  EXPECT_NE(workers.wait(0)[0].error.find("is lost: its connection ended"), std::string::npos);
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
  for (const char* gloo : {"on", "off"}) {
    Workers workers;
    workers.start_all(2, {"timeout"}, free_port(), {{"SINTER_GLOO", gloo}});
    const Ended& first = workers.wait(20)[0];
    EXPECT_EQ(first.code, 3);
    EXPECT_NE(first.error.find("barrier, operation 1 of rank 0 has failed: it has waited longer than 2 s"),
              std::string::npos)
        << first.error;
    EXPECT_NE(first.error.find("furthest behind is rank 1"), std::string::npos) << first.error;
  }
}

/// What became of ranks of which the last one has met a fault; times count from there.
class Fault {
 public:
  Fault(int size, const std::string& what, const Variables& variables = {}) : size_(size) {
    const std::string file = (folder_ / "fault").string();
    workers_.start_all(size, {what, file}, free_port(), variables);
    process_ = workers_.id(static_cast<size_t>(size) - 1);
    const auto limit = Clock::now() + std::chrono::seconds(120);  // for drivers to start
    while (!std::filesystem::exists(file) && Clock::now() < limit)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_TRUE(std::filesystem::exists(file)) << "the fault did not come";
    ended_ = workers_.wait(kMostSeconds + 5.0);
  }

  const Ended& rank(int rank) const { return ended_[static_cast<size_t>(rank)]; }
  const Ended& victim() const { return rank(size_ - 1); }
  /// "rank 1 (", as all messages name the last rank.
  std::string name() const { return fmt::format("rank {} (", size_ - 1); }
  std::string process() const { return fmt::format("process {})", process_); }

  /// All but the last one have ended in time with an error in which each of the texts is.
  void expect_others_say(const std::vector<std::string>& texts) const {
    for (int i = 0; i < size_ - 1; ++i) {
      EXPECT_EQ(rank(i).code, 3) << "rank " << i << ": " << rank(i).error;
      EXPECT_LT(rank(i).seconds, kMostSeconds) << "rank " << i;
      for (const std::string& text : texts)
        EXPECT_NE(rank(i).error.find(text), std::string::npos)
            << text << " of rank " << i << ": " << rank(i).error;
      std::printf("rank %d has ended %.1f s after the fault: %s\n", i, rank(i).seconds,
                  rank(i).error.c_str());
      ::testing::Test::RecordProperty("seconds_of_rank_" + std::to_string(i),
                                      std::to_string(rank(i).seconds));
    }
  }

 private:
  int size_;
  testing::TemporaryFolder folder_;
  Workers workers_;
  pid_t process_ = 0;
  std::vector<Ended> ended_;
};

// ---- the watch over a device, with a made-up one

class FakeGpuFault : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, FakeGpuFault, ::testing::Values(2, 4));

TEST_P(FakeGpuFault, ARankThatTakesNoPartIsNamedWhenTheTimeIsOver) {
  const Fault fault(GetParam(), "fake.sleeps");
  fault.expect_others_say({"has failed: its GPU has waited longer than 3 s", "a step, operation ",
                           "furthest behind is " + fault.name(), fault.process()});
  // It wakes, and hears why nobody is there.
  EXPECT_EQ(fault.victim().code, 3) << fault.victim().error;
  EXPECT_NE(fault.victim().error.find("is lost: it failed: a step, operation "), std::string::npos)
      << fault.victim().error;
}

TEST_P(FakeGpuFault, AnErrorWhileTheDeviceWorksIsToldToAll) {
  const Fault fault(GetParam(), "fake.error");
  fault.expect_others_say({fault.name(), fault.process(), " is lost: it failed: a step, operation ",
                           fmt::format(" of rank {} has failed: the driver has failed", GetParam() - 1)});
  EXPECT_EQ(fault.victim().code, 3) << fault.victim().error;
}

TEST_P(FakeGpuFault, AnErrorOfACallIsToldToAll) {
  const Fault fault(GetParam(), "fake.call");
  fault.expect_others_say({fault.name(), fault.process(),
                           " is lost: it failed: all_reduce of gradients, operation ",
                           fmt::format(" of rank {} has failed: the call was refused", GetParam() - 1)});
}

TEST_P(FakeGpuFault, ABrokenNetworkEndsAllThatLive) {
  const Fault fault(GetParam(), "fake.network");
  fault.expect_others_say({" has failed: the network has broken"});
  EXPECT_EQ(fault.victim().code, 3) << fault.victim().error;
}

// A rank that goes while all connect is named at once, not when the time to join is over.
TEST_P(FakeGpuFault, ARankThatIsKilledWhileAllConnectIsNamedAtOnce) {
  const Fault fault(GetParam(), "fake.connect_kill");
  fault.expect_others_say({fault.name(), fault.process() + " is lost: its connection ended"});
  for (int rank = 0; rank < GetParam() - 1; ++rank) EXPECT_LT(fault.rank(rank).seconds, 5.0);
}

TEST_P(FakeGpuFault, ARankThatFailsWhileAllConnectSaysWhy) {
  const Fault fault(GetParam(), "fake.connect_throw");
  fault.expect_others_say({fault.name(), fault.process() + " is lost: it failed: the driver is too old"});
  for (int rank = 0; rank < GetParam() - 1; ++rank) EXPECT_LT(fault.rank(rank).seconds, 5.0);
}

// The library notices first, but does not know who it is.
TEST_P(FakeGpuFault, ABrokenNetworkOfARankThatIsGoneNamesIt) {
  const Fault fault(GetParam(), "fake.gone");
  fault.expect_others_say({fault.name(), fault.process() + " is lost: its connection ended"});
}

TEST_P(FakeGpuFault, ThereIsNoneWhereTheHostPauses) {
  const testing::TemporaryFolder folder;
  Workers workers;
  workers.start_all(GetParam(), {"fake.well", (folder / "well").string()}, free_port());
  expect_all_well(workers.wait(kMostSeconds));
}

// The watch waits for the name of a rank that is lost, but keeps nobody who leaves.
TEST_P(FakeGpuFault, ThereIsNoneWhereAllLeave) {
  const testing::TemporaryFolder folder;
  Workers workers;
  workers.start_all(GetParam(), {"fake.end", (folder / "end").string()}, free_port());
  for (const Ended& ended : workers.wait(kMostSeconds)) {
    EXPECT_EQ(ended.code, 0) << ended.error;
    EXPECT_EQ(ended.error, "");
    EXPECT_LT(ended.seconds, 5.0);
  }
}

// ---- two GPUs, through NCCL

class GpuFault : public ::testing::Test {
 protected:
  void SetUp() override {
    const Device gpu = Device::cuda();
    if (!is_available(gpu) || backend_of(gpu).device_count() < 2) GTEST_SKIP() << "needs two GPUs";
  }
};

TEST_F(GpuFault, AKilledRankIsNamed) {
  const Fault fault(2, "gpu.kill");
  fault.expect_others_say({fault.name(), fault.process() + " is lost: its connection ended"});
}

TEST_F(GpuFault, ARankThatTakesNoPartInACapturedStepIsNamedWhenTheTimeIsOver) {
  const Fault fault(2, "gpu.sleeps");
  // Both the host, which exchanges between the captured parts of a step, and its GPU wait 5 s: either may be
  // first.
  fault.expect_others_say({", operation ", " of rank 0 has failed: it", " has waited longer than 5 s",
                           "furthest behind is " + fault.name(), fault.process()});
  EXPECT_EQ(fault.victim().code, 3) << fault.victim().error;
  EXPECT_NE(fault.victim().error.find("rank 0 ("), std::string::npos) << fault.victim().error;
}

TEST_F(GpuFault, ARankThatTakesNoPartInASumIsNamedWhenTheTimeIsOver) {
  const Fault fault(2, "gpu.sleeps.eager");
  fault.expect_others_say({"all_reduce, operation ",
                           " of rank 0 has failed: its GPU has waited longer than 5 s",
                           "furthest behind is " + fault.name(), fault.process()});
  EXPECT_EQ(fault.victim().code, 3) << fault.victim().error;
}

TEST_F(GpuFault, ARankWhoseCommunicatorIsAbortedIsNamed) {
  const Fault fault(2, "gpu.aborted");
  fault.expect_others_say(
      {fault.name(), fault.process() + " is lost: it failed: ", "the test has aborted this rank"});
  EXPECT_EQ(fault.victim().code, 3) << fault.victim().error;
}

TEST_F(GpuFault, AnErrorOfACallIsToldToAll) {
  const Fault fault(2, "gpu.error", {{"NCCL_CHECK_POINTERS", "1"}});
  fault.expect_others_say({fault.name(),
                           fault.process() + " is lost: it failed: all_reduce of gradients, operation ",
                           " of rank 1 has failed: ncclAllReduce: invalid argument"});
  EXPECT_EQ(fault.victim().code, 3) << fault.victim().error;
}

// Connections between the GPUs end while both processes live, and the watch over the ranks hears both.
TEST_F(GpuFault, ABrokenNetworkEndsBoth) {
  const Fault fault(2, "gpu.network",
                    {{"NCCL_P2P_DISABLE", "1"},
                     {"NCCL_SHM_DISABLE", "1"},
                     {"NCCL_NET", "Socket"},
                     {"NCCL_SOCKET_FAMILY", "AF_INET"},
                     {"NCCL_SOCKET_IFNAME", "lo"}});
  fault.expect_others_say({" has failed: "});
  EXPECT_EQ(fault.victim().code, 3) << fault.victim().error;
  EXPECT_LT(fault.victim().seconds, kMostSeconds);
}

// The time limit is for what waits, not for pauses of the host; steps that are under way do not keep anybody.
TEST_F(GpuFault, ThereIsNoneWhereTheHostPauses) {
  Workers workers;
  workers.start_all(2, {"gpu.well"}, free_port());
  expect_all_well(workers.wait(120));
}

}  // namespace
}  // namespace sinter
