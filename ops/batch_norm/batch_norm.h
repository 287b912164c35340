// Batch normalisation, alone and fused with what follows it: an addend, which may itself be normalised, and
// an activation.
#pragma once

#include <span>

#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>
#include <sinter/ops/norm/activation.h>

namespace sinter::ops {

struct BatchNormOptions {
  double epsilon = 1e-5;  ///< >= 0, added to the variance; with 0, equal values have no finite result
  double momentum = 0.1;  ///< in [0, 1]: running = (1 - momentum) * running + momentum * batch
  bool training = true;   ///< normalise with the batch's statistics; else with the running ones, as constants
  Layout layout = Layout::kNCHW;

  bool operator==(const BatchNormOptions&) const = default;
  template <class Self = BatchNormOptions>
  static constexpr auto fields() {
    return std::tuple(field("epsilon", &Self::epsilon), field("momentum", &Self::momentum),
                      field("training", &Self::training), field("layout", &Self::layout));
  }
};

/// y = (x - mean) / sqrt(variance + epsilon) * weight + bias, per channel.
///
/// x: (N, C), (N, C, H, W), or (N, H, W, C) under kNHWC; floating-point dtypes. weight, bias, running_mean,
/// running_var: (C), of x's dtype, or float32 if x is float16 or bfloat16. weight and bias may each be
/// undefined (1 and 0). In training, mean and (biased) variance are those of the batch over all axes but C,
/// and the running statistics, if given, move towards them in place, with the unbiased variance; an empty
/// batch leaves them as they are. In inference the running statistics are used and must be given. Statistics
/// are summed in a fixed order, by the corrected two-pass algorithm within blocks and by pairwise merging
/// between them (T. Chan, G. Golub, R. LeVeque, "Algorithms for computing the sample variance", The American
/// Statistician 1983), so that a large mean costs no digits. The op's second and third output are the mean
/// and 1 / sqrt(variance + epsilon) that were used, for the gradient. Throws InvalidArgument for shapes and
/// dtypes other than these, and in training for one value per channel. Source: S. Ioffe, C. Szegedy, "Batch
/// normalization", ICML 2015.
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                  const Tensor& running_var, const BatchNormOptions& options = {});

struct BatchNormGradOptions {
  bool training = true;         ///< mean and inv_std depend on x; else they are constants
  bool parameter_grads = true;  ///< false: only dx is computed
  Layout layout = Layout::kNCHW;

  bool operator==(const BatchNormGradOptions&) const = default;
  template <class Self = BatchNormGradOptions>
  static constexpr auto fields() {
    return std::tuple(field("training", &Self::training), field("parameter_grads", &Self::parameter_grads),
                      field("layout", &Self::layout));
  }
};

struct BatchNormGrads {
  Tensor dx;              ///< as x
  Tensor dweight, dbias;  ///< (C), in the dtype of mean; undefined without parameter_grads
};

namespace vjp {
/// The gradient of batch_norm. `mean` and `inv_std` are its second and third output; weight may be undefined.
BatchNormGrads batch_norm(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& mean,
                          const Tensor& inv_std, const BatchNormGradOptions& options = {});
}  // namespace vjp

// ---- with what follows it

/// Whose kernels run. kCudnn is there to be compared with and for GPUs on which it is the faster one, which
/// jobs find out (passes/norm/choose_norm_backend.cpp). It takes float16 images under kNHWC whose channels
/// are a multiple of 4, on a GPU, in training, with weight and bias, ReLU behind, no addend that is
/// normalised, no sums, one incoming gradient, all gradients computed, and tensors aligned to 16 bytes. Other
/// calls throw Unsupported with the reason (cudnn_norm.h).
enum class NormBackend : uint8_t { kSinter, kCudnn };

constexpr std::string_view to_string(NormBackend backend) {
  return backend == NormBackend::kSinter ? "sinter" : "cudnn";
}

struct BatchNormActOptions {
  double epsilon = 1e-5;  ///< >= 0, added to the variance; with 0, equal values have no finite result
  double momentum = 0.1;  ///< in [0, 1]: running = (1 - momentum) * running + momentum * batch
  /// Normalise with the batch's statistics; else with the running ones, or with given ones, as constants.
  bool training = true;
  Layout layout = Layout::kNCHW;
  fused::Activation activation = fused::Activation::kRelu;
  bool normalize_addend = false;  ///< the addend is normalised too, with its own parameters
  /// Give the mask that the gradient needs if there is an activation; batch_norm_act() does without where no
  /// gradient is recorded.
  bool save_mask = true;
  NormBackend backend = NormBackend::kSinter;
  /// Under kCudnn: norm_reserve_bytes(), which batch_norm_act() fills in.
  int64_t reserve_bytes = 0;
  /// With a share: Communicator::id() of the ranks that gradients are summed over; 0: this process alone.
  uint64_t ranks = 0;

  bool operator==(const BatchNormActOptions&) const = default;
  template <class Self = BatchNormActOptions>
  static constexpr auto fields() {
    return std::tuple(field("epsilon", &Self::epsilon), field("momentum", &Self::momentum),
                      field("training", &Self::training), field("layout", &Self::layout),
                      field("activation", &Self::activation),
                      field("normalize_addend", &Self::normalize_addend),
                      field("save_mask", &Self::save_mask), field("backend", &Self::backend),
                      field("reserve_bytes", &Self::reserve_bytes), field("ranks", &Self::ranks));
  }
};

