// A process that saves checkpoints is killed at random moments: a valid one always exists.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include <common/failing_file_system.h>
#include <common/temporary_folder.h>
#include <common/test_cases.h>
#include <gtest/gtest.h>
#include <nn/checkpoint/checkpoint_samples.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sinter/core/runtime/random.h>
#include <sinter/nn/checkpoint/checkpoint.h>

namespace sinter::nn {
namespace {

using sinter::testing::expect_same;
using sinter::testing::FailingFileSystem;
using sinter::testing::make_checkpoint;
using sinter::testing::TemporaryFolder;

/// Saves checkpoint after checkpoint, each continuing the steps of the one before, until it is killed or has
/// saved `most`.
[[noreturn]] void save_until_killed(const std::filesystem::path& root, int64_t most) {
  try {
    FailingFileSystem files;  // never syncs: what is killed is the process, not the machine
    CheckpointFolder checkpoints(root, 1, files);
    int64_t step = load_checkpoint(*checkpoints.latest()).value<int64_t>("step");
    for (int64_t i = 0; i < most; ++i) checkpoints.save(make_checkpoint(++step));
    _exit(0);
  } catch (...) {
    _exit(1);
  }
}

/// How long a process lives that saves a few checkpoints: under sanitizers, it takes long to begin.
std::chrono::microseconds life_of_some_saves(const std::filesystem::path& root) {
  constexpr int64_t kSaves = 4;
  const auto start = std::chrono::steady_clock::now();
  const pid_t child = ::fork();
  if (child == 0) save_until_killed(root, kSaves);
  int status = 1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start);
}

TEST(CheckpointKill, AValidCheckpointAlwaysExists) {
  const int kills = test::share_of_cases(300);
  const TemporaryFolder folder;
  FailingFileSystem files;
  CheckpointFolder checkpoints(folder / "run", 1, files);
  checkpoints.save(make_checkpoint(1));
  Generator generator(5);
  const auto life =
      static_cast<uint64_t>(std::max<int64_t>(life_of_some_saves(checkpoints.root()).count(), 4000));
  int64_t step = 1;
  int leftovers = 0;
  // The kills must meet saves and removals in the middle, else this test shows nothing: a busy machine, on
  // which most children die before they have done anything, takes more of them.
  const auto has_shown_something = [&] { return step > kills / 4 && leftovers > kills / 20; };
  for (int kill = 0; kill < kills || (!has_shown_something() && kill < 30 * kills); ++kill) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) save_until_killed(checkpoints.root(), INT64_MAX);
    std::this_thread::sleep_for(std::chrono::microseconds(generator.below(life)));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself: a save or load threw";

    // keep_last is 1, so a moment without a valid checkpoint would show. There may be more than one: each
    // child that is killed between its save and the removal of the old ones leaves them to the next.
    const auto list = checkpoints.list();
    ASSERT_FALSE(list.empty());
    for (const std::filesystem::path& path : list) {
      const CheckpointData data = load_checkpoint(path);
      expect_same(data, make_checkpoint(data.value<int64_t>("step")));
    }
    const int64_t newest = load_checkpoint(list.back()).value<int64_t>("step");
    ASSERT_GE(newest, step);
    step = newest;
    std::vector<std::string> names;
    files.list(checkpoints.root(), names);
    leftovers += names.size() > list.size() ? 1 : 0;
  }
  EXPECT_TRUE(has_shown_something()) << step << " saves, " << leftovers << " leftovers";
  checkpoints.save(make_checkpoint(step + 1));
  std::vector<std::string> names;
  files.list(checkpoints.root(), names);
  EXPECT_EQ(names.size(), 1u);
}

}  // namespace
}  // namespace sinter::nn
