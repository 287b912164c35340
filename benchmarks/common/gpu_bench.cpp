#include "gpu_bench.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include <cuda_runtime_api.h>

#include <sinter/core/base/error.h>
#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/cuda/cuda_memory.h>
#include <sinter/core/cuda/unique_handle.h>
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/random.h>
#include <sinter/ops/cast/cast.h>

#include "graph_kernels.h"

namespace sinter::bench {
namespace {

using cuda::CudaMemory;
using Event = cuda::UniqueHandle<cudaEvent_t, cudaEventDestroy>;
using Graph = cuda::UniqueHandle<cudaGraph_t, cudaGraphDestroy>;
using GraphExec = cuda::UniqueHandle<cudaGraphExec_t, cudaGraphExecDestroy>;

constexpr size_t kFlushBytes = size_t{256} << 20;
constexpr int kWarmUpCalls = 3;
constexpr size_t kCopyGranularity = 512;
constexpr size_t kRandomCount = size_t{1} << 20;

cudaStream_t native_stream() {
  return static_cast<cudaStream_t>(current_stream(gpu()).native);
}

Event new_event() {
  cudaEvent_t event = nullptr;
  SINTER_CUDA_CHECK(cudaEventCreate(&event));
  return Event(event);
}

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Device memory beside the pool, so that measuring does not change what the pool holds.
class Block {
 public:
  explicit Block(size_t bytes) : memory_(gpu().index) {
    data_ = memory_.allocate(bytes);
    if (data_ == nullptr) {
      backend_of(gpu()).memory_pool(gpu().index).trim();
      data_ = memory_.allocate(bytes);
    }
    if (data_ == nullptr)
      throw_error<OutOfMemory>("[bench] no room for a block of {} bytes on {}", bytes, gpu());
  }
  ~Block() { memory_.deallocate(data_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  CudaMemory memory_;
  void* data_ = nullptr;
};

void flush_l2(cudaStream_t stream) {
  static const Block block(kFlushBytes);
  SINTER_CUDA_CHECK(cudaMemsetAsync(block.data(), 0x3C, kFlushBytes, stream));
}

/// The stream goes back to its normal state whatever `call` does.
Graph capture(cudaStream_t stream, const std::function<void()>& call) {
  SINTER_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  cudaGraph_t captured = nullptr;
  try {
    call();
  } catch (const std::exception& error) {
    cudaStreamEndCapture(stream, &captured);
    const Graph owner(captured);
    cudaGetLastError();
    throw_error<DeviceError>("[bench] the call cannot be captured as a CUDA graph: {}", error.what());
  }
  const cudaError_t status = cudaStreamEndCapture(stream, &captured);
  Graph graph(captured);
  if (status != cudaSuccess) {
    cudaGetLastError();
    throw_error<DeviceError>("[bench] the call cannot be captured as a CUDA graph: {}",
                             cudaGetErrorString(status));
  }
  size_t nodes = 0;
  SINTER_CUDA_CHECK(cudaGraphGetNodes(graph.get(), nullptr, &nodes));
  if (nodes == 0) throw_error<DeviceError>("[bench] the call queued no work on the current stream");
  return graph;
}

/// Median microseconds of what `queue` puts on the stream, out of a cold L2.
double measure_cold(cudaStream_t stream, const std::function<void()>& queue, int repeats) {
  const Event start = new_event(), stop = new_event();
  std::vector<double> times;
  for (int i = -2; i < repeats; ++i) {  // the first two runs warm up
    // The flush keeps the GPU busy while the host queues the work: its launch is not measured.
    flush_l2(stream);
    SINTER_CUDA_CHECK(cudaEventRecord(start.get(), stream));
    queue();
    SINTER_CUDA_CHECK(cudaEventRecord(stop.get(), stream));
    SINTER_CUDA_CHECK(cudaEventSynchronize(stop.get()));
    float milliseconds = 0;
    SINTER_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, start.get(), stop.get()));
    if (i >= 0) times.push_back(double{milliseconds} * 1000.0);
  }
  return median(times);
}

double replay_cold(cudaStream_t stream, const std::function<void()>& call, int repeats) {
  const Graph graph = capture(stream, call);
  cudaGraphExec_t made = nullptr;
  SINTER_CUDA_CHECK(cudaGraphInstantiate(&made, graph.get(), 0));
  const GraphExec executable(made);
  SINTER_CUDA_CHECK(cudaGraphUpload(executable.get(), stream));
  return measure_cold(
      stream, [&] { SINTER_CUDA_CHECK(cudaGraphLaunch(executable.get(), stream)); }, repeats);
}

/// Fills `bytes` at `data` with copies of the first `known` bytes there.
void repeat_start(std::byte* data, size_t known, size_t bytes, cudaStream_t stream) {
  while (known < bytes) {
    const size_t piece = std::min(known, bytes - known);
    SINTER_CUDA_CHECK(cudaMemcpyAsync(data + known, data, piece, cudaMemcpyDeviceToDevice, stream));
    known += piece;
  }
}

}  // namespace

double time_cold(const std::function<void()>& call, int repeats) {
  SINTER_CHECK(repeats > 0, "[bench] expected at least one repeat but got {}", repeats);
  const cuda::DeviceGuard guard(gpu().index);
  cudaStream_t stream = native_stream();
  for (int i = 0; i < kWarmUpCalls; ++i) call();
  SINTER_CUDA_CHECK(cudaStreamSynchronize(stream));
  return replay_cold(stream, call, repeats);
}

std::string captured_kernels(const std::function<void()>& call) {
  const cuda::DeviceGuard guard(gpu().index);
  return kernels_in(capture(native_stream(), call).get());
}

double copy_us(size_t bytes) {
  static std::map<size_t, double> known;
  bytes = std::max((bytes + kCopyGranularity - 1) / kCopyGranularity * kCopyGranularity, kCopyGranularity);
  if (const auto found = known.find(bytes); found != known.end()) return found->second;
  const cuda::DeviceGuard guard(gpu().index);
  cudaStream_t stream = native_stream();
  const Block from(bytes), to(bytes);
  // Noise, as a tensor's bytes are: zeros draw less power.
  const Tensor noise = normal_tensor({static_cast<int64_t>(kRandomCount)});
  const size_t start = std::min(bytes, noise.spec().bytes());
  SINTER_CUDA_CHECK(cudaMemcpyAsync(from.data(), noise.raw_data(), start, cudaMemcpyDeviceToDevice, stream));
  repeat_start(from.data(), start, bytes, stream);
  const auto copy = [&] {
    SINTER_CUDA_CHECK(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, stream));
  };
  // Large copies may run elsewhere in a graph than on a stream: the faster of the two is the ceiling.
  const double us = std::min(replay_cold(stream, copy, 30), measure_cold(stream, copy, 30));
  known.emplace(bytes, us);
  return us;
}

