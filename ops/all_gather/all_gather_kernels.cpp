#include <sinter/ops/all_gather/all_gather.h>
#include <sinter/ops/all_gather/all_gather_kernels.h>

namespace sinter::ops {
namespace {

size_t bytes_of(const TensorView& view) {
  return static_cast<size_t>(view.numel()) * size_of(view.dtype);
}

/// Without other processes.
void copy(const TensorView& to, const TensorView& from, const Stream& stream) {
  if (from.numel() == 0) return;
  backend_of(stream.device).copy(to.data, stream.device, from.data, stream.device, bytes_of(from), stream);
}

void run_all_gather(const KernelContext& context) {
  const auto& attributes = context.attributes<AllGatherAttributes>();
  const TensorView &x = context.input(0), &all = context.output(0);
  if (attributes.communicator == 0) return copy(all, x, context.stream());
  Communicator::of(attributes.communicator).all_gather(x.data, all.data, bytes_of(x), context.stream());
}

void run_reduce_scatter(const KernelContext& context) {
  const auto& attributes = context.attributes<AllGatherAttributes>();
  const TensorView &x = context.input(0), &part = context.output(0);
  if (attributes.communicator == 0) return copy(part, x, context.stream());
  Communicator::of(attributes.communicator)
      .reduce_scatter(x.data, part.data, part.numel(), x.dtype, context.stream());
}

}  // namespace

void add_all_gather_kernels(OpRegistry& registry, DeviceType device) {
  registry.add_kernel("all_gather", {.device = device, .run = run_all_gather});
  registry.add_kernel("reduce_scatter", {.device = device, .run = run_reduce_scatter});
}

}  // namespace sinter::ops
