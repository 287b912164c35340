// Folders of checkpoints: falling back from damaged ones, removing old ones and nothing else, trying to
// write.
#include <string>
#include <vector>

#include <common/failing_file_system.h>
#include <common/temporary_folder.h>
#include <gtest/gtest.h>
#include <nn/checkpoint/checkpoint_samples.h>

#include <sinter/core/base/log.h>
#include <sinter/nn/checkpoint/checkpoint.h>

namespace sinter::nn {
namespace {

namespace fs = std::filesystem;
using sinter::testing::expect_same;
using sinter::testing::FailingFileSystem;
using sinter::testing::make_checkpoint;
using sinter::testing::message_of;
using sinter::testing::read_file;
using sinter::testing::TemporaryFolder;
using sinter::testing::write_file;

/// Collects the log while it lives.
class CaughtLog {
 public:
  CaughtLog() {
    log::set_sink([this](log::Level, std::string_view text) { lines.emplace_back(text); });
  }
  ~CaughtLog() { log::set_sink({}); }

  std::vector<std::string> lines;
};

class CheckpointFolderTest : public ::testing::Test {
 protected:
  fs::path root() const { return folder_ / "run"; }
  fs::path checkpoint(int64_t number) const { return root() / fmt::format("checkpoint-{:08}", number); }

  /// Saves the checkpoints `first` to `last`, each with its number as step.
  void save(int keep, int64_t first, int64_t last) {
    CheckpointFolder checkpoints(root(), keep, files_);
    for (int64_t step = first; step <= last; ++step) checkpoints.save(make_checkpoint(step));
  }

  void damage(int64_t number) const {
    std::string text = read_file(checkpoint(number) / "model.safetensors");
    text.back() ^= 1;
    write_file(checkpoint(number) / "model.safetensors", text);
  }

  TemporaryFolder folder_;
  FailingFileSystem files_;  // does not wait for the disk
};

TEST(CheckpointParts, MissingOnesAreNamed) {
  const CheckpointData data = make_checkpoint(1);
  EXPECT_EQ(&data.part("model"), &data.tensors.at("model"));
  EXPECT_EQ(message_of<IoError>([&] { data.part("scaler"); }),
            "[checkpoint] the part \"scaler\" is missing; it has \"model\", \"optimiser\"");
  EXPECT_EQ(message_of<IoError>([] { CheckpointData().part("model"); }),
            "[checkpoint] the part \"model\" is missing; it has none");
}

TEST_F(CheckpointFolderTest, LoadsTheNewest) {
  EXPECT_FALSE(CheckpointFolder(root()).load_latest());
  save(0, 1, 3);
  const CaughtLog log;
  const auto loaded = CheckpointFolder(root()).load_latest();
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->folder, checkpoint(3));
  EXPECT_TRUE(loaded->damaged.empty());
  EXPECT_TRUE(log.lines.empty());
  expect_same(loaded->data, make_checkpoint(3));
}

TEST_F(CheckpointFolderTest, FallsBackFromDamagedOnesAndSaysSo) {
  save(0, 1, 4);
  damage(4);
  fs::remove(checkpoint(3) / "manifest.txt");
  const CaughtLog log;
  const auto loaded = CheckpointFolder(root()).load_latest();
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->folder, checkpoint(2));
  EXPECT_EQ(loaded->damaged, (std::vector<fs::path>{checkpoint(4), checkpoint(3)}));
  expect_same(loaded->data, make_checkpoint(2));
  ASSERT_EQ(log.lines.size(), 2u);
  EXPECT_NE(log.lines[0].find("checkpoint-00000004/model.safetensors: the manifest says crc32"),
            std::string::npos);
  EXPECT_TRUE(log.lines[0].ends_with("; trying the checkpoint before it"));
}

TEST_F(CheckpointFolderTest, ThrowsTheNewestsErrorIfNoneIsSound) {
  save(0, 1, 2);
  damage(1);
  damage(2);
  const CaughtLog log;
  EXPECT_TRUE(message_of<IoError>([&] {
                CheckpointFolder(root()).load_latest();
              }).starts_with("[checkpoint] " + (checkpoint(2) / "model.safetensors").string()));
}

