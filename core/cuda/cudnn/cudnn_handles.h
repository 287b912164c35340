// cuDNN's errors as exceptions, and its handles and graph API descriptors with owners.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <cudnn_graph.h>

#include <sinter/core/cuda/unique_handle.h>
#include <sinter/core/runtime/backend.h>

namespace sinter::cuda {

/// Throws DeviceError with the call, its status and cuDNN's explanation unless that is CUDNN_STATUS_SUCCESS.
void check(cudnnStatus_t status, const char* call);

/// cuDNN's explanation of the calling thread's last error, or "".
std::string cudnn_last_error();

/// The calling thread's handle for the stream's GPU, bound to that stream. Handles live until the process
/// ends and pass from threads that end to those that come.
cudnnHandle_t cudnn_handle(const Stream& stream);

/// A descriptor of the graph API: made, given its attributes, finalized.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);

  cudnnBackendDescriptor_t get() const { return handle_.get(); }

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
           const void* values);
  void set(cudnnBackendAttributeName_t name, int64_t value) { set(name, CUDNN_TYPE_INT64, 1, &value); }
  void set(cudnnBackendAttributeName_t name, float value) { set(name, CUDNN_TYPE_FLOAT, 1, &value); }
  void set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
    set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, cudnnHandle_t value) { set(name, CUDNN_TYPE_HANDLE, 1, &value); }
  void set(cudnnBackendAttributeName_t name, std::span<const int64_t> values) {
    set(name, CUDNN_TYPE_INT64, static_cast<int64_t>(values.size()), values.data());
  }
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
    const cudnnBackendDescriptor_t handle = value.get();
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &handle);
  }

  /// Throws DeviceError if cuDNN refuses.
  void finalize();
  /// False if cuDNN refuses. The reason is only logged, for debugging: cuDNN says in many ways that it lacks
  /// something.
  bool try_finalize();

 private:
  UniqueHandle<cudnnBackendDescriptor_t, cudnnBackendDestroyDescriptor> handle_;
};

}  // namespace sinter::cuda

#define SINTER_CUDNN_CHECK(call) ::sinter::cuda::check((call), #call)
