// Losses: values by hand, and the options that reach the op.
#include <functional>
#include <random>

#include <sinter/autograd/backward.h>
#include <sinter/autograd/gradcheck.h>
#include <sinter/core/runtime/random.h>
#include <sinter/nn/loss/loss.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/softmax/softmax.h>

#include "nn/nn_test_support.h"

namespace sinter::nn {
namespace {

using testing::expect_near;
using testing::message_of;

Tensor random_tensor(const Shape& shape, uint64_t seed, double low, double high) {
  Generator generator(seed);
  const Tensor made = Tensor::empty(shape, DType::kFloat64);
  for (int64_t i = 0; i < made.numel(); ++i) {
    made.data<double>()[i] = low + (high - low) * double{generator.uniform()};
  }
  return made;
}

uint64_t fresh_seed() {
  static const uint64_t seed = std::random_device()();
  return seed;
}

using Loss = std::function<Tensor(const Tensor&, const Tensor&)>;

/// The gradient with respect to the first argument and, if asked for, the second.
void expect_gradient(const Loss& loss, const Tensor& a, const Tensor& b, bool of_second = false) {
  const Tensor first = a.detach().set_requires_grad(true);
  const Tensor second = of_second ? b.detach().set_requires_grad(true) : b;
  const GradcheckResult result =
      gradcheck([&](const auto& in) { return std::vector<Tensor>{loss(in[0], in[1])}; }, {first, second});
  EXPECT_TRUE(result) << result.message;
}

/// The terms of a loss of two tensors element by element, its mean and its sum.
template <class L>
void expect_elementwise(L loss, const Tensor& a, const Tensor& b,
                        const std::function<double(double, double)>& term) {
  std::vector<double> terms;
  double sum = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    terms.push_back(term(a.data<double>()[i], b.data<double>()[i]));
    sum += terms.back();
  }
  EXPECT_NEAR(loss(a, b).item(), sum / static_cast<double>(a.numel()), 1e-12);
  loss.reduction = Reduction::kSum;
  EXPECT_NEAR(loss(a, b).item(), sum, 1e-11);
  loss.reduction = Reduction::kNone;
  const Tensor each = loss(a, b);
  EXPECT_EQ(each.shape(), a.shape());
  expect_near<double>(each, terms, 1e-12);
  EXPECT_THROW((void)loss(a, Tensor::zeros({1}, DType::kFloat64)), InvalidArgument);
}

TEST(LossTest, L1HuberAndSmoothL1) {
  SCOPED_TRACE(fmt::format("seed {}", fresh_seed()));
  const Tensor a = random_tensor({5, 7}, fresh_seed(), -3, 3),
               b = random_tensor({5, 7}, fresh_seed() + 1, -3, 3);
  const auto huber = [](double delta) {
    return [delta](double x, double y) {
      const double d = std::abs(x - y);
      return d < delta ? d * d / 2 : delta * (d - delta / 2);
    };
  };
  expect_elementwise(L1Loss{}, a, b, [](double x, double y) { return std::abs(x - y); });
  expect_elementwise(HuberLoss{.delta = 1.3}, a, b, huber(1.3));
  expect_elementwise(SmoothL1Loss{.beta = 0.7}, a, b,
                     [&](double x, double y) { return huber(0.7)(x, y) / 0.7; });
  expect_elementwise(SmoothL1Loss{.beta = 0.0}, a, b, [](double x, double y) { return std::abs(x - y); });
  for (const Loss& loss : {Loss(L1Loss{}), Loss(HuberLoss{.delta = 1.3}), Loss(SmoothL1Loss{.beta = 0.7})}) {
    expect_gradient(loss, a, b, true);
  }
  // At 0 all are flat, and beyond delta the slope is delta.
  const Tensor zero = Tensor::zeros({1}, DType::kFloat64).set_requires_grad(true);
  backward(L1Loss{}(zero, Tensor::zeros({1}, DType::kFloat64)));
  EXPECT_EQ(zero.grad().item(), 0.0);
  EXPECT_EQ(message_of([&] { HuberLoss{.delta = 0.0}(a, b); }), "[huber_loss] expected delta > 0 but got 0");
}

TEST(LossTest, BinaryCrossEntropyOfLogits) {
  SCOPED_TRACE(fmt::format("seed {}", fresh_seed()));
  const Tensor x = random_tensor({4, 6}, fresh_seed(), -4, 4),
               t = random_tensor({4, 6}, fresh_seed() + 1, 0, 1);
  const auto term = [](double weight) {
    return [weight](double logit, double target) {
      const double p = 1 / (1 + std::exp(-logit));
      return -weight * target * std::log(p) - (1 - target) * std::log(1 - p);
    };
  };
  expect_elementwise(BCEWithLogitsLoss{}, x, t, term(1.0));
  expect_elementwise(BCEWithLogitsLoss{.pos_weight = 2.5}, x, t, term(2.5));
  expect_gradient(BCEWithLogitsLoss{.pos_weight = 2.5}, x, t, true);
}

TEST(LossTest, BinaryCrossEntropyIsExactAtItsEnds) {
  const Tensor logits = Tensor::from_values<float>({0, 30, -30, 200, -200}, {5}).set_requires_grad(true);
  const Tensor target = Tensor::from_values<float>({1, 1, 0, 0, 1}, {5});
  const Tensor loss = BCEWithLogitsLoss{.reduction = Reduction::kNone}(logits, target);
  const float tiny = std::exp(-30.0f);
  const std::vector<float> expected{std::log(2.0f), tiny, tiny, 200, 200};
  const std::vector<float> got = loss.to_vector<float>();
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-6f * expected[i]) << i;
  backward(loss, {.gradient = Tensor::full({5}, 1.0)});
  // sigmoid(x) - target; at 0 it is -1/2, whatever the kinks of a formula with max and abs would give.
  expect_near<float>(logits.grad(), {-0.5f, -tiny, tiny, 1, -1}, 1e-7);
}

