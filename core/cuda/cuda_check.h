// Errors of the CUDA runtime as exceptions that name the call. Internal to files that are compiled with CUDA.
#pragma once

#include <cuda_runtime_api.h>

namespace sinter::cuda {

/// Throws DeviceError (OutOfMemory for cudaErrorMemoryAllocation) unless `status` is cudaSuccess. An error
/// that leaves the device unusable is reported in full once; from then on every call says shortly that the
/// device is lost.
void check(cudaError_t status, const char* call);

/// True once a sticky error has been seen: only a new process can use the device again.
bool device_lost();

}  // namespace sinter::cuda

#define SINTER_CUDA_CHECK(call) ::sinter::cuda::check((call), #call)
