// Training checkpoints: folders that hold all that a run needs to go on, of which a complete one always
// exists.
//
// A checkpoint is a folder with one safetensors file per part (model, optimiser, ...), the values in
// state.json, and manifest.txt with the size and checksum of each file. It is written under a hidden name and
// renamed when it is on the disk, so whoever looks sees complete checkpoints only, also after `kill -9` or a
// loss of power.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include <sinter/core/file_system/file_system.h>
#include <sinter/nn/checkpoint/safetensors.h>

namespace sinter::nn {

/// A value beside the tensors. An integer in the range of int64_t comes back as int64_t, also if uint64_t was
/// saved; all else comes back as it was, doubles bit for bit (but for the payload of a NaN).
using CheckpointValue = std::variant<bool, int64_t, uint64_t, double, std::string>;

struct CheckpointData {
  std::map<std::string, NamedTensors> tensors;  ///< by part, then by name
  std::map<std::string, CheckpointValue>
      values;  ///< epoch, step, random keys, loader position, schedule, ...

  /// The tensors of one part. Throws IoError that names the parts which are there if it is missing.
  const NamedTensors& part(const std::string& name) const;

  /// The value of `key` as bool, int64_t, uint64_t, double or std::string; integers convert where the value
  /// allows it. Throws IoError if it is missing or of another kind: the checkpoint is not what the caller
  /// takes it for.
  template <class T>
  T value(const std::string& key) const;
};

/// Reads one checkpoint and verifies all of it. Throws IoError if a file is missing, damaged or of another
/// size than the manifest says.
CheckpointData load_checkpoint(const std::filesystem::path& folder, FileSystem& files = FileSystem::native());

/// A checkpoint that was found sound.
struct LoadedCheckpoint {
  std::filesystem::path folder;
  CheckpointData data;
  std::vector<std::filesystem::path> damaged;  ///< newer ones that could not be read, newest first
};

/// The checkpoints of one run: folders checkpoint-00000001, checkpoint-00000002, ... in a root folder.
/// One process may save at a time; any number may load checkpoints that are kept.
class CheckpointFolder {
 public:
  /// Keeps the newest `keep_last` checkpoints; 0 keeps all. The root is made at the first save if it is
  /// missing.
  explicit CheckpointFolder(std::filesystem::path root, int keep_last = 3,
                            FileSystem& files = FileSystem::native());

  /// Saves a new checkpoint, then removes those beyond `keep_last` and leftovers of saves that were killed.
  /// Returns its folder. Throws IoError if the new checkpoint cannot be written: what was saved before is
  /// then whole, and nothing is left of the new one. Once it has its name, a failure to sync the root is a
  /// warning, and old ones stay this time. A part's name may have letters, digits, '_' and '-', else
  /// InvalidArgument.
  ///
  /// Removing never fails a save, and takes away nothing but what a save has written: an old checkpoint that
  /// holds anything else, or whose files cannot be removed, stays, and the log warns of it once.
  std::filesystem::path save(const CheckpointData& data);

  /// Throws IoError unless a save can write here: makes the root if it is missing, then a file in it, which
  /// it removes again. For programs that would rather know before hours of work than after them.
  void check_writable() const;

  /// The complete checkpoints, oldest first. Their contents are verified when they are loaded.
  std::vector<std::filesystem::path> list() const;
  /// The newest of them, if there is one.
  std::optional<std::filesystem::path> latest() const;
  /// Loads the newest one that is sound; none if there are no checkpoints. The log warns of each that is
  /// damaged. Throws the newest one's IoError if all of them are.
  std::optional<LoadedCheckpoint> load_latest() const;

  const std::filesystem::path& root() const { return root_; }

 private:
  void write_parts(const CheckpointData& data, const std::filesystem::path& folder) const;
  void remove_leftovers();
  void remove_old();
  void remove_checkpoint(const std::filesystem::path& folder);
  void keep(const std::filesystem::path& folder, const std::string& reason);
  uint64_t next_number() const;

  std::filesystem::path root_;
  int keep_last_;
  FileSystem& files_;
  std::set<std::filesystem::path> kept_;  // folders that could not be removed, and that the log knows of
};

}  // namespace sinter::nn
