// Keys of random numbers in a job: relative to one key that changes from step to step.
#pragma once

#include <sinter/core/graph/graph.h>
#include <sinter/core/runtime/random.h>

namespace sinter::passes {

/// Lets every key that the trace drew from the thread's generator, which stood at `start`, be one that lies
/// as far behind `base`, an int64 (2) tensor with the seed and offset of a key. So a step whose base is the
/// generator's key draws what eager code would. The generator moved on by `blocks`. Gives the number of keys.
/// Throws InvalidArgument for a key from another generator, which a job could not advance.
size_t rebase_random_keys(Graph& graph, const Tensor& base, RandomKey start, uint64_t blocks);

}  // namespace sinter::passes
