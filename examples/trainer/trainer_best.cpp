// The best weights of a run: kept beside the checkpoints, and found again by --resume.
#include <filesystem>
#include <map>
#include <string>

#include <fmt/core.h>

#include <sinter/nn/checkpoint/safetensors.h>
#include <sinter/ops/copy/copy.h>

#include "common/console.h"
#include "trainer/trainer_base.h"

namespace sinter::examples {

namespace {

/// A copy on the host that shares no memory with the model.
nn::State host_copy(const nn::State& state) {
  nn::State copy;
  for (const auto& [name, tensor] : state)
    copy[name] = tensor.device().is_cpu() ? ops::copy(tensor) : tensor.to(Device::cpu());
  return copy;
}

}  // namespace

void TrainerBase::take_test(double accuracy) {
  tested_epoch_ = epoch_ + 1;
  if (accuracy <= best_.accuracy) return;
  best_ = {.accuracy = accuracy, .step = trained_, .epoch = epoch_ + 1};
  best_weights_.clear();
  best_failure_.clear();
  const nn::State weights = tested_weights();
  if (checkpoints_ != nullptr) save_best(weights);
  if (keeps_best_weights() || !best_failure_.empty()) best_weights_ = host_copy(weights);
}

void TrainerBase::save_best(const nn::State& weights) {
  try {
    std::map<std::string, std::string> metadata = nn::to_safetensors_metadata(metadata_);
    metadata["step"] = fmt::format("{}", best_.step);
    metadata["accuracy"] = fmt::format("{}", best_.accuracy);
    nn::write_safetensors(checkpoints_->root() / kBestName, weights, metadata);
    best_failure_.clear();
  } catch (const Error& error) {  // no room on the disk, or for copies of the weights in memory
    best_failure_ = error.what();
    complain("warning: {} of step {} is not saved: {}", kBestName, best_.step, error.what());
  }
}

void TrainerBase::save_best_again() {
  if (best_failure_.empty()) return;
  save_best(best_weights_);
  if (!best_failure_.empty()) return;
  say("{} of step {} is saved now\n", kBestName, best_.step);
  if (!keeps_best_weights()) best_weights_.clear();
}

void TrainerBase::restore_best() {
  if (best_.accuracy < 0) return;
  const auto path = std::filesystem::path(common_.checkpoints) / kBestName;
  bool found = false;
  if (ranks_.rank() == 0) {
    try {
      const nn::Safetensors file = nn::read_safetensors(path);
      found = file.metadata.contains("step") && file.metadata.at("step") == fmt::format("{}", best_.step);
    } catch (const Error&) {  // it is gone, or damaged
    }
    if (!found)
      complain("warning: {} does not hold the best weights, of step {}; the search for them begins anew",
               path.string(), best_.step);
  }
  // All ranks end a run early together, or none.
  const Tensor known = Tensor::full({1}, found ? 1.0 : 0.0, DType::kInt64);
  ranks_.broadcast_(known);
  if (known.item() == 0.0) {
    best_ = {};
  } else if (keeps_best_weights()) {
    best_weights_ = nn::read_safetensors(path).tensors;
  }
}

}  // namespace sinter::examples