TEST(LossTest, SixteenBitsAreWidened) {
  // A sum of squares beyond float16.
  const Tensor x = Tensor::full({64}, 100.0, DType::kFloat16).set_requires_grad(true);
  const Tensor loss = MSELoss{.reduction = Reduction::kSum}(x, Tensor::zeros({64}, DType::kFloat16));
  EXPECT_EQ(loss.dtype(), DType::kFloat32);
  EXPECT_EQ(loss.item(), 640000);
  backward(loss);
  EXPECT_EQ(x.grad().dtype(), DType::kFloat16);
  const Tensor y = Tensor::full({2, 2}, 0.5, DType::kBFloat16);
  EXPECT_EQ(BCEWithLogitsLoss{}(y, y).dtype(), DType::kFloat32);
  EXPECT_EQ(KLDivLoss{}(y, y).dtype(), DType::kFloat32);
  EXPECT_EQ(SmoothL1Loss{}(y, y).dtype(), DType::kFloat32);
}

TEST(LossTest, KullbackLeiblerDivergence) {
  SCOPED_TRACE(fmt::format("seed {}", fresh_seed()));
  const Tensor log_q = random_tensor({3, 4}, fresh_seed(), -3, -0.1);
  const Tensor p = random_tensor({3, 4}, fresh_seed() + 1, 0.05, 0.9);
  const auto term = [](double q, double t) { return t * (std::log(t) - q); };
  double sum = 0;
  std::vector<double> terms, logs;
  for (int64_t i = 0; i < p.numel(); ++i) {
    terms.push_back(term(log_q.data<double>()[i], p.data<double>()[i]));
    logs.push_back(std::log(p.data<double>()[i]));
    sum += terms.back();
  }
  const Tensor log_p = Tensor::from_values(logs, {3, 4});
  EXPECT_NEAR(KLDivLoss{}(log_q, p).item(), sum / 3, 1e-12) << "per sample, as torch's batchmean";
  EXPECT_NEAR(KLDivLoss{.reduction = Reduction::kSum}(log_q, p).item(), sum, 1e-12);
  expect_near<double>(KLDivLoss{.reduction = Reduction::kNone}(log_q, p), terms, 1e-12);
  EXPECT_NEAR(KLDivLoss{.log_target = true}(log_q, log_p).item(), sum / 3, 1e-12);
  expect_gradient(KLDivLoss{}, log_q, p, true);
  expect_gradient(KLDivLoss{.log_target = true}, log_q, log_p, true);
  const Tensor certain = Tensor::from_values<float>({0, 1}, {1, 2});
  EXPECT_FLOAT_EQ(
      static_cast<float>(KLDivLoss{}(Tensor::from_values<float>({-3, -2}, {1, 2}), certain).item()), 2.0f);
}

