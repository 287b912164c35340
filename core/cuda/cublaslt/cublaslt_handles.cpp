#include <map>
#include <mutex>

#include <sinter/core/base/error.h>
#include <sinter/core/cuda/cublaslt/cublaslt_handles.h>
#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/cuda/cuda_graph.h>
#include <sinter/core/cuda/cuda_memory.h>

namespace sinter::cuda {

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  // Where CUDA itself has failed, its error says more, and whether the device is lost.
  check(cudaGetLastError(), call);
  if (status == CUBLAS_STATUS_ALLOC_FAILED) {
    throw_error<OutOfMemory>("[cublas] {} failed: {}", call, cublasLtGetStatusString(status));
  }
  throw_error<DeviceError>("[cublas] {} failed: {} ({})", call, cublasLtGetStatusString(status),
                           cublasLtGetStatusName(status));
}

cublasLtHandle_t cublaslt_handle(int device) {
  // Never destroyed: when statics end, the driver may be gone already.
  static auto& mutex = *new std::mutex;
  static auto& handles = *new std::map<int, cublasLtHandle_t>;
  const std::lock_guard lock(mutex);
  const auto found = handles.find(device);
  if (found != handles.end()) return found->second;
  const DeviceGuard guard(device);
  const UncapturedCalls uncaptured;  // it allocates
  cublasLtHandle_t handle = nullptr;
  SINTER_CUBLAS_CHECK(cublasLtCreate(&handle));
  return handles.emplace(device, handle).first->second;
}

}  // namespace sinter::cuda
