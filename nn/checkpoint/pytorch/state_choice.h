// Which of the dicts in a PyTorch file is the weights.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <sinter/nn/checkpoint/pytorch/byte_source.h>
#include <sinter/nn/checkpoint/pytorch/pytorch_pickle.h>

namespace sinter::nn::pytorch {

struct ChosenState {
  std::map<std::string, PickleValue> tensors;
  std::string key;                   ///< where the dict stands: "state_dict"; empty for the top
  std::string prefix;                ///< what was taken off all names: "module."
  std::vector<std::string> skipped;  ///< names without a tensor, sorted, then tensors without a name
};

/// The dict at `key`, names with dots between them, or, where that is empty, the one that read_pytorch says.
/// Throws InvalidArgument, with the places of tensors, if there is none or more than one, and Unsupported for
/// a whole module.
ChosenState choose_state(const PytorchPickle& pickle, const PickleValue& top, const std::string& key,
                         const ByteSource& source);

}  // namespace sinter::nn::pytorch
