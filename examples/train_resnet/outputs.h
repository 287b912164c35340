// The files that a run leaves behind: whether they can be written is found out before the first batch, not
// after hours.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "options.h"

namespace train_resnet {

/// Checks at its construction that everything which the options ask for can be written, and throws Error that
/// names the option if not. Keeps other processes from training in the same folder of checkpoints while it
/// lives.
class Outputs {
 public:
  explicit Outputs(const Options& options);
  ~Outputs();
  Outputs(const Outputs&) = delete;
  Outputs& operator=(const Outputs&) = delete;

  /// Throws Error that names the option unless the disks have room for the final weights and, where one is to
  /// be saved, a checkpoint, of so many bytes.
  static void check_room(const Options& options, uint64_t weight_bytes, uint64_t checkpoint_bytes);

 private:
  void lock(const std::filesystem::path& folder);

  int lock_file_ = -1;
};

/// Throws Error that names the option unless a file beside `path` can be made and filled, and `path` be
/// replaced by it.
void check_file(const char* option, const std::filesystem::path& path);

/// Puts a text in place of a file, in one step.
void write_text(const std::filesystem::path& path, const std::string& text);

/// Adds a line to a file; a new one starts with the line `header`. Throws IoError.
void append_line(const std::filesystem::path& path, const std::string& header, const std::string& line);

}  // namespace train_resnet
