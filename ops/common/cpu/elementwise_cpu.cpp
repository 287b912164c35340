// The walk over blocks that all elementwise kernels share.
#include <sinter/ops/common/cpu/elementwise_cpu.h>

namespace sinter::ops {

void run_blocks(const BlockFormat& in, const BlockFormat& out, std::initializer_list<const void*> inputs,
                void* output, int64_t count, const BlockLoop& loop) {
  constexpr size_t kMostInputs = 2;
  const void* const* sources = inputs.begin();
  const size_t input_count = std::min(inputs.size(), kMostInputs);
  const auto run = [&](int64_t begin, int64_t end) {
    alignas(64) float input_buffers[kMostInputs][kBlock];
    alignas(64) float output_buffer[kBlock];
    const int64_t step = in.converts() || out.converts() ? kBlock : end - begin;
    for (int64_t i = begin; i < end; i += step) {
      const int64_t n = std::min(step, end - i);
      const void* blocks[kMostInputs] = {};
      for (size_t k = 0; k < input_count; ++k) {
        blocks[k] = in.load(static_cast<const std::byte*>(sources[k]) + static_cast<size_t>(i) * in.bytes, n,
                            input_buffers[k]);
      }
      void* results = static_cast<std::byte*>(output) + static_cast<size_t>(i) * out.bytes;
      if (out.converts()) {
        loop.run(loop.function, blocks, output_buffer, n);
        out.store(output_buffer, results, n);
      } else {
        loop.run(loop.function, blocks, results, n);
      }
    }
  };
  if (count <= kElementwiseGrain) return run(0, count);  // without the price of a function object
  parallel_for(count, kElementwiseGrain, run);
}

}  // namespace sinter::ops
