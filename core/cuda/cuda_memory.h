// The raw memory of one GPU behind RawMemory.
#pragma once

#include <cuda_runtime_api.h>

#include <sinter/core/memory/raw_memory.h>

namespace sinter::cuda {

/// Makes `index` the calling thread's current device.
void make_current(int index);

/// Makes `index` the calling thread's current device for the guard's lifetime.
class DeviceGuard {
 public:
  explicit DeviceGuard(int index);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = 0;
  bool changed_ = false;
};

/// Memory of GPU `index`. A StreamId is the address of the cudaStream_t.
class CudaMemory final : public RawMemory {
 public:
  explicit CudaMemory(int index) : index_(index) {}

  void* allocate(size_t bytes) override;
  void deallocate(void* block) noexcept override;
  void fill(void* block, uint8_t byte, size_t bytes, StreamId stream) override;
  void* record_event(StreamId stream) override;
  bool event_done(void* event) override;
  void wait_event(void* event) override;
  void release_event(void* event) noexcept override;
  Capacity capacity() override;
  std::string name() const override { return "cuda:" + std::to_string(index_); }

 private:
  int index_;
};

/// Page-locked memory of the host, from which GPU `index` copies by itself. StreamId 0 is the host, whose
/// accesses are over when a block is let go; any other is the address of a cudaStream_t of any GPU.
class PinnedMemory final : public RawMemory {
 public:
  explicit PinnedMemory(int index) : index_(index) {}

  void* allocate(size_t bytes) override;
  void deallocate(void* block) noexcept override;
  void fill(void* block, uint8_t byte, size_t bytes, StreamId stream) override;
  void* record_event(StreamId stream) override;
  bool event_done(void* event) override;
  void wait_event(void* event) override;
  void release_event(void* event) noexcept override;
  Capacity capacity() override;
  std::string name() const override { return "pinned memory of cuda:" + std::to_string(index_); }

 private:
  int index_;
};

inline cudaStream_t stream_of(StreamId id) {
  return reinterpret_cast<cudaStream_t>(id);
}

}  // namespace sinter::cuda
