#include <algorithm>
#include <cstring>

#include <sinter/ops/common/cpu/elementwise_cpu.h>
#include <sinter/ops/common/element_bits.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/fill/fill_attributes.h>

namespace sinter::ops {
namespace {

void fill(const TensorView& target, double value) {
  uint64_t bits = 0;  // of an element, in its first bytes
  dispatch_all(target.dtype, "fill", [&]<class T> {
    const T element = static_cast<T>(value);
    std::memcpy(&bits, &element, sizeof(T));
  });
  dispatch_bits(target.dtype, [&]<class Word> {
    Word word;
    std::memcpy(&word, &bits, sizeof(Word));
    parallel_for(target.numel(), kElementwiseGrain, [&](int64_t begin, int64_t end) {
      std::fill(target.as<Word>() + begin, target.as<Word>() + end, word);
    });
  });
}

void run_fill(const KernelContext& context) {
  fill(context.input(0), context.attributes<FillAttributes>().value);
}

void run_full(const KernelContext& context) {
  fill(context.output(0), context.attributes<FullAttributes>().value);
}

}  // namespace

void register_fill_cpu(OpRegistry& registry);
void register_fill_cpu(OpRegistry& registry) {
  registry.add_kernel("fill_", {.device = DeviceType::kCpu, .run = run_fill});
  registry.add_kernel("full", {.device = DeviceType::kCpu, .run = run_full});
}

}  // namespace sinter::ops
