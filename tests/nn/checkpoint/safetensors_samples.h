// Safetensors files in memory.
#pragma once

#include <cstring>
#include <map>
#include <span>
#include <string>

#include <sinter/nn/checkpoint/safetensors.h>

namespace sinter::testing {

/// A file with this header, whatever it is, and data.
inline std::string file_of(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + data;
}

/// Reads a file, under the name x.safetensors.
inline nn::Safetensors parse(const std::string& file) {
  return nn::parse_safetensors(std::as_bytes(std::span(file)), "x.safetensors");
}

/// The file that holds these tensors.
inline std::string serialize(const nn::NamedTensors& tensors,
                             const std::map<std::string, std::string>& metadata = {}) {
  std::string file;
  nn::serialize_safetensors(tensors, metadata, [&](std::span<const std::byte> bytes) {
    file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  return file;
}

}  // namespace sinter::testing
