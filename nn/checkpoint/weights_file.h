// Files of weights of any kind that Sinter reads.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <sinter/core/file_system/file_system.h>
#include <sinter/nn/checkpoint/safetensors.h>

namespace sinter::nn {

struct Weights {
  NamedTensors tensors;                         ///< on the CPU
  std::map<std::string, std::string> metadata;  ///< none in files that PyTorch wrote itself
  std::string key;                              ///< of a PyTorch file: where the weights stood in it
  std::string prefix;                           ///< what all names began with and were freed of: "module."
  std::vector<std::string> skipped;  ///< of a PyTorch file: names beside the weights that are no tensors
};

struct ReadWeightsOptions {
  std::string key;  ///< as in ReadPytorchOptions; InvalidArgument for a safetensors file
};

/// Reads a safetensors file or one of PyTorch's, whichever its first bytes say: what read_safetensors or
/// read_pytorch gives and throws. From names that all begin with "module." or "_orig_mod." that is taken off.
Weights read_weights(const std::filesystem::path& path, const ReadWeightsOptions& options = {},
                     FileSystem& files = FileSystem::native());

}  // namespace sinter::nn
