// The JSON header of a safetensors file: an untrusted text in, checked entries out.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <sinter/core/base/dtype.h>
#include <sinter/core/base/shape.h>

namespace sinter::nn {

/// Bytes of the length in front of the header.
inline constexpr uint64_t kSafetensorsPrefixBytes = 8;
/// The longest header that is read or written.
inline constexpr uint64_t kSafetensorsMaxHeaderBytes = 100'000'000;
/// The most keys of one object of the header that are read or written: of the tensors, and of the metadata.
/// With it a header takes some 200 MB of memory at most.
inline constexpr size_t kSafetensorsMaxKeys = size_t{1} << 18;
/// The key of the header that holds strings instead of a tensor.
inline constexpr std::string_view kSafetensorsMetadata = "__metadata__";

/// One tensor's entry; its elements are the bytes [begin, end) of the data behind the header.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< in the order of the data
  std::map<std::string, std::string> metadata;
};

/// Reads a header for `data_bytes` bytes of data. Throws IoError or Unsupported as read_safetensors does;
/// `path` is for messages, whose byte offsets count from the start of the file.
SafetensorsHeader parse_safetensors_header(std::string_view text, uint64_t data_bytes,
                                           const std::string& path);

/// Throws IoError unless the header's length is possible in a file of `file_bytes` bytes.
void check_safetensors_header_length(uint64_t header_bytes, uint64_t file_bytes, const std::string& path);

/// The header of these entries, with spaces at its end that make the data start at a multiple of 8. Throws
/// InvalidArgument for more entries or metadata than are read.
std::string format_safetensors_header(const SafetensorsHeader& header);

}  // namespace sinter::nn
