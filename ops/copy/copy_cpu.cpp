#include <cstring>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::ops {
namespace {

constexpr int64_t kBytesGrain = 256 * 1024;

/// memmove, as copy_ may be given two tensors over the same memory.
void copy_view(const TensorView& from, const TensorView& to) {
  const auto bytes = static_cast<int64_t>(static_cast<size_t>(to.numel()) * size_of(to.dtype));
  if (from.data == to.data) return;
  const auto distance = std::abs(from.as<const char>() - to.as<const char>());
  const int64_t grain = distance < bytes ? bytes : kBytesGrain;  // overlapping memory is moved by one thread
  parallel_for(bytes, grain, [&](int64_t begin, int64_t end) {
    std::memmove(to.as<char>() + begin, from.as<const char>() + begin, static_cast<size_t>(end - begin));
  });
}

void run_copy(const KernelContext& context) {
  copy_view(context.input(0), context.output(0));
}

void run_copy_into(const KernelContext& context) {
  copy_view(context.input(1), context.input(0));
}

}  // namespace

void register_copy_cpu(OpRegistry& registry);
void register_copy_cpu(OpRegistry& registry) {
  registry.add_kernel("copy", {.device = DeviceType::kCpu, .run = run_copy});
  registry.add_kernel("copy_", {.device = DeviceType::kCpu, .run = run_copy_into});
}

}  // namespace sinter::ops
