// The kernels of the sums over processes, the same on every kind of device: the communicator does the work.
#pragma once

#include <sinter/core/op/registry.h>

namespace sinter::ops {

void add_all_reduce_kernels(OpRegistry& registry, DeviceType device);

}  // namespace sinter::ops
