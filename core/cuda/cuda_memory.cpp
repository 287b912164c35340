#include <cstring>

#include <unistd.h>

#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/cuda/cuda_memory.h>

namespace sinter::cuda {
namespace {

/// An event on the GPU of the stream, which may be another than the memory's.
void* new_event(cudaStream_t stream) {
  int device = 0;
  SINTER_CUDA_CHECK(cudaStreamGetDevice(stream, &device));
  const DeviceGuard guard(device);
  cudaEvent_t event = nullptr;
  SINTER_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  const cudaError_t status = cudaEventRecord(event, stream);
  if (status != cudaSuccess) {
    cudaEventDestroy(event);
    check(status, "cudaEventRecord");
  }
  return event;
}

// Nothing runs on a lost device: from then on every event there counts as passed, so that tensors end
// quietly. The next kernel's launch will say what has happened.

bool has_passed(void* event) {
  if (device_lost()) return true;
  const cudaError_t status = cudaEventQuery(static_cast<cudaEvent_t>(event));
  if (status == cudaErrorNotReady) return false;
  check(status, "cudaEventQuery");
  return true;
}

void wait_for(void* event) {
  if (!device_lost()) SINTER_CUDA_CHECK(cudaEventSynchronize(static_cast<cudaEvent_t>(event)));
}

}  // namespace

void make_current(int index) {
  // Asked for and not remembered: other code may have changed it, and asking is cheap.
  int current = 0;
  SINTER_CUDA_CHECK(cudaGetDevice(&current));
  if (current != index) SINTER_CUDA_CHECK(cudaSetDevice(index));
}

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
  if (device_lost()) return;
  const DeviceGuard guard(index_);
  SINTER_CUDA_CHECK(cudaMemsetAsync(block, byte, bytes, stream_of(stream)));
}

void* CudaMemory::record_event(StreamId stream) {
  if (device_lost()) return nullptr;
  const DeviceGuard guard(index_);
  return new_event(stream_of(stream));
}

bool CudaMemory::event_done(void* event) {
  return has_passed(event);
}

void CudaMemory::wait_event(void* event) {
  wait_for(event);
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
  if (stream == 0 || device_lost()) return this;
  return new_event(stream_of(stream));
}

bool PinnedMemory::event_done(void* event) {
  return event == this || has_passed(event);
}

void PinnedMemory::wait_event(void* event) {
  if (event != this) wait_for(event);
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
