// Whole files as bytes, and gzip streams whose unpacked size is known beforehand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace sinter::nn::data {

/// The contents of a regular file. Throws IoError, with the system's reason, if it cannot be read, is no
/// regular file, or has more than `max_bytes` bytes, and OutOfMemory if there is no memory for it. `bytes`
/// overload: reuses the buffer.
std::vector<uint8_t> read_file(const std::filesystem::path& path, uint64_t max_bytes);
void read_file(const std::filesystem::path& path, uint64_t max_bytes, std::vector<uint8_t>& bytes);

/// Makes `bytes` `size` long. Throws OutOfMemory that names the file if there is no memory for them.
void resize_for_file(std::vector<uint8_t>& bytes, uint64_t size, const std::string& name);

/// True if the bytes start as a gzip member does.
bool is_gzip(std::span<const uint8_t> bytes);

/// Unpacks one gzip member piece by piece, so that a reader can look at a header before it trusts the rest.
class GzipReader {
 public:
  /// `name` is the file's, for messages; `packed` must outlive the reader.
  GzipReader(std::span<const uint8_t> packed, std::string name);
  ~GzipReader();
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  /// Appends exactly `count` bytes to `out`. Memory grows with what really comes, not with what is asked for.
  /// Throws IoError if the stream is damaged or ends before, OutOfMemory if there is no memory.
  void read(uint64_t count, std::vector<uint8_t>& out);
  /// Checks that the stream ends here, with a right checksum and nothing after it; else IoError.
  void finish();

 private:
  struct Stream;
  size_t inflate_into(uint8_t* out, size_t count);

  std::string name_;
  Stream* stream_;
  bool ended_ = false;
};

}  // namespace sinter::nn::data
