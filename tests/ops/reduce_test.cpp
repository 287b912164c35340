// Reductions and selections: errors by their exact text, special values, integer dtypes, empty tensors,
// determinism.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/core/runtime/random.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/argmax/argmax.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reduce/reduce_plan.h>
#include <sinter/ops/topk/topk.h>

#include "common/error_message.h"

namespace sinter::ops {
namespace {

using test::message_of;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

template <class T>
Tensor row(std::vector<T> values) {
  const auto count = static_cast<int64_t>(values.size());
  return Tensor::from_values(values, {count});
}

TEST(ArgmaxOfAll, IsThePlaceInRowMajorOrder) {
  EXPECT_EQ(argmax(Tensor::from_values<float>({1, 7, 3, 7, 2, 0}, {2, 3})).to_vector<int64_t>(),
            std::vector<int64_t>{1});
  EXPECT_EQ(argmax(Tensor::from_values<float>({1, 2, 3, NAN}, {2, 2})).item(), 3);
  EXPECT_EQ(argmax(Tensor::scalar(5.0f)).shape(), Shape{});
  EXPECT_EQ(argmax(Tensor::scalar(5.0f)).item(), 0);
  EXPECT_THROW(argmax(Tensor::zeros({0, 2})), InvalidArgument);
}

TEST(ReducePlan, BringsLayoutsToOneForm) {
  const AxisMask nchw = reduced_axes(std::vector<int64_t>{0, 2, 3}, 4, "test");
  const ReducePlan a = plan_reduction({2, 3, 4, 5}, nchw);
  EXPECT_EQ(a.columns, 1);
  EXPECT_EQ(a.rows, 20);
  EXPECT_EQ(a.kept.count(), 3);
  EXPECT_EQ(a.reduced.count(), 2);
  EXPECT_EQ(a.reduced.strides[0], 60);
  EXPECT_EQ(a.terms(), 40);

  const ReducePlan b = plan_reduction({2, 4, 5, 3}, reduced_axes(std::vector<int64_t>{0, 1, -2}, 4, "test"));
  EXPECT_EQ(b.columns, 3);
  EXPECT_EQ(b.rows, 40);
  EXPECT_EQ(b.kept.rank + b.reduced.rank, 0);

  const ReducePlan all = plan_reduction({2, 1, 7}, reduced_axes({}, 3, "test"));
  EXPECT_EQ(all.rows, 14);
  EXPECT_EQ(all.outputs(), 1);

  // An axis of extent 1 does not part its neighbours.
  const ReducePlan none = plan_reduction({2, 1, 7}, reduced_axes(std::vector<int64_t>{1}, 3, "test"));
  EXPECT_EQ(none.columns, 14);
  EXPECT_EQ(none.terms(), 1);
}

TEST(ReducePlan, AlternatingAxes) {
  const Shape x{2, 3, 4, 5, 6};
  const ReducePlan plan = plan_reduction(x, reduced_axes(std::vector<int64_t>{1, 3}, 5, "test"));
  EXPECT_EQ(plan.columns, 6);
  EXPECT_EQ(plan.rows, 5);
  EXPECT_EQ(plan.kept.offset(5), 360 + 30);  // index (1, 1) of axes 0 and 2
  EXPECT_EQ(plan.reduced.offset(2), 240);
}

TEST(Reduce, Errors) {
  const Tensor x = zeros({2, 3});
  EXPECT_EQ(message_of([&] { sum(x, {2}); }), "[sum] axis 2 is out of range for a tensor of rank 2");
  EXPECT_EQ(message_of([&] { max(x, {1, -1}); }), "[max] axis -1 is named twice");
  EXPECT_EQ(message_of([&] { mean(cast(x, DType::kInt32)); }),
            "[mean] expected x of a floating-point dtype but got int32");
  EXPECT_EQ(message_of([] {
              min(zeros({2, 0}), {1});
            }),
            "[min] expected at least one element to reduce but got shape (2, 0)");
  EXPECT_EQ(message_of([&] {
              sum_to(x, {2, 1, 3});
            }),
            "[sum_to] expected a shape that can be broadcast to (2, 3) but got (2, 1, 3)");
  EXPECT_EQ(message_of([&] {
              broadcast_to(x, {2, 1});
            }),
            "[broadcast_to] expected a shape to which (2, 3) can be broadcast but got (2, 1)");
}

TEST(Reduce, EmptyTensors) {
  EXPECT_EQ(sum(zeros({2, 0}), {1}).to_vector<float>(), (std::vector<float>{0, 0}));
  EXPECT_TRUE(std::isnan(mean(zeros({0})).item()));
  EXPECT_EQ(max(zeros({0, 3}), {1}).shape(), (Shape{0}));
  EXPECT_EQ(sum(zeros({0, 3}), {1}, {.keep_dims = true}).shape(), (Shape{0, 1}));
  EXPECT_EQ(sum(Tensor::scalar(3.0F)).item(), 3);
  const Tensor x = zeros({2, 0}).set_requires_grad(true);
  backward(sum(mean(x, {1})));
  EXPECT_EQ(x.grad().shape(), (Shape{2, 0}));
}

TEST(Reduce, IntegersAddUpToInt64) {
  EXPECT_EQ(sum(full({1000, 300}, 255, DType::kUInt8)).item(), 76500000);
  EXPECT_EQ(sum(full({3}, 0x7fffffff, DType::kInt32)).dtype(), DType::kInt64);
  EXPECT_EQ(sum(full({3}, 0x7fffffff, DType::kInt32)).item(), 3.0 * 0x7fffffff);
  EXPECT_EQ(sum(ones({77}, DType::kBool)).item(), 77);
  EXPECT_EQ(max(row<int32_t>({-5, -3})).item(), -3);
  EXPECT_EQ(min(row<uint8_t>({9, 4})).dtype(), DType::kUInt8);
}

TEST(Reduce, ExtremesWithNaNAndInfinity) {
  EXPECT_TRUE(std::isnan(max(row<float>({1, kNaN, 3})).item()));
  EXPECT_TRUE(std::isnan(min(row<float>({kNaN, 1, 3})).item()));
  EXPECT_EQ(max(row<float>({-kInf, -kInf})).item(), -kInf);
  const Tensor x = row<float>({1, 3, 3}).set_requires_grad(true);
  backward(max(x));
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, 1, 0}));
}

