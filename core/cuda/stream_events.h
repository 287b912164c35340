// CUDA events under RawMemory's: what its handles of a GPU's events point to.
#pragma once

#include <cuda_runtime_api.h>

namespace sinter::cuda {

/// Belongs to who recorded it until release_stream_event().
struct StreamEvent {
  cudaEvent_t native = nullptr;
  int device = 0;
  StreamEvent* next = nullptr;  // among the spare ones
};

/// The present end of the work on `stream`, whichever GPU it is of; most likely of `device`. nullptr, an
/// event that has passed, if that GPU is lost: nothing runs there any more, so that tensors end quietly, and
/// the next kernel's launch says what has happened. Throws DeviceError, and Unsupported if the calling thread
/// captures the stream.
StreamEvent* record_stream_event(cudaStream_t stream, int device);

/// True once the work before the event has finished, or its GPU is lost. A false leaves no error behind for
/// the next launch to find.
bool has_passed(const StreamEvent* event);

/// Blocks the calling thread until has_passed().
void wait_for(const StreamEvent* event);

/// Keeps the event for the next one on its GPU. `event` is not nullptr.
void release_stream_event(StreamEvent* event) noexcept;

}  // namespace sinter::cuda
