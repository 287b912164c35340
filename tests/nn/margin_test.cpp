// CombinedMargin and MarginHead: PyTorch's values (tests/reference/generate_face.py), labels, precision.
#include <cmath>
#include <map>

#include <sinter/autograd/backward.h>
#include <sinter/autograd/gradcheck.h>
#include <sinter/nn/loss/margin.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/l2_normalize/l2_normalize.h>
#include <sinter/ops/matmul/matmul.h>
#include <sinter/ops/operators.h>

#include "nn/device_test_support.h"
#include "nn/nn_test_support.h"
#include "nn/reference_support.h"

namespace sinter::nn {
namespace {

using sinter::testing::Reference;
using sinter::testing::reference_values;
using sinter::testing::to_doubles;
using testing::floats;
using testing::message_of;

// float64: a few dozen roundings of 1e-16, and the slopes of margins, which stay below 3 here.
constexpr double kTolerance = 1e-13;

Tensor double_leaf(const std::string& name, const Shape& shape, double scale = 1.0) {
  const Tensor values = reference_values(name, shape, {.scale = scale});
  return ops::cast(values, DType::kFloat64).detach().set_requires_grad(true);
}

Tensor labels_of(const std::vector<int64_t>& labels, Device device = Device::cpu()) {
  return Tensor::from_values(labels, {static_cast<int64_t>(labels.size())}, device);
}

TEST(CombinedMarginReference, LogitsLossAndGradient) {
  const Reference reference("face");
  const MarginGradient exact = MarginGradient::kExact;
  const std::map<std::string, CombinedMargin> cases = {
      {"arcface", {}},
      {"arcface_exact", {.gradient = exact}},
      {"cosface", {.m2 = 0.0, .m3 = 0.4}},
      {"sphereface", {.scale = 30.0, .m1 = 1.35, .m2 = 0.0, .gradient = exact}},
      {"combined", {.scale = 32.0, .m1 = 0.9, .m2 = 0.4, .m3 = 0.15, .gradient = exact}},
      {"filter", {.interclass_filter = 0.3}}};
  const Tensor labels = labels_of({3, 0, kNoPositive, 6, 2, 2});
  for (const auto& [kind, margin] : cases) {
    const std::string name = "margin." + kind;
    const Tensor cosine = double_leaf(name + ".cosine", {6, 7}, 0.95);
    const Tensor logits = margin(cosine, labels);
    reference.expect_near(name + ".logits", logits, kTolerance);
    const Tensor loss = CrossEntropyLoss{.ignore_index = kNoPositive}(logits, labels);
    reference.expect_near(name + ".loss", loss, kTolerance);
    backward(loss);
    reference.expect_near(name + ".dcosine", cosine.grad(), kTolerance);
  }
}

TEST(MarginHeadReference, LossAndGradients) {
  const Reference reference("face");
  const std::map<std::string, CombinedMargin> cases = {
      {"arcface", {}}, {"cosface", {.m2 = 0.0, .m3 = 0.4, .gradient = MarginGradient::kExact}}};
  for (const auto& [kind, margin] : cases) {
    const std::string name = "head." + kind;
    const MarginHead head(6, 9, {.margin = margin});
    head.to(DType::kFloat64);
    head.weight.assign(reference_values(name + ".weight", {9, 6}));
    const Tensor embeddings = double_leaf(name + ".embeddings", {5, 6}, 3.0);
    const Tensor loss = head(embeddings, labels_of({8, 0, 5, kNoPositive, 5}));
    reference.expect_near(name + ".loss", loss, kTolerance);
    backward(loss);
    reference.expect_near(name + ".dembeddings", embeddings.grad(), kTolerance);
    reference.expect_near(name + ".dweight", head.weight.grad(), kTolerance);
  }
}

TEST(MarginHeadTest, ExactGradientsMatchFiniteDifferences) {
  for (const CombinedMargin& margin :
       {CombinedMargin{.scale = 8, .gradient = MarginGradient::kExact},
        CombinedMargin{.scale = 8, .m1 = 1.2, .m2 = 0.2, .m3 = 0.1, .gradient = MarginGradient::kExact}}) {
    const Tensor embeddings = double_leaf("head.check.embeddings", {4, 5}),
                 centres = double_leaf("head.check.centres", {6, 5}), labels = labels_of({3, -1, 0, 5});
    CombinedMargin used = margin;
    const auto loss = [&](const std::vector<Tensor>& x) {
      const Tensor cosine = ops::linear(ops::l2_normalize(x[0]), ops::l2_normalize(x[1]));
      return std::vector<Tensor>{CrossEntropyLoss{.ignore_index = kNoPositive}(used(cosine, labels), labels)};
    };
    const GradcheckResult result = gradcheck(loss, {embeddings, centres});
    EXPECT_TRUE(result.passed) << result.message;
    used.gradient = MarginGradient::kStraightThrough;
    EXPECT_FALSE(gradcheck(loss, {embeddings, centres}).passed) << "which is no derivative of the loss";
  }
}

TEST(MarginHeadTest, StartsFromSmallNormalCentres) {
  manual_seed(3);
  const MarginHead head(64, 500);
  EXPECT_EQ(head.weight.shape(), (Shape{500, 64}));
  const std::vector<double> values = to_doubles(head.weight);
  double sum = 0.0, squares = 0.0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  const auto count = static_cast<double>(values.size());
  // Of 32,000 values the mean deviates by 0.01 / 179 and the deviation by 0.4 %; five times that is allowed.
  EXPECT_NEAR(sum / count, 0.0, 5 * 0.01 / std::sqrt(count));
  EXPECT_NEAR(std::sqrt(squares / count), 0.01, 0.01 * 0.02);
  EXPECT_EQ(fmt::format("{}", head), "MarginHead(64, 500, scale 64, margins (1, 0.5, 0))");
  EXPECT_EQ(parameter_groups(head, {}, {.decay_vectors = false}).at(0).parameters.size(), 1u);
}

TEST(MarginHeadTest, CountsDirectionsOnly) {
  manual_seed(4);
  const MarginHead head(8, 5);
  const Tensor embeddings = floats({3, 8}, 1), labels = labels_of({4, 0, 2});
  const NoGrad no_grad;
  const double loss = head(embeddings, labels).item();
  EXPECT_NEAR(head(embeddings * 1000.0, labels).item(), loss, 1e-4 * loss);
  const std::vector<double> cosines = to_doubles(head.cosine(embeddings));
  head.weight.assign(ops::cast(head.weight * 0.01, DType::kFloat32).detach());
  EXPECT_NEAR(head(embeddings, labels).item(), loss, 1e-4 * loss);
  for (const double cosine : cosines) EXPECT_LE(std::abs(cosine), 1.0 + 1e-6);
}

TEST(MarginHeadTest, LeavesRowsWithoutPositiveOut) {
  manual_seed(5);
  const MarginHead head(4, 6), sums(4, 6, {.reduction = Reduction::kSum}),
      each(4, 6, {.reduction = Reduction::kNone});
  sums.load_state(head.state());
  each.load_state(head.state());
  const Tensor embeddings = floats({3, 4}, 1).set_requires_grad(true);
  const Tensor labels = labels_of({5, kNoPositive, 0});
  const std::vector<float> losses = each(embeddings, labels).to_vector<float>();
  EXPECT_EQ(losses[1], 0.0f);
  EXPECT_NEAR(sums(embeddings, labels).item(), losses[0] + losses[2], 1e-5 * losses[0]);
  const Tensor loss = head(embeddings, labels);
  EXPECT_NEAR(loss.item(), (losses[0] + losses[2]) / 2, 1e-5 * losses[0]);
  backward(loss);
  const std::vector<float> gradient = embeddings.grad().to_vector<float>();
  EXPECT_EQ((std::vector<float>{gradient.begin() + 4, gradient.begin() + 8}), std::vector<float>(4, 0.0f));
  EXPECT_NE(gradient[0], 0.0f);
  EXPECT_TRUE(std::isnan(head(embeddings, labels_of({-1, -1, -1})).item()));
}

TEST(MarginHeadTest, NamesWhatIsWrong) {
  const MarginHead head(4, 6);
  const Tensor embeddings = floats({2, 4}, 1);
  EXPECT_EQ(message_of([&] {
              head(embeddings, labels_of({0, 6}));
            }),
            "[combined_margin] expected labels in [0, 6), or -1 for none of these classes, but got 6 in row "
            "1");
  EXPECT_EQ(message_of([&] {
              head(embeddings, labels_of({0, 1, 2}));
            }),
            "[combined_margin] expected labels of shape (2,) but got (3,)");
  EXPECT_EQ(message_of([&] {
              head(floats({2, 5}, 1), labels_of({0, 1}));
            }),
            "[margin_head] expected embeddings of shape (N, 4) but got (2, 5)");
  EXPECT_EQ(message_of([&] {
              head(Tensor::zeros({2, 4}, DType::kInt64), labels_of({0, 1}));
            }),
            "[l2_normalize] expected x of a floating-point dtype but got int64");
  EXPECT_EQ(message_of([] { MarginHead(512, 0); }),
            "[margin_head] expected positive counts but got 512 dimensions, 0 classes");
}

class MarginHeadMixed : public testing::OnEachDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, MarginHeadMixed, ::testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                         testing::device_name);

/// |a - b| / |b| in the Euclidean norm.
double relative_error(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = to_doubles(a.to(Device::cpu())), y = to_doubles(b.to(Device::cpu()));
  double difference = 0.0, norm = 0.0;
  for (size_t i = 0; i < y.size(); ++i) {
    difference += (x[i] - y[i]) * (x[i] - y[i]);
    norm += y[i] * y[i];
  }
  return std::sqrt(difference / norm);
}

// With u the roundoff of the 16-bit dtype: the softmax of logits this far apart is almost one-hot, so a row's
// gradient is the difference of two centres, or of embeddings, rounded some ten times on the way, and twice
// what independent errors of these make is allowed: 2 sqrt(10) u. The loss is a mean of 30 logits.
TEST_P(MarginHeadMixed, LossIsFloat32AndClose) {
  manual_seed(6);
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const double u = dtype == DType::kFloat16 ? 0x1p-11 : 0x1p-8;
    const MarginHead exact(16, 12), mixed(16, 12);
    mixed.load_state(exact.state());
    for (const MarginHead& head : {exact, mixed}) head.to(device());
    mixed.to_mixed(dtype);
    std::vector<int64_t> classes;
    for (int64_t row = 0; row < 32; ++row) classes.push_back(row % 13 - 1);
    const Tensor labels = labels_of(classes, device());
    const Tensor a = floats({32, 16}, 7).to(device()).set_requires_grad(true),
                 b = floats({32, 16}, 7).to(device()).set_requires_grad(true);
    const Tensor wanted = exact(a, labels), loss = mixed(b, labels);
    EXPECT_EQ(loss.dtype(), DType::kFloat32);
    EXPECT_LE(relative_error(loss.detach(), wanted.detach()), u);
    EXPECT_EQ(mixed.cosine(b).dtype(), dtype);
    backward(wanted);
    backward(loss);
    EXPECT_EQ(b.grad().dtype(), DType::kFloat32);
    EXPECT_EQ(mixed.weight.grad().dtype(), dtype);
    EXPECT_LE(relative_error(b.grad(), a.grad()), 7 * u);
    EXPECT_LE(relative_error(mixed.weight.grad(), exact.weight.grad()), 7 * u);
  }
}

}  // namespace
}  // namespace sinter::nn
