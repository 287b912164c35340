// Both are sums: of what a rank has among zeros, and of which a part is kept. That moves twice the bytes that
// are needed, of tensors that are small, and keeps all that ranks exchange in a step on the one stream of the
// communicator, in one order.
#include <sinter/ops/all_gather/all_gather.h>
#include <sinter/ops/all_gather/all_gather_kernels.h>

namespace sinter::ops {
namespace {

size_t bytes_of(const TensorView& view) {
  return static_cast<size_t>(view.numel()) * size_of(view.dtype);
}

void copy(void* to, const void* from, size_t bytes, const Stream& stream) {
  if (bytes > 0) backend_of(stream.device).copy(to, stream.device, from, stream.device, bytes, stream);
}

/// Sums `count` elements over the ranks into `sums`, which may be `from`.
void sum(uint64_t communicator, const void* from, void* sums, const TensorView& like, const Stream& stream) {
  const Communicator& ranks = Communicator::of(communicator);
  const Communicator::Part part{from, 0, like.numel()};
  ranks.begin_all_reduce({{&part, 1}, sums, like.numel(), like.dtype}, stream);
  ranks.end_all_reduce(sums, stream);
}

}  // namespace

size_t all_gather_bytes(const KernelQuery& query) {
  return query.attributes<AllGatherAttributes>().communicator == 0 ? 0 : query.output(0).bytes();
}
size_t reduce_scatter_bytes(const KernelQuery& query) {
  return query.attributes<AllGatherAttributes>().communicator == 0 ? 0 : query.input(0).bytes();
}

void run_all_gather(const KernelContext& context,
                    void (*clear)(void* data, size_t bytes, const Stream& stream)) {
  const auto& attributes = context.attributes<AllGatherAttributes>();
  const TensorView &x = context.input(0), &all = context.output(0);
  const size_t bytes = bytes_of(x);
  if (attributes.communicator == 0) return copy(all.data, x.data, bytes, context.stream());
  auto* const among_zeros = static_cast<std::byte*>(context.workspace());
  clear(among_zeros, bytes_of(all), context.stream());
  copy(among_zeros + static_cast<size_t>(attributes.rank) * bytes, x.data, bytes, context.stream());
  sum(attributes.communicator, among_zeros, all.data, all, context.stream());
}

void run_reduce_scatter(const KernelContext& context) {
  const auto& attributes = context.attributes<AllGatherAttributes>();
  const TensorView &x = context.input(0), &part = context.output(0);
  const size_t bytes = bytes_of(part);
  if (attributes.communicator == 0) return copy(part.data, x.data, bytes, context.stream());
  auto* const sums = static_cast<std::byte*>(context.workspace());
  sum(attributes.communicator, x.data, sums, x, context.stream());
  copy(part.data, sums + static_cast<size_t>(attributes.rank) * bytes, bytes, context.stream());
}

}  // namespace sinter::ops
