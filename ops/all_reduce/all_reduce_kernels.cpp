#include <sinter/ops/all_reduce/all_reduce.h>
#include <sinter/ops/all_reduce/all_reduce_kernels.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::ops {
namespace {

size_t bytes_of(const TensorView& view) {
  return static_cast<size_t>(view.numel()) * size_of(view.dtype);
}

void copy_into(const TensorView& to, const TensorView& from, const Stream& stream) {
  if (to.data == from.data || from.numel() == 0) return;
  backend_of(stream.device).copy(to.data, stream.device, from.data, stream.device, bytes_of(from), stream);
}

void sum(const Communicator::Bucket& bucket, uint64_t communicator, const Stream& stream, bool to_the_end) {
  if (communicator == 0) {  // this process alone
    for (const Communicator::Part& part : bucket.parts) {
      const size_t size = size_of(bucket.dtype);
      auto* const to = static_cast<std::byte*>(bucket.sums) + static_cast<size_t>(part.place) * size;
      if (to == part.from || part.count == 0) continue;
      backend_of(stream.device)
          .copy(to, stream.device, part.from, stream.device, static_cast<size_t>(part.count) * size, stream);
    }
    return;
  }
  const Communicator& ranks = Communicator::of(communicator);
  ranks.begin_all_reduce(bucket, stream);
  if (to_the_end) ranks.end_all_reduce(bucket.sums, stream);
}

void run_all_reduce(const KernelContext& context) {
  const TensorView &x = context.input(0), &y = context.output(0);
  const Communicator::Part part{x.data, 0, x.numel()};
  sum({{&part, 1}, y.data, y.numel(), y.dtype}, context.attributes<AllReduceAttributes>().communicator,
      context.stream(), true);
}

void run_begin(const KernelContext& context) {
  begin_bucket(context, nullptr);
}

void run_end(const KernelContext& context) {
  const uint64_t communicator = context.attributes<AllReduceAttributes>().communicator;
  if (communicator != 0)
    Communicator::of(communicator).end_all_reduce(context.input(0).data, context.stream());
  copy_into(context.output(0), context.input(0), context.stream());
}

}  // namespace

void begin_bucket(const KernelContext& context, PackBucket pack) {
  std::vector<int64_t> counts;
  for (size_t i = 0; i < context.input_count(); ++i) counts.push_back(context.input(i).numel());
  const std::vector<int64_t> places = update::bucket_places(counts);
  std::vector<Communicator::Part> parts;
  for (size_t i = 0; i < counts.size(); ++i) parts.push_back({context.input(i).data, places[i], counts[i]});
  const TensorView& sums = context.output(0);
  Communicator::Bucket bucket{parts, sums.data, sums.numel(), sums.dtype};
  const Communicator::Part whole{sums.data, 0, sums.numel()};
  if (pack != nullptr) {
    pack(bucket, context.stream());
    bucket.parts = {&whole, 1};
  }
  sum(bucket, context.attributes<AllReduceAttributes>().communicator, context.stream(), false);
}

void add_all_reduce_kernels(OpRegistry& registry, DeviceType device) {
  add_all_reduce_kernels(registry, device, run_begin);
}

void add_all_reduce_kernels(OpRegistry& registry, DeviceType device,
                            void (*begin)(const KernelContext& context)) {
  registry.add_kernel("all_reduce", {.device = device, .run = run_all_reduce});
  registry.add_kernel("begin_all_reduce", {.device = device, .run = begin});
  registry.add_kernel("end_all_reduce", {.device = device, .run = run_end});
}

}  // namespace sinter::ops