/// The loss of one row by the definition, and its weight in the mean.
struct Row {
  double loss, weight;
};
Row weighted_row(const double* logits, int64_t classes, int64_t target, const std::vector<double>& weight,
                 double smoothing) {
  double total = 0;
  for (int64_t c = 0; c < classes; ++c) total += std::exp(logits[c]);
  const auto nll = [&](int64_t c) { return std::log(total) - logits[c]; };
  double spread = 0;
  for (int64_t c = 0; c < classes; ++c) spread += weight[static_cast<size_t>(c)] * nll(c);
  const double own = weight[static_cast<size_t>(target)];
  return {(1 - smoothing) * own * nll(target) + smoothing / static_cast<double>(classes) * spread, own};
}

TEST(LossTest, ClassWeightsAsInPyTorch) {
  SCOPED_TRACE(fmt::format("seed {}", fresh_seed()));
  const int64_t rows = 9, classes = 4;
  const Tensor logits = random_tensor({rows, classes}, fresh_seed(), -2, 2);
  const std::vector<double> weight{0.2, 3.0, 1.0, 0.7};
  const std::vector<int64_t> labels{0, 1, 2, 3, -100, 1, 0, 2, -100};
  const Tensor target = Tensor::from_values(labels, {rows});
  for (const double smoothing : {0.0, 0.3}) {
    CrossEntropyLoss loss{.label_smoothing = smoothing, .weight = Tensor::from_values(weight, {classes})};
    std::vector<double> each;
    double sum = 0, total = 0;
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t label = labels[static_cast<size_t>(i)];
      const Row row =
          label < 0 ? Row{0, 0}
                    : weighted_row(logits.data<double>() + i * classes, classes, label, weight, smoothing);
      each.push_back(row.loss);
      sum += row.loss;
      total += row.weight;
    }
    EXPECT_NEAR(loss(logits, target).item(), sum / total, 1e-12);
    expect_gradient(loss, logits, target);
    loss.reduction = Reduction::kSum;
    EXPECT_NEAR(loss(logits, target).item(), sum, 1e-12);
    loss.reduction = Reduction::kNone;
    expect_near<double>(loss(logits, target), each, 1e-12);
  }
  EXPECT_EQ(message_of(
                [&] { CrossEntropyLoss{.weight = Tensor::full({3}, 1.0, DType::kFloat64)}(logits, target); }),
            "[cross_entropy] expected class weights float64 (4,) but got float64 (3,)");
}

TEST(LossTest, ClassWeightsOfProbabilities) {
  SCOPED_TRACE(fmt::format("seed {}", fresh_seed()));
  const int64_t rows = 5, classes = 3;
  const Tensor logits = random_tensor({rows, classes}, fresh_seed(), -2, 2);
  const Tensor p = random_tensor({rows, classes}, fresh_seed() + 1, 0, 1);
  const std::vector<double> weight{0.5, 2.0, 1.0};
  const CrossEntropyLoss loss{.label_smoothing = 0.1, .weight = Tensor::from_values(weight, {classes})};
  double sum = 0;
  for (int64_t i = 0; i < rows; ++i) {
    const double* x = logits.data<double>() + i * classes;
    double total = 0;
    for (int64_t c = 0; c < classes; ++c) total += std::exp(x[c]);
    for (int64_t c = 0; c < classes; ++c) {
      const double q = 0.9 * p.data<double>()[i * classes + c] + 0.1 / classes;
      sum += weight[static_cast<size_t>(c)] * q * (std::log(total) - x[c]);
    }
  }
  EXPECT_NEAR(loss(logits, p).item(), sum / rows, 1e-12) << "the mean is over the rows";
  expect_gradient(loss, logits, p, true);
}

