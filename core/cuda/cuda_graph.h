// Captures of a stream's work as CUDA graphs, and what else must know of captures in progress.
#pragma once

#include <memory>

#include <cuda_runtime_api.h>

#include <sinter/core/runtime/backend.h>

namespace sinter::cuda {

/// Begins a capture on a new stream of GPU `device`, which gets no memory of the two pools until the capture
/// has ended. CUDA's restrictions are those of thread-local mode: only the calling thread's other calls are
/// watched.
std::unique_ptr<StreamCapture> begin_graph_capture(int device, MemoryPool& pool, MemoryPool& pinned_pool);

/// Whether the calling thread captures `stream` at present, through begin_graph_capture().
bool is_captured(cudaStream_t stream);

/// Throws Unsupported, "[cuda] `what`: the stream is being captured ...", if is_captured(stream): CUDA would
/// say less, and break the capture.
void expect_not_captured(cudaStream_t stream, const char* what);

/// Waits until GPU `device` is idle. False if it did not wait, because some thread captures work: CUDA would
/// refuse, and break the capture.
bool synchronize_device(int device);

/// Lets a thread that captures do, as long as it lives, what CUDA else forbids it lest it be meant to be
/// captured: allocate, ask for the events of other streams. Free of cost in other threads.
class UncapturedCalls {
 public:
  UncapturedCalls() noexcept;
  ~UncapturedCalls();
  UncapturedCalls(const UncapturedCalls&) = delete;
  UncapturedCalls& operator=(const UncapturedCalls&) = delete;

 private:
  bool exchanged_ = false;
  cudaStreamCaptureMode previous_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace sinter::cuda
