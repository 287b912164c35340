// The kernels of the sums over processes, the same on every kind of device: the communicator does the work.
#pragma once

#include <sinter/core/comm/communicator.h>
#include <sinter/core/op/registry.h>

namespace sinter::ops {

/// Copies all parts of a bucket to their places in its sums, on a stream, and zeros between them.
using PackBucket = void (*)(const Communicator::Bucket& bucket, const Stream& stream);
/// What begin_all_reduce does. Where tensors are packed they are summed as one, else each from where it is.
void begin_bucket(const KernelContext& context, PackBucket pack);

/// `begin`: the kernel of begin_all_reduce; one that packs nothing if it is left out.
void add_all_reduce_kernels(OpRegistry& registry, DeviceType device);
void add_all_reduce_kernels(OpRegistry& registry, DeviceType device,
                            void (*begin)(const KernelContext& context));

}  // namespace sinter::ops
