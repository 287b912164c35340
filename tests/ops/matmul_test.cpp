// matmul, linear, matvec and outer beyond their samples: values by hand, empty extents, exact messages, and
// independence of the number of threads.
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/core/op/call_observer.h>
#include <sinter/core/runtime/random.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/gemv/gemv.h>
#include <sinter/ops/matmul/matmul.h>
#include <sinter/ops/reduce/reduce.h>

#include "common/error_message.h"

namespace sinter::ops {
namespace {

using test::message_of;

Tensor random_tensor(const Shape& shape, uint64_t seed) {
  Generator generator(seed);
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (float& value : values) value = 2.0F * generator.uniform() - 1.0F;
  return Tensor::from_values(values, shape);
}

TEST(Matmul, ReadsOperandsTransposed) {
  const Tensor a = Tensor::from_values<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor b = Tensor::from_values<float>({1, 0, 2, 1, 0, 3}, {3, 2});
  EXPECT_EQ(matmul(a, b).to_vector<float>(), (std::vector<float>{5, 11, 14, 23}));
  const Tensor at = Tensor::from_values<float>({1, 4, 2, 5, 3, 6}, {3, 2});
  const Tensor bt = Tensor::from_values<float>({1, 2, 0, 0, 1, 3}, {2, 3});
  EXPECT_EQ(matmul(at, b, {.transpose_a = true}).to_vector<float>(), (std::vector<float>{5, 11, 14, 23}));
  EXPECT_EQ(matmul(a, bt, {.transpose_b = true}).to_vector<float>(), (std::vector<float>{5, 11, 14, 23}));
  EXPECT_EQ(matmul(at, bt, {true, true}).to_vector<float>(), (std::vector<float>{5, 11, 14, 23}));
}

TEST(Matmul, BroadcastsTheBatch) {
  const Tensor a = Tensor::from_values<float>({1, 2, 3, 4}, {2, 1, 1, 2});
  const Tensor b = Tensor::from_values<float>({1, 1, 1, -1, 2, 0}, {3, 2, 1});
  const Tensor y = matmul(a, b);
  EXPECT_EQ(y.shape(), (Shape{2, 3, 1, 1}));
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{3, -1, 2, 7, -1, 6}));
}

TEST(Matmul, EmptySumsAreZero) {
  EXPECT_EQ(matmul(Tensor::zeros({2, 0}), Tensor::zeros({0, 3})).to_vector<float>(),
            std::vector<float>(6, 0.0F));
  EXPECT_EQ(matmul(Tensor::zeros({0, 2}), Tensor::zeros({2, 3})).shape(), (Shape{0, 3}));
  EXPECT_EQ(matmul(Tensor::zeros({0, 4, 2}), Tensor::zeros({2, 3})).shape(), (Shape{0, 4, 3}));
  const Tensor bias = Tensor::from_values<float>({1, 2}, {2});
  EXPECT_EQ(linear(Tensor::zeros({1, 0}), Tensor::zeros({2, 0}), bias).to_vector<float>(),
            (std::vector<float>{1, 2}));
  EXPECT_EQ(vjp::linear_weight(Tensor::zeros({0, 2}), Tensor::zeros({0, 1})).to_vector<float>(),
            (std::vector<float>{0, 0}));
  EXPECT_EQ(matvec(Tensor::zeros({2, 0}), Tensor::zeros({0})).to_vector<float>(), (std::vector<float>{0, 0}));
}

TEST(Matmul, ResultsDoNotDependOnTheThreads) {
  const int threads = num_threads();
  const Tensor a = random_tensor({3, 150, 210}, 1), b = random_tensor({210, 170}, 2),
               c = random_tensor({3, 210, 130}, 3);
  const Tensor x = random_tensor({210}, 4);
  std::vector<std::vector<float>> first;
  for (const int count : {1, 2, 5}) {
    set_num_threads(count);
    const std::vector<std::vector<float>> results = {
        matmul(a, b).to_vector<float>(), matmul(a, c).to_vector<float>(),
        vjp::linear_weight(a, a).to_vector<float>(), matvec(a, x).to_vector<float>(),
        matvec(b, x, {.transpose_a = true}).to_vector<float>()};
    if (first.empty()) first = results;
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(std::memcmp(results[i].data(), first[i].data(), first[i].size() * sizeof(float)), 0)
          << "result " << i << " with " << count << " threads";
    }
  }
  set_num_threads(threads);
}

/// Rows of any length, alone and beside others, some with a NaN behind the row that must not count.
TEST(Matvec, RowsOfAnyLengthAloneAndBesideOthers) {
  for (int64_t columns = 1; columns <= 75; ++columns) {
    const Tensor x = random_tensor({columns}, 7);
    const std::vector<float> factors = x.to_vector<float>();
    std::vector<float> values =
        random_tensor({9, columns}, static_cast<uint64_t>(columns)).to_vector<float>();
    values[static_cast<size_t>(5 * columns)] = std::numeric_limits<float>::quiet_NaN();
    const Tensor a = Tensor::from_values(values, {9, columns});
    const std::vector<float> y = matvec(a, x).to_vector<float>();
    for (int64_t row = 0; row < 9; ++row) {
      const auto first = values.begin() + row * columns;
      const std::vector<float> own(first, first + columns);
      const float alone = matvec(Tensor::from_values(own, {1, columns}), x).to_vector<float>()[0];
      double exact = 0;
      for (size_t i = 0; i < own.size(); ++i) exact += double{own[i]} * double{factors[i]};
      const float got = y[static_cast<size_t>(row)];
      if (row == 5) {
        EXPECT_TRUE(std::isnan(got));
      } else {
        EXPECT_EQ(got, alone) << columns << " columns, row " << row;
        EXPECT_NEAR(got, exact, 1e-5);
      }
    }
  }
}

