// A file whose bytes are in the address space, for readers that jump about in far more than memory holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace sinter::nn::data {

/// A regular file mapped for reading; the pages that are touched are read, and may be dropped again, by the
/// system. Reading from several threads is safe.
class MappedFile {
 public:
  /// Throws IoError, with the system's reason, if the file cannot be opened or mapped or is no regular file.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  /// Throws IoError if the file is shorter than it was when it was opened: touching bytes beyond its end
  /// would end the process. To be called before a read; it cannot help against a file that is cut during one.
  void check_whole() const;

 private:
  std::filesystem::path path_;
  int file_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace sinter::nn::data
