// PyTorch's own files of weights, .pth and .pt, without Python: read as data alone, of which nothing is run,
// and written so that `torch.load(path, weights_only=True)` reads them.
//
// Source: PyTorch, torch/serialization.py and caffe2/serialize/inline_container.cc. A file is a zip archive
// of a pickle, which says names, shapes and places, and the elements; before version 1.6 it was a row of
// pickles with the elements behind them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <sinter/core/file_system/file_system.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::nn {

/// The weights in a PyTorch file.
struct PytorchFile {
  std::map<std::string, Tensor> tensors;  ///< on the CPU, dense; those that were one view share memory
  std::string key;                        ///< where their dict stands in the file; empty: at the top
  std::string prefix;                     ///< what all names began with and were freed of: "module."
  std::vector<std::string> skipped;       ///< names without a tensor, sorted, then tensors without a name
  std::map<std::string, std::string> metadata;  ///< that write_pytorch put there; none in PyTorch's own files
};

struct ReadPytorchOptions {
  /// Where the dict of tensors stands, names with dots between them: "state_dict", "ema.params". Empty: the
  /// one dict with tensors among the top's entries state_dict, model, model_state_dict, backbone,
  /// state_dict_backbone, net, module, params and those that end in _ema; the top itself if there is none.
  std::string key;
};

/// Reads a file into tensors on the CPU. What kind of file it is its first bytes say, not its name. From
/// names that all begin with "module." or "_orig_mod.", as DataParallel and torch.compile have it, that is
/// taken off.
///
/// Nothing in the file is trusted, and nothing in it is run: a class or function that is no part of a tensor
/// does no harm beside the weights, and cannot be one of them. A damaged or hostile file throws IoError with
/// the path and the byte, record or tensor; memory is taken only for what the file holds: at most four times
/// its bytes for tensors, and 512 MB, beside 100 MB of metadata. Throws Unsupported for what is sound but
/// cannot be read: TorchScript, whole modules, archives that were zipped again, big-endian files, those of
/// before 2018 in tar, and among the weights tensors that are quantised, sparse, of a dtype or with more axes
/// than a Tensor can have. Throws InvalidArgument, with the places of tensors, if there is no dict of
/// weights, or more than one.
PytorchFile read_pytorch(const std::filesystem::path& path, const ReadPytorchOptions& options = {},
                         FileSystem& files = FileSystem::native());

/// The same from memory; `path` is only for messages.
PytorchFile parse_pytorch(std::span<const std::byte> bytes, const std::filesystem::path& path,
                          const ReadPytorchOptions& options = {});

/// Whether the first bytes, 512 if there are as many, are those of a file that read_pytorch reads or names.
bool is_pytorch(std::span<const std::byte> first_bytes);

/// Writes tensors, from any device, as a state dict, so that `path` holds either what it held before or the
/// complete new file. Equal contents give equal bytes. Elements are aligned to 64 bytes; tensors over the
/// same memory share it in the file. Metadata, as to_safetensors_metadata() gives them, become a record of
/// the archive, extra/metadata.json, which torch.load passes over and torch.save does not keep. Throws
/// InvalidArgument for an undefined tensor, a name or metadata that are no UTF-8, more than 100,000 tensors,
/// 2^18 metadata or 100 MB of these; IoError as write_safetensors does.
void write_pytorch(const std::filesystem::path& path, const std::map<std::string, Tensor>& tensors,
                   const std::map<std::string, std::string>& metadata = {},
                   FileSystem& files = FileSystem::native());

/// Hands the bytes of the file that write_pytorch would write to `sink`, piece by piece.
void serialize_pytorch(const std::map<std::string, Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata,
                       const std::function<void(std::span<const std::byte>)>& sink);

}  // namespace sinter::nn