TEST(LossTest, CrossEntropyOfOneSampleAndOfPixels) {
  SCOPED_TRACE(fmt::format("seed {}", fresh_seed()));
  const Tensor one = random_tensor({4}, fresh_seed(), -2, 2);
  const Tensor row = Tensor::from_values(one.to_vector<double>(), {1, 4});
  const double expected = CrossEntropyLoss{}(row, Tensor::from_values<int64_t>({2}, {1})).item();
  EXPECT_DOUBLE_EQ(CrossEntropyLoss{}(one, Tensor::scalar(int64_t{2})).item(), expected);
  const Tensor none = CrossEntropyLoss{.reduction = Reduction::kNone}(one, Tensor::scalar(int64_t{2}));
  EXPECT_EQ(none.shape(), Shape{});
  EXPECT_DOUBLE_EQ(CrossEntropyLoss{}(one, Tensor::from_values<double>({0, 0, 1, 0}, {4})).item(), expected);

  const Tensor image = random_tensor({2, 4, 3, 5}, fresh_seed() + 1, -2, 2);
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < 30; ++i) labels.push_back(i * 7 % 4);
  const Tensor target = Tensor::from_values(labels, {2, 3, 5});
  const Tensor last = ops::permute(image, {0, 2, 3, 1});
  const Tensor flat = Tensor::from_values(last.to_vector<double>(), {30, 4});
  const double mean = CrossEntropyLoss{}(flat, Tensor::from_values(labels, {30})).item();
  EXPECT_NEAR(CrossEntropyLoss{}(image, target).item(), mean, 1e-14);
  EXPECT_NEAR(CrossEntropyLoss{.layout = Layout::kNHWC}(last, target).item(), mean, 1e-14);
  EXPECT_EQ((CrossEntropyLoss{.reduction = Reduction::kNone}(image, target).shape()), (Shape{2, 3, 5}));
  expect_gradient(CrossEntropyLoss{}, image, target);
  const Tensor p = random_tensor({2, 4, 3, 5}, fresh_seed() + 2, 0, 1);
  expect_gradient(CrossEntropyLoss{}, image, p, true);
  EXPECT_EQ(message_of([&] {
              CrossEntropyLoss{}(image, Tensor::zeros({2, 4}, DType::kInt64));
            }),
            "[cross_entropy] expected class indices of shape (2, 3, 5) but got (2, 4)");
}

TEST(LossTest, LabelsInAColumnAreNamed) {
  EXPECT_EQ(
      message_of([] {
        CrossEntropyLoss{}(Tensor::zeros({3, 2}), Tensor::zeros({3, 1}, DType::kInt64));
      }),
      "[cross_entropy] expected class indices of shape (3,), one for each row of the logits, but got shape "
      "(3, 1); ops::squeeze(target, 1) gives it");
}

TEST(LossTest, CrossEntropyPassesItsOptions) {
  // Softmax of (0, ln 3) is (1/4, 3/4).
  const Tensor logits = Tensor::from_values<double>({0, std::log(3.0), std::log(3.0), 0}, {2, 2});
  const Tensor target = Tensor::from_values<int64_t>({0, 0}, {2});
  const double wrong = std::log(4.0), right = std::log(4.0 / 3.0);
  EXPECT_NEAR(CrossEntropyLoss{}(logits, target).item(), (wrong + right) / 2, 1e-15);
  expect_near<double>(CrossEntropyLoss{.reduction = Reduction::kNone}(logits, target), {wrong, right}, 1e-15);
  EXPECT_NEAR(CrossEntropyLoss{.label_smoothing = 1.0}(logits, target).item(), (wrong + right) / 2, 1e-15);
  expect_near<double>(
      (CrossEntropyLoss{.label_smoothing = 0.2, .reduction = Reduction::kNone}(logits, target)),
      {0.9 * wrong + 0.1 * right, 0.9 * right + 0.1 * wrong}, 1e-15);
  const Tensor ignoring = Tensor::from_values<int64_t>({7, 0}, {2});
  EXPECT_NEAR(CrossEntropyLoss{.ignore_index = 7}(logits, ignoring).item(), right, 1e-15);
}

