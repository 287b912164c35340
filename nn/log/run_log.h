// RunLog: the numbers of a training run on the disk, for TensorBoard and for programs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sinter/core/file_system/file_system.h>
#include <sinter/nn/log/scalars.h>

namespace sinter::nn {

struct RunLogOptions {
  bool json = true;         ///< scalars.jsonl, as scalars.h says
  bool tensorboard = true;  ///< events.out.tfevents.*, a file of each process
  /// The step of the checkpoint from which the run goes on: of what the folder has, all that was logged for
  /// later steps is taken back. Without it the folder must have no log yet.
  std::optional<int64_t> resume_at = {};
  double seconds = 2.0;  ///< between writes; what a killed process may lose
};

/// Writes scalars to files in a folder. Logging puts the values into words and takes a lock; a thread of its
/// own writes them every few seconds, so that no step waits for a disk. What was written stays if the process
/// is killed.
///
///   nn::RunLog log("run1");
///   for (int64_t step = 1; ...; ++step) {
///     ...
///     if (step % 50 == 0) log.scalar("train/loss", loss.item(), step);  // item() waits for a GPU
///   }
///   log.close();
///
/// Call flush() before a checkpoint is saved, so that a run which goes on from it lacks nothing. A disk that
/// is full does not end a run: the log (core/base/log.h) warns once, naming the file, what could not be
/// written waits (up to 16 MiB) and is tried again, and failure() tells whether any of it still waits.
///
/// A step is how many had been done. After a resume from a checkpoint at step s, give `.resume_at = s`: in
/// scalars.jsonl the lines of later steps are cut out, and TensorBoard is told to forget them. Any thread may
/// log.
class RunLog {
 public:
  /// Makes the folder if it is missing, and the files. Throws IoError that names the file if one cannot be
  /// made or written, or if scalars.jsonl is not what a log has written; InvalidArgument if the folder has a
  /// log and `resume_at` is not given, or for options out of range.
  explicit RunLog(std::filesystem::path folder, const RunLogOptions& options = {},
                  FileSystem& files = FileSystem::native());
  /// Writes what is left; what then fails is a warning.
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  /// One value after `step` steps. Throws InvalidArgument for a negative step, or a tag that is empty, longer
  /// than 1,000 bytes, not UTF-8, or "step" or "time".
  void scalar(std::string tag, double value, int64_t step);
  /// Several at once: one line of scalars.jsonl. No tag may come twice.
  void scalars(int64_t step, std::vector<std::pair<std::string, double>> values);

  /// A picture after `step` steps, for TensorBoard alone. `png`: the bytes of a PNG file of so many pixels
  /// and channels. Throws InvalidArgument for a tag or a step as scalar() does, or without bytes or pixels.
  void image(const std::string& tag, std::string png, int64_t height, int64_t width, int64_t channels,
             int64_t step);
  /// What the run was given, by name: a row of TensorBoard's table of hyper-parameters (HPARAMS), beside the
  /// last of its scalars. Numbers are best given as such: the table sorts and plots them.
  void hyper_parameters(const std::map<std::string, HyperParameter>& values);

  /// Returns when all that was logged is in its files. Throws IoError if it cannot be written; it is then
  /// tried again later.
  void flush();
  /// flush(), and puts the files on the disk; nothing may be logged afterwards. Throws IoError if not all
  /// that was logged is there.
  void close();

  /// Why not all of what was logged is in its files, as of the last write; empty if it is.
  std::string failure() const;
  const std::filesystem::path& folder() const { return folder_; }

  static constexpr const char* kJsonName = "scalars.jsonl";
  /// Whether a folder has files of a log. Throws IoError if it cannot be listed.
  static bool is_in(const std::filesystem::path& folder, FileSystem& files = FileSystem::native());

 private:
  class Writer;

  std::filesystem::path folder_;
  std::unique_ptr<Writer> writer_;
};

}  // namespace sinter::nn
