#include <cstring>

#include <unistd.h>

#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/cuda/cuda_graph.h>
#include <sinter/core/cuda/cuda_memory.h>
#include <sinter/core/cuda/stream_events.h>

namespace sinter::cuda {

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
  const UncapturedCalls uncaptured;
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
  const UncapturedCalls uncaptured;
  log_failure(cudaFree(block), "cudaFree", index_);
}

void CudaMemory::fill(void* block, uint8_t byte, size_t bytes, StreamId stream) {
  if (device_lost(index_)) return;
  const DeviceGuard guard(index_);
  SINTER_CUDA_CHECK(cudaMemsetAsync(block, byte, bytes, stream_of(stream)));
}

void* CudaMemory::record_event(StreamId stream) {
  return record_stream_event(stream_of(stream), index_);
}

bool CudaMemory::event_done(void* event) {
  return has_passed(static_cast<StreamEvent*>(event));
}

void CudaMemory::wait_event(void* event) {
  wait_for(static_cast<StreamEvent*>(event));
}

void CudaMemory::release_event(void* event) noexcept {
  release_stream_event(static_cast<StreamEvent*>(event));
}

RawMemory::Capacity CudaMemory::capacity() {
  const DeviceGuard guard(index_);
  const UncapturedCalls uncaptured;
  Capacity capacity;
  SINTER_CUDA_CHECK(cudaMemGetInfo(&capacity.free, &capacity.total));
  return capacity;
}

// ---- Pinned memory

void* PinnedMemory::allocate(size_t bytes) {
  const DeviceGuard guard(index_);
  const UncapturedCalls uncaptured;
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
  const UncapturedCalls uncaptured;
  log_failure(cudaFreeHost(block), "cudaFreeHost", index_);
}

void PinnedMemory::fill(void* block, uint8_t byte, size_t bytes, StreamId) {
  std::memset(block, byte, bytes);
}

// The host's event is this object itself: it has always passed.
void* PinnedMemory::record_event(StreamId stream) {
  if (stream == 0) return this;
  return record_stream_event(stream_of(stream), index_);
}

bool PinnedMemory::event_done(void* event) {
  return event == this || has_passed(static_cast<StreamEvent*>(event));
}

void PinnedMemory::wait_event(void* event) {
  if (event != this) wait_for(static_cast<StreamEvent*>(event));
}

void PinnedMemory::release_event(void* event) noexcept {
  if (event != this) release_stream_event(static_cast<StreamEvent*>(event));
}

RawMemory::Capacity PinnedMemory::capacity() {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return {static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES)) * page,
          static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * page};
}

}  // namespace sinter::cuda
