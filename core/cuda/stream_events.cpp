#include <chrono>
#include <memory>

#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/cuda/cuda_graph.h>
#include <sinter/core/cuda/cuda_memory.h>
#include <sinter/core/cuda/spare_list.h>
#include <sinter/core/cuda/stream_events.h>

namespace sinter::cuda {
namespace {

using Spares = SpareList<StreamEvent>;

constexpr std::chrono::microseconds kSpin{50};

/// The events of a GPU that wait for their next use. Never destroyed: when statics end, the driver may be
/// gone.
Spares& spares_of(int device) {
  static Spares* const all = [] {
    int count = 0;
    SINTER_CUDA_CHECK(cudaGetDeviceCount(&count));
    return new Spares[static_cast<size_t>(count)];
  }();
  return all[device];
}

StreamEvent* take_event(int device) {
  if (StreamEvent* const spare = spares_of(device).take(); spare != nullptr) return spare;
  const DeviceGuard guard(device);
  auto event = std::make_unique<StreamEvent>();
  event->device = device;
  SINTER_CUDA_CHECK(cudaEventCreateWithFlags(&event->native, cudaEventDisableTiming | cudaEventBlockingSync));
  return event.release();
}

}  // namespace

StreamEvent* record_stream_event(cudaStream_t stream, int device) {
  expect_not_captured(stream, "Event");
  if (device_lost(device)) return nullptr;
  if (const cudaError_t status = cudaStreamGetDevice(stream, &device); status != cudaSuccess) {
    if (any_device_lost()) return nullptr;  // it may be the one that the stream is of
    check(status, "cudaStreamGetDevice", device);
  }
  if (device_lost(device)) return nullptr;
  StreamEvent* const event = take_event(device);
  const cudaError_t status = cudaEventRecord(event->native, stream);
  if (status != cudaSuccess) {
    release_stream_event(event);
    check(status, "cudaEventRecord", device);
  }
  return event;
}

bool has_passed(const StreamEvent* event) {
  if (event == nullptr || device_lost(event->device)) return true;
  const UncapturedCalls uncaptured;
  const cudaError_t status = cudaEventQuery(event->native);
  if (status == cudaErrorNotReady) {
    cudaGetLastError();  // which is no error
    return false;
  }
  check(status, "cudaEventQuery", event->device);
  return true;
}

// A thread that sleeps is woken some 20 us late, which short waits had better not pay; a long one leaves the
// core to others, those that decode the next batch above all.
void wait_for(const StreamEvent* event) {
  if (event == nullptr || device_lost(event->device)) return;
  const auto end = std::chrono::steady_clock::now() + kSpin;
  while (!has_passed(event)) {
    if (std::chrono::steady_clock::now() > end) break;
  }
  const UncapturedCalls uncaptured;
  check(cudaEventSynchronize(event->native), "cudaEventSynchronize", event->device);
}

void release_stream_event(StreamEvent* event) noexcept {
  spares_of(event->device).put(event);
}

}  // namespace sinter::cuda