TEST(Reduce, LargeSumsStayAccurate) {
  // A lane adds at most 128 terms one after another and 256 lanes fold in 8 steps, each rounding by 2^-24 at
  // most; the segments add up in double. One float32 sum over all terms would be off by several per cent.
  constexpr double kBound = (128 + 8) * 0x1p-24;
  const double term = double{0.1F};
  EXPECT_NEAR(sum(full({1 << 22}, 0.1)).item() / (term * (1 << 22)), 1.0, kBound);
  EXPECT_NEAR(sum(full({1 << 20, 4}, 0.1), {0}).to_vector<float>()[3] / (term * (1 << 20)), 1.0, kBound);
  EXPECT_EQ(cast(mean(ones({100000}, DType::kFloat16)), DType::kFloat32).item(), 1.0);
}

TEST(Reduce, DoesNotDependOnThreads) {
  const int threads = num_threads();
  std::vector<float> values(1 << 20);
  Generator generator(1);
  for (float& value : values) value = generator.uniform() - 0.5F;
  const Tensor x = Tensor::from_values(values, {64, 4, 64, 64});
  for (const std::vector<int64_t>& axes : {std::vector<int64_t>{}, {0, 2, 3}, {0, 1, 2}, {3}}) {
    set_num_threads(1);
    const std::vector<float> one = sum(x, axes).to_vector<float>();
    set_num_threads(2);
    EXPECT_EQ(sum(x, axes).to_vector<float>(), one);
  }
  set_num_threads(threads);
}

TEST(Argmax, FirstOfEqualsAndNaN) {
  EXPECT_EQ(argmax(row<float>({1, 3, 3, 2}), 0).item(), 1);
  EXPECT_EQ(argmax(row<float>({1, kNaN, kInf, kNaN}), 0).item(), 1);
  EXPECT_EQ(argmax(row<uint8_t>({1, 9}), -1, {.keep_dims = true}).shape(), (Shape{1}));
  EXPECT_EQ(argmax(zeros({0, 3}), 1).shape(), (Shape{0}));
  EXPECT_EQ(message_of([] {
              argmax(zeros({3, 0}), 1);
            }),
            "[argmax] expected elements along axis 1 but got shape (3, 0)");
  EXPECT_EQ(message_of([] { argmax(Tensor::scalar(1.0F), 0); }),
            "[argmax] axis 0 is out of range for a tensor of rank 0");
}

TEST(TopK, OrderOfEqualsAndNaN) {
  const TopK best = topk(row<float>({2, kNaN, 5, 2, 5}), 4);
  EXPECT_EQ(best.indices.to_vector<int64_t>(), (std::vector<int64_t>{1, 2, 4, 0}));
  EXPECT_TRUE(std::isnan(best.values.to_vector<float>()[0]));
  EXPECT_EQ(topk(row<int64_t>({1, 2}), 0).values.shape(), (Shape{0}));
  EXPECT_EQ(message_of([] {
              topk(zeros({2, 3}), 4);
            }),
            "[topk] expected k from 0 to 3, the extent of axis 1, but got 4");
  EXPECT_EQ(message_of([] { vjp::topk(row<float>({1}), row<int64_t>({3}), 3, 0); }),
            "[topk_grad] expected indices from 0 to 2 but got 3");
}

TEST(TopK, ManyLinesOnSeveralThreads) {
  const int threads = num_threads();
  set_num_threads(2);
  std::vector<float> values(200 * 301);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 7919 % 60013);
  const Tensor x = Tensor::from_values(values, {200, 301});
  EXPECT_EQ(topk(x, 1).values.to_vector<float>(), max(x, {1}).to_vector<float>());
  EXPECT_EQ(topk(x, 1).indices.to_vector<int64_t>(), argmax(x, 1).to_vector<int64_t>());
  set_num_threads(threads);
}

}  // namespace
}  // namespace sinter::ops
