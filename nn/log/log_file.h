// A file that only grows, a whole record at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include <sinter/core/file_system/file_system.h>

namespace sinter::nn {

/// Appends records to a file. What the disk does not take waits and is tried again, so that a disk which is
/// full for a while leaves neither a gap nor half a record; beyond a limit new records are dropped and
/// counted. For one thread at a time.
class LogFile {
 public:
  /// Opens the file, which is made if it is missing. Throws IoError.
  explicit LogFile(std::filesystem::path path, FileSystem& files = FileSystem::native());
  /// Closes the file; what waits is lost.
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  /// Lets a record wait for the next write().
  void add(std::string_view record);
  /// Writes what waits. A file that was removed or replaced meanwhile is made again, and the log warns.
  /// Throws IoError; what is not written then waits on.
  void write();
  /// Returns when what was written is on the disk. Throws IoError.
  void sync();
  /// Records that were dropped, as too much was waiting.
  int64_t dropped() const { return dropped_; }
  const std::filesystem::path& path() const { return path_; }

  static constexpr size_t kMostWaiting = 16 << 20;  ///< bytes

 private:
  void make_again_if_gone();

  std::filesystem::path path_;
  FileSystem& files_;
  int file_;
  std::string waiting_;
  int64_t dropped_ = 0;
};

}  // namespace sinter::nn
