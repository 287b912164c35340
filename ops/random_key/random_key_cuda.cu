#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/random_key/random_key.h>
#include <sinter/ops/random_key/random_key_math.h>

namespace sinter::ops {
namespace {

__global__ void random_key_kernel(const int64_t* base, uint64_t seed, uint64_t offset, int64_t* key) {
  make_random_key(base, seed, offset, key);
}

void run_random_key(const KernelContext& context) {
  const auto& attributes = context.attributes<RandomKeyAttributes>();
  cuda::launch(context.stream(), {dim3(1), dim3(1)}, random_key_kernel, context.input(0).as<const int64_t>(),
               attributes.seed, attributes.offset, context.output(0).as<int64_t>());
}

}  // namespace

void register_random_key_cuda(OpRegistry& registry);
void register_random_key_cuda(OpRegistry& registry) {
  registry.add_kernel("random_key", {.device = DeviceType::kCuda, .run = run_random_key});
}

}  // namespace sinter::ops