/// What belongs to one normalisation, per channel. All of it may be undefined, but without training there are
/// running statistics or given ones.
struct NormTensors {
  Tensor weight = {}, bias = {};               ///< (C): 1 and 0 if undefined
  Tensor running_mean = {}, running_var = {};  ///< (C): moved in place in training; both or neither
  /// (2, C): the sums of the elements and of their squares, where whatever computed the tensor has summed
  /// them up on the way. Only in training.
  Tensor sums = {};
  /// (C): given statistics, mean and 1 / sqrt(variance + epsilon), in place of the running ones; both or
  /// neither. With a normalised addend both tensors have them, or none.
  Tensor mean = {}, inv_std = {};
  /// (1), of the first tensor: given statistics are those of x over all ranks' batches, where a channel has
  /// one over this number of elements, and gradients go back through them (sync_batch_norm). Else they are
  /// constants, to which no gradient flows.
  Tensor share = {};
};

namespace fused {
/// y = act(norm(x) + addend), or act(norm(x) + norm(addend)) with normalize_addend; norm as in batch_norm,
/// act the identity, ReLU, or PReLU with the slope `alpha`.
///
/// x: (N, C), (N, C, H, W), or (N, H, W, C) under kNHWC; floating-point dtypes. addend: as x, or undefined.
/// alpha: (1) or (C), with kPRelu only. The dtype of alpha and of everything in NormTensors is x's, or
/// float32 if x is float16 or bfloat16. Both normalisations share epsilon and momentum.
///
/// Statistics are computed as in batch_norm, or taken from `sums`: then the variance is sums[1] / n -
/// (sums[0] / n)^2, in double precision and never below 0. The sums' own rounding remains: their producer's
/// relative error e becomes an error of the variance of e * (mean^2 + variance), so that sums are for
/// channels whose mean is not large against their deviation, such as a convolution's outputs.
///
/// The op's outputs behind y: mean and 1 / sqrt(variance + epsilon) as used; the mask; the addend's mean and
/// inverse deviation; statistics that were given are no outputs. The mask holds one bit per element, bit
/// i % 8 of byte i / 8 for element i in memory order: all that the gradient needs of y. It is set where the
/// activation passes its argument on: where that is > 0, and for ReLU also where it is NaN. So NaN goes the
/// way it takes through relu and prelu: ReLU's gradient there is dy, PReLU's alpha * dy. Under kCudnn the
/// mask is cuDNN's reserve space instead. Outputs that a call does not have are of shape (0), or left out if
/// no others follow.
///
/// Throws InvalidArgument for other shapes and dtypes, and in training for one value per channel; Unsupported
/// for calls that the backend cannot run.
Tensor batch_norm_act(const Tensor& x, const NormTensors& norm = {}, const Tensor& addend = {},
                      const NormTensors& addend_norm = {}, const Tensor& alpha = {},
                      const BatchNormActOptions& options = {});
}  // namespace fused

/// BatchNormActOptions::reserve_bytes of a call: the size of cuDNN's reserve space, which cuDNN's version
/// decides; 0 under kSinter. For whoever calls the op without batch_norm_act(). `inputs`: the specs of all
/// inputs of the op in their order, null for those that are not there. Throws InvalidArgument as the call
/// does, and Unsupported where the backend cannot run it.
int64_t norm_reserve_bytes(std::span<const TensorSpec* const> inputs, const BatchNormActOptions& options);

struct BatchNormActGradOptions {
  bool training = true;         ///< mean and inv_std depend on the tensors; else they are constants
  bool parameter_grads = true;  ///< false: only those of x and the addend are computed
  bool addend_grad = false;     ///< the addend's gradient is computed
  Layout layout = Layout::kNCHW;
  fused::Activation activation = fused::Activation::kRelu;
  bool normalize_addend = false;
  NormBackend backend = NormBackend::kSinter;  ///< that of the forward call
  double epsilon = 1e-5;                       ///< likewise; for kCudnn

  bool operator==(const BatchNormActGradOptions&) const = default;
  template <class Self = BatchNormActGradOptions>
  static constexpr auto fields() {
    return std::tuple(field("training", &Self::training), field("parameter_grads", &Self::parameter_grads),
                      field("addend_grad", &Self::addend_grad), field("layout", &Self::layout),
                      field("activation", &Self::activation),
                      field("normalize_addend", &Self::normalize_addend), field("backend", &Self::backend),
                      field("epsilon", &Self::epsilon));
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

namespace vjp {
/// The gradient of batch_norm_act from that of y, which is `dy`, or dy + dy2 where y had two users: their
/// sum is taken on the way. `mask` is the op's, undefined without an activation. The addend is read if it is
/// normalised, or under PReLU, where its gradient needs it; without normalize_addend its gradient is written
/// once, in the pass over dy that sums up the parameters' gradients. The bias is read under PReLU only, and
/// by kCudnn.
BatchNormActGrads batch_norm_act(const Tensor& dy, const Tensor& dy2, const Tensor& x, const NormState& norm,
                                 const Tensor& addend = {}, const NormState& addend_norm = {},
                                 const Tensor& alpha = {}, const Tensor& mask = {},
                                 const BatchNormActGradOptions& options = {});
}  // namespace vjp

}  // namespace sinter::ops
