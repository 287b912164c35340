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
  int major = 0;
  SINTER_CUDA_CHECK(cudaDeviceGetAttribute(&traits.processors, cudaDevAttrMultiProcessorCount, device));
  SINTER_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  int cooperative = 0, shared_bytes = 0;
  SINTER_CUDA_CHECK(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, device));
  SINTER_CUDA_CHECK(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  traits.cooperative = cooperative != 0;
  traits.shared_bytes = static_cast<size_t>(shared_bytes);
  traits.early_launch = traits.clusters = major >= 9;
  return all.emplace(device, traits).first->second;
}

}  // namespace sinter::cuda
