// Ranks that do different things, which all must be told of, and what they draw: stories of the worker.
#pragma once

#include <string>

#include <sinter/core/comm/communicator.h>

namespace sinter::testing {

/// Operations on tensors of other shapes, dtypes, roots and kinds: all ranks throw and go on.
void different_calls(const Communicator& ranks);

/// Ranks that have frozen, or leave unused, different parameters of the same size, in jobs, in the middle of
/// training, and without one.
void different_gradients(const Communicator& ranks);

/// A job that sums a tensor which it takes for a constant, where one rank alone makes another graph.
void constant_sums(const Communicator& ranks);

/// Trains a network that drops elements and whole batches, by "job" or "eager"; writes the weights.
void train_dropping(const Communicator& ranks, const std::string& way, const std::string& file);

/// An average with a warm-up that only rank 0 has updated before.
void shared_average(const Communicator& ranks);

}  // namespace sinter::testing
