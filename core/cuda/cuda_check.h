// Errors of the CUDA runtime as exceptions that name the call. Internal to files that are compiled with CUDA.
#pragma once

#include <cuda_runtime_api.h>

namespace sinter::cuda {

[[noreturn]] void check_failed(cudaError_t status, const char* call);

/// Throws DeviceError (OutOfMemory for cudaErrorMemoryAllocation) unless `status` is cudaSuccess. An error
/// that leaves the device unusable is reported in full once; from then on every call says shortly that the
/// device is lost, and to what. `call` is a literal.
inline void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) [[unlikely]]
    check_failed(status, call);
}

/// The same for destructors, which cannot throw: the failure is logged, unless the process is ending or the
/// device is lost already.
void log_failure(cudaError_t status, const char* call) noexcept;

/// True once a sticky error has been seen: only a new process can use the device again.
bool device_lost();

}  // namespace sinter::cuda

#define SINTER_CUDA_CHECK(call) ::sinter::cuda::check((call), #call)
