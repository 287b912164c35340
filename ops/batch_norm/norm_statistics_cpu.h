// The statistics of batch normalisation on the CPU, for the plain and the fused ops alike.
#pragma once

#include <sinter/ops/batch_norm/norm_call.h>
#include <sinter/ops/common/channel_loops_cpu.h>

namespace sinter::ops {

inline ChannelLoop norm_loop(const Shape& shape, Layout layout) {
  return ChannelLoop(norm_view(shape, layout));
}

/// The value of an optional parameter.
template <class C>
double value_or(const TensorView& parameter, int64_t channel, double otherwise) {
  return parameter.present ? double{parameter.as<const C>()[channel]} : otherwise;
}

/// Bytes of scratch that the statistics of a batch take.
size_t moments_bytes(const ChannelLoop& loop, size_t element);

/// mean and 1 / sqrt(variance + epsilon) to normalise `tensor` with, per channel, also stored as the call's
/// outputs; moves the running statistics in training. For float, double, float16 and bfloat16.
template <class T>
void norm_statistics(const BatchNormActOptions& options, const NormTensor& tensor, const ChannelLoop& loop,
                     double* mean, double* inv_std, void* scratch);

}  // namespace sinter::ops