TEST(LossTest, MseAveragesSquares) {
  const Tensor prediction = Tensor::from_values<double>({1, 2, 4}, {3}).set_requires_grad(true);
  const Tensor target = Tensor::from_values<double>({1, 4, 1}, {3});
  const Tensor loss = MSELoss{}(prediction, target);
  EXPECT_NEAR(loss.item(), 13.0 / 3, 1e-15);
  backward(loss);
  expect_near<double>(prediction.grad(), {0, -4.0 / 3, 2}, 1e-15);
  EXPECT_NEAR(MSELoss{.reduction = Reduction::kSum}(prediction, target).item(), 13, 1e-15);
  expect_near<double>(MSELoss{.reduction = Reduction::kNone}(prediction, target), {0, 4, 9}, 1e-15);
  EXPECT_EQ(message_of([&] {
              MSELoss{}(prediction, Tensor::zeros({3, 1}, DType::kFloat64));
            }),
            "[mse_loss] expected two tensors of one shape but got (3,) and (3, 1)");
}

TEST(LossTest, NegativeLogLikelihoodOfLogSoftmaxIsTheCrossEntropy) {
  SCOPED_TRACE(fmt::format("seed {}", fresh_seed()));
  const Tensor weight = Tensor::from_values<double>({0.5, 2, 0, 1}, {4});
  const std::vector<int64_t> classes = {1, 3, -100, 0, 2, 1};
  for (const bool weighted : {false, true}) {
    for (const Reduction reduction : {Reduction::kMean, Reduction::kSum, Reduction::kNone}) {
      NLLLoss loss{.reduction = reduction};
      CrossEntropyLoss whole{.reduction = reduction};
      if (weighted) loss.weight = whole.weight = weight;
      const auto expect = [&](const Tensor& x, const Tensor& target, int64_t axis) {
        const auto of_logits = [&](const Tensor& t, const Tensor& c) {
          return loss(ops::log_softmax(t, axis), c);
        };
        expect_near<double>(of_logits(x, target), whole(x, target).to_vector<double>(), 1e-12);
        EXPECT_EQ(of_logits(x, target).shape(), whole(x, target).shape());
        expect_gradient(of_logits, x, target);
      };
      expect(random_tensor({6, 4}, fresh_seed(), -2, 2), Tensor::from_values(classes, {6}), 1);
      const Tensor images = random_tensor({1, 4, 2, 3}, fresh_seed() + 1, -2, 2);
      expect(images, Tensor::from_values(classes, {1, 2, 3}), 1);
      loss.layout = whole.layout = Layout::kNHWC;
      expect(ops::permute(images, {0, 2, 3, 1}), Tensor::from_values(classes, {1, 2, 3}), 3);
    }
  }
  // A class of probability 0 that weighs nothing.
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor x = Tensor::from_values<double>({-infinity, 0}, {1, 2});
  const NLLLoss weighted{.reduction = Reduction::kSum, .weight = Tensor::from_values<double>({0, 1}, {2})};
  EXPECT_EQ(weighted(x, Tensor::from_values<int64_t>({0}, {1})).item(), 0.0);
  EXPECT_EQ(
      message_of([&] { NLLLoss{}(x, Tensor::zeros({2}, DType::kInt64)); }),
      "[nll_loss] expected a class index for each sample of log-probabilities (1, 2) but got shape (2,)");
}

