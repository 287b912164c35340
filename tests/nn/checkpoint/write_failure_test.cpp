// Saving on disks that fail, fill up or vanish at any call: a typed error, and nothing that was there is
// lost.
#include <string>
#include <utility>
#include <vector>

#include <common/failing_file_system.h>
#include <common/temporary_folder.h>
#include <gtest/gtest.h>
#include <nn/checkpoint/checkpoint_samples.h>
#include <nn/checkpoint/safetensors_samples.h>

#include <sinter/core/base/log.h>
#include <sinter/nn/checkpoint/checkpoint.h>

namespace sinter::nn {
namespace {

using sinter::testing::expect_same;
using sinter::testing::FailingFileSystem;
using sinter::testing::make_checkpoint;
using sinter::testing::message_of;
using sinter::testing::read_file;
using sinter::testing::serialize;
using sinter::testing::TemporaryFolder;
using sinter::testing::write_file;
using Failure = FailingFileSystem::Failure;

constexpr Failure kFailures[] = {Failure::kOnce, Failure::kDiskFull, Failure::kGone};

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  FileSystem::native().list(folder, names);
  return names;
}

NamedTensors sample(int64_t step) {
  return make_checkpoint(step).tensors.at("model");
}

/// What the log warns of while `action` runs.
template <class Action>
std::vector<std::string> warnings_of(Action&& action) {
  std::vector<std::string> warnings;
  log::set_sink([&](log::Level, std::string_view text) { warnings.emplace_back(text); });
  action();
  log::set_sink({});
  return warnings;
}

TEST(SafetensorsWriteFailure, EveryCallMayFail) {
  for (const Failure failure : kFailures) {
    bool survived = false, written = false;
    for (int64_t k = 1; !survived; ++k) {
      SCOPED_TRACE(fmt::format("failure {} at call {}", static_cast<int>(failure), k));
      const TemporaryFolder folder;
      const std::filesystem::path path = folder / "a.safetensors";
      write_safetensors(path, sample(1));
      FailingFileSystem files(failure, k);
      const auto write = [&] { write_safetensors(path, sample(2), {}, files); };
      const std::vector<std::string> warnings =
          warnings_of([&] { written = message_of<IoError>(write) == "no error"; });
      survived = !files.failed();
      EXPECT_EQ(files.open_files(), 0);

      // Up to the rename the old file is there, behind it the new one; nothing else in between.
      const auto& calls = files.calls();
      const auto renamed = std::find(calls.begin(), calls.end(), "rename .a.safetensors.saving");
      const bool expect_new = renamed != calls.end() && (survived || renamed - calls.begin() + 1 < k);
      EXPECT_EQ(written, expect_new) << "a file that is in place is written, whatever fails behind that";
      EXPECT_EQ(warnings.size(), written && !survived ? 1u : 0u);
      EXPECT_EQ(read_file(path), serialize(sample(expect_new ? 2 : 1)));
      if (failure != Failure::kGone) {
        EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a.safetensors"});
      }

      write_safetensors(path, sample(3));
      EXPECT_EQ(read_file(path), serialize(sample(3)));
      EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a.safetensors"});
    }
  }
}

TEST(SafetensorsWriteFailure, ErrorsNameFileActionAndCause) {
  const TemporaryFolder folder;
  const std::string path = (folder / "a.safetensors").string();
  const std::string temporary = (folder / ".a.safetensors.saving").string();
  const auto message = [&](Failure failure, int64_t k) {
    FailingFileSystem files(failure, k);
    return message_of<IoError>([&] { write_safetensors(path, sample(1), {}, files); });
  };
  EXPECT_EQ(message(Failure::kOnce, 1), "[file] " + temporary + ": cannot create: Input/output error");
  EXPECT_EQ(message(Failure::kDiskFull, 2),
            "[file] " + temporary + ": cannot write: No space left on device");
  EXPECT_EQ(message(Failure::kOnce, 6), "[file] " + temporary + ": cannot sync: Input/output error");
  EXPECT_EQ(message(Failure::kOnce, 8),
            "[file] " + path + ": cannot rename the finished file to its name: Input/output error");
  const std::vector<std::string> warnings =
      warnings_of([&] { EXPECT_EQ(message(Failure::kOnce, 10), "no error"); });
  EXPECT_EQ(warnings, std::vector<std::string>{
                          "[file] " + folder.path().string() + ": cannot sync: Input/output error; " + path +
                          " is complete, but a loss of power may take what was written last"});
}

/// A drive without some calls, as network drives and user-space file systems are.
class PoorDrive final : public FailingFileSystem {
 public:
  explicit PoorDrive(int error) : error_(error) {}
  int sync(int) override { return -error_; }
  int rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    return std::filesystem::exists(to) ? -EEXIST : FailingFileSystem::rename(from, to);
  }

