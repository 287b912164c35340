// Batch normalisation fused with what follows it: an addend, which may itself be normalised, and an
// activation.
#pragma once

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

enum class Activation : uint8_t { kNone, kRelu, kPRelu };

constexpr std::string_view to_string(Activation activation) {
  return activation == Activation::kNone ? "none" : activation == Activation::kRelu ? "relu" : "prelu";
}

/// Whose kernels run. kCudnn is there to be compared with and for GPUs on which it is the faster one; it
/// takes float16 images under kNHWC whose channels are a multiple of 4, on a GPU, in training, with weight
/// and bias, ReLU or nothing at all behind, an addend only before ReLU and not normalised, no sums, one
/// incoming gradient, all gradients computed, and tensors aligned to 16 bytes. Other calls throw Unsupported.
enum class NormBackend : uint8_t { kSinter, kCudnn };

constexpr std::string_view to_string(NormBackend backend) {
  return backend == NormBackend::kSinter ? "sinter" : "cudnn";
}

struct BatchNormActOptions {
  double epsilon = 1e-5;  ///< > 0, added to the variance
  double momentum = 0.1;  ///< in [0, 1]: running = (1 - momentum) * running + momentum * batch
  bool training = true;   ///< normalise with the batch's statistics; else with the running ones, as constants
  Layout layout = Layout::kNCHW;
  Activation activation = Activation::kRelu;
  bool normalize_addend = false;  ///< the addend is normalised too, with its own parameters
  bool save_mask = true;          ///< give the mask that the gradient needs if there is an activation
  NormBackend backend = NormBackend::kSinter;

  bool operator==(const BatchNormActOptions&) const = default;
  static constexpr auto fields() {
    using Options = BatchNormActOptions;
    return std::tuple(field("epsilon", &Options::epsilon), field("momentum", &Options::momentum),
                      field("training", &Options::training), field("layout", &Options::layout),
                      field("activation", &Options::activation),
                      field("normalize_addend", &Options::normalize_addend),
                      field("save_mask", &Options::save_mask), field("backend", &Options::backend));
  }
};

/// What belongs to one normalisation, per channel. All of it may be undefined, but in inference the running
/// statistics may not.
struct NormParameters {
  Tensor weight = {}, bias = {};               ///< (C): 1 and 0 if undefined
  Tensor running_mean = {}, running_var = {};  ///< (C): moved in place in training; both or neither
  /// (2, C): the sums of the elements and of their squares, where whatever computed the tensor has summed
  /// them up on the way. Only in training.
  Tensor sums = {};
};

/// y = act(norm(x) + addend), or act(norm(x) + norm(addend)) with normalize_addend; norm as in batch_norm,
/// act the identity, ReLU, or PReLU with the slope `alpha`.
///
/// x: (N, C), (N, C, H, W), or (N, H, W, C) under kNHWC; floating-point dtypes. addend: as x, or undefined.
/// alpha: (1) or (C), with kPRelu only. The dtype of alpha and of everything in NormParameters is x's, or
/// float32 if x is float16 or bfloat16. Both normalisations share epsilon and momentum.
///
/// Statistics are computed as in batch_norm, or taken from `sums`: then the variance is sums[1] / n -
/// (sums[0] / n)^2, in double precision and never below 0. The sums' own rounding remains: their producer's
/// relative error e becomes an error of the variance of e * (mean^2 + variance), so that sums are for
/// channels whose mean is not large against their deviation, such as a convolution's outputs.
///
/// The op's outputs behind y: mean and 1 / sqrt(variance + epsilon) as used; the mask; the addend's mean and
/// inverse deviation. The mask holds one bit per element, bit i % 8 of byte i / 8 for element i in memory
/// order, set where the activation's argument is not <= 0: all that the gradient needs of y. Under kCudnn it
/// is cuDNN's reserve space instead. Outputs that a call does not have are of shape (0).
///
/// Throws InvalidArgument for other shapes and dtypes, and in training for one value per channel.
Tensor batch_norm_act(const Tensor& x, const NormParameters& norm = {},
                      const BatchNormActOptions& options = {}, const Tensor& alpha = {},
                      const Tensor& addend = {}, const NormParameters& addend_norm = {});

struct BatchNormActGradOptions {
  bool training = true;         ///< mean and inv_std depend on the tensors; else they are constants
  bool parameter_grads = true;  ///< false: only those of x and the addend are computed
  bool addend_grad = false;     ///< the addend's gradient is computed
  Layout layout = Layout::kNCHW;
  Activation activation = Activation::kRelu;
  bool normalize_addend = false;
  NormBackend backend = NormBackend::kSinter;  ///< that of the forward call
  double epsilon = 1e-5;                       ///< likewise; for kCudnn

  bool operator==(const BatchNormActGradOptions&) const = default;
  static constexpr auto fields() {
    using Options = BatchNormActGradOptions;
    return std::tuple(
        field("training", &Options::training), field("parameter_grads", &Options::parameter_grads),
        field("addend_grad", &Options::addend_grad), field("layout", &Options::layout),
        field("activation", &Options::activation), field("normalize_addend", &Options::normalize_addend),
        field("backend", &Options::backend), field("epsilon", &Options::epsilon));
  }
};

/// What the gradient reads of one normalisation: parameters (weight and bias may be undefined) and the
/// statistics that were used.
struct NormState {
  Tensor weight = {}, bias = {}, mean = {}, inv_std = {};
};

/// The gradients of batch_norm_act; those that were not asked for or do not exist are undefined.
struct BatchNormActGrads {
  Tensor dx, daddend;                   ///< as x
  Tensor dweight, dbias;                ///< (C)
  Tensor dalpha;                        ///< as alpha
  Tensor daddend_weight, daddend_bias;  ///< (C)
};

/// The gradient of batch_norm_act from that of y, which is `dy`, or dy + dy2 where y had two users: their
/// sum is taken on the way. `mask` is the op's, undefined without an activation. The addend is read if it is
/// normalised, or under PReLU; without normalize_addend its gradient is written once, in the pass over dy
/// that sums up the parameters' gradients. The bias is read under PReLU only, and by kCudnn.
BatchNormActGrads batch_norm_act_grad(const Tensor& x, const NormState& norm, const Tensor& dy,
                                      const Tensor& dy2 = {}, const Tensor& mask = {},
                                      const BatchNormActGradOptions& options = {}, const Tensor& alpha = {},
                                      const Tensor& addend = {}, const NormState& addend_norm = {});

}  // namespace sinter::ops
