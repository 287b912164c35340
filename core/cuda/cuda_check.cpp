#include <atomic>

#include <sinter/core/base/error.h>
#include <sinter/core/base/log.h>
#include <sinter/core/cuda/cuda_check.h>

namespace sinter::cuda {
namespace {

// The error that lost the device; cudaSuccess: none has. `lost_in` is written before it.
std::atomic<cudaError_t> lost_by = cudaSuccess;
std::atomic<const char*> lost_in = "";

/// Errors after which the CUDA context is corrupt and every later call fails alike.
bool is_sticky(cudaError_t status) {
  switch (status) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorExternalDevice:
      return true;
    default:
      return false;
  }
}

/// What to say of a failure; notes if it lost the device.
std::string describe(cudaError_t status, const char* call) {
  cudaGetLastError();  // clears an error that is not sticky, so that the next call starts clean
  const cudaError_t first = lost_by;
  if (first != cudaSuccess) {
    return fmt::format("[cuda] the device was lost by an earlier error ({} in {}); restart the program",
                       cudaGetErrorName(first), lost_in.load());
  }
  std::string text =
      fmt::format("[cuda] {} failed: {} ({})", call, cudaGetErrorString(status), cudaGetErrorName(status));
  if (!is_sticky(status)) return text;
  lost_in = call;
  lost_by = status;
  return text +
         ". The device is lost to this process: restart the program. To find the kernel, run it under "
         "compute-sanitizer with SINTER_MEMORY=passthrough";
}

}  // namespace

bool device_lost() {
  return lost_by != cudaSuccess;
}

void check_failed(cudaError_t status, const char* call) {
  const std::string text = describe(status, call);
  if (status == cudaErrorMemoryAllocation && !device_lost()) throw OutOfMemory(text);
  throw DeviceError(text);
}

void log_failure(cudaError_t status, const char* call) noexcept {
  if (status == cudaSuccess || status == cudaErrorCudartUnloading || device_lost()) return;
  try {
    log::warning("{}", describe(status, call));
  } catch (...) {  // a log that fails has nowhere to say so
  }
}

}  // namespace sinter::cuda
