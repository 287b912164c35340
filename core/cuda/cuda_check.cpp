#include <atomic>

#include <sinter/core/base/error.h>
#include <sinter/core/cuda/cuda_check.h>

namespace sinter::cuda {
namespace {

std::atomic<bool> lost = false;

/// Errors after which the CUDA context is corrupt and every later call fails alike.
bool is_sticky(cudaError_t status) {
  switch (status) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorExternalDevice:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool device_lost() {
  return lost;
}

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();  // clears an error that is not sticky, so that the next call starts clean
  if (lost) throw_error<DeviceError>("[cuda] the device was lost by an earlier error; restart the program");
  if (is_sticky(status)) {
    lost = true;
    throw_error<DeviceError>(
        "[cuda] {} failed: {} ({}). The device is lost to this process: restart the program. To find the "
        "kernel, run "
        "it under compute-sanitizer with SINTER_MEMORY=passthrough",
        call, cudaGetErrorString(status), cudaGetErrorName(status));
  }
  if (status == cudaErrorMemoryAllocation) {
    throw_error<OutOfMemory>("[cuda] {} failed: {}", call, cudaGetErrorString(status));
  }
  throw_error<DeviceError>("[cuda] {} failed: {} ({})", call, cudaGetErrorString(status),
                           cudaGetErrorName(status));
}

}  // namespace sinter::cuda
