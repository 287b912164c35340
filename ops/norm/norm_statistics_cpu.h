// What forward and gradient of batch normalisation on the CPU share: the values of parameters, and
// statistics.
#pragma once

#include <sinter/ops/common/cpu/channel_loops_cpu.h>
#include <sinter/ops/norm/norm_call.h>

namespace sinter::ops {

/// The value of an optional parameter.
template <class C>
double value_or(const TensorView& parameter, int64_t channel, double otherwise) {
  return parameter.present ? double{parameter.as<const C>()[channel]} : otherwise;
}

/// PReLU's slope of a channel.
template <class C>
C slope_of(const TensorView& alpha, int64_t channel) {
  return alpha.as<const C>()[alpha.numel() == 1 ? 0 : channel];
}

/// Bytes of scratch that the statistics of a batch take; `element`: of the compute type.
size_t moments_bytes(const ChannelLoop& loop, size_t element);

/// The mean and the sum of squared deviations of each channel of x, which is not empty. `scratch`: of
/// moments_bytes().
void norm_moments(const TensorView& x, const ChannelLoop& loop, double* mean, double* squares, void* scratch);

/// Makes of the sum of squared deviations in inv_std what its name says; stores it and the mean as outputs,
/// and moves the running statistics if there are elements. For float and double.
template <class C>
void keep_statistics(const NormOptions& options, const NormTensor& tensor, int64_t channels, double count,
                     double* mean, double* inv_std);

/// mean and 1 / sqrt(variance + epsilon) to normalise `tensor` with, per channel, also stored as the call's
/// outputs; moves the running statistics in training. Given statistics are only read.
void norm_statistics(const NormOptions& options, const NormTensor& tensor, const ChannelLoop& loop,
                     double* mean, double* inv_std, void* scratch);

}  // namespace sinter::ops
