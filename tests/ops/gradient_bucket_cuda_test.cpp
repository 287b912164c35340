// What a GPU does to tensors before they are summed over ranks: they are copied side by side.
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/op/call.h>
#include <sinter/core/op/registry.h>
#include <sinter/core/runtime/random.h>
#include <sinter/ops/all_reduce/all_reduce.h>

#include "ops/gpu_test_support.h"

namespace sinter::ops {
namespace {

class GradientBucketCuda : public testing_gpu::GpuTest {};

// Without other ranks a sum is what it is of.
TEST_F(GradientBucketCuda, PutsTensorsOfAnySizeSideBySideWithZerosBetween) {
  const Op& begin = OpRegistry::instance().get("begin_all_reduce");
  Generator generator(23);
  for (const DType dtype : testing_gpu::kDTypes) {
    // More than go into one launch; small ones, empty ones, and one of many blocks.
    std::vector<Tensor> tensors, there;
    std::vector<int64_t> counts;
    for (int i = 0; i < 130; ++i) {
      const auto count =
          i == 70 ? int64_t{300'007} : static_cast<int64_t>(generator.below(i % 9 == 0 ? 20'000 : 400));
      std::vector<float> values(static_cast<size_t>(count));
      for (float& value : values) value = static_cast<float>(generator.below(200)) - 100.0f;
      counts.push_back(count);
      tensors.push_back(cast(Tensor::from_values(values, {count}), dtype));
      there.push_back(
          testing_gpu::on_gpu(tensors.back(), i % 3 == 2 ? static_cast<int64_t>(generator.below(8)) : 0));
    }
    const std::vector<int64_t> places = update::bucket_places(counts);
    std::vector<double> expected(static_cast<size_t>(places.back()));
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto values = testing_gpu::as_double(tensors[i]).to_vector<double>();
      std::ranges::copy(values, expected.begin() + places[i]);
    }
    const Tensor sums = call(begin, there, AllReduceAttributes{}).front();
    EXPECT_EQ(testing_gpu::as_double(sums).to_vector<double>(), expected) << to_string(dtype);
  }
}

}  // namespace
}  // namespace sinter::ops
