// What kernels' plans depend on in a GPU.
#pragma once

namespace sinter::cuda {

struct DeviceTraits {
  int processors = 1;         ///< streaming multiprocessors
  bool early_launch = false;  ///< a kernel can be set up while the one before it runs (launch_early.h)
  bool clusters = false;      ///< blocks can read each other's shared memory (launch_cluster.h)
};

/// Asked from the driver once for each device.
const DeviceTraits& device_traits(int device);

}  // namespace sinter::cuda
