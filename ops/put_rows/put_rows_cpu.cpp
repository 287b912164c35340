#include <algorithm>
#include <cstring>

#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/cpu/index_check_cpu.h>
#include <sinter/ops/common/overlap.h>
#include <sinter/ops/put_rows/put_rows.h>

namespace sinter::ops {
namespace {

constexpr int64_t kGrainBytes = 64 * 1024;

void run_put_rows(const KernelContext& context) {
  const std::vector<TensorView> inputs = inputs_apart(context, std::memcpy);
  const TensorView &target = inputs[0], &indices = inputs[1];
  check_indices(indices, target.shape[0], "put_rows_");
  const size_t bytes = static_cast<size_t>(target.shape[1]) * size_of(target.dtype);
  if (bytes == 0) return;
  auto* const to = target.as<std::byte>();
  const auto* const from = inputs[2].as<const std::byte>();
  const auto* const index = indices.as<const int64_t>();
  parallel_for(indices.numel(), std::max<int64_t>(1, kGrainBytes / static_cast<int64_t>(bytes)),
               [=](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   std::memcpy(to + static_cast<size_t>(index[i]) * bytes,
                               from + static_cast<size_t>(i) * bytes, bytes);
                 }
               });
}

}  // namespace

void register_put_rows_cpu(OpRegistry& registry);
void register_put_rows_cpu(OpRegistry& registry) {
  registry.add_kernel(
      "put_rows_", {.device = DeviceType::kCpu, .workspace_bytes = overlapping_bytes, .run = run_put_rows});
}

}  // namespace sinter::ops
