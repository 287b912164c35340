// Gradients of gather on a GPU with lines that the random samples are too small for. The CPU is the
// reference.
#include <gtest/gtest.h>

#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/random.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/gather/gather.h>

namespace sinter::ops {
namespace {

struct Case {
  Shape source, indices;
  int64_t axis;
};

TEST(GatherGradCuda, AddsLongLinesInOrder) {
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  const Case cases[] = {
      {{600'000}, {20'011}, 0},               // one long line over many rows
      {{7}, {20'011}, 0},                     // ... and over few
      {{500'000, 3}, {1000, 3}, 0},           // a few lines side by side
      {{5, 90'000}, {5, 4097}, 1},            // ... and one after the other
      {{2, 40, 20'000}, {2, 33, 20'000}, 1},  // very many
  };
  Generator generator(5);
  for (const auto& [source, shape, axis] : cases) {
    SCOPED_TRACE(fmt::format("{} from {} along {}", shape, source, axis));
    std::vector<int64_t> indices(static_cast<size_t>(shape.numel()));
    std::vector<float> values(indices.size());
    const auto rows = static_cast<uint64_t>(source[static_cast<int>(axis)]);
    for (size_t i = 0; i < indices.size(); ++i) {
      // Half of them go to few places, some of them side by side.
      indices[i] = static_cast<int64_t>(generator.below(2) == 0 ? generator.below(std::min<uint64_t>(rows, 5))
                                                                : generator.below(rows));
      values[i] = static_cast<float>(generator.below(9)) - 4.0f;  // sums are exact in any order
    }
    const Tensor where = Tensor::from_values(indices, shape);
    for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
      const Tensor dy = cast(Tensor::from_values(values, shape), dtype);
      const Tensor expected = gather_grad(dy, axis, where, source);
      const Tensor dx = gather_grad(dy.to(Device::cuda()), axis, where.to(Device::cuda()), source);
      EXPECT_EQ(cast(dx, DType::kFloat32).to_vector<float>(),
                cast(expected, DType::kFloat32).to_vector<float>());
    }
  }
}

}  // namespace
}  // namespace sinter::ops
