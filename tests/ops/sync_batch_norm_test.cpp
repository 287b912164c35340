// Batch normalisation over ranks, of a process alone: it is batch_norm. Of several: tests/processes.
#include <cmath>

#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/core/comm/communicator.h>
#include <sinter/core/op/call.h>
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/random.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/sync_batch_norm/sync_batch_norm.h>

namespace sinter::ops {
namespace {

Tensor random_tensor(const Shape& shape, double mean) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (float& value : values) value = static_cast<float>(mean + default_generator().normal());
  return Tensor::from_values(values, shape);
}

struct Case {
  Shape shape;
  Layout layout = Layout::kNCHW;
  double mean = 0.0;
};

/// y, the gradients and the running statistics.
std::vector<Tensor> run(const Case& c, const Communicator* ranks) {
  manual_seed(3);
  const int64_t channels = c.shape[c.shape.rank() == 4 && c.layout == Layout::kNHWC ? 3 : 1];
  const Tensor x = random_tensor(c.shape, c.mean).set_requires_grad(true);
  const Tensor weight = random_tensor({channels}, 1.0).set_requires_grad(true);
  const Tensor bias = random_tensor({channels}, 0.0).set_requires_grad(true);
  const Tensor dy = random_tensor(c.shape, 0.3);
  const Tensor mean = Tensor::zeros({channels}), var = Tensor::full({channels}, 1.0);
  const Tensor y = ranks != nullptr
                       ? sync_batch_norm(x, weight, bias, mean, var, {.layout = c.layout}, *ranks)
                       : batch_norm(x, weight, bias, mean, var, {.layout = c.layout});
  backward(sum(y * dy));
  return {y.detach(), x.grad(), weight.grad(), bias.grad(), mean, var};
}

TEST(SyncBatchNorm, AloneIsBatchNorm) {
  const auto alone = Communicator::join(ProcessEnvironment{});
  for (const Case& c : {Case{{6, 5}}, Case{{4, 3, 5, 7}}, Case{{4, 5, 7, 3}, Layout::kNHWC},
                        Case{{8, 4, 4, 4}, Layout::kNCHW, 1000.0}}) {
    const auto expected = run(c, nullptr), given = run(c, alone.get());
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto a = expected[i].to_vector<float>(), b = given[i].to_vector<float>();
      // The mean is rounded to float32 between the two ops.
      const double tolerance = 1e-5 * (1.0 + 10.0 * c.mean / 100.0);
      for (size_t k = 0; k < a.size(); ++k)
        ASSERT_NEAR(a[k], b[k], tolerance * std::max(1.0F, std::abs(a[k])))
            << fmt::format("{}", c.shape) << " " << i << " " << k;
    }
  }
}

TEST(SyncBatchNorm, RefusesWhatDoesNotFit) {
  const auto alone = Communicator::join(ProcessEnvironment{});
  const Tensor x = Tensor::zeros({4, 3}), three = Tensor::zeros({3}), two = Tensor::zeros({2});
  EXPECT_THROW(sync_batch_norm(x, two, three, {}, {}, {}, *alone), InvalidArgument);
  EXPECT_THROW(sync_batch_norm(x, three, three, three, {}, {}, *alone), InvalidArgument);
  EXPECT_THROW(sync_batch_norm(x, {}, {}, two, two, {}, *alone), InvalidArgument);
  EXPECT_THROW(sync_batch_norm(three, {}, {}, {}, {}, {}, *alone), InvalidArgument);
  EXPECT_THROW(sync_batch_norm(x, {}, {}, {}, {}, {.epsilon = -1.0}, *alone), InvalidArgument);
}

}  // namespace
}  // namespace sinter::ops
