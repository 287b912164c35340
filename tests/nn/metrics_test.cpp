// Metrics: counts by hand and printed tables.
#include <sinter/nn/metrics/metrics.h>

#include "nn/device_test_support.h"
#include "nn/nn_test_support.h"

namespace sinter::nn {
namespace {

using testing::message_of;

TEST(MetricsTest, TopKCountsRows) {
  const Tensor logits = Tensor::from_values<float>({3, 2, 1, 0, /**/ 0, 1, 2, 3, /**/ 5, 5, 0, 0}, {3, 4});
  const Tensor target = Tensor::from_values<int64_t>({0, 2, 1}, {3});
  EXPECT_EQ(top_k_correct(logits, target), 1);
  EXPECT_EQ(top_k_correct(logits, target, 2), 3) << "of equal logits the first counts as larger";
  EXPECT_EQ(top_k_correct(logits, target, 4), 3);
  EXPECT_EQ(message_of([&] { top_k_correct(logits, target, 5); }),
            "[top_k_correct] expected k in [1, 4] but got 5");
  EXPECT_EQ(message_of([&] { top_k_correct(logits, Tensor::zeros({2}, DType::kInt64)); }),
            "[top_k_correct] expected int64 targets (3,) but got int64 (2,) on cpu");
  EXPECT_EQ(message_of([&] { top_k_correct(target, target); }),
            "[top_k_correct] expected floating-point logits (N, C) but got int64 (3,) on cpu");
}

class DeviceMetricsTest : public testing::OnEachDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, DeviceMetricsTest, ::testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                         testing::device_name);

TEST_P(DeviceMetricsTest, ASnapshotOfAMeanStaysAsItWas) {
  TensorMean mean;
  const TensorMean::Snapshot none = mean.snapshot();
  EXPECT_TRUE(none.ready());
  EXPECT_EQ(none.read().values, 0);
  std::vector<TensorMean::Snapshot> snapshots;
  for (int i = 1; i <= 100; ++i) {
    mean.add(Tensor::scalar(static_cast<float>(i), device()), 2);
    snapshots.push_back(mean.snapshot());
  }
  for (int i = 1; i <= 100; ++i) {
    const TensorMean::Totals totals = snapshots[static_cast<size_t>(i - 1)].read();
    EXPECT_DOUBLE_EQ(totals.mean, (i + 1) / 2.0);
    EXPECT_EQ(totals.values, i);
    EXPECT_TRUE(snapshots[static_cast<size_t>(i - 1)].ready()) << "it has been read";
  }
}

TEST_P(DeviceMetricsTest, DeviceMeanLeavesOutWhatIsNotFinite) {
  TensorMean mean;
  EXPECT_TRUE(std::isnan(mean.read().mean));
  mean.add(Tensor::scalar(1.0f, device()), 3);
  mean.add(Tensor::scalar(5.0, device()));
  EXPECT_DOUBLE_EQ(mean.read().mean, 2.0);
  EXPECT_EQ(mean.read().first_not_finite, 0);
  mean.add(Tensor::scalar(float16(INFINITY), device()), 2);
  mean.add(Tensor::scalar(static_cast<float>(NAN), device()), 2);
  TensorMean restored;
  restored.load_state(mean.state());
  restored.add(Tensor::scalar(2.0f, device()), 4);
  const TensorMean::Totals totals = restored.read();
  EXPECT_DOUBLE_EQ(totals.mean, 2.0);
  EXPECT_DOUBLE_EQ(totals.weight, 8.0);
  EXPECT_EQ(totals.values, 5);
  EXPECT_EQ(totals.first_not_finite, 3);
  mean.reset();
  EXPECT_EQ(mean.read().values, 0);
  EXPECT_EQ(message_of([&] { mean.add(Tensor::scalar(1.0f, device()), -1); }),
            "[add_to_mean_] expected a finite weight >= 0 but got -1");
  EXPECT_EQ(message_of([&] {
              mean.load_state({{"sum", Tensor::scalar(1.0)}});
            }),
            "[device_mean] expected a state of 'totals', float64 (4,) on cpu");
}

TEST_P(DeviceMetricsTest, TopKCounterCountsEveryK) {
  const Tensor logits =
      Tensor::from_values<float>({3, 2, 1, 0, /**/ 0, 1, 2, 3, /**/ 5, 5, 0, 0, /**/ 1, 2, 3, 4}, {4, 4})
          .to(device());
  const Tensor target = Tensor::from_values<int64_t>({0, 2, 1, 7}, {4}).to(device());
  TopKAccuracy counter(3);
  EXPECT_EQ(counter.read(), (std::vector<int64_t>{0, 0, 0, 0}));
  counter.add(logits, target);
  EXPECT_EQ(counter.read(), (std::vector<int64_t>{1, 3, 3, 3})) << "a target that is no class is left out";
  TopKAccuracy restored(3);
  restored.load_state(counter.state());
  restored.add(logits, Tensor::from_values<int64_t>({3, 3, 3, 3}, {4}).to(device()));
  EXPECT_EQ(restored.read(), (std::vector<int64_t>{3, 5, 5, 7}));
  EXPECT_DOUBLE_EQ(restored.accuracy(), 3.0 / 7);
  EXPECT_DOUBLE_EQ(restored.accuracy(3), 5.0 / 7);
  EXPECT_TRUE(std::isnan(TopKAccuracy(3).accuracy()));
  EXPECT_EQ(message_of([&] { static_cast<void>(restored.accuracy(4)); }),
            "[top_k_accuracy] expected k in [1, 3] but got 4");
  EXPECT_THROW(static_cast<void>(restored.accuracy(0)), InvalidArgument);
  EXPECT_EQ(message_of([&] { TopKAccuracy(2).load_state(counter.state()); }),
            "[top_k_accuracy] expected a state of 'counts', int64 (3,) on cpu");
  EXPECT_EQ(message_of([] { TopKAccuracy(0); }), "[top_k_accuracy] expected k > 0 but got 0");
}

TEST_P(DeviceMetricsTest, StatesDoNotFollowWhatIsAddedLater) {
  TensorMean mean;
  TopKAccuracy counter(1);
  const Tensor logits = Tensor::from_values<float>({0, 1}, {1, 2}).to(device());
  const Tensor target = Tensor::from_values<int64_t>({1}, {1}).to(device());
  mean.add(Tensor::scalar(1.0, device()));
  counter.add(logits, target);
  const State mean_state = mean.state(), counter_state = counter.state();
  mean.add(Tensor::scalar(3.0, device()));
  counter.add(logits, target);
  mean.load_state(mean_state);
  counter.load_state(counter_state);
  EXPECT_EQ(mean.read().mean, 1.0);
  EXPECT_EQ(counter.read(), (std::vector<int64_t>{1, 1}));
}

TEST_P(DeviceMetricsTest, ConfusionMatrixCountsWhatIsOnADevice) {
  ConfusionMatrix matrix(3);
  for (int64_t batch = 0; batch < 300; ++batch) {
    matrix.add(Tensor::from_values<float>({9, 0, 0, /**/ 0, 0, 9}, {2, 3}).to(device()),
               Tensor::from_values<int64_t>({0, 1}, {2}).to(device()));
  }
  EXPECT_EQ(matrix.count(0, 0), 300);
  EXPECT_EQ(matrix.count(1, 2), 300);
  EXPECT_EQ(matrix.total(), 600);
  EXPECT_DOUBLE_EQ(matrix.accuracy(), 0.5);
  const auto mistake = [&] {
    matrix.add(Tensor::from_values<int64_t>({3}, {1}).to(device()),
               Tensor::from_values<int64_t>({1}, {1}).to(device()));
    matrix.total();  // on a GPU, counting comes with reading
  };
  EXPECT_EQ(message_of(mistake), "[confusion_matrix] expected classes in [0, 3) but got 3");
  EXPECT_EQ(matrix.total(), 600);
}

// Masks of many pixels do not pile up on a device; what is counted is the same.
TEST_P(DeviceMetricsTest, ConfusionMatrixCountsMasks) {
  ConfusionMatrix matrix(3);
  const Tensor mask = Tensor::zeros({4, 512, 512}, DType::kInt64, device());
  for (int batch = 0; batch < 20; ++batch) matrix.add(mask, mask);
  EXPECT_EQ(matrix.total(), 20 * mask.numel());
  EXPECT_EQ(matrix.mean_iou(), 1.0);
}

TEST_P(DeviceMetricsTest, AClassOutOfRangeTakesNoOtherBatchWithIt) {
  ConfusionMatrix matrix(2);
  int refusals = 0;
  const auto attempt = [&](const auto& action) {
    try {
      action();
    } catch (const InvalidArgument&) {
      ++refusals;
    }
  };
  const Tensor prediction = Tensor::from_values<int64_t>({0}, {1}).to(device());
  for (const int64_t target : {0, 2, 1}) {
    attempt([&] { matrix.add(prediction, Tensor::from_values<int64_t>({target}, {1}).to(device())); });
  }
  attempt([&] { matrix.total(); });
  EXPECT_EQ(refusals, 1);  // at once on the CPU, elsewhere by the first who reads
  EXPECT_EQ(matrix.total(), 2);
  EXPECT_EQ(matrix.count(1, 0), 1);
}

TEST(MetricsTest, RunningMeanWeighs) {
  RunningMean mean;
  EXPECT_TRUE(std::isnan(mean.mean()));
  mean.add(1.0, 3);
  mean.add(5.0, 1);
  mean.add(NAN, 0);
  EXPECT_DOUBLE_EQ(mean.mean(), 2.0);
  EXPECT_DOUBLE_EQ(mean.weight(), 4.0);
  mean.reset();
  EXPECT_TRUE(std::isnan(mean.mean()));
  EXPECT_EQ(message_of([&] { mean.add(1.0, -1); }), "[running_mean] expected a weight >= 0 but got -1");
}

TEST(ConfusionMatrixTest, CountsLogitsAndClasses) {
  ConfusionMatrix matrix(3, {"cat", "dog", "bird"});
  EXPECT_TRUE(std::isnan(matrix.accuracy()));
  matrix.add(Tensor::from_values<float>({9, 0, 0, /**/ 0, 9, 0, /**/ 9, 0, 0}, {3, 3}),
             Tensor::from_values<int64_t>({0, 1, 1}, {3}));
  matrix.add(Tensor::from_values<int64_t>({1, 1}, {2}), Tensor::from_values<int64_t>({1, 1}, {2}));
  EXPECT_EQ(matrix.total(), 5);
  EXPECT_EQ(matrix.count(1, 0), 1);
  EXPECT_DOUBLE_EQ(matrix.accuracy(), 0.8);
  EXPECT_DOUBLE_EQ(matrix.accuracy(1), 0.75);
  EXPECT_TRUE(std::isnan(matrix.accuracy(2)));
  EXPECT_DOUBLE_EQ(matrix.balanced_accuracy(), 0.875);
  EXPECT_EQ(matrix.to_string(),
            "true \\ predicted    cat    dog   bird  accuracy\n"
            "cat                   1      0      0  100.00 %\n"
            "dog                   1      3      0   75.00 %\n"
            "bird                  0      0      0         -\n");
}

// Against scikit-learn: precision_recall_fscore_support([0,0,0,1,1,2], [0,1,0,1,1,1]).
TEST(ConfusionMatrixTest, PrecisionAndF1OfClasses) {
  ConfusionMatrix matrix(4);
  matrix.add(Tensor::from_values<int64_t>({0, 1, 0, 1, 1, 1}, {6}),
             Tensor::from_values<int64_t>({0, 0, 0, 1, 1, 2}, {6}));
  EXPECT_DOUBLE_EQ(matrix.precision(0), 1.0);
  EXPECT_DOUBLE_EQ(matrix.precision(1), 0.5);
  EXPECT_TRUE(std::isnan(matrix.precision(2))) << "nothing was taken for it";
  EXPECT_DOUBLE_EQ(matrix.f1(0), 0.8);
  EXPECT_DOUBLE_EQ(matrix.f1(1), 2.0 / 3.0);
  EXPECT_EQ(matrix.f1(2), 0.0);
  EXPECT_TRUE(std::isnan(matrix.f1(3)));
  EXPECT_DOUBLE_EQ(matrix.macro_f1(), (0.8 + 2.0 / 3.0) / 3.0) << "over the classes that there are";
  EXPECT_THROW(matrix.precision(4), InvalidArgument);
  EXPECT_TRUE(std::isnan(ConfusionMatrix(2).macro_f1()));
}

// Against scikit-learn: jaccard_score([0,0,0,1,1,2], [0,1,0,1,1,1], average=None).
TEST(ConfusionMatrixTest, IntersectionsOverUnionsOfClasses) {
  ConfusionMatrix matrix(4, {}, {.ignore_index = 255});
  matrix.add(Tensor::from_values<int64_t>({0, 1, 0, 1, 1, 1, 3, 0}, {2, 2, 2}),
             Tensor::from_values<int64_t>({0, 0, 0, 1, 1, 2, 255, 255}, {2, 2, 2}));
  EXPECT_EQ(matrix.total(), 6);
  EXPECT_DOUBLE_EQ(matrix.iou(0), 2.0 / 3.0);
  EXPECT_DOUBLE_EQ(matrix.iou(1), 0.5);
  EXPECT_EQ(matrix.iou(2), 0.0);
  EXPECT_TRUE(std::isnan(matrix.iou(3)));
  EXPECT_DOUBLE_EQ(matrix.mean_iou(), (2.0 / 3.0 + 0.5) / 3.0) << "over the classes that there are";
  EXPECT_TRUE(std::isnan(ConfusionMatrix(2).mean_iou()));
  // Logits of pixels, the border of which is not counted by default.
  ConfusionMatrix pixels(2);
  pixels.add(Tensor::from_values<float>({9, 0, 9, /**/ 0, 9, 0}, {1, 2, 1, 3}),
             Tensor::from_values<int64_t>({0, 1, -100}, {1, 1, 3}));
  EXPECT_EQ(pixels.total(), 2);
  EXPECT_EQ(pixels.mean_iou(), 1.0);
  EXPECT_EQ(
      message_of([&] {
        pixels.add(Tensor::zeros({1, 2, 1, 3}), Tensor::zeros({1, 3}, DType::kInt64));
      }),
      "[confusion_matrix] expected int64 predictions and targets of one shape but got int64 (1, 1, 3) on "
      "cpu and int64 (1, 3) on cpu");
}

/// The columns of its widest line.
size_t widest(const std::string& text) {
  size_t most = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    most = std::max(most, end - begin);
    begin = end + 1;
  }
  return most;
}

