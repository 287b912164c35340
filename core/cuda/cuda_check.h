// Errors of the CUDA runtime as exceptions that name the call. Internal to files that are compiled with CUDA.
#pragma once

#include <cuda_runtime_api.h>

namespace sinter::cuda {

/// The calling thread's current GPU, for the functions below.
inline constexpr int kCurrentDevice = -1;

[[noreturn]] void check_failed(cudaError_t status, const char* call, int device);

/// Throws DeviceError (OutOfMemory for cudaErrorMemoryAllocation) unless `status` is cudaSuccess. An error
/// that leaves a GPU unusable is reported in full once; from then on every call there says shortly that the
/// GPU is lost, and to what. `call` is a literal; `device` is the GPU of what the call was about, which for a
/// stream or an event need not be the current one.
inline void check(cudaError_t status, const char* call, int device = kCurrentDevice) {
  if (status != cudaSuccess) [[unlikely]]
    check_failed(status, call, device);
}

/// The same for destructors, which cannot throw: the failure is logged, unless the process is ending or the
/// GPU is lost already.
void log_failure(cudaError_t status, const char* call, int device) noexcept;

/// True once a sticky error of GPU `device` has been seen: only a new process can use it again. Others work
/// on.
bool device_lost(int device);
bool any_device_lost();

}  // namespace sinter::cuda

#define SINTER_CUDA_CHECK(call) ::sinter::cuda::check((call), #call)
/// For calls about a stream or an event of GPU `device`, whichever is current.
#define SINTER_CUDA_CHECK_ON(device, call) ::sinter::cuda::check((call), #call, (device))
