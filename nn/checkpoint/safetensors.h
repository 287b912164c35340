// Files of named tensors in the safetensors format, which PyTorch and others read and write too.
//
// Source: https://github.com/huggingface/safetensors ("Format"). A file is a 64-bit little-endian length, a
// JSON header of that length that names dtype, shape and place of every tensor, and the elements, without
// gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sinter/core/file_system/file_system.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::nn {

using NamedTensors = std::map<std::string, Tensor>;

/// The contents of a safetensors file.
struct Safetensors {
  NamedTensors tensors;
  std::map<std::string, std::string> metadata;  ///< the header's __metadata__

  /// The tensor or the metadata of this name. Throws InvalidArgument with the names that there are if there
  /// is none.
  const Tensor& tensor(const std::string& name) const;
  const std::string& metadata_of(const std::string& key) const;
};

/// Reads a file into tensors on the CPU. Nothing in the file is trusted: a damaged or hostile file throws
/// IoError with the path, the byte where the damage was noticed and, where known, the tensor; memory is taken
/// only for what the file really holds. A valid file with a dtype or more axes than a Tensor can have throws
/// Unsupported.
Safetensors read_safetensors(const std::filesystem::path& path, FileSystem& files = FileSystem::native());

/// The same from memory; `path` is only for messages.
Safetensors parse_safetensors(std::span<const std::byte> bytes, const std::filesystem::path& path);

/// Writes tensors, from any device, so that `path` holds either what it held before or the complete new file,
/// whatever fails and whenever the process dies. Equal contents give equal bytes. Elements are aligned to
/// their size. Throws InvalidArgument for an undefined tensor or a name that is not UTF-8 or is
/// "__metadata__", IoError if the disk fails or `path` is a folder, a device or a pipe. A symbolic link is
/// followed.
void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata = {},
                       FileSystem& files = FileSystem::native());

/// Hands the bytes of the file that write_safetensors would write to `sink`, piece by piece.
void serialize_safetensors(const NamedTensors& tensors, const std::map<std::string, std::string>& metadata,
                           const std::function<void(std::span<const std::byte>)>& sink);

}  // namespace sinter::nn
