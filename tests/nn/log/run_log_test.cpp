// RunLog: what is logged is in the files, also after a kill, a full disk and a resume.
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sinter/core/base/log.h>
#include <sinter/nn/log/run_log.h>
#include <sinter/nn/log/scalars.h>

#include "common/error_message.h"
#include "common/failing_file_system.h"
#include "common/temporary_folder.h"
#include "nn/log/event_reader.h"

namespace sinter::nn {
namespace {

using sinter::test::message_of;
using sinter::testing::FailingFileSystem;
using sinter::testing::read_file;
using sinter::testing::TemporaryFolder;
using sinter::testing::write_file;
namespace fs = std::filesystem;

/// All events of a folder, in the order in which TensorBoard reads its files.
std::vector<test::ReadEvent> events_in(const fs::path& folder) {
  std::vector<std::string> names;
  FileSystem::native().list(folder, names);
  std::vector<test::ReadEvent> events;
  for (const std::string& name : names) {
    if (!name.starts_with("events.out.tfevents.")) continue;
    for (test::ReadEvent& event : test::read_events(read_file(folder / name)))
      events.push_back(std::move(event));
  }
  return events;
}

/// What TensorBoard shows: a start takes back all values of its step and of later ones.
std::vector<int64_t> shown_steps(const fs::path& folder) {
  std::vector<int64_t> steps;
  for (const test::ReadEvent& event : events_in(folder)) {
    if (event.starts) std::erase_if(steps, [&](int64_t step) { return step >= event.step; });
    if (!event.values.empty()) steps.push_back(event.step);
  }
  return steps;
}

std::vector<int64_t> json_steps(const fs::path& folder) {
  std::vector<int64_t> steps;
  for (const ScalarRecord& record : read_scalars(folder / RunLog::kJsonName)) steps.push_back(record.step);
  return steps;
}

/// Waits up to ten seconds for something that another thread or process does.
template <class Condition>
bool comes_true(Condition&& condition) {
  for (int i = 0; i < 1000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

/// Collects warnings instead of printing them.
class Warnings {
 public:
  Warnings() {
    log::set_sink([this](log::Level, std::string_view text) {
      const std::lock_guard lock(mutex_);
      texts_.emplace_back(text);
    });
  }
  ~Warnings() { log::set_sink({}); }
  std::vector<std::string> texts() const {
    const std::lock_guard lock(mutex_);
    return texts_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> texts_;
};

TEST(RunLog, BothFilesHoldTheSame) {
  const TemporaryFolder folder;
  const fs::path runs = folder / "runs" / "a";  // two levels are made
  {
    RunLog log(runs);
    log.scalar("train/loss", 0.5, 1);
    log.scalars(2, {{"train/loss", 0.25}, {"train/learning_rate", 0.1}});
    log.close();
    log.close();
    EXPECT_EQ(log.failure(), "");
    EXPECT_THROW(log.scalar("train/loss", 0.5, 3), InvalidArgument);
  }
  const std::vector<ScalarRecord> records = read_scalars(runs / RunLog::kJsonName);
  const std::vector<test::ReadEvent> events = events_in(runs);
  ASSERT_EQ(records.size(), 2u);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  for (size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(events[i + 1].step, records[i].step);
    EXPECT_EQ(events[i + 1].time, records[i].time);
    ASSERT_EQ(events[i + 1].values.size(), records[i].values.size());
    for (size_t j = 0; j < records[i].values.size(); ++j) {
      EXPECT_EQ(events[i + 1].values[j].first, records[i].values[j].first);
      EXPECT_EQ(events[i + 1].values[j].second, static_cast<float>(records[i].values[j].second));
    }
  }
  EXPECT_EQ(records[1].values[1], std::pair(std::string("train/learning_rate"), 0.1));
}

TEST(RunLog, PicturesAndHyperParametersAreForTensorBoardAlone) {
  const TemporaryFolder folder;
  RunLog log(folder.path());
  log.hyper_parameters({{"lr", 0.1}, {"model", "resnet20"}});
  log.scalar("loss", 0.5, 1);
  log.image("mistakes/1", "png", 8, 8, 3, 1);
  EXPECT_THROW(log.image("mistakes/1", "", 8, 8, 3, 1), InvalidArgument);
  EXPECT_THROW(log.image("", "png", 8, 8, 3, 1), InvalidArgument);
  EXPECT_THROW(log.image("x", "png", 8, 8, 3, -1), InvalidArgument);
  log.close();
  ASSERT_EQ(read_scalars(folder.path() / RunLog::kJsonName).size(), 1u);
  std::string events;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (entry.path().filename() == RunLog::kJsonName) continue;
    events = read_file(entry.path());
  }
  for (const char* part : {"hparams", "resnet20", "mistakes/1", "loss"})
    EXPECT_NE(events.find(part), std::string::npos) << part;
}

TEST(RunLog, EachSinkCanBeLeftOut) {
  const TemporaryFolder folder;
  RunLog(folder / "json", {.tensorboard = false}).scalar("a", 1, 1);
  RunLog(folder / "events", {.json = false}).scalar("a", 1, 1);
  EXPECT_EQ(json_steps(folder / "json").size(), 1u);
  EXPECT_TRUE(events_in(folder / "json").empty());
  EXPECT_FALSE(fs::exists(folder / "events" / RunLog::kJsonName));
  EXPECT_EQ(shown_steps(folder / "events").size(), 1u);
}

TEST(RunLog, IsWrittenWithoutBeingAsked) {
  const TemporaryFolder folder;
  RunLog log(folder.path(), {.seconds = 0.05});
  log.scalar("a", 1, 1);
  EXPECT_TRUE(comes_true([&] { return json_steps(folder.path()).size() == 1; }));
  log.flush();
  EXPECT_EQ(shown_steps(folder.path()).size(), 1u);
}

TEST(RunLog, AKilledProcessLeavesWhatWasWritten) {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    RunLog log(folder.path(), {.seconds = 0.02});
    for (int64_t step = 1;; ++step) {
      log.scalar("a", 1, step);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  const fs::path json = folder / RunLog::kJsonName;
  EXPECT_TRUE(comes_true([&] { return fs::exists(json) && json_steps(folder.path()).size() >= 100; }));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  const std::vector<int64_t> steps = json_steps(folder.path());
  ASSERT_GE(steps.size(), 100u);
  for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i], static_cast<int64_t>(i + 1));
}

TEST(RunLog, AResumedRunLogsNoStepTwice) {
  const TemporaryFolder folder;
  const auto log_steps = [&](std::optional<int64_t> resume_at, int64_t first, int64_t last) {
    RunLog log(folder.path(), {.resume_at = resume_at});
    for (int64_t step = first; step <= last; ++step) log.scalar("a", 1, step);
  };
  log_steps({}, 1, 7);
  log_steps(5, 6, 9);  // within the same second as the one before
  log_steps(9, 10, 10);
  log_steps(3, 4, 6);
  const std::vector<int64_t> expected = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(json_steps(folder.path()), expected);
  EXPECT_EQ(shown_steps(folder.path()), expected);
  log_steps(0, 1, 2);
  EXPECT_EQ(json_steps(folder.path()), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(shown_steps(folder.path()), (std::vector<int64_t>{1, 2}));
}

TEST(RunLog, AResumeWithoutALogBeginsOne) {
  const TemporaryFolder folder;
  RunLog(folder / "new", {.resume_at = 5}).scalar("a", 1, 6);
  EXPECT_EQ(json_steps(folder / "new"), std::vector<int64_t>{6});
}

TEST(RunLog, AFolderWithALogIsNotBegunAnew) {
  const TemporaryFolder folder;
  RunLog(folder.path(), {.tensorboard = false}).scalar("a", 1, 1);
  EXPECT_TRUE(RunLog::is_in(folder.path()));
  EXPECT_NE(message_of([&] { RunLog log(folder.path()); }).find("has the log of another run"),
            std::string::npos);
  EXPECT_EQ(json_steps(folder.path()).size(), 1u);
  EXPECT_FALSE(RunLog::is_in(folder / "none"));
}

TEST(RunLog, OptionsOutOfRangeAreRefused) {
  const TemporaryFolder folder;
  for (const double seconds : {0.0, -1.0, 1e9, std::nan("")})
    EXPECT_THROW(RunLog(folder.path(), {.seconds = seconds}), InvalidArgument);
  EXPECT_THROW(RunLog(folder.path(), {.resume_at = -1}), InvalidArgument);
}

TEST(RunLog, WhatCannotBeWrittenIsRefusedByName) {
  const TemporaryFolder folder;
  write_file(folder / "file", "");
  EXPECT_NE(message_of<IoError>([&] { RunLog log(folder / "file"); }).find("/file: cannot"),
            std::string::npos);
  EXPECT_NE(message_of<IoError>([&] { RunLog log(folder / "file" / "x"); }).find("/file/x"),
            std::string::npos);
  fs::create_directory(folder / "taken");
  fs::create_directory(folder / "taken" / RunLog::kJsonName);
  EXPECT_NE(message_of<IoError>([&] { RunLog log(folder / "taken"); }).find("taken/scalars.jsonl: cannot"),
            std::string::npos);
  write_file(folder / RunLog::kJsonName, "not JSON\n");
  EXPECT_NE(message_of<IoError>([&] {
              RunLog log(folder.path(), {.resume_at = 1});
            }).find("scalars.jsonl: line 1: expected a JSON object"),
            std::string::npos);
  EXPECT_EQ(read_file(folder / RunLog::kJsonName), "not JSON\n");
  if (::geteuid() == 0) return;  // to whom everything is writable
  fs::create_directory(folder / "locked");
  ::chmod((folder / "locked").c_str(), 0500);
  EXPECT_NE(message_of<IoError>([&] { RunLog log(folder / "locked"); }).find("Permission denied"),
            std::string::npos);
}

TEST(RunLog, AFullDiskIsOneWarningAndNoEnd) {
  const TemporaryFolder folder;
  fs::create_symlink("/dev/full", folder / RunLog::kJsonName);
  const Warnings warnings;
  {
    RunLog log(folder.path(), {.seconds = 0.01});
    for (int64_t step = 1; step <= 5; ++step) {
      log.scalar("a", 1, step);
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
    EXPECT_NE(log.failure().find("scalars.jsonl: cannot write: No space left on device"), std::string::npos);
    EXPECT_NE(message_of<IoError>([&] { log.flush(); }).find("scalars.jsonl: cannot write: No space left"),
              std::string::npos);
    EXPECT_NE(message_of<IoError>([&] { log.close(); }).find("scalars.jsonl"), std::string::npos);
  }
  EXPECT_EQ(warnings.texts().size(), 1u);
  EXPECT_NE(warnings.texts().at(0).find("scalars.jsonl: cannot write: No space left"), std::string::npos);
  EXPECT_NE(warnings.texts().at(0).find("training goes on"), std::string::npos);
  EXPECT_EQ(shown_steps(folder.path()).size(), 5u) << "the other file has all";
}

/// A disk that can be filled and freed.
class FillingFileSystem : public FailingFileSystem {
 public:
  int64_t write(int file, std::span<const std::byte> bytes) override {
    if (!full) return FailingFileSystem::write(file, bytes);
    takes_some_ = !takes_some_;
    return takes_some_ ? FailingFileSystem::write(file, bytes.first(7)) : -ENOSPC;  // a record is torn
  }
  std::atomic<bool> full = false;

 private:
  bool takes_some_ = false;
};

TEST(RunLog, NothingIsLostWhenADiskIsFullForAWhile) {
  const TemporaryFolder folder;
  const Warnings warnings;
  FillingFileSystem files;
  {
    RunLog log(folder.path(), {.seconds = 1000}, files);
    log.scalar("a", 1, 1);
    log.flush();
    files.full = true;
    log.scalar("a", 1, 2);
    EXPECT_THROW(log.flush(), IoError);
    log.scalar("a", 1, 3);
    EXPECT_THROW(log.flush(), IoError);
    EXPECT_NE(log.failure(), "");
    files.full = false;
    log.flush();
    EXPECT_EQ(log.failure(), "");
  }
  EXPECT_EQ(json_steps(folder.path()), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(shown_steps(folder.path()), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(files.open_files(), 0);
}

TEST(RunLog, AFileThatIsTakenAwayIsAWarning) {
  const Warnings warnings;
  const TemporaryFolder folder;
  const fs::path json = folder.path() / RunLog::kJsonName;
  RunLog log(folder.path(), {.tensorboard = false, .seconds = 3600});
  log.scalar("loss", 1.0, 1);
  log.flush();
  EXPECT_EQ(warnings.texts().size(), 0u);
  fs::remove(json);
  log.scalar("loss", 1.0, 2);
  log.flush();
  write_file(folder.path() / "other", "");
  fs::rename(folder.path() / "other", json);  // as an editor saves
  log.scalar("loss", 1.0, 3);
  log.flush();
  log.scalar("loss", 1.0, 4);
  log.close();
  const std::string warning =
      "[file] " + json.string() + " was removed, and is made again; what was logged before is lost";
  EXPECT_EQ(warnings.texts(), (std::vector<std::string>{warning, warning}));
  EXPECT_EQ(json_steps(folder.path()), (std::vector<int64_t>{3, 4}));
}

TEST(RunLog, WhatWaitsForAFullDiskIsBounded) {
  const TemporaryFolder folder;
  const Warnings warnings;
  FillingFileSystem files;
  {
    RunLog log(folder.path(), {.tensorboard = false, .seconds = 1000}, files);
    files.full = true;
    const std::string tag(900, 'x');
    for (int64_t step = 1; step <= 20'000; ++step) {
      log.scalar(tag, 1, step);
      if (step % 1000 == 0) {
        EXPECT_THROW(log.flush(), IoError);
      }
    }
    files.full = false;
    log.flush();
    EXPECT_NE(log.failure().find("records were lost"), std::string::npos);
    EXPECT_NE(message_of<IoError>([&] { log.close(); }).find("records were lost"), std::string::npos);
  }
  const std::vector<int64_t> steps = json_steps(folder.path());
  EXPECT_GT(steps.size(), 10'000u);
  EXPECT_LT(steps.size(), 20'000u);
  EXPECT_EQ(steps.back(), static_cast<int64_t>(steps.size())) << "the first ones, without a gap";
}

TEST(RunLog, ThreadsMayLogAtOnce) {
  const TemporaryFolder folder;
  {
    RunLog log(folder.path(), {.seconds = 0.001});
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int64_t step = 1; step <= 500; ++step) log.scalar("a", 1, step);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(json_steps(folder.path()).size(), 2000u);
  EXPECT_EQ(shown_steps(folder.path()).size(), 2000u);
}

}  // namespace
}  // namespace sinter::nn
