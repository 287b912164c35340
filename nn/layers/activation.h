// Activations.
#pragma once

#include <sinter/nn/module/module.h>

namespace sinter::nn {

/// max(x, 0), any shape.
class ReLU : public Module {
 public:
  Tensor forward(const Tensor& x) const override;
};

struct PReLUOptions {
  double initial_slope = 0.25;
  Layout layout = Layout::kNCHW;  ///< where the channels of the input are
};

/// x where x > 0, else weight * x. Member: `weight` (channels), or (1) for one slope in common.
/// Source: K. He et al., "Delving deep into rectifiers", ICCV 2015.
class PReLU : public Module {
 public:
  explicit PReLU(int64_t channels = 1, const PReLUOptions& options = {});

  Tensor forward(const Tensor& x) const override;

  Parameter weight;

 private:
  Layout layout_;
};

}  // namespace sinter::nn
