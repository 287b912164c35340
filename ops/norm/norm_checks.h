// What the ops of batch normalisation check of their inputs. Each function throws InvalidArgument unless all
// is as it says.
#pragma once

#include <sinter/core/base/layout.h>
#include <sinter/core/op/op_def.h>

namespace sinter::ops {

/// Input 0 is of a floating-point dtype and of rank 2 or 4. Gives the number of its channels.
int64_t expect_norm_input(const InferContext& context, Layout layout);

/// Input i, if it is there, has one element per channel, in the dtype that goes with input 0.
void expect_channel_vector(const InferContext& context, size_t i, int64_t channels);

/// The same of weight, bias, running mean and running variance, from input `first` on; the running statistics
/// are both there or neither, and there in inference.
void expect_norm_parameters(const InferContext& context, size_t first, int64_t channels, bool training);

/// Epsilon is not negative, the momentum in [0, 1], and in training a channel of input 0 has more than one
/// value, or none.
void expect_norm_options(const InferContext& context, double epsilon, double momentum, bool training,
                         Layout layout);

}  // namespace sinter::ops
