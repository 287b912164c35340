// cuBLASLt's errors as exceptions, and its handles and descriptors with owners.
#pragma once

#include <cublasLt.h>

#include <sinter/core/cuda/unique_handle.h>

namespace sinter::cuda {

/// Throws DeviceError with the call and its status unless that is CUBLAS_STATUS_SUCCESS.
void check(cublasStatus_t status, const char* call);

/// The handle of GPU `device`, for all threads: cuBLASLt takes the stream with each call. Lives until the
/// process ends.
cublasLtHandle_t cublaslt_handle(int device);

using CublasLtMatmulDesc = UniqueHandle<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using CublasLtMatrixLayout = UniqueHandle<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using CublasLtMatmulPreference = UniqueHandle<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

}  // namespace sinter::cuda

#define SINTER_CUBLAS_CHECK(call) ::sinter::cuda::check((call), #call)
