// The bytes of a file or of memory, and records in them: what the readers of PyTorch's files share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include <fmt/core.h>

#include <sinter/core/base/error.h>

namespace sinter::nn::pytorch {

struct ByteSource {
  std::string path;  ///< for messages
  uint64_t size = 0;
  std::function<void(uint64_t offset, std::span<std::byte> bytes)> read;
  bool is_concurrent = false;  ///< whether several threads may read at once

  /// Throws E "[pytorch] <path>: ...".
  template <class E = IoError, class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw_error<E>("[pytorch] {}: {}", path, fmt::vformat(format, fmt::make_format_args(args...)));
  }
};

/// Bytes that stand together in a file.
struct Record {
  uint64_t begin = 0;
  uint64_t size = 0;
  std::optional<uint32_t> crc32;  ///< as in zlib; none where the writer did not compute it

  uint64_t end() const { return begin + size; }
};

/// Fills `bytes`, which has the record's size. Throws IoError unless the checksum is right.
void read_record(const ByteSource& source, const Record& record, std::span<std::byte> bytes);

/// A number that lies in bytes as it does in memory, from `at` on.
template <class T>
T number_at(std::span<const std::byte> bytes, size_t at) {
  T value{};
  std::memcpy(&value, bytes.subspan(at, sizeof value).data(), sizeof value);
  return value;
}

}  // namespace sinter::nn::pytorch