TEST(LossTest, NegativeLogLikelihoodChecksClassWeightsAndLabels) {
  const Tensor x = Tensor::zeros({2, 3}), target = Tensor::from_values<int64_t>({0, 2}, {2});
  for (const Shape& shape : {Shape{2}, Shape{5}, Shape{3, 1}}) {
    EXPECT_EQ(message_of([&] { NLLLoss{.weight = Tensor::ones(shape)}(x, target); }),
              fmt::format("[nll_loss] expected class weights float32 (3,) but got float32 {}", shape));
  }
  EXPECT_THROW(NLLLoss{.weight = Tensor::ones({3}, DType::kFloat64)}(x, target), InvalidArgument);
  EXPECT_NO_THROW(NLLLoss{.weight = Tensor::ones({3})}(x, target));
  for (const int64_t label : {-1, 3}) {
    EXPECT_EQ(message_of([&] {
                NLLLoss{}(x, Tensor::from_values<int64_t>({0, label}, {2}));
              }),
              fmt::format("[nll_loss] expected class indices in [0, 3) or ignore_index -100 but got {} at "
                          "position 1",
                          label));
  }
}

TEST(LossTest, TripletsAndCosines) {
  SCOPED_TRACE(fmt::format("seed {}", fresh_seed()));
  const int64_t rows = 6, columns = 5;
  const Tensor a = random_tensor({rows, columns}, fresh_seed(), -1, 1),
               p = random_tensor({rows, columns}, fresh_seed() + 1, -1, 1),
               n = random_tensor({rows, columns}, fresh_seed() + 2, -1, 1);
  const auto at = [&](const Tensor& x, int64_t row, int64_t column) {
    return x.data<double>()[row * columns + column];
  };
  const auto distance = [&](const Tensor& x, const Tensor& y, int64_t row) {
    double sum = 0;
    for (int64_t i = 0; i < columns; ++i) sum += std::pow(at(x, row, i) - at(y, row, i) + 1e-6, 2);
    return std::sqrt(sum);
  };
  const auto dot = [&](const Tensor& x, const Tensor& y, int64_t row) {
    double sum = 0;
    for (int64_t i = 0; i < columns; ++i) sum += at(x, row, i) * at(y, row, i);
    return sum;
  };
  for (const bool swap : {false, true}) {
    const TripletMarginLoss loss{.margin = 0.7, .swap = swap, .reduction = Reduction::kNone};
    std::vector<double> expected;
    for (int64_t r = 0; r < rows; ++r) {
      const double far = swap ? std::min(distance(a, n, r), distance(p, n, r)) : distance(a, n, r);
      expected.push_back(std::max(distance(a, p, r) - far + 0.7, 0.0));
    }
    expect_near<double>(loss(a, p, n), expected, 1e-12);
    expect_gradient([&](const Tensor& x, const Tensor& y) { return loss(x, y, n); }, a, p, true);
  }
  // Rows that are equal have a gradient that is finite.
  const Tensor same = a.detach().set_requires_grad(true);
  backward(TripletMarginLoss{}(same, a, a));
  for (const double value : same.grad().to_vector<double>()) EXPECT_TRUE(std::isfinite(value));

  const Tensor target = Tensor::from_values<double>({1, -1, 1, -1, -1, 1}, {rows});
  const CosineEmbeddingLoss loss{.margin = -0.3, .reduction = Reduction::kNone};
  std::vector<double> expected;
  for (int64_t r = 0; r < rows; ++r) {
    const double cosine = dot(a, p, r) / std::sqrt((dot(a, a, r) + 1e-12) * (dot(p, p, r) + 1e-12));
    expected.push_back(target.data<double>()[r] == 1 ? 1 - cosine : std::max(cosine + 0.3, 0.0));
  }
  expect_near<double>(loss(a, p, target), expected, 1e-12);
  expect_gradient([&](const Tensor& x, const Tensor& y) { return loss(x, y, target); }, a, p, true);
  EXPECT_THROW(loss(a, n, Tensor::zeros({2}, DType::kFloat64)), InvalidArgument);
}

}  // namespace
}  // namespace sinter::nn
