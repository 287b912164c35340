#include <algorithm>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/dropout/dropout.h>
#include <sinter/ops/dropout/dropout_math.h>

namespace sinter::ops {
namespace {

/// Elements of one block: drawn word by word of the Philox blocks, so that the rounds run side by side in
/// vectors.
constexpr int64_t kBlock = 256;
constexpr int64_t kGrain = 4096;

template <class T>
void drop(const KernelContext& context) {
  using C = compute_type<T>;
  const double probability = context.attributes<DropoutAttributes>().p;
  const auto p = static_cast<float>(probability);
  const C scale = static_cast<C>(1.0 / (1.0 - probability));
  const auto seed = static_cast<uint64_t>(context.input(1).as<const int64_t>()[0]);
  const auto offset = static_cast<uint64_t>(context.input(1).as<const int64_t>()[1]);
  const T* x = context.input(0).as<const T>();
  T* y = context.output(0).as<T>();
  const int64_t count = context.output(0).numel();
  parallel_for((count + kBlock - 1) / kBlock, kGrain / kBlock, [=](int64_t first, int64_t last) {
    uint32_t words[kBlock];
    for (int64_t block = first; block < last; ++block) {
      const int64_t begin = block * kBlock, lanes = std::min(kBlock, count - begin);
      for (int64_t j = 0; j < kBlock / 4; ++j) {
        const PhiloxBlock drawn = philox(seed, offset + static_cast<uint64_t>(begin / 4 + j));
        for (int64_t word = 0; word < 4; ++word) words[4 * j + word] = drawn.words[word];
      }
      for (int64_t lane = 0; lane < lanes; ++lane) {
        y[begin + lane] = static_cast<T>(dropped_out(static_cast<C>(x[begin + lane]), words[lane], p, scale));
      }
    }
  });
}

void run_dropout(const KernelContext& context) {
  dispatch_float(context.input(0).dtype, "dropout", [&]<class T> { drop<T>(context); });
}

}  // namespace

void register_dropout_cpu(OpRegistry& registry);
void register_dropout_cpu(OpRegistry& registry) {
  registry.add_kernel("dropout", {.device = DeviceType::kCpu, .run = run_dropout});
}

}  // namespace sinter::ops
