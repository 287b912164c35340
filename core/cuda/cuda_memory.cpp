#include <cstring>

#include <unistd.h>

#include <sinter/core/base/log.h>
#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/cuda/cuda_memory.h>

namespace sinter::cuda {
namespace {

void* new_event(cudaStream_t stream) {
  cudaEvent_t event = nullptr;
  SINTER_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  const cudaError_t status = cudaEventRecord(event, stream);
  if (status != cudaSuccess) {
    cudaEventDestroy(event);
    check(status, "cudaEventRecord");
  }
  return event;
}

bool has_passed(void* event) {
  const cudaError_t status = cudaEventQuery(static_cast<cudaEvent_t>(event));
  if (status == cudaErrorNotReady) return false;
  check(status, "cudaEventQuery");
  return true;
}

/// For destructors: a failure while a process ends or after the device is lost is of no use to anyone.
void log_failure(cudaError_t status, const char* call) noexcept {
  if (status == cudaSuccess || status == cudaErrorCudartUnloading || device_lost()) return;
  try {
    log::warning("[cuda] {} failed: {}", call, cudaGetErrorString(status));
  } catch (...) {
  }
}

}  // namespace

DeviceGuard::DeviceGuard(int index) {
  SINTER_CUDA_CHECK(cudaGetDevice(&previous_));
  if (previous_ != index) {
    SINTER_CUDA_CHECK(cudaSetDevice(index));
    changed_ = true;
  }
}

DeviceGuard::~DeviceGuard() {
  if (changed_) cudaSetDevice(previous_);
}

void* CudaMemory::allocate(size_t bytes) {
  const DeviceGuard guard(index_);
  void* block = nullptr;
  const cudaError_t status = cudaMalloc(&block, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check(status, "cudaMalloc");
  return block;
}

void CudaMemory::deallocate(void* block) noexcept {
  log_failure(cudaFree(block), "cudaFree");
}

void CudaMemory::fill(void* block, uint8_t byte, size_t bytes, StreamId stream) {
  const DeviceGuard guard(index_);
  SINTER_CUDA_CHECK(cudaMemsetAsync(block, byte, bytes, stream_of(stream)));
}

void* CudaMemory::record_event(StreamId stream) {
  const DeviceGuard guard(index_);
  return new_event(stream_of(stream));
}

bool CudaMemory::event_done(void* event) {
  return has_passed(event);
}

void CudaMemory::wait_event(void* event) {
  SINTER_CUDA_CHECK(cudaEventSynchronize(static_cast<cudaEvent_t>(event)));
}

void CudaMemory::release_event(void* event) noexcept {
  log_failure(cudaEventDestroy(static_cast<cudaEvent_t>(event)), "cudaEventDestroy");
}

RawMemory::Capacity CudaMemory::capacity() {
  const DeviceGuard guard(index_);
  Capacity capacity;
  SINTER_CUDA_CHECK(cudaMemGetInfo(&capacity.free, &capacity.total));
  return capacity;
}

// ---- Pinned memory

void* PinnedMemory::allocate(size_t bytes) {
  const DeviceGuard guard(index_);
  void* block = nullptr;
  const cudaError_t status = cudaHostAlloc(&block, bytes, cudaHostAllocPortable);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check(status, "cudaHostAlloc");
  return block;
}

void PinnedMemory::deallocate(void* block) noexcept {
  log_failure(cudaFreeHost(block), "cudaFreeHost");
}

void PinnedMemory::fill(void* block, uint8_t byte, size_t bytes, StreamId) {
  std::memset(block, byte, bytes);
}

// The host's event is this object itself: it has always passed.
void* PinnedMemory::record_event(StreamId stream) {
  if (stream == 0) return this;
  int device = index_;
  SINTER_CUDA_CHECK(cudaStreamGetDevice(stream_of(stream), &device));
  const DeviceGuard guard(device);
  return new_event(stream_of(stream));
}

bool PinnedMemory::event_done(void* event) {
  return event == this || has_passed(event);
}

void PinnedMemory::wait_event(void* event) {
  if (event != this) SINTER_CUDA_CHECK(cudaEventSynchronize(static_cast<cudaEvent_t>(event)));
}

void PinnedMemory::release_event(void* event) noexcept {
  if (event != this) log_failure(cudaEventDestroy(static_cast<cudaEvent_t>(event)), "cudaEventDestroy");
}

RawMemory::Capacity PinnedMemory::capacity() {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return {static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES)) * page,
          static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * page};
}

}  // namespace sinter::cuda
