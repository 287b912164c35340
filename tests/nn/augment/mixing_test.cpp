// Mixup and CutMix: what is mixed, the targets, the distribution of shares.
#include <cmath>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/runtime/backend.h>
#include <sinter/nn/augment/mixing.h>
#include <sinter/nn/loss/loss.h>
#include <sinter/ops/cast/cast.h>

#include "common/error_message.h"

namespace sinter::nn {
namespace {

using test::message_of;

constexpr int64_t kCount = 5, kClasses = 4, kHeight = 9, kWidth = 12;

Tensor labels(Device device = {}) {
  return Tensor::from_values(std::vector<int64_t>{3, 0, 2, 1, 1}, {kCount}, device);
}

/// Image n is n everywhere.
Tensor flat_images(Layout layout, DType dtype = DType::kFloat32, Device device = {}) {
  const Tensor images = Tensor::empty(layout == Layout::kNHWC ? Shape{kCount, kHeight, kWidth, 2}
                                                              : Shape{kCount, 2, kHeight, kWidth});
  const int64_t size = images.numel() / kCount;
  for (int64_t i = 0; i < images.numel(); ++i) images.data<float>()[i] = static_cast<float>(i / size);
  return ops::cast(images, dtype).to(device);
}

std::vector<double> values_of(const Tensor& tensor) {
  return ops::cast(tensor.to(Device::cpu()), DType::kFloat64).to_vector<double>();
}

double previous(int64_t n) {
  return static_cast<double>((n + kCount - 1) % kCount);
}

void check_targets(const MixedBatch& batch, double tolerance) {
  const auto targets = values_of(batch.targets);
  const auto own = labels().to_vector<int64_t>();
  for (int64_t n = 0; n < kCount; ++n) {
    for (int64_t c = 0; c < kClasses; ++c) {
      const double of_own = own[static_cast<size_t>(n)] == c ? batch.share : 0;
      const double of_other = own[static_cast<size_t>(previous(n))] == c ? 1 - batch.share : 0;
      EXPECT_NEAR(targets[static_cast<size_t>(n * kClasses + c)], of_own + of_other, tolerance);
    }
  }
  const auto dominant = batch.labels.to(Device::cpu()).to_vector<int64_t>();
  for (int64_t n = 0; n < kCount; ++n) {
    const auto from = static_cast<size_t>(batch.share >= 0.5 ? static_cast<double>(n) : previous(n));
    EXPECT_EQ(dominant[static_cast<size_t>(n)], own[from]);
  }
}

std::vector<Device> devices() {
  return is_available(Device::cuda()) ? std::vector{Device::cpu(), Device::cuda()}
                                      : std::vector{Device::cpu()};
}

TEST(Mixup, MixesImagesAndTargetsByOneShare) {
  for (const Device device : devices()) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      const double tolerance = dtype == DType::kFloat32 ? 1e-6 : 2e-2;
      Generator generator(3);
      for (int i = 0; i < 8; ++i) {
        const MixedBatch batch = Mixup({.classes = kClasses})(flat_images(Layout::kNCHW, dtype, device),
                                                              labels(device), generator);
        EXPECT_EQ(batch.images.dtype(), dtype);
        EXPECT_EQ(batch.targets.dtype(), dtype);
        const auto values = values_of(batch.images);
        for (size_t at = 0; at < values.size(); ++at) {
          const auto n = static_cast<int64_t>(at / (values.size() / kCount));
          EXPECT_NEAR(values[at], static_cast<double>(n) * batch.share + previous(n) * (1 - batch.share),
                      4 * tolerance);
        }
        check_targets(batch, tolerance);
      }
    }
  }
}

TEST(Mixup, SharesAreOfTheBetaDistribution) {
  Generator generator(5);
  const Mixup mixup({.alpha = 0.4, .classes = kClasses});
  constexpr int kDraws = 2000;
  double sum = 0, squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double share = mixup(Tensor::zeros({kCount, 1}), labels(), generator).share;
    sum += share;
    squares += share * share;
  }
  const double mean = sum / kDraws, variance = squares / kDraws - mean * mean;
  EXPECT_NEAR(mean, 0.5, 0.03);
  EXPECT_NEAR(variance, 1 / (4 * (2 * 0.4 + 1)), 0.01);  // of Beta(a, a): 1 / (4 (2 a + 1))
}