TEST(Linear, GradientsOfWeightAndBiasByHand) {
  const Tensor dy = Tensor::from_values<float>({1, 2, 3, 4, 5, 6}, {3, 2});
  const Tensor x = Tensor::from_values<float>({1, 0, 0, 1, 1, 1}, {3, 2});
  const auto [weight, bias] = vjp::linear_weight_bias(dy, x);
  EXPECT_EQ(weight.to_vector<float>(), (std::vector<float>{6, 8, 8, 10}));
  EXPECT_EQ(bias.to_vector<float>(), (std::vector<float>{9, 12}));
  const auto [no_weight, zeros] = vjp::linear_weight_bias(Tensor::zeros({0, 2}), Tensor::zeros({0, 3}));
  EXPECT_EQ(no_weight.to_vector<float>(), std::vector<float>(6, 0.0F));
  EXPECT_EQ(zeros.to_vector<float>(), std::vector<float>(2, 0.0F));
}

/// The ops that run while it lives.
class OpNames final : public CallObserver {
 public:
  OpNames() : previous_(set_call_observer(this)) {}
  ~OpNames() override { set_call_observer(previous_); }
  void before(const Op& op, const Kernel&, const KernelQuery&, const Stream&) override {
    names.insert(op.name());
  }
  void after(const Stream&) override {}

  std::set<std::string> names;

 private:
  CallObserver* previous_;
};

TEST(Linear, BothGradientsComeFromOneCall) {
  const Tensor x = random_tensor({5, 3}, 1);
  for (const bool wants_weight : {false, true}) {
    for (const bool wants_bias : {false, true}) {
      const Tensor weight = random_tensor({2, 3}, 2).set_requires_grad(wants_weight);
      const Tensor bias = random_tensor({2}, 3).set_requires_grad(wants_bias);
      const Tensor y = linear(x, weight, bias);
      if (!y.requires_grad()) continue;
      OpNames ops;
      backward(sum(y));
      EXPECT_EQ(ops.names.count("linear_grad_weight_bias") == 1, wants_weight && wants_bias);
      EXPECT_EQ(ops.names.count("linear_grad_weight") == 1, wants_weight && !wants_bias);
      EXPECT_EQ(ops.names.count("sum_to") == 1, wants_bias && !wants_weight);
      EXPECT_EQ(weight.grad().defined(), wants_weight);
      EXPECT_EQ(bias.grad().defined() ? bias.grad().to_vector<float>() : std::vector<float>(),
                wants_bias ? std::vector<float>(2, 5.0F) : std::vector<float>());
    }
  }
}

TEST(MatmulErrors, NameWhatWasExpected) {
  EXPECT_EQ(message_of([] {
              matmul(Tensor::zeros({3}), Tensor::zeros({3, 2}));
            }),
            "[matmul] expected matrices of rank 2 or more but got shapes (3,) and (3, 2)");
  EXPECT_EQ(message_of([] {
              matmul(Tensor::zeros({3, 2}), Tensor::zeros({2, 3}), {.transpose_a = true});
            }),
            "[matmul] expected inner extents that agree but got shapes (3, 2) transposed and (2, 3)");
  EXPECT_EQ(message_of([] {
              matmul(Tensor::zeros({3, 2}), Tensor::zeros({2, 3}, DType::kFloat16));
            }),
            "[matmul] expected b and a of one dtype but got float16 and float32");
  EXPECT_EQ(message_of([] {
              linear(Tensor::zeros({3, 2}), Tensor::zeros({4, 3}));
            }),
            "[linear] expected x of 3 features but got shape (3, 2) (weight (4, 3))");
  EXPECT_EQ(message_of([] {
              linear(Tensor::zeros({3, 2}), Tensor::zeros({4, 2}), Tensor::zeros({2}));
            }),
            "[linear] expected bias of shape (4,) but got (2,)");
  EXPECT_EQ(message_of([] {
              vjp::linear_weight(Tensor::zeros({3, 2}), Tensor::zeros({2, 2}));
            }),
            "[linear_grad_weight] expected equal leading axes but got shapes (3, 2) and (2, 2)");
  EXPECT_EQ(message_of([] { vjp::linear_weight_bias(Tensor::zeros({2}), Tensor::zeros({3})); }),
            "[linear_grad_weight_bias] expected a leading axis but got shape (2,)");
  EXPECT_EQ(message_of([] {
              matvec(Tensor::zeros({3, 2}), Tensor::zeros({3}));
            }),
            "[matvec] expected a vector of 2 elements but got shape (3,) (matrix (3, 2))");
  EXPECT_EQ(message_of([] { outer(Tensor::scalar(1.0F), Tensor::zeros({3})); }),
            "[outer] expected two vectors but got shapes () and (3,)");
}

}  // namespace
}  // namespace sinter::ops
