// Random training networks: what tests of jobs compare eager code, traces and rewrites on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <sinter/nn/module/module.h>
#include <sinter/ops/common/samples/op_samples.h>

namespace sinter::nn::testing {

/// A network that a seed decides: convolutions of all kinds, norms with and without an activation behind
/// them, sums in both orders, shared and unused values, several losses, odd numbers of channels, both
/// layouts, modes that differ from module to module, buffers that the forward pass changes, frozen
/// parameters, random numbers, modules that are called twice, and parts that no gradient flows through. Those
/// of NetworkKind::kChanging are smaller still, and mostly buffers that forward() changes between its reads.
/// Images are tiny and batches of 2 or 3, so that a step takes about a millisecond. Equal seeds give equal
/// networks with equal parameters.
///
/// Takes images and classes; gives the loss, then some values from within.
enum class NetworkKind : uint8_t { kAny, kChanging };

class RandomNetwork : public ModuleOf<std::vector<Tensor>(const Tensor&, const Tensor&)> {
 public:
  RandomNetwork(uint64_t seed, DType dtype, Device device = Device::cpu(),
                NetworkKind kind = NetworkKind::kAny);

  std::vector<Tensor> forward(const Tensor& images, const Tensor& classes) const override;

  /// Makes the buffers float16 that are meant to be, which the module's own conversions undo.
  void narrow_buffers() const;
  /// A batch for it, on its device; equal seeds give equal batches.
  std::vector<Tensor> batch(uint64_t seed) const;
  DType dtype() const { return dtype_; }
  /// What it is made of, one value a line.
  const std::string& text() const { return text_; }

 private:
  friend class NetworkBuilder;
  using Values = std::vector<Tensor>;

  struct Step {
    std::function<Tensor(const Values&)> run;
    Shape shape;  // of what it must give
  };

  DType dtype_;
  Device device_;
  NetworkKind kind_;
  Shape images_;
  int64_t classes_ = 0;
  std::vector<Step> steps_;  // each gives one value; value 0 is the images
  std::vector<std::function<Tensor(const Values&, const Tensor&)>> losses_;
  std::vector<size_t> outputs_;
  std::string text_;
};

/// The seed of the first network: the environment variable SINTER_TEST_SEED. Without it that is always the
/// same: other seeds are for whoever looks for faults.
uint64_t random_seed();

}  // namespace sinter::nn::testing
