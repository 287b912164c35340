// Depthwise convolutions, and those of groups of two channels, channels last, by Sinter's own kernels: what
// cuDNN computes several times slower than memory allows. One more plan beside cuDNN's.
#pragma once

#include <memory>

#include <sinter/core/cuda/cudnn/cudnn_conv_plan.h>

namespace sinter::cuda {

/// True for what the kernels compute, for which cuDNN must be safe too (cudnn_conv_limits.h): NHWC, float32
/// or 16 bits, as many output channels as input channels, a multiple of 4, in groups of 1 or 2; filters of at
/// most 8 taps along each axis, 64 for each output, without dilation; no sums, no epilogue.
bool is_depthwise_conv(const ConvProblem& problem);

/// Products are summed in float32, always in the same order on one kind of GPU. For is_depthwise_conv() only.
std::unique_ptr<ConvPlan> make_depthwise_conv_plan(const ConvProblem& problem);

}  // namespace sinter::cuda