TEST(CutMix, CutsOneBoxAndCountsItsPixels) {
  for (const Device device : devices()) {
    for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
      Generator generator(4);
      double smallest = 1, largest = 0;
      for (int i = 0; i < 60; ++i) {
        const MixedBatch batch = CutMix({.classes = kClasses, .layout = layout})(
            flat_images(layout, DType::kFloat32, device), labels(device), generator);
        const auto values = values_of(batch.images);
        const int64_t size = 2 * kHeight * kWidth;
        int64_t other = 0;
        for (int64_t at = 0; at < kCount * size; ++at) {
          const int64_t n = at / size;
          const double value = values[static_cast<size_t>(at)];
          EXPECT_TRUE(value == static_cast<double>(n) || value == previous(n));
          EXPECT_EQ(value == previous(n), values[static_cast<size_t>(at % size)] == previous(0));
          if (value == previous(n)) ++other;
        }
        EXPECT_NEAR(batch.share, 1 - static_cast<double>(other) / static_cast<double>(kCount * size), 1e-12);
        check_targets(batch, 1e-6);
        smallest = std::min(smallest, batch.share);
        largest = std::max(largest, batch.share);
      }
      EXPECT_LT(smallest, 0.4);
      EXPECT_GT(largest, 0.9);
    }
  }
}

TEST(Mixing, RepeatsFromAGeneratorsKeyAndTakesABatchOfOne) {
  Generator first(RandomKey{9, 100}), second(RandomKey{9, 100});
  const CutMix cutmix({.classes = kClasses});
  for (int i = 0; i < 5; ++i) {
    const auto a = cutmix(flat_images(Layout::kNCHW), labels(), first);
    const auto b = cutmix(flat_images(Layout::kNCHW), labels(), second);
    EXPECT_EQ(values_of(a.images), values_of(b.images));
    second = Generator(second.key());  // as a resumed run does
  }
  const Tensor one = Tensor::full({1, 3, 4, 4}, 2.0), label = Tensor::full({1}, 1, DType::kInt64);
  const auto alone = Mixup({.classes = 2})(one, label);
  EXPECT_EQ(values_of(alone.targets), (std::vector<double>{0, 1}));
  EXPECT_NEAR(values_of(alone.images).front(), 2.0, 1e-6);
}

/// The loss of mixed targets is the mixture of the losses, as the paper has it.
TEST(Mixing, TargetsGiveTheMixedLoss) {
  Generator generator(2);
  const auto batch = Mixup({.classes = kClasses})(Tensor::zeros({kCount, 1}), labels(), generator);
  const Tensor logits = Tensor::empty({kCount, kClasses});
  for (int64_t i = 0; i < logits.numel(); ++i) logits.data<float>()[i] = static_cast<float>(std::sin(i));
  const Tensor other = Tensor::from_values(std::vector<int64_t>{1, 3, 0, 2, 1}, {kCount});
  const CrossEntropyLoss loss{.label_smoothing = 0.1};
  EXPECT_NEAR(loss(logits, batch.targets).item(),
              batch.share * loss(logits, labels()).item() + (1 - batch.share) * loss(logits, other).item(),
              1e-6);
}

TEST(Mixing, TargetsAddUpToOneInEveryDtype) {
  for (const Device device : devices()) {
    for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      Generator generator(7);
      const Tensor images = flat_images(Layout::kNCHW, dtype, device);
      for (int i = 0; i < 100; ++i) {
        const MixedBatch batch =
            i % 2 == 0 ? Mixup({.alpha = 0.4, .classes = kClasses})(images, labels(device), generator)
                       : CutMix({.classes = kClasses})(images, labels(device), generator);
        const auto targets = values_of(batch.targets);
        for (size_t n = 0; n < static_cast<size_t>(kCount); ++n) {
          const auto row = targets.begin() + static_cast<std::ptrdiff_t>(n * kClasses);
          EXPECT_EQ(std::accumulate(row, row + kClasses, 0.0), 1.0) << to_string(dtype) << " " << batch.share;
        }
      }
    }
  }
}

TEST(Mixing, RefusesWhatCannotBe) {
  EXPECT_EQ(message_of([] { Mixup({.alpha = 0, .classes = 2}); }),
            "[mixup] expected 0 < alpha <= 1000 but got 0");
  EXPECT_EQ(message_of([] { CutMix({.alpha = 1}); }), "[cutmix] expected the number of classes but got 0");
  const Mixup mixup({.classes = kClasses});
  EXPECT_EQ(message_of([&] {
              mixup(Tensor::zeros({3, 2}), labels());
            }),
            "[mixup] expected floating-point images (N, ...) and int64 labels (N) but got float32 (3, 2) and "
            "int64 (5,)");
  EXPECT_EQ(message_of([] {
              CutMix({.classes = 4})(Tensor::zeros({kCount, 2}), labels());
            }),
            "[cutmix] expected images with pixels of rank 4 but got shape (5, 2)");
}

}  // namespace
}  // namespace sinter::nn
