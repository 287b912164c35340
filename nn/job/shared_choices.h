// One choice of kernels for all ranks of a job.
#pragma once

#include <sinter/core/comm/communicator.h>
#include <sinter/core/graph/graph.h>

namespace sinter::nn {

/// Rank 0 chooses among the kernels of the graph's calls on `device` that are chosen by time, and the others
/// take over what it has chosen (KernelTuner), so that each call runs on the same kernel everywhere and no
/// rank waits in every step for one that measured amiss. All ranks call it, before they make their programs.
void share_kernel_choices(const Graph& graph, Device device, const Communicator& ranks);

}  // namespace sinter::nn
