// What kernels' plans depend on in a GPU.
#pragma once

#include <cstddef>

namespace sinter::cuda {

struct DeviceTraits {
  int processors = 1;         ///< streaming multiprocessors
  size_t shared_bytes = 0;    ///< shared memory that a block can have, if the kernel's attribute allows it
  bool cooperative = false;   ///< blocks of a launch can wait for each other (launch_cooperative.h)
  bool early_launch = false;  ///< a kernel can be set up while the one before it runs (launch_early.h)
  bool clusters = false;      ///< blocks can read each other's shared memory (launch_cluster.h)
};

/// Asked from the driver once for each device.
const DeviceTraits& device_traits(int device);

}  // namespace sinter::cuda
