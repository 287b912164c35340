// The system calls through which Sinter writes files, behind an interface, so that tests can fail any of
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sinter/core/base/error.h>

namespace sinter {

/// Calls on files. Each member returns a value >= 0, or -errno; none throws. `native()` is the machine's own;
/// most code uses InputFile and OutputFile below, which check every result.
class FileSystem {
 public:
  enum class Mode {
    kRead,    ///< an existing file, for reading
    kCreate,  ///< for writing; the file is made, or emptied if it exists
    kAppend,  ///< for writing at its end; the file is made if it is missing
    kFolder,  ///< a folder, for sync
  };

  FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;
  virtual ~FileSystem() = default;

  /// A descriptor.
  virtual int open(const std::filesystem::path& path, Mode mode) = 0;
  /// Bytes in the file behind a descriptor.
  virtual int64_t size(int file) = 0;
  /// The number of bytes read from `offset` on; 0 at the end, maybe fewer than asked for.
  virtual int64_t read(int file, std::span<std::byte> bytes, int64_t offset) = 0;
  /// The number of bytes appended, maybe fewer than given.
  virtual int64_t write(int file, std::span<const std::byte> bytes) = 0;
  /// Returns when what was written is on the disk, for a folder: its entries.
  virtual int sync(int file) = 0;
  virtual int close(int file) = 0;
  /// Replaces `to` in one step, if it is a file or an empty folder.
  virtual int rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  /// Removes a file or an empty folder.
  virtual int remove(const std::filesystem::path& path) = 0;
  virtual int make_folder(const std::filesystem::path& path) = 0;
  /// The names in a folder without "." and "..", sorted.
  virtual int list(const std::filesystem::path& folder, std::vector<std::string>& names) = 0;

  static FileSystem& native();
};

/// A file that is open for reading. Every failure is an IoError with the path.
class InputFile {
 public:
  explicit InputFile(std::filesystem::path path, FileSystem& files = FileSystem::native());
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  uint64_t size() const { return size_; }
  /// Fills `bytes` from `offset` on; throws IoError if the file ends before.
  void read(uint64_t offset, std::span<std::byte> bytes);

 private:
  std::filesystem::path path_;
  FileSystem& files_;
  int file_;
  uint64_t size_ = 0;
};

/// A file that is being written from its start. It exists on the disk once sync_and_close() has returned;
/// without that call the destructor removes it. Every failure is an IoError with the path.
class OutputFile {
 public:
  explicit OutputFile(std::filesystem::path path, FileSystem& files = FileSystem::native());
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Appends all of `bytes`.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void sync_and_close();

  uint64_t size() const { return size_; }
  /// The CRC-32 (as in zlib) of all bytes written so far.
  uint32_t crc32() const { return crc32_; }

 private:
  std::filesystem::path path_;
  FileSystem& files_;
  int file_;
  uint64_t size_ = 0;
  uint32_t crc32_ = 0;
};

/// A file that appears under `path` only when it is complete: until commit() the bytes go to a hidden file
/// beside it, which commit() puts on the disk and renames. A file that was there before stays whole until
/// then. One writer at a time.
///
/// Once the file has its name, nothing fails any more: what goes wrong as the folder is synced is a warning
/// in the log. Some network drives will not rename onto a file that exists; there it is removed first, which
/// the log says, once.
class AtomicOutputFile {
 public:
  explicit AtomicOutputFile(std::filesystem::path path, FileSystem& files = FileSystem::native());
  ~AtomicOutputFile();
  AtomicOutputFile(const AtomicOutputFile&) = delete;
  AtomicOutputFile& operator=(const AtomicOutputFile&) = delete;

  void write(std::span<const std::byte> bytes) { output_.write(bytes); }
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  FileSystem& files_;
  OutputFile output_;
  bool pending_ = true;
};

/// Puts the entries of a folder on the disk, after a rename in it. Many network drives and user-space file
/// systems cannot: that is passed over, and the log says so once a file system. Throws IoError if it fails.
void sync_folder(const std::filesystem::path& folder, FileSystem& files = FileSystem::native());

/// The same for a file: takes the result of FileSystem::sync().
void check_sync(int result, const std::filesystem::path& file);

/// Removes a folder and what is in it; folders inside are an IoError, as Sinter makes none. Throws IoError.
void remove_folder(const std::filesystem::path& folder, FileSystem& files = FileSystem::native());

/// Extends a CRC-32 (as in zlib, starting from 0) by `bytes`.
uint32_t extend_crc32(uint32_t crc, std::span<const std::byte> bytes);

/// Throws IoError "[file] <path>: cannot <action>: <what the system says>" if `result` is negative, else
/// returns it.
int64_t check_file_call(int64_t result, const char* action, const std::filesystem::path& path);

}  // namespace sinter
