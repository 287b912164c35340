// The kernels of all_gather and reduce_scatter, the same on every kind of device: the communicator does the
// work.
#pragma once

#include <sinter/core/op/kernel.h>

namespace sinter::ops {

size_t all_gather_bytes(const KernelQuery& query);
/// `clear` fills memory with zeros, on and behind a stream.
void run_all_gather(const KernelContext& context,
                    void (*clear)(void* data, size_t bytes, const Stream& stream));

size_t reduce_scatter_bytes(const KernelQuery& query);
void run_reduce_scatter(const KernelContext& context);

}  // namespace sinter::ops
