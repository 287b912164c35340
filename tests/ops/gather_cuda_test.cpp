// Gradients of gather on a GPU with lines that the random samples are too small for, in every way that
// kernels take them. The CPU is the reference.
#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sinter/core/op/dispatch.h>
#include <sinter/core/runtime/random.h>
#include <sinter/ops/gather/gather.h>

#include "ops/gpu_test_support.h"

namespace sinter::ops {
namespace {

using testing_gpu::as_double;
using testing_gpu::kDTypes;
using testing_gpu::on_gpu;

struct Case {
  Shape source, indices;
  int64_t axis;
};

/// Small integers, whose sums are exact in any order, and indices of which half go to few places, some of
/// them side by side.
struct Values {
  Tensor indices, dy;
};

Values random_values(const Case& made, Generator& generator) {
  std::vector<int64_t> indices(static_cast<size_t>(made.indices.numel()));
  std::vector<float> values(indices.size());
  const auto rows = static_cast<uint64_t>(made.source[static_cast<int>(made.axis)]);
  for (size_t i = 0; i < indices.size(); ++i) {
    indices[i] = static_cast<int64_t>(generator.below(2) == 0 ? generator.below(std::min<uint64_t>(rows, 5))
                                                              : generator.below(rows));
    values[i] = static_cast<float>(generator.below(9)) - 4.0f;
  }
  return {Tensor::from_values(indices, made.indices), Tensor::from_values(values, made.indices)};
}

void expect_as_on_cpu(const Case& made, Generator& generator, const char* kernel) {
  SCOPED_TRACE(fmt::format("{} from {} along {}", made.indices, made.source, made.axis));
  const Values values = random_values(made, generator);
  for (const DType dtype : kDTypes) {
    const Tensor dy = cast(values.dy, dtype);
    const Tensor expected = vjp::gather(dy, made.axis, values.indices, made.source);
    std::optional<ForcedKernel> forced;
    if (kernel != nullptr) forced.emplace("gather_grad", kernel);
    for (const int64_t offset : {0, 1}) {
      const Tensor dx = vjp::gather(on_gpu(dy, offset), made.axis, on_gpu(values.indices), made.source);
      EXPECT_EQ(as_double(dx).to_vector<double>(), as_double(expected).to_vector<double>())
          << fmt::format("{}, offset {}", dtype, offset);
    }
  }
}

class GatherGradCuda : public testing_gpu::GpuTest {};

TEST_F(GatherGradCuda, AddsLongLines) {
  const Case cases[] = {
      {{600'000}, {20'011}, 0},               // one long line over many rows
      {{7}, {20'011}, 0},                     // ... and over few
      {{500'000, 3}, {1000, 3}, 0},           // a few lines side by side
      {{5, 90'000}, {5, 4097}, 1},            // ... and one after the other
      {{2, 40, 20'000}, {2, 33, 20'000}, 1},  // very many
      {{64, 100}, {33, 90}, 1},               // indices that leave out lines
  };
  Generator generator(5);
  for (const Case& made : cases) {
    expect_as_on_cpu(made, generator, nullptr);
    expect_as_on_cpu(made, generator, "default");
  }
}

TEST_F(GatherGradCuda, HoldsSums) {
  const Case cases[] = {
      {{500, 1024}, {500, 100}, 1},         // a warp for each line, all of them aligned
      {{501, 1001}, {501, 131}, 1},         // ... and beginning anywhere
      {{100'003, 10}, {100'003, 4}, 1},     // several lines for each warp, the last with fewer
      {{70'001, 3, 2}, {70'001, 5, 2}, 1},  // ... of several columns
      {{16, 100}, {30'001, 100}, 0},        // few rows of many columns, in parts
      {{16, 7}, {30'001, 7}, 0},            // ... of few columns
      {{7}, {200'003}, 0},                  // one line in parts
      {{300, 1001}, {40, 1001}, 0},         // tiles by turns
      {{100, 1001}, {3000, 1001}, 0},       // tiles in parts
      {{3, 100, 401}, {3, 33, 401}, 1},     // tiles, each with a warp of its own or in parts
      {{20, 20'000}, {20, 9000}, 1},        // a block for each line, its warps in turn
      {{6000, 9}, {1000, 9}, 0},            // ... and narrow tiles
      {{9000, 5}, {1000, 5}, 0},            // ... and whole slabs
      {{20'000}, {100'003}, 0},             // ... in parts
      {{1, 1}, {1, 1}, 1},
  };
  Generator generator(6);
  for (const Case& made : cases) expect_as_on_cpu(made, generator, "held");
}

TEST_F(GatherGradCuda, RepeatsItselfAndLeavesOutIndicesOutOfRange) {
  const Case cases[] = {
      {{500, 100}, {500, 100}, 1}, {{16, 100}, {30'001, 100}, 0}, {{20, 30'000}, {20, 9000}, 1}};
  Generator generator(7);
  for (const auto& [source, shape, axis] : cases) {
    SCOPED_TRACE(fmt::format("{} from {} along {}", shape, source, axis));
    const auto rows = static_cast<uint64_t>(source[static_cast<int>(axis)]);
    std::vector<int64_t> all, known;
    std::vector<float> values, kept;
    for (int64_t i = 0; i < shape.numel(); ++i) {
      const bool outside = i % 5 == 0;
      known.push_back(static_cast<int64_t>(generator.below(rows)));
      all.push_back(!outside ? known.back() : i % 2 == 0 ? -1 - i : static_cast<int64_t>(rows) + i);
      values.push_back(static_cast<float>(generator.uniform()) - 0.5f);
      kept.push_back(outside ? 0.0f : values.back());
    }
    const Tensor dy = Tensor::from_values(values, shape).to(Device::cuda());
    const Tensor where = Tensor::from_values(all, shape).to(Device::cuda());
    const auto expected =
        vjp::gather(Tensor::from_values(kept, shape), axis, Tensor::from_values(known, shape), source)
            .to_vector<float>();
    const auto first = vjp::gather(dy, axis, where, source).to_vector<float>();
    for (size_t i = 0; i < first.size(); ++i) ASSERT_NEAR(first[i], expected[i], 1e-3) << i;
    for (int run = 0; run < 5; ++run) {
      EXPECT_EQ(vjp::gather(dy, axis, where, source).to_vector<float>(), first);
    }
  }
}

}  // namespace
}  // namespace sinter::ops
