// What tests of export_onnx export: every op that can be, with several settings, and networks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sinter/nn/export/onnx.h>

namespace sinter::nn::testing {

/// In which numbers a case is made.
enum class CaseNumbers {
  kFloat,        ///< float32
  kHalf,         ///< weights and inputs are float16
  kHalfInFloat,  ///< the same values in float32: what a file of a kHalf case computes
};

struct CaseModel {
  std::shared_ptr<ModuleBase> model;
  JobFunction function;
};

struct OnnxCase {
  std::string name;
  /// Float ones are float32 and get values in [-2, 2), int64 ones in [0, 4), uint8 ones all. Those with
  /// kBatch in front are of the batch.
  std::vector<TensorSpec> inputs;
  std::function<CaseModel(CaseNumbers)> make;
  std::optional<Layout> layout = {};
  static constexpr int64_t kBatch = 5;

  /// The inputs with another batch, in the dtype of the numbers.
  std::vector<TensorSpec> specs(CaseNumbers numbers, int64_t batch) const;
};

/// Weights of a case, the same at every call.
class CaseWeights {
 public:
  explicit CaseWeights(CaseNumbers numbers) : numbers_(numbers) {}
  /// In [low, high), in the dtype of the numbers.
  Tensor operator()(const Shape& shape, double low = -1.0, double high = 1.0);
  /// In float32, as norms have theirs.
  Tensor wide(const Shape& shape, double low = -1.0, double high = 1.0);

 private:
  CaseNumbers numbers_;
  int64_t seed_ = 0;
};

/// A float32 input.
inline TensorSpec float_input(const Shape& shape) {
  return {shape, DType::kFloat32, {}};
}

/// Numbers in [low, high); the same for the same seed.
Tensor case_values(const Shape& shape, double low, double high, int64_t seed);

std::vector<OnnxCase> onnx_op_cases();
std::vector<OnnxCase> onnx_image_cases();
/// `large`: also ResNet-18 and -50 for ImageNet, iResNet-18 and -50.
std::vector<OnnxCase> onnx_network_cases(bool large);

/// A case of a function, which gets a CaseWeights of its own at every call.
using CaseFunction = std::function<std::vector<Tensor>(std::span<const Tensor> x, CaseWeights& weights)>;
OnnxCase function_case(std::string name, std::vector<TensorSpec> inputs, CaseFunction function);

}  // namespace sinter::nn::testing
