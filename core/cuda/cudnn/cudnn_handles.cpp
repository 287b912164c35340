#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include <sinter/core/base/error.h>
#include <sinter/core/base/log.h>
#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/cuda/cuda_graph.h>
#include <sinter/core/cuda/cuda_memory.h>
#include <sinter/core/cuda/cudnn/cudnn_handles.h>

namespace sinter::cuda {
namespace {

using OwnedHandle = UniqueHandle<cudnnHandle_t, cudnnDestroy>;

/// The handles that no thread uses at present, by device. Never destroyed: when statics end, the driver may
/// be gone.
class HandlePool {
 public:
  static HandlePool& instance() {
    static auto& pool = *new HandlePool;
    return pool;
  }

  OwnedHandle take(int device) {
    {
      const std::lock_guard lock(mutex_);
      auto& idle = idle_[device];
      if (!idle.empty()) {
        OwnedHandle handle = std::move(idle.back());
        idle.pop_back();
        return handle;
      }
    }
    const DeviceGuard guard(device);
    const UncapturedCalls uncaptured;  // it allocates
    cudnnHandle_t handle = nullptr;
    SINTER_CUDNN_CHECK(cudnnCreate(&handle));
    return OwnedHandle(handle);
  }

  void give_back(int device, OwnedHandle handle) {
    const std::lock_guard lock(mutex_);
    idle_[device].push_back(std::move(handle));
  }

 private:
  std::mutex mutex_;
  std::map<int, std::vector<OwnedHandle>> idle_;
};

/// A thread's handles, which go back to the pool when it ends.
struct ThreadHandles {
  struct Bound {
    OwnedHandle handle;
    std::optional<unsigned long long> stream;  // CUDA's number of the stream that it is set to
  };

  ThreadHandles() = default;
  ThreadHandles(const ThreadHandles&) = delete;
  ThreadHandles& operator=(const ThreadHandles&) = delete;
  ~ThreadHandles() {
    for (auto& [device, bound] : by_device) {
      try {
        HandlePool::instance().give_back(device, std::move(bound.handle));
      } catch (const std::exception&) {  // no memory for the list: the handle's owner ends it
      }
    }
  }

  std::map<int, Bound> by_device;
};

/// The number that tells a stream from all others of the process: one that has ended and a new one may have
/// the same address. None while its work is captured: CUDA does not give it then.
std::optional<unsigned long long> number_of(cudaStream_t stream) {
  cudaStreamCaptureStatus status{};
  SINTER_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
  if (status != cudaStreamCaptureStatusNone) return std::nullopt;
  unsigned long long number = 0;
  SINTER_CUDA_CHECK(cudaStreamGetId(stream, &number));
  return number;
}

bool is_out_of_memory(cudnnStatus_t status) {
  return status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
         status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
}

}  // namespace

void check(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  // Where CUDA itself has failed, its error says more, and whether the device is lost.
  check(cudaGetLastError(), call);
  if (is_out_of_memory(status)) {
    throw_error<OutOfMemory>("[cudnn] {} failed: {}. {}", call, cudnnGetErrorString(status),
                             cudnn_last_error());
  }
  throw_error<DeviceError>("[cudnn] {} failed: {}. {}", call, cudnnGetErrorString(status),
                           cudnn_last_error());
}

std::string cudnn_last_error() {
  std::array<char, 1024> text{};
  cudnnGetLastErrorString(text.data(), text.size());
  text.back() = '\0';
  return text.data();
}

cudnnHandle_t cudnn_handle(const Stream& stream) {
  thread_local ThreadHandles handles;
  ThreadHandles::Bound& bound = handles.by_device[stream.device.index];
  if (!bound.handle) bound.handle = HandlePool::instance().take(stream.device.index);
  const auto native = static_cast<cudaStream_t>(stream.native);
  const std::optional<unsigned long long> number = number_of(native);
  if (!number || bound.stream != number) {
    SINTER_CUDNN_CHECK(cudnnSetStream(bound.handle.get(), native));
    bound.stream = number;
  }
  return bound.handle.get();
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t descriptor = nullptr;
  SINTER_CUDNN_CHECK(cudnnBackendCreateDescriptor(type, &descriptor));
  handle_ = UniqueHandle<cudnnBackendDescriptor_t, cudnnBackendDestroyDescriptor>(descriptor);
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                          const void* values) {
  const cudnnStatus_t status = cudnnBackendSetAttribute(get(), name, type, count, values);
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  throw_error<DeviceError>("[cudnn] cudnnBackendSetAttribute of attribute {} failed: {}. {}",
                           static_cast<int>(name), cudnnGetErrorString(status), cudnn_last_error());
}

void CudnnDescriptor::finalize() {
  SINTER_CUDNN_CHECK(cudnnBackendFinalize(get()));
}

bool CudnnDescriptor::try_finalize() {
  const cudnnStatus_t status = cudnnBackendFinalize(get());
  if (status == CUDNN_STATUS_SUCCESS) return true;
  cudaGetLastError();  // what cuDNN met on its way, such as a lack of memory, is not the next launch's
  log::debug("[cudnn] cudnnBackendFinalize refused: {}. {}", cudnnGetErrorString(status), cudnn_last_error());
  return false;
}

}  // namespace sinter::cuda
