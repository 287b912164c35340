#include <algorithm>

#include <cuda_runtime_api.h>

#include <sinter/core/cuda/cuda_check.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::ops {
namespace {

void copy_part(const KernelContext& context, const TensorView& from, const TensorView& to, size_t begin,
               size_t count) {
  SINTER_CUDA_CHECK(cudaMemcpyAsync(to.as<char>() + begin, from.as<const char>() + begin, count,
                                    cudaMemcpyDeviceToDevice,
                                    static_cast<cudaStream_t>(context.stream().native)));
}

/// As memmove: where copy_ is given two tensors over the same memory, it is copied in parts that do not
/// overlap, in the order that reads every byte before it is overwritten.
void copy_view(const KernelContext& context, const TensorView& from, const TensorView& to) {
  const auto bytes = static_cast<size_t>(to.numel()) * size_of(to.dtype);
  if (bytes == 0 || from.data == to.data) return;
  const auto source = reinterpret_cast<uintptr_t>(from.data), target = reinterpret_cast<uintptr_t>(to.data);
  const size_t part = std::min<size_t>(source > target ? source - target : target - source, bytes);
  for (size_t done = 0; done < bytes; done += part) {
    const size_t count = std::min(part, bytes - done);
    copy_part(context, from, to, target < source ? done : bytes - done - count, count);
  }
}

void run_copy(const KernelContext& context) {
  copy_view(context, context.input(0), context.output(0));
}

void run_copy_into(const KernelContext& context) {
  copy_view(context, context.input(1), context.input(0));
}

}  // namespace

void register_copy_cuda(OpRegistry& registry);
void register_copy_cuda(OpRegistry& registry) {
  registry.add_kernel("copy", {.device = DeviceType::kCuda, .run = run_copy});
  registry.add_kernel("copy_", {.device = DeviceType::kCuda, .run = run_copy_into});
}

}  // namespace sinter::ops