 private:
  int error_;
};

TEST(PoorDrives, TakeFilesAndCheckpointsWithOneWarningOfEachCall) {
  size_t expected = 3;  // of syncing a file, of syncing a folder, and of renaming, which all of them have
  for (const int error : {EINVAL, ENOTSUP, ENOSYS}) {
    const TemporaryFolder folder;
    PoorDrive drive(error);
    const std::filesystem::path path = folder / "a.safetensors";
    const std::vector<std::string> warnings = warnings_of([&] {
      for (int64_t step = 1; step <= 3; ++step) write_safetensors(path, sample(step), {}, drive);
    });
    EXPECT_EQ(read_file(path), serialize(sample(3)));
    EXPECT_EQ(warnings.size(), std::exchange(expected, 2));
    for (const std::string& warning : warnings)
      EXPECT_TRUE(warning.starts_with("[file] " + folder.path().string() + ": this file system cannot "))
          << warning;

    CheckpointFolder checkpoints(folder / "run", 2, drive);
    const std::vector<std::string> more = warnings_of([&] {
      checkpoints.check_writable();
      for (int64_t step = 1; step <= 3; ++step) checkpoints.save(make_checkpoint(step));
    });
    EXPECT_EQ(more, std::vector<std::string>{});
    EXPECT_EQ(checkpoints.list().size(), 2u);
    EXPECT_EQ(checkpoints.load_latest()->data.value<int64_t>("step"), 3);
  }
}

