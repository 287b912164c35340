// The watch over a device: when it speaks, and when it does not.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <functional>
#include <string_view>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sinter/core/comm/device_watch.h>

#include "common/temporary_folder.h"
#include "processes/fake_gpu.h"

namespace sinter::comm {
namespace {

using sinter::testing::FakeGpu;

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// A watch over a rank's device, and the device of another rank on which its work waits.
class DeviceWatchTest : public ::testing::Test {
 protected:
  DeviceWatchOptions options(double timeout, double poll = 0.01) {
    return {.timeout_seconds = timeout,
            .poll_seconds = poll,
            .on_error = [this](const CommunicationError& error) {
              is_late_ = dynamic_cast<const LateError*>(&error) != nullptr;
              text_ = error.what();
              ++calls_;
            }};
  }
  /// Waits for the first call of on_error, at most so long.
  bool is_told_within(double seconds) const {
    const Deadline limit = Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
    while (calls_ == 0 && Clock::now() < limit) sleep_for(0.005);
    return calls_ > 0;
  }

  sinter::testing::TemporaryFolder folder_;
  FakeGpu own_{0, 2, (folder_ / "counts").string()}, other_{1, 2, (folder_ / "counts").string()};
  std::string text_;
  bool is_late_ = false;
  std::atomic<int> calls_ = 0;
};

TEST_F(DeviceWatchTest, TellsOnceOfWorkThatDoesNotEnd) {
  const Deadline start = Clock::now();
  const DeviceWatch watch(own_, options(0.3));
  own_.note_work();
  ASSERT_TRUE(is_told_within(10.0));
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(300));
  EXPECT_TRUE(is_late_);
  EXPECT_NE(text_.find("longer than 0.3 s, of 1 pieces of work 0 have ended"), std::string::npos) << text_;
  sleep_for(0.5);
  EXPECT_EQ(calls_, 1);
}

/// Whether a process is stopped: what /proc says behind its name, in parentheses.
bool is_stopped(pid_t process) {
  char path[64], text[512];
  (void)std::snprintf(path, sizeof path, "/proc/%d/stat", process);
  const int file = open(path, O_RDONLY);
  const ssize_t size = file < 0 ? 0 : read(file, text, sizeof text);
  close(file);
  const std::string_view stat(text, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  const size_t behind = stat.rfind(')');
  return behind != std::string_view::npos && behind + 2 < stat.size() && stat[behind + 2] == 'T';
}

/// Stops this process for so long, right after `before`: what is to go on again takes its time to be made.
void stop_for(
    double seconds, const std::function<void()>& before = [] {}) {
  const pid_t own = getpid(), child = fork();
  if (child == 0) {
    while (!is_stopped(own)) usleep(1000);
    sleep_for(seconds);
    kill(own, SIGCONT);
    _exit(0);
  }
  before();
  raise(SIGSTOP);
  waitpid(child, nullptr, 0);
}

// As where a scheduler suspends a job: what the others had no time to do is not late.
TEST_F(DeviceWatchTest, DoesNotCountTimeInWhichTheProcessWasStopped) {
  const DeviceWatch watch(own_, options(2.0));
  stop_for(3.0, [&] { own_.note_work(); });
  sleep_for(0.3);
  EXPECT_EQ(calls_, 0) << text_;
  EXPECT_TRUE(is_told_within(10.0));
}

/// During whose first question after the work the process is stopped.
class StoppedGpu : public FakeGpu {
 public:
  using FakeGpu::FakeGpu;
  void check_work() override {
    FakeGpu::check_work();
    if (!was_stopped_.exchange(true)) stop_for(3.0);
  }
  bool was_stopped() const { return was_stopped_; }

 private:
  std::atomic<bool> was_stopped_ = false;
};

TEST_F(DeviceWatchTest, NorThatInWhichItLooked) {
  StoppedGpu own(0, 2, (folder_ / "counts").string());
  own.note_work();
  const DeviceWatch watch(own, options(2.0));
  while (!own.was_stopped()) sleep_for(0.001);
  sleep_for(0.3);
  EXPECT_EQ(calls_, 0) << text_;
  EXPECT_TRUE(is_told_within(10.0));
}

// The time counts from the end of the piece before, not from when the host has queued one.
TEST_F(DeviceWatchTest, KeepsQuietWhileWorkEnds) {
  const DeviceWatch watch(own_, options(1.0));
  for (int i = 0; i < 5; ++i) own_.note_work();
  for (int i = 0; i < 5; ++i) {
    sleep_for(0.4);
    other_.note_work();
  }
  sleep_for(1.5);  // nothing to do
  EXPECT_EQ(calls_, 0) << text_;
  own_.note_work();
  EXPECT_TRUE(is_told_within(10.0));
}

TEST_F(DeviceWatchTest, TellsErrorsOfWork) {
  const DeviceWatch watch(own_, options(100.0));
  own_.break_network();
  ASSERT_TRUE(is_told_within(10.0));
  EXPECT_FALSE(is_late_);
  EXPECT_EQ(text_, "the network has broken");
}

TEST_F(DeviceWatchTest, KeepsQuietOfWorkThatWasAborted) {
  const DeviceWatch watch(own_, options(0.2));
  own_.note_work();
  own_.abort("");
  sleep_for(0.6);
  EXPECT_EQ(calls_, 0) << text_;
}

TEST_F(DeviceWatchTest, EndsAtOnce) {
  const Deadline start = Clock::now();
  { const DeviceWatch watch(own_, options(100.0, 50.0)); }
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
}

}  // namespace
}  // namespace sinter::comm