TEST_F(CheckpointFolderTest, KeepsOldOnesThatHoldWhatOthersWrote) {
  save(2, 1, 2);
  fs::create_directory(checkpoint(1) / "plots");
  write_file(checkpoint(1) / "plots/loss.txt", "mine");
  write_file(checkpoint(2) / "ema.safetensors", "mine");  // a checkpoint's name, but not in the manifest
  CheckpointFolder checkpoints(root(), 2, files_);
  const CaughtLog log;
  for (int64_t step = 3; step <= 7; ++step) checkpoints.save(make_checkpoint(step));
  EXPECT_EQ(
      log.lines,
      (std::vector<std::string>{
          fmt::format("[checkpoint] {} is not removed: it holds \"plots\", which is not part of it",
                      checkpoint(1).string()),
          fmt::format("[checkpoint] {} is not removed: it holds \"ema.safetensors\", which is not part of it",
                      checkpoint(2).string())}));
  EXPECT_EQ(checkpoints.list(),
            (std::vector<fs::path>{checkpoint(1), checkpoint(2), checkpoint(6), checkpoint(7)}));
  expect_same(load_checkpoint(checkpoint(1)), make_checkpoint(1));
  expect_same(load_checkpoint(checkpoint(2)), make_checkpoint(2));
  EXPECT_EQ(read_file(checkpoint(1) / "plots/loss.txt"), "mine");
}

TEST_F(CheckpointFolderTest, KeepsOldOnesWhoseManifestIsDamaged) {
  save(1, 1, 1);
  write_file(checkpoint(1) / "manifest.txt", "mine");
  const CaughtLog log;
  save(1, 2, 3);
  EXPECT_TRUE(fs::exists(checkpoint(1)));
  EXPECT_FALSE(fs::exists(checkpoint(2)));
  EXPECT_TRUE(fs::exists(checkpoint(3)));
}

TEST_F(CheckpointFolderTest, LeftoversThatHoldWhatOthersWroteStayOutOfTheWay) {
  save(3, 1, 1);
  const fs::path leftover = root() / ".saving-checkpoint-00000002",
                 removing = root() / ".removing-checkpoint-00000007";
  fs::create_directory(leftover);
  fs::create_directory(removing);
  write_file(leftover / "notes", "mine");
  write_file(removing / "notes", "mine");
  const CaughtLog log;
  CheckpointFolder checkpoints(root(), 3, files_);
  EXPECT_EQ(checkpoints.save(make_checkpoint(8)), checkpoint(8));  // no number that one of them has
  EXPECT_EQ(log.lines.size(), 2u);
  EXPECT_EQ(read_file(leftover / "notes") + read_file(removing / "notes"), "minemine");
}

TEST_F(CheckpointFolderTest, TriesToWriteWithoutATrace) {
  CheckpointFolder(root() / "deep").check_writable();
  EXPECT_TRUE(fs::is_empty(root() / "deep"));
  write_file(folder_ / "file", "");
  EXPECT_THROW(CheckpointFolder(folder_ / "file").check_writable(), IoError);
  EXPECT_THROW(CheckpointFolder(folder_ / "file/run").check_writable(), IoError);
  FailingFileSystem probe;
  CheckpointFolder(root() / "deep", 3, probe).check_writable();
  EXPECT_TRUE(fs::is_empty(root() / "deep"));
  for (int64_t k = 1; k <= static_cast<int64_t>(probe.calls().size()); ++k) {
    if (!probe.calls()[static_cast<size_t>(k - 1)].starts_with("write")) continue;
    FailingFileSystem full(FailingFileSystem::Failure::kDiskFull, k);
    EXPECT_TRUE(message_of<IoError>([&] {
                  CheckpointFolder(root() / "deep", 3, full).check_writable();
                }).ends_with("No space left on device"));
  }
}

}  // namespace
}  // namespace sinter::nn
