// What cuDNN's fused batch normalisation asks of a call, as one predicate: kernels, errors and jobs ask it.
#pragma once

#include <optional>
#include <string>

#include <sinter/core/op/kernel.h>
#include <sinter/ops/batch_norm_act/batch_norm_act.h>

namespace sinter::ops {

/// A call of batch_norm_act, its gradient's or both, as far as cuDNN minds.
struct CudnnNormCase {
  TensorSpec x;
  Layout layout = Layout::kNHWC;
  Activation activation = Activation::kRelu;
  bool training = true;
  bool has_weight_and_bias = true;
  bool has_sums = false;  ///< statistics that came with x
  bool has_addend = false;
  bool normalize_addend = false;
  bool has_dy2 = false;       ///< the gradient comes in two parts
  bool all_gradients = true;  ///< of weight and bias, and of the addend if there is one
  bool aligned = true;        ///< all tensors begin at multiples of 16 bytes
  int64_t version = 0;        ///< cudnn_norm_version(), or what it is to be taken for
};

/// Why cuDNN cannot run a case, in a few words: "float32 instead of float16"; nothing if it can.
std::optional<std::string> cudnn_norm_constraint(const CudnnNormCase& call);

/// What a call of batch_norm_act, or of batch_norm_act_grad, says of its case; the other half is as cuDNN
/// wants it.
CudnnNormCase cudnn_norm_forward_case(const KernelQuery& query);
CudnnNormCase cudnn_norm_backward_case(const KernelQuery& query);

/// Of a call and its gradient together.
CudnnNormCase cudnn_norm_pair_case(const KernelQuery& forward, const KernelQuery& backward);

/// cuDNN's version as it gives it, 91900 for 9.19.0; 0 in a build without it.
int64_t cudnn_norm_version();
/// Done once, by those who register cuDNN's kernels.
void set_cudnn_norm_version(int64_t version);

}  // namespace sinter::ops
