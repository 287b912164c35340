// Tensors out of the storages of a PyTorch file.
#pragma once

#include <functional>
#include <map>
#include <string>

#include <sinter/core/tensor/tensor.h>
#include <sinter/nn/checkpoint/pytorch/byte_source.h>
#include <sinter/nn/checkpoint/pytorch/pytorch_pickle.h>

namespace sinter::nn::pytorch {

using Records = std::map<std::string, Record, std::less<>>;  // of storages, by key

/// Reads the tensors of these names, which lie in `records`. Those that are one view of one storage share
/// memory. Throws Unsupported with the name of a tensor that no Tensor can be, and IoError for one that does
/// not lie in its record, for records that are damaged, and for tensors that together take more than four
/// times the file's bytes.
std::map<std::string, Tensor> read_tensors(const ByteSource& source, const Records& records,
                                           const PytorchPickle& pickle,
                                           const std::map<std::string, PickleValue>& values);

}  // namespace sinter::nn::pytorch
