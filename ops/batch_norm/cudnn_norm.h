// cuDNN's fused batch normalisation as one more kernel of batch_norm_act and its gradient: what it asks of
// their calls, and what is known of the library.
#pragma once

#include <optional>
#include <string>

#include <sinter/core/op/kernel.h>

namespace sinter::ops {

/// Why cuDNN cannot run a call of batch_norm_act, the call of its gradient, or both of them together, in a
/// few words: "float32 instead of float16"; nothing if it can. Null: of no interest, but not both. The one
/// predicate that kernels, errors and jobs ask.
std::optional<std::string> cudnn_norm_constraint(const KernelQuery* forward, const KernelQuery* gradient);

struct CudnnNorm {
  /// As the library gives it, 91900 for 9.19.0; 0 in a build without it.
  int64_t version = 0;
  /// Bytes that a call of batch_norm_act leaves for its gradient: cuDNN's reserve space.
  int64_t (*reserve_bytes)(const KernelQuery& forward) = nullptr;
};
const CudnnNorm& cudnn_norm();
/// Done once, before any call, by those who register cuDNN's kernels; and by tests.
void set_cudnn_norm(const CudnnNorm& library);

}  // namespace sinter::ops
