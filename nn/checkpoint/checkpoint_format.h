// The two texts of a checkpoint: the manifest, and the values as JSON. Both are untrusted when they are read.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <sinter/nn/checkpoint/checkpoint.h>

namespace sinter::nn {

inline constexpr std::string_view kManifestName = "manifest.txt";
inline constexpr std::string_view kStateName = "state.json";
inline constexpr std::string_view kPartSuffix = ".safetensors";

struct ManifestEntry {
  std::string name;
  uint64_t size = 0;
  uint32_t crc32 = 0;
};

/// Lines `<crc32> <size> <name>` between a line with the format's version and one with the crc32 of all
/// before it.
std::string format_manifest(const std::vector<ManifestEntry>& entries);

/// The inverse; throws IoError for any text that format_manifest does not write. `path` is for messages.
std::vector<ManifestEntry> parse_manifest(std::string_view text, const std::string& path);

/// True for the names that the files of a checkpoint have.
bool is_checkpoint_file(std::string_view name);

/// True for letters, digits, '_' and '-', one or more: names that are safe as part of a file's name.
bool is_part_name(std::string_view name);

/// One JSON object with a member per value, readable by people. Throws InvalidArgument for keys and texts
/// that are not UTF-8.
std::string format_values(const std::map<std::string, CheckpointValue>& values);

/// The inverse; throws IoError for any other text. `path` is for messages.
std::map<std::string, CheckpointValue> parse_values(std::string_view text, const std::string& path);

}  // namespace sinter::nn
