// What ranks hold beside a model, and parts of different sizes: stories of the worker.
#pragma once

#include <string>

#include <sinter/core/comm/communicator.h>

namespace sinter::testing {

/// Trains a model with a head of its own beside it and an average, ranks beginning with different ones, by
/// "job" or "eager"; writes all of rank 0.
void train_beside(const Communicator& ranks, const std::string& way, const std::string& file);

/// Steps of a job and of centres in which one rank's part is smaller: all ranks throw and go on.
void unequal_parts(const Communicator& ranks);

/// A job with an op whose quickest kernel is another one on rank 0 than on all others: all run rank 0's.
void shared_kernels(const Communicator& ranks);

/// A job whose optimiser has vectors in a group of their own: the last layer's gradients are summed before
/// the first layer's are there.
void sums_beside_backward(const Communicator& ranks);

}  // namespace sinter::testing
