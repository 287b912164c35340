#include <sinter/core/base/error.h>
#include <sinter/core/base/log.h>
#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/cuda/lost_devices.h>

namespace sinter::cuda {
namespace {

LostDevices lost_devices;

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

/// The GPU that a failure is of; the first, should the current one not tell.
int resolved(int device) {
  if (device == kCurrentDevice && cudaGetDevice(&device) != cudaSuccess) device = 0;
  return device;
}

/// What to say of a failure on `device`; notes if it lost the device.
std::string describe(cudaError_t status, const char* call, int device) {
  cudaGetLastError();  // clears an error that is not sticky, so that the next call starts clean
  if (const LostDevices::Loss loss = lost_devices.find(device); loss.error != 0) {
    return fmt::format("[cuda] the device was lost by an earlier error ({} in {}); restart the program",
                       cudaGetErrorName(static_cast<cudaError_t>(loss.error)), loss.call);
  }
  std::string text =
      fmt::format("[cuda] {} failed: {} ({})", call, cudaGetErrorString(status), cudaGetErrorName(status));
  if (!is_sticky(status)) return text;
  lost_devices.add(device, status, call);
  return text +
         ". The device is lost to this process: restart the program. To find the kernel, run it under "
         "compute-sanitizer with SINTER_MEMORY=passthrough";
}

}  // namespace

bool device_lost(int device) {
  return lost_devices.contains(device);
}

bool any_device_lost() {
  return lost_devices.any();
}

void check_failed(cudaError_t status, const char* call, int device) {
  device = resolved(device);
  const std::string text = describe(status, call, device);
  if (status == cudaErrorMemoryAllocation && !device_lost(device)) throw OutOfMemory(text);
  throw DeviceError(text);
}

void log_failure(cudaError_t status, const char* call, int device) noexcept {
  if (status == cudaSuccess || status == cudaErrorCudartUnloading || device_lost(device)) return;
  try {
    log::warning("{}", describe(status, call, device));
  } catch (...) {  // a log that fails has nowhere to say so
  }
}

}  // namespace sinter::cuda
