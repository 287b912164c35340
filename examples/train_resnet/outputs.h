// The files that a run of train_resnet leaves behind.
#pragma once

#include <cstdint>
#include <optional>

#include "options.h"
#include "run/output_files.h"

namespace train_resnet {

/// Checks at its construction that everything which the options ask for can be written, and throws Error that
/// names the option if not. Keeps other processes from training in the same folder of checkpoints while it
/// lives.
class Outputs {
 public:
  explicit Outputs(const Options& options);

  /// Throws Error that names the option unless the disks have room for the final weights and, where one is to
  /// be saved, a checkpoint, of so many bytes.
  static void check_room(const Options& options, uint64_t weight_bytes, uint64_t checkpoint_bytes);

 private:
  std::optional<sinter::examples::FolderLock> lock_;
};

}  // namespace train_resnet
