// Copies that run beside other work: on a stream of their own, from and to page-locked host memory.
#pragma once

#include <sinter/core/runtime/backend.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter {

/// Overwrites `to` with `from`, of the same shape and dtype on any two devices, in the order of `stream`,
/// which belongs to the GPU that takes part (to `to`'s, of two GPUs). Work on other streams is not waited
/// for, neither here nor later by them: Event::make_wait gives the order. Does not wait if the host's side is
/// pinned (Tensor::empty_pinned): an Event on `stream` tells when the copy has run; until then the host must
/// neither write `from` nor read `to`. Both may be let go at once: their memory is not reused before.
void copy_async(const Tensor& to, const Tensor& from, const Stream& stream);

/// A copy of `host`, a tensor on the CPU, on `device`, in the order of its current stream; for the CPU `host`
/// itself. Does not wait if `host` is pinned: that may be let go of at once, but not be written before an
/// Event on the stream has passed. Not recorded for gradients.
Tensor to_async(const Tensor& host, Device device);

/// A stream of `device` for transfers beside the work on its default stream, the same one for every caller.
/// The CPU's only stream, for the CPU.
Stream transfer_stream(Device device);

}  // namespace sinter