TEST(ConfusionMatrixTest, TablesFitTheColumnsThatThereAre) {
  std::vector<std::string> names;
  for (int i = 0; i < 12; ++i) names.push_back("a rather long name of class " + std::to_string(i));
  ConfusionMatrix matrix(12, names);
  const int64_t count = 250;
  std::vector<int64_t> predictions(static_cast<size_t>(count), 11), targets(static_cast<size_t>(count), 3);
  matrix.add(Tensor::from_values(predictions, {count}), Tensor::from_values(targets, {count}));
  const std::string numbered = matrix.to_string(80);
  EXPECT_LE(widest(numbered), 80u) << numbered;
  EXPECT_NE(
      numbered.find("true \\ predicted         1   2   3   4   5   6   7   8   9  10  11  12  accuracy\n"),
      std::string::npos)
      << numbered;
  EXPECT_NE(
      numbered.find(" 4 a rather long nam..   0   0   0   0   0   0   0   0   0   0   0 250    0.00 %\n"),
      std::string::npos)
      << numbered;
  // All names as they are where there is room, and a list where there is none even for numbers.
  const std::string wide = matrix.to_string(500);
  EXPECT_NE(wide.find("  a rather long name of class 11  accuracy\n"), std::string::npos) << wide;
  const std::string list = matrix.to_string(60);
  EXPECT_LE(widest(list), 60u) << list;
  EXPECT_NE(list.find("most often taken for\n"), std::string::npos) << list;
  // Short names need no numbers.
  const std::string digits = ConfusionMatrix(10).to_string(80);
  EXPECT_LE(widest(digits), 80u);
  EXPECT_EQ(digits.find("true \\ predicted  0  1  2"), 0u) << digits;
}

