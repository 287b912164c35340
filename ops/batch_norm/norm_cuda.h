// The kernels of batch normalisation on a GPU, for the plain and the fused ops alike.
#pragma once

#include <sinter/ops/batch_norm/norm_call.h>

namespace sinter::ops {

/// What the scratch of a call depends on.
struct NormProblem {
  ChannelView view;
  DType dtype = DType::kFloat32;
  int device = 0;
  bool training = true;
  bool two_tensors = false;  ///< the addend is normalised too
  bool has_alpha = false;
};

size_t norm_forward_bytes(const NormProblem& problem);
void norm_forward(const NormCall& call, const Stream& stream, void* workspace);

size_t norm_backward_bytes(const NormProblem& problem);
void norm_backward(const NormGradCall& call, const Stream& stream, void* workspace);

/// The same in one kernel that keeps the tensor on chip between sums and map. False, and nothing is launched,
/// where it does not fit there or the call has what that kernel lacks.
bool norm_forward_resident(const NormCall& call, const Stream& stream, void* workspace);
bool norm_backward_resident(const NormGradCall& call, const Stream& stream, void* workspace);
size_t norm_forward_resident_bytes(const NormProblem& problem);
size_t norm_backward_resident_bytes(const NormProblem& problem);

}  // namespace sinter::ops
