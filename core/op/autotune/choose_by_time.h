// The choice among several kernels of an op by measured time: what ops name in their definition.
#pragma once

#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>

namespace sinter {

/// For OpDef::choose: the kernel of the least measured time, remembered in memory and on the disk. Where
/// nothing is measured (settings::autotune(), settings::deterministic(), calls of little traffic, while work
/// is captured) it is that of the least estimate. Kernels run on scratch of any finite values: not for ops
/// that take indices from their inputs, speak to other ranks, or depend on more than specs, attributes and
/// alignments up to 16 bytes.
KernelChoice choose_by_time(const Op& op, Device device, const KernelQuery& query);

}  // namespace sinter
