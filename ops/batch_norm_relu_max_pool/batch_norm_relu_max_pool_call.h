// Calls of batch_norm_relu_max_pool and its gradient, as its kernels see them.
#pragma once

#include <cstdint>

#include <sinter/ops/batch_norm_relu_max_pool/batch_norm_relu_max_pool.h>
#include <sinter/ops/norm/norm_call.h>
#include <sinter/ops/pool/pool_geometry.h>

namespace sinter::ops {

/// Where the inputs and outputs of the ops stand.
struct NormPoolInput {
  enum : size_t { kX, kWeight, kBias, kRunningMean, kRunningVar, kSums };
};
struct NormPoolOutput {
  enum : size_t { kY, kMean, kInvStd, kIndices };
};
struct NormPoolGradInput {
  enum : size_t { kX, kDy, kIndices, kWeight, kMean, kInvStd };
};
struct NormPoolGradOutput {
  enum : size_t { kDx, kDweight, kDbias };
};

/// The index of a window whose maximum is not positive.
inline constexpr uint8_t kNoPlace = 255;
inline constexpr int64_t kMostPlaces = 255;                     ///< elements of a window
inline constexpr int64_t kMostPooledExtent = int64_t{1} << 29;  ///< height and width are below

/// The normalisation of a call, without what is done with its result.
NormCall norm_pool_call(const KernelContext& context);
/// The normalisation in a call of the gradient. Its dy is not there: it lies in windows.
NormGradCall norm_pool_grad_call(const KernelContext& context);

}  // namespace sinter::ops