double time_stream(const std::function<void()>& call, int calls, int repeats) {
  SINTER_CHECK(calls > 0 && repeats > 0,
               "[bench] expected at least one call and one repeat but got {} and {}", calls, repeats);
  const cuda::DeviceGuard guard(gpu().index);
  cudaStream_t stream = native_stream();
  const Event start = new_event(), stop = new_event();
  std::vector<double> times;
  for (int i = -1; i < repeats; ++i) {
    SINTER_CUDA_CHECK(cudaEventRecord(start.get(), stream));
    for (int k = 0; k < calls; ++k) call();
    SINTER_CUDA_CHECK(cudaEventRecord(stop.get(), stream));
    SINTER_CUDA_CHECK(cudaEventSynchronize(stop.get()));
    float milliseconds = 0;
    SINTER_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, start.get(), stop.get()));
    if (i >= 0) times.push_back(double{milliseconds} * 1000.0 / calls);
  }
  return median(times);
}

double host_us_per_call(const std::function<void()>& call, int calls, int repeats) {
  SINTER_CHECK(calls > 0 && repeats > 0,
               "[bench] expected at least one call and one repeat but got {} and {}", calls, repeats);
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  for (int i = -1; i < repeats; ++i) {
    synchronize(gpu());
    const Clock::time_point start = Clock::now();
    for (int k = 0; k < calls; ++k) call();
    const std::chrono::duration<double, std::micro> elapsed = Clock::now() - start;
    if (i >= 0) times.push_back(elapsed.count() / calls);
  }
  synchronize(gpu());
  return median(times);
}

Tensor normal_tensor(const Shape& shape, DType dtype, uint64_t seed) {
  const NoGrad no_grad;
  const cuda::DeviceGuard guard(gpu().index);
  const Tensor tensor = Tensor::empty(shape, dtype, gpu());
  if (tensor.numel() == 0) return tensor;
  Generator generator(seed);
  std::vector<float> values(std::min(kRandomCount, static_cast<size_t>(tensor.numel())));
  for (float& value : values) value = static_cast<float>(generator.normal());
  const Tensor block =
      ops::cast(Tensor::from_values(values, Shape{static_cast<int64_t>(values.size())}, gpu()), dtype);
  cudaStream_t stream = native_stream();
  auto* const data = static_cast<std::byte*>(tensor.raw_data());
  SINTER_CUDA_CHECK(
      cudaMemcpyAsync(data, block.raw_data(), block.spec().bytes(), cudaMemcpyDeviceToDevice, stream));
  repeat_start(data, block.spec().bytes(), tensor.spec().bytes(), stream);
  return tensor;
}

}  // namespace sinter::bench
