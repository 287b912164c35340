#include <cstring>

#include <sinter/ops/common/cuda/elementwise_cuda.h>
#include <sinter/ops/common/element_bits.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/fill/fill_attributes.h>

namespace sinter::ops {
namespace {

template <class Word>
struct Constant {
  Word word;
  __device__ Word operator()() const { return word; }
};

/// The bits of `value` as an element of `dtype`, in the low bytes.
uint64_t bits_of(double value, DType dtype) {
  uint64_t bits = 0;
  dispatch_all(dtype, "fill", [&]<class T> {
    const T element = static_cast<T>(value);
    std::memcpy(&bits, &element, sizeof(T));
  });
  return bits;
}

void fill(const Stream& stream, const TensorView& target, double value) {
  const uint64_t bits = bits_of(value, target.dtype);
  dispatch_bits(target.dtype, [&]<class Word> {
    launch_elementwise(stream, target.numel(), Constant<Word>{static_cast<Word>(bits)}, target.as<Word>());
  });
}

void run_fill(const KernelContext& context) {
  fill(context.stream(), context.input(0), context.attributes<FillAttributes>().value);
}

void run_full(const KernelContext& context) {
  fill(context.stream(), context.output(0), context.attributes<FullAttributes>().value);
}

}  // namespace

void register_fill_cuda(OpRegistry& registry);
void register_fill_cuda(OpRegistry& registry) {
  registry.add_kernel("fill_", {.device = DeviceType::kCuda, .run = run_fill});
  registry.add_kernel("full", {.device = DeviceType::kCuda, .run = run_full});
}

}  // namespace sinter::ops
