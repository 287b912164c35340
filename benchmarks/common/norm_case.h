// One call of batch normalisation with what is fused into it: its tensors, the call and its gradient, and the
// bytes that they move at least. What batch_norm_benchmark and the sweep share.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include <sinter/ops/batch_norm/batch_norm.h>

namespace sinter::bench {

/// What follows the normalisation.
enum class NormTail { kNone, kRelu, kPRelu, kAddRelu, kAddNormRelu };
inline constexpr NormTail kNormTails[] = {NormTail::kNone, NormTail::kRelu, NormTail::kPRelu,
                                          NormTail::kAddRelu, NormTail::kAddNormRelu};

/// "BN", "BN+ReLU", "BN+PReLU", "BN+Add+ReLU" or "BN+BN+Add+ReLU".
std::string to_string(NormTail tail);

constexpr bool has_addend(NormTail tail) {
  return tail == NormTail::kAddRelu || tail == NormTail::kAddNormRelu;
}

struct NormCase {
  NormTail tail = NormTail::kRelu;
  std::array<int64_t, 4> nchw{};
  DType dtype = DType::kFloat32;
  Layout layout = Layout::kNCHW;
  bool two_gradients = false;  ///< y has two users, whose gradients the backward call adds up
};

/// Makes the tensors of a case. Each has a number of its own, from 1, by which values can be chosen.
struct NormInputs {
  /// x (1), dy (2), dy2 (3) and the addend (4).
  std::function<Tensor(const Shape& shape, DType dtype, uint64_t which)> data;
  /// Slopes (5), weight (6) and bias (7), the addend's weight (8) and bias (9), for which `usual` is a usual
  /// value.
  std::function<Tensor(int64_t channels, DType dtype, double usual, uint64_t which)> parameter;
};

/// The tensors of one case.
struct NormTensors {
  ops::NormTensors norm, addend_norm;
  ops::BatchNormActOptions options;
  Tensor x, addend, alpha, dy, dy2;

  NormTensors(const NormCase& c, const NormInputs& inputs);

  /// All outputs of the op: y, mean, inverse deviation, mask, and the addend's mean and inverse deviation.
  std::vector<Tensor> forward(ops::NormBackend backend = ops::NormBackend::kSinter) const;
  ops::BatchNormActGrads backward(const std::vector<Tensor>& outputs,
                                  ops::NormBackend backend = ops::NormBackend::kSinter) const;
};

/// Bytes that each direction moves at least, as docs/kernels/batch_norm.md counts them.
double norm_forward_bytes(const NormCase& c);
double norm_backward_bytes(const NormCase& c);

}  // namespace sinter::bench
