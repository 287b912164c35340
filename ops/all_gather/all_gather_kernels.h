// The kernels of all_gather and reduce_scatter, the same on every kind of device: the communicator does the
// work.
#pragma once

#include <sinter/core/op/registry.h>

namespace sinter::ops {

void add_all_gather_kernels(OpRegistry& registry, DeviceType device);

}  // namespace sinter::ops
