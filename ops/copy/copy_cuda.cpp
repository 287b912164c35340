#include <algorithm>

#include <cuda_runtime_api.h>

#include <sinter/core/cuda/cuda_check.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/common/overlap.h>

namespace sinter::ops {
namespace {

constexpr size_t kMostParts = 16;

void copy_part(const KernelContext& context, void* to, const void* from, size_t bytes) {
  SINTER_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice,
                                    static_cast<cudaStream_t>(context.stream().native)));
}

/// The most bytes that can be copied at once: those before the other tensor begins.
size_t part_bytes(const TensorView& from, const TensorView& to) {
  const auto source = reinterpret_cast<uintptr_t>(from.data), target = reinterpret_cast<uintptr_t>(to.data);
  return std::min<size_t>(source > target ? source - target : target - source, bytes_of(to));
}

/// As memmove: where copy_ is given two tensors over the same memory, it is copied in parts that do not
/// overlap, in the order that reads every byte before it is overwritten.
void copy_view(const KernelContext& context, const TensorView& from, const TensorView& to) {
  const size_t bytes = bytes_of(to);
  if (bytes == 0 || from.data == to.data) return;
  const size_t part = part_bytes(from, to);
  for (size_t done = 0; done < bytes; done += part) {
    const size_t count = std::min(part, bytes - done);
    const size_t begin = to.data < from.data ? done : bytes - done - count;
    copy_part(context, to.as<char>() + begin, from.as<const char>() + begin, count);
  }
}

void run_copy(const KernelContext& context) {
  copy_view(context, context.input(0), context.output(0));
}

/// Where there would be many parts, the source goes through scratch.
size_t copy_into_workspace(const KernelQuery& query) {
  if (query.inputs().empty()) return 0;
  const TensorView &to = query.inputs()[0], &from = query.inputs()[1];
  return from.data != to.data && part_bytes(from, to) < bytes_of(to) / kMostParts ? overlapping_bytes(query)
                                                                                  : 0;
}

void run_copy_into(const KernelContext& context) {
  const std::vector<TensorView> inputs = inputs_apart(
      context, [&](void* to, const void* from, size_t bytes) { copy_part(context, to, from, bytes); });
  copy_view(context, inputs[1], inputs[0]);
}

}  // namespace

void register_copy_cuda(OpRegistry& registry);
void register_copy_cuda(OpRegistry& registry) {
  registry.add_kernel("copy", {.device = DeviceType::kCuda, .run = run_copy});
  registry.add_kernel(
      "copy_", {.device = DeviceType::kCuda, .workspace_bytes = copy_into_workspace, .run = run_copy_into});
}

}  // namespace sinter::ops