TEST(ConfusionMatrixTest, NamesAreMeasuredInLetters) {
  ConfusionMatrix matrix(2, {"\xc3\xa4\xc3\xb6\xc3\xbc", "cat"});
  const std::string text = matrix.to_string();
  EXPECT_NE(text.find("true \\ predicted    \xc3\xa4\xc3\xb6\xc3\xbc    cat  accuracy\n"), std::string::npos)
      << text;
}

TEST(ConfusionMatrixTest, NamesAreMeasuredAsTheyArePrinted) {
  ConfusionMatrix matrix(2, {"caf\xe9", "cat"});  // of ISO 8859-1
  EXPECT_EQ(matrix.to_string(),
            "true \\ predicted  caf\\xe9      cat  accuracy\n"
            "caf\\xe9                 0        0         -\n"
            "cat                     0        0         -\n");
}

TEST(ConfusionMatrixTest, ManyClassesAreListed) {
  ConfusionMatrix matrix(21);
  matrix.add(Tensor::from_values<int64_t>({4, 4, 5, 0}, {4}),
             Tensor::from_values<int64_t>({0, 0, 0, 0}, {4}));
  const std::string text = matrix.to_string();
  EXPECT_EQ(text.find("class    samples  accuracy  most often taken for\n"
                      "0              4   25.00 %  4 (2)\n"
                      "1              0         -  -\n"),
            0u)
      << text;
}

TEST(ConfusionMatrixTest, MistakesAreNamedAndCountNothing) {
  ConfusionMatrix matrix(2);
  EXPECT_EQ(
      message_of([&] {
        matrix.add(Tensor::from_values<int64_t>({1, 2}, {2}), Tensor::from_values<int64_t>({1, 1}, {2}));
      }),
      "[confusion_matrix] expected classes in [0, 2) but got 2");
  EXPECT_EQ(matrix.total(), 0);
  EXPECT_EQ(message_of([&] {
              matrix.add(Tensor::zeros({2, 3}), Tensor::zeros({2}, DType::kInt64));
            }),
            "[confusion_matrix] expected logits (N, 2) or (N, 2, H, W) but got shape (2, 3)");
  EXPECT_EQ(message_of([] { ConfusionMatrix(2, {"a"}); }), "[confusion_matrix] expected 2 names but got 1");
}

}  // namespace
}  // namespace sinter::nn
