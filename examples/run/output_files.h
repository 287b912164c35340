// The files that a run leaves behind: whether they can be written is found out before the first batch, not
// after hours.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace sinter::examples {

/// Keeps other processes from training in the same folder while it lives; throws Error that names the option
/// if one does.
class FolderLock {
 public:
  FolderLock(const char* option, const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int file_ = -1;
};

/// Throws Error that names --checkpoints unless checkpoints can be saved there, or if a run is there and is
/// not to be resumed.
void check_checkpoints(const std::filesystem::path& root, bool resume);

/// Throws Error that names the option unless the disk of `folder` has room for so many bytes; without a path
/// there is nothing to write.
void check_room(const char* option, const std::filesystem::path& path, const std::filesystem::path& folder,
                uint64_t bytes);

/// Throws Error that names the option unless a file beside `path` can be made and filled, and `path` be
/// replaced by it.
void check_file(const char* option, const std::filesystem::path& path);

/// Puts a text in place of a file, in one step.
void write_text(const std::filesystem::path& path, const std::string& text);

/// The path from the root, so that it means the same from anywhere; none stays none.
std::string absolute_path(const std::filesystem::path& path);

/// Adds a line to a file; a new one starts with the line `header`. Throws IoError.
void append_line(const std::filesystem::path& path, const std::string& header, const std::string& line);

}  // namespace sinter::examples
