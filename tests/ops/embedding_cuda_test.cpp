// Gradients of embeddings on a GPU with more look-ups than the random samples have. The CPU is the reference.
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sinter/core/op/dispatch.h>
#include <sinter/core/runtime/random.h>
#include <sinter/ops/embedding/embedding.h>

#include "ops/gpu_test_support.h"

namespace sinter::ops {
namespace {

using testing_gpu::as_double;
using testing_gpu::kDTypes;
using testing_gpu::on_gpu;

class EmbeddingGradCuda : public testing_gpu::GpuTest {};

struct Case {
  int64_t count, rows, columns;
  int64_t popular;  ///< half of the look-ups go to the first so many rows
};

constexpr Case kCases[] = {
    {1024, 1, 1, 1},             // one row, one column
    {1, 7, 40, 7},               // fewer than are sorted unless they have to
    {20'011, 1, 513, 1},         // one long row over several strips
    {20'011, 7, 100, 7},         // long rows, that begin anywhere
    {5000, 100'003, 24, 2},      // most rows without a look-up, two of them long
    {4096, 64, 64, 64},          // rows of just a chunk and around it
    {3001, 500, 257, 500},       // one element an access
    {3001, 500, 262, 3},         // two
    {2000, 50, 1040, 5},         // several tiles
    {100'000, 30'000, 8, 1000},  // one access a row
};

std::vector<int64_t> lookups_of(const Case& made, Generator& generator) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < made.count; ++i) {
    const int64_t most = generator.below(2) == 0 ? made.popular : made.rows;
    indices.push_back(static_cast<int64_t>(generator.below(static_cast<uint64_t>(most))));
  }
  return indices;
}

Tensor small_integers(const Shape& shape, Generator& generator) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (float& value : values) value = static_cast<float>(generator.below(9)) - 4.0f;  // exact in any order
  return Tensor::from_values(values, shape);
}

TEST_F(EmbeddingGradCuda, AddsSortedLookups) {
  Generator generator(3);
  for (const Case& made : kCases) {
    const Tensor indices = Tensor::from_values(lookups_of(made, generator), {made.count});
    const Tensor values = small_integers({made.count, made.columns}, generator);
    for (const DType dtype : kDTypes) {
      SCOPED_TRACE(fmt::format("{} look-ups, ({}, {}) {}", made.count, made.rows, made.columns, dtype));
      // A row of bfloat16 cannot hold large sums; rounding is the same on both sides, as the sums are exact.
      const Tensor dy = cast(values, dtype);
      const Tensor expected = vjp::embedding(dy, indices, made.rows);
      for (const int64_t offset : {0, 1}) {
        const ForcedKernel forced("embedding_grad", "sorted");
        const Tensor got = vjp::embedding(on_gpu(dy, offset), on_gpu(indices), made.rows);
        EXPECT_EQ(as_double(got).to_vector<double>(), as_double(expected).to_vector<double>())
            << "offset " << offset;
      }
    }
  }
}

TEST_F(EmbeddingGradCuda, LeavesOutIndicesOutOfRangeAndRepeatsItself) {
  Generator generator(4);
  const Case made{9000, 40, 72, 3};
  std::vector<int64_t> known = lookups_of(made, generator), all = known;
  std::vector<float> values(static_cast<size_t>(made.count * made.columns));
  for (float& value : values) value = static_cast<float>(generator.uniform()) - 0.5f;
  std::vector<float> kept = values;
  for (size_t i = 0; i < all.size(); i += 5) {
    all[i] = i % 2 == 0 ? -1 - static_cast<int64_t>(i) : made.rows + static_cast<int64_t>(i);
    for (int64_t j = 0; j < made.columns; ++j)
      kept[i * static_cast<size_t>(made.columns) + static_cast<size_t>(j)] = 0;
  }
  const Shape shape{made.count, made.columns};
  const Tensor expected =
      vjp::embedding(Tensor::from_values(kept, shape), Tensor::from_values(known, {made.count}), made.rows);
  const Tensor dy = Tensor::from_values(values, shape).to(Device::cuda());
  const Tensor indices = Tensor::from_values(all, {made.count}).to(Device::cuda());
  const std::vector<float> first = vjp::embedding(dy, indices, made.rows).to_vector<float>();
  const std::vector<float> wanted = expected.to_vector<float>();
  for (size_t i = 0; i < first.size(); ++i) ASSERT_NEAR(first[i], wanted[i], 1e-3) << i;
  for (int run = 0; run < 5; ++run) {
    EXPECT_EQ(vjp::embedding(dy, indices, made.rows).to_vector<float>(), first);
  }
}

}  // namespace
}  // namespace sinter::ops
