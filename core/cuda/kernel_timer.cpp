#include <algorithm>

#include <sinter/core/base/error.h>
#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/cuda/cuda_graph.h>
#include <sinter/core/cuda/kernel_timer.h>
#include <sinter/core/profile/median_time.h>

namespace sinter::cuda {
namespace {

constexpr int kFiller = 0x3C;  // repeated, it reads as 0.0115 in float32 and bfloat16 and as 1.06 in float16
constexpr size_t kLeastFlush = size_t{32} << 20;
constexpr size_t kMostFlush = size_t{256} << 20;

size_t flush_bytes_of(int device) {
  int l2_bytes = 0;
  SINTER_CUDA_CHECK(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, device));
  return std::clamp(static_cast<size_t>(l2_bytes) * 4, kLeastFlush, kMostFlush);
}

}  // namespace

KernelTimer::KernelTimer(int device) : guard_(device), memory_(device), flush_bytes_(flush_bytes_of(device)) {
  cudaStream_t stream = nullptr;
  SINTER_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  owned_stream_ = OwnedStream(stream);
  stream_ = {Device::cuda(device), reinterpret_cast<StreamId>(stream), stream};
  for (OwnedEvent* event : {&start_, &stop_}) {
    cudaEvent_t made = nullptr;
    SINTER_CUDA_CHECK(cudaEventCreate(&made));
    *event = OwnedEvent(made);
  }
  flush_ = scratch(flush_bytes_);
  // Other streams' work would be timed too.
  if (!synchronize_device(device)) {
    throw_error<Unsupported>("[cuda] kernels on {} cannot be timed while work is being captured",
                             stream_.device);
  }
}

KernelTimer::~KernelTimer() {
  cudaStreamSynchronize(owned_stream_.get());
}

void* KernelTimer::scratch(size_t bytes) {
  if (bytes == 0) return nullptr;
  blocks_.push_back(allocate(bytes));
  void* const block = blocks_.back().get();
  SINTER_CUDA_CHECK(cudaMemsetAsync(block, kFiller, bytes, owned_stream_.get()));
  return block;
}

double KernelTimer::measure(const std::function<void()>& queue, double hopeless) {
  queue();
  SINTER_CUDA_CHECK(cudaStreamSynchronize(owned_stream_.get()));
  const auto run = [&] {
    // The flush also keeps the GPU busy while the host queues the work, so that the host's time is not
    // measured.
    SINTER_CUDA_CHECK(cudaMemsetAsync(flush_, kFiller, flush_bytes_, owned_stream_.get()));
    SINTER_CUDA_CHECK(cudaEventRecord(start_.get(), owned_stream_.get()));
    queue();
    SINTER_CUDA_CHECK(cudaEventRecord(stop_.get(), owned_stream_.get()));
    SINTER_CUDA_CHECK(cudaEventSynchronize(stop_.get()));
    float milliseconds = 0;
    SINTER_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, start_.get(), stop_.get()));
    return double{milliseconds} * 1000.0;
  };
  return median_time(run, hopeless);
}

KernelTimer::Block KernelTimer::allocate(size_t bytes) {
  void* block = memory_.allocate(bytes);
  if (block == nullptr) {
    backend_of(stream_.device).memory_pool(stream_.device.index).trim();
    block = memory_.allocate(bytes);
  }
  if (block == nullptr) {
    throw_error<OutOfMemory>("[cuda] no room for {} bytes in which to time kernels on {}", bytes,
                             stream_.device);
  }
  return Block(block, Free{&memory_});
}

}  // namespace sinter::cuda