TEST(PoorDrives, WhatFailsIsStillAnError) {
  const TemporaryFolder folder;
  PoorDrive drive(EIO);
  EXPECT_NE(
      message_of<IoError>([&] { write_safetensors(folder / "a", sample(1), {}, drive); }).find("cannot sync"),
      std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
}

TEST(AtomicOutputFile, DoesNotWriteThroughALinkInItsPlace) {
  const TemporaryFolder folder;
  write_file(folder / "other", "kept");
  std::filesystem::create_symlink(folder / "other", folder / ".a.saving");
  AtomicOutputFile file(folder / "a");
  file.write(std::as_bytes(std::span("new", 3)));
  file.commit();
  EXPECT_EQ(read_file(folder / "a"), "new");
  EXPECT_EQ(read_file(folder / "other"), "kept");
}

TEST(AtomicOutputFile, TakesNamesAsLongAsTheFileSystemDoes) {
  const TemporaryFolder folder;
  std::string umlauts;  // of two bytes each
  for (int i = 0; i < 127; ++i) umlauts += "\xc3\xa4";
  // Two that differ at their ends are written side by side.
  for (const std::string& name : {std::string(247, 'a'), std::string(248, 'a'), std::string(254, 'a') + "b",
                                  std::string(255, 'a'), umlauts, "a" + umlauts}) {
    AtomicOutputFile other(folder / (name.substr(0, name.size() - 1) + "c")), file(folder / name);
    other.write(std::as_bytes(std::span("old", 3)));
    file.write(std::as_bytes(std::span("new", 3)));
    file.commit();
    other.commit();
    EXPECT_EQ(read_file(folder / name), "new") << name.size();
  }
  EXPECT_THROW(AtomicOutputFile(folder / std::string(256, 'a')), IoError);
}

TEST(SafetensorsWriteFailure, ShortWritesAreContinued) {
  const TemporaryFolder folder;
  FailingFileSystem files;
  files.limit_write(7);
  write_safetensors(folder / "a.safetensors", sample(1), {}, files);
  EXPECT_EQ(read_file(folder / "a.safetensors"), serialize(sample(1)));
  EXPECT_GT(files.calls().size(), 50u);
}

TEST(SafetensorsWriteFailure, TheFileIsOnTheDiskBeforeItsName) {
  const TemporaryFolder folder;
  FailingFileSystem files;
  write_safetensors(folder / "a.safetensors", {{"w", Tensor::zeros({2})}}, {}, files);
  const std::string temporary = " .a.safetensors.saving";
  const std::string parent = " " + folder.path().filename().string();
  EXPECT_EQ(files.calls(),
            (std::vector<std::string>{"create" + temporary, "write" + temporary, "write" + temporary,
                                      "write" + temporary, "sync" + temporary, "close" + temporary,
                                      "rename" + temporary, "open folder" + parent, "sync" + parent,
                                      "close" + parent}));
}

TEST(SafetensorsReadFailure, EveryCallMayFail) {
  const TemporaryFolder folder;
  write_safetensors(folder / "a.safetensors", sample(1));
  FailingFileSystem healthy;
  read_safetensors(folder / "a.safetensors", healthy);
  const auto calls = static_cast<int64_t>(healthy.calls().size());
  ASSERT_GE(calls, 6);
  for (int64_t k = 1; k < calls; ++k) {  // the last call closes a file that was only read
    FailingFileSystem files(Failure::kOnce, k);
    EXPECT_THROW(read_safetensors(folder / "a.safetensors", files), IoError) << k;
    EXPECT_EQ(files.open_files(), 0) << k;
  }
}

/// A root with two checkpoints, the remains of a killed save and those of a killed removal.
void make_root(const std::filesystem::path& root) {
  FailingFileSystem files;  // which does not wait for the disk
  CheckpointFolder checkpoints(root, 2, files);
  checkpoints.save(make_checkpoint(1));
  checkpoints.save(make_checkpoint(2));
  for (const char* name : {".saving-checkpoint-00000003", ".removing-checkpoint-00000000"}) {
    std::filesystem::create_directory(root / name);
    write_file(root / name / "model.safetensors", "half");
  }
}

/// Every checkpoint that is listed must load and be one that was saved, each later than the one before. Where
/// a leftover could not be removed, its number is left out.
void check_all(const CheckpointFolder& checkpoints, int64_t newest_at_least) {
  const std::vector<std::filesystem::path> list = checkpoints.list();
  ASSERT_FALSE(list.empty());
  int64_t step = 0;
  for (const std::filesystem::path& folder : list) {
    const CheckpointData data = load_checkpoint(folder);
    EXPECT_GT(data.value<int64_t>("step"), step);
    step = data.value<int64_t>("step");
    EXPECT_GE(folder.filename().string(), fmt::format("checkpoint-{:08}", step));
    expect_same(data, make_checkpoint(step));
  }
  EXPECT_GE(step, newest_at_least);
}

/// Whether a call of a save, by its number, may fail: it belongs to the removal of leftovers, before the new
/// one's folder is made, or comes when the new one has its name. The lists of the root that the save itself
/// needs do not count.
bool may_fail(const std::vector<std::string>& calls, size_t call) {
  const auto place = [&](const std::string& start) {
    const auto found = std::find_if(calls.begin(), calls.end(),
                                    [&](const std::string& other) { return other.starts_with(start); });
    return static_cast<size_t>(found - calls.begin());
  };
  const size_t made = place("make .saving-"), renamed = place("rename .saving-");
  if (call > renamed) return true;
  return call < made && calls[call] != "list run" && calls[call] != "make run";
}

/// The calls that fail on a full disk.
bool needs_space(const std::string& call) {
  constexpr std::string_view kKinds[] = {"create ", "write ", "sync ", "rename ", "make "};
  return std::any_of(std::begin(kKinds), std::end(kKinds),
                     [&](std::string_view kind) { return call.starts_with(kind); });
}

TEST(CheckpointWriteFailure, EveryCallMayFail) {
  for (const Failure failure : kFailures) {
    bool survived = false;
    for (int64_t k = 1; !survived; ++k) {
      SCOPED_TRACE(fmt::format("failure {} at call {}", static_cast<int>(failure), k));
      const TemporaryFolder folder;
      make_root(folder / "run");
      FailingFileSystem files(failure, k);
      CheckpointFolder failing(folder / "run", 2, files);
      log::set_sink([](log::Level, std::string_view) {});
      const bool saved = message_of<IoError>([&] { failing.save(make_checkpoint(3)); }) == "no error";
      log::set_sink({});
      survived = !files.failed();
      // A failure while old ones are removed, or when the new one is in place, is no failure of the save.
      if (saved != survived) {
        EXPECT_TRUE(saved);
        const std::vector<std::string>& calls = files.calls();
        auto failed = static_cast<size_t>(k - 1);
        while (failure == Failure::kDiskFull && !needs_space(calls[failed])) ++failed;
        EXPECT_TRUE(may_fail(calls, failed)) << calls[failed];
      }
      EXPECT_EQ(files.open_files(), 0);
      ASSERT_LT(k, 200);

      FailingFileSystem healthy;
      CheckpointFolder checkpoints(folder / "run", 2, healthy);
      check_all(checkpoints, saved ? 3 : 2);
      const int64_t next = load_checkpoint(*checkpoints.latest()).value<int64_t>("step") + 1;
      checkpoints.save(make_checkpoint(next));
      check_all(checkpoints, next);
      EXPECT_EQ(checkpoints.list().size(), 2u);
      EXPECT_EQ(names_in(folder / "run").size(), 2u) << "nothing is left of what failed";
    }
  }
}

TEST(CheckpointWriteFailure, AFullDiskLeavesNothingOfTheNewCheckpoint) {
  const TemporaryFolder folder;
  make_root(folder / "run");
  FailingFileSystem probe;
  CheckpointFolder(folder / "run", 0, probe).save(make_checkpoint(3));
  const auto calls = static_cast<int64_t>(probe.calls().size());
  for (int64_t k = 1; k <= calls; ++k) {
    FailingFileSystem files(Failure::kDiskFull, k);
    CheckpointFolder failing(folder / "run", 0, files);
    const size_t before = failing.list().size();
    if (message_of<IoError>([&] { failing.save(make_checkpoint(4)); }) == "no error") continue;
    EXPECT_EQ(names_in(folder / "run").size(), before) << k;
  }
}

TEST(CheckpointWriteFailure, EachFileIsOnTheDiskBeforeTheCheckpointHasItsName) {
  const TemporaryFolder folder;
  FailingFileSystem files;
  CheckpointFolder(folder / "run", 1, files).save(make_checkpoint(1));
  const auto place = [&](const std::string& call) {
    const auto& calls = files.calls();
    const auto found = std::find(calls.begin(), calls.end(), call);
    EXPECT_NE(found, calls.end()) << call;
    return found - calls.begin();
  };
  const auto rename = place("rename .saving-checkpoint-00000001");
  const auto manifest = place("create manifest.txt");
  for (const char* name : {"model.safetensors", "optimiser.safetensors", "state.json"}) {
    EXPECT_LT(place(std::string("sync ") + name), manifest) << name;
  }
  EXPECT_LT(place("sync manifest.txt"), place("sync .saving-checkpoint-00000001"));
  EXPECT_LT(place("sync .saving-checkpoint-00000001"), rename);
  EXPECT_LT(rename, place("sync run"));
  EXPECT_LT(place("sync " + folder.path().filename().string()), manifest);  // the root's own name
}

TEST(CheckpointReadFailure, EveryCallMayFail) {
  const TemporaryFolder folder;
  FailingFileSystem writer;
  const std::filesystem::path path = CheckpointFolder(folder / "run", 1, writer).save(make_checkpoint(1));
  FailingFileSystem healthy;
  load_checkpoint(path, healthy);
  for (int64_t k = 1; k <= static_cast<int64_t>(healthy.calls().size()); ++k) {
    const std::string& call = healthy.calls()[static_cast<size_t>(k - 1)];
    FailingFileSystem files(Failure::kOnce, k);
    const bool threw = message_of<IoError>([&] { load_checkpoint(path, files); }) != "no error";
    EXPECT_EQ(threw, !call.starts_with("close")) << call;  // closing what was only read cannot lose anything
    EXPECT_EQ(files.open_files(), 0) << k;
  }
}

}  // namespace
}  // namespace sinter::nn
