// The floating-point operations that ops say of themselves, against numbers by hand.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/core/op/call_observer.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/conv2d/conv2d.h>
#include <sinter/ops/gemv/gemv.h>
#include <sinter/ops/matmul/matmul.h>
#include <sinter/ops/reduce/reduce.h>

namespace sinter::ops {
namespace {

/// The op and count of each call that counts.
class Counter final : public CallObserver {
 public:
  Counter() { set_call_observer(this); }
  ~Counter() override { set_call_observer(nullptr); }
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;

  void before(const Op& op, const Kernel&, const KernelQuery& query, const Stream&) override {
    if (op.definition.flops != nullptr)
      counts.emplace_back(op.name(), op.definition.flops(query.call(), query.outputs()));
  }
  void after(const Stream&) override {}

  std::vector<std::pair<std::string, double>> counts;
};

using Counts = std::vector<std::pair<std::string, double>>;

Counts counts_of(const std::function<void()>& action) {
  Counter counter;
  action();
  return counter.counts;
}

TEST(Flops, OfConvolutionsCountTheFilterAtEveryOutput) {
  for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
    const bool nchw = layout == Layout::kNCHW;
    // The first convolution of ResNet: 118,013,952 multiply-adds, as papers count them.
    const Tensor photo = Tensor::zeros(nchw ? Shape{1, 3, 224, 224} : Shape{1, 224, 224, 3});
    const Tensor stem = Tensor::zeros(nchw ? Shape{64, 3, 7, 7} : Shape{64, 7, 7, 3});
    const Conv2dOptions options{.stride = {2, 2}, .padding = {3, 3}, .layout = layout};
    EXPECT_EQ(counts_of([&] { conv2d(photo, stem, {}, options); }), (Counts{{"conv2d", 236'027'904.0}}));

    // 2 * 4 * 4 * 4 outputs of 3 * 3 * 3 products each: 3 of the 6 channels are of an output's group.
    const Tensor x = Tensor::zeros(nchw ? Shape{2, 6, 8, 8} : Shape{2, 8, 8, 6});
    const Tensor weight = Tensor::zeros(nchw ? Shape{4, 3, 3, 3} : Shape{4, 3, 3, 3});
    const Tensor dy = Tensor::zeros({2, 4, 4, 4});
    const Conv2dOptions grouped{.stride = {2, 2}, .padding = {1, 1}, .groups = 2, .layout = layout};
    EXPECT_EQ(counts_of([&] { conv2d(x, weight, Tensor::zeros({4}), grouped); }),
              (Counts{{"conv2d", 6912.0}}));
    EXPECT_EQ(counts_of([&] {
                vjp::conv2d_input(dy, weight, {8, 8}, grouped);
              }),
              (Counts{{"conv2d_grad_input", 6912.0}}));
    EXPECT_EQ(counts_of([&] {
                vjp::conv2d_weight(dy, x, {3, 3}, grouped);
              }),
              (Counts{{"conv2d_grad_weight", 6912.0}}));
  }
  const Tensor none = Tensor::zeros({0, 1, 5, 5}), filter = Tensor::zeros({1, 1, 3, 3});
  for (const auto& [op, count] : counts_of([&] { conv2d(none, filter); })) EXPECT_EQ(count, 0.0) << op;
}

TEST(Flops, OfProductsOfMatricesAreTwicePerElementOfTheInnerAxis) {
  const Tensor a = Tensor::zeros({5, 2, 3}), b = Tensor::zeros({3, 4});
  const Tensor at = Tensor::zeros({5, 3, 2}), bt = Tensor::zeros({4, 3});
  EXPECT_EQ(counts_of([&] { matmul(a, b); }), (Counts{{"matmul", 240.0}}));
  EXPECT_EQ(counts_of([&] { matmul(at, bt, {true, true}); }), (Counts{{"matmul", 240.0}}));
  // One matrix on the left for a batch of 5 on the right.
  EXPECT_EQ(counts_of([&] { matmul(bt, at); }), (Counts{{"matmul", 240.0}}));

  EXPECT_EQ(counts_of([&] { matvec(b, Tensor::zeros({4})); }), (Counts{{"matvec", 24.0}}));
  EXPECT_EQ(counts_of([&] {
              matvec(b, Tensor::zeros({7, 3}), {.transpose_a = true});
            }),
            (Counts{{"matvec", 168.0}}));
  EXPECT_EQ(counts_of([&] { outer(Tensor::zeros({2, 3}), Tensor::zeros({4})); }), (Counts{{"outer", 48.0}}));
}

TEST(Flops, OfALinearLayerAreThreeEqualProducts) {
  const Tensor x = Tensor::zeros({7, 3}).set_requires_grad(true);
  const Tensor weight = Tensor::zeros({5, 3}).set_requires_grad(true);
  const Tensor bias = Tensor::zeros({5}).set_requires_grad(true);
  const Counts counts = counts_of([&] { backward(sum(linear(x, weight, bias))); });
  EXPECT_EQ(counts, (Counts{{"linear", 210.0}, {"matmul", 210.0}, {"linear_grad_weight_bias", 210.0}}));
  EXPECT_EQ(counts_of([&] {
              vjp::linear_weight(Tensor::zeros({7, 5}), Tensor::zeros({7, 3}));
            }),
            (Counts{{"linear_grad_weight", 210.0}}));
}

TEST(Flops, AreNotCountedOfWhatIsNoProduct) {
  EXPECT_EQ(counts_of([] { relu(Tensor::zeros({4})); }), Counts{});
}

}  // namespace
}  // namespace sinter::ops
