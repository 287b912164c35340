#include <sinter/ops/common/op_support.h>
#include <sinter/ops/random_key/random_key.h>
#include <sinter/ops/random_key/random_key_math.h>

namespace sinter::ops {
namespace {

void run_random_key(const KernelContext& context) {
  const auto& attributes = context.attributes<RandomKeyAttributes>();
  make_random_key(context.input(0).as<const int64_t>(), attributes.seed, attributes.offset,
                  context.output(0).as<int64_t>());
}

}  // namespace

void register_random_key_cpu(OpRegistry& registry);
void register_random_key_cpu(OpRegistry& registry) {
  registry.add_kernel("random_key", {.device = DeviceType::kCpu, .run = run_random_key});
}

}  // namespace sinter::ops
