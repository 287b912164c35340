#include <map>
#include <mutex>

#include <cuda_runtime.h>

#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/cuda/device_traits.h>

namespace sinter::cuda {

const DeviceTraits& device_traits(int device) {
  static std::mutex mutex;
  static std::map<int, DeviceTraits> all;
  const std::lock_guard lock(mutex);
  const auto found = all.find(device);
  if (found != all.end()) return found->second;
  DeviceTraits traits;
  const auto ask = [device](cudaDeviceAttr attribute) {
    int value = 0;
    SINTER_CUDA_CHECK(cudaDeviceGetAttribute(&value, attribute, device));
    return value;
  };
  traits.cooperative = ask(cudaDevAttrCooperativeLaunch) != 0;
  traits.most_shared_bytes = static_cast<size_t>(ask(cudaDevAttrMaxSharedMemoryPerBlockOptin));
  traits.shared_bytes = static_cast<size_t>(ask(cudaDevAttrMaxSharedMemoryPerMultiprocessor));
  traits.reserved_shared_bytes = static_cast<size_t>(ask(cudaDevAttrReservedSharedMemoryPerBlock));
  traits.processors = ask(cudaDevAttrMultiProcessorCount);
  traits.l2_bytes = static_cast<size_t>(ask(cudaDevAttrL2CacheSize));
  traits.dram_bytes_per_us =
      memory_bandwidth(ask(cudaDevAttrMemoryClockRate), ask(cudaDevAttrGlobalMemoryBusWidth));
  const int capability = 10 * ask(cudaDevAttrComputeCapabilityMajor) + ask(cudaDevAttrComputeCapabilityMinor);
  traits.early_launch = can_launch_early(capability, compiled_architecture(device));
  return all.emplace(device, traits).first->second;
}

}  // namespace sinter::cuda
