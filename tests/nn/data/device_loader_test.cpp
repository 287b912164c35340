// The loader's batches against the transforms applied one by one, and the batches of a GPU against the CPU's.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/nn/data/data_loader.h>
#include <sinter/ops/cast/cast.h>

#include "nn/data/data_test_support.h"

namespace sinter::nn::data {
namespace {

using testing::message_of;

uint8_t noise(uint64_t seed, uint64_t i) {
  return static_cast<uint8_t>(philox(seed, i).words[0]);
}

/// Pictures of one size, or of a different size each, growing with the index; `reads` counts decodings.
class Pictures final : public Dataset {
 public:
  Pictures(int64_t count, int64_t channels, bool one_size)
      : count_(count), channels_(channels), one_size_(one_size), names_(10, "class") {}
  int64_t size() const override { return count_; }
  void read(int64_t index, Sample& sample, const DecodeHintFunction&) const override {
    checked_index(index);
    sample.image.reshape(one_size_ ? 12 : 20 + 3 * index, one_size_ ? 15 : 17 + (index * 7) % 40, channels_);
    for (size_t i = 0; i < sample.image.pixels.size(); ++i) {
      sample.image.pixels[i] = noise(static_cast<uint64_t>(index), i);
    }
    sample.label = index % 10;
  }
  const std::vector<std::string>& class_names() const override { return names_; }

 private:
  int64_t count_, channels_;
  bool one_size_;
  std::vector<std::string> names_;
};

/// A transform that only apply knows.
class Invert final : public Transform {
 public:
  void apply(Sample& sample, SampleRandom& random) const override {
    const auto mask = static_cast<uint8_t>(random.below(256));
    for (uint8_t& value : sample.image.pixels) value = static_cast<uint8_t>(value ^ mask);
  }
};
std::shared_ptr<const Transform> invert() {
  return std::make_shared<Invert>();
}

/// A random crop of pictures of 12 x 15 that keeps their size.
TransformPtr shift(int64_t padding, ops::PadMode mode = ops::PadMode::kConstant) {
  return random_crop({12, 15}, {.padding = padding, .mode = mode});
}

struct Case {
  std::string name;
  Transforms transforms;
  bool one_size;  // of the stored pictures
  bool resamples = false;
};

std::vector<Case> cases() {
  const auto flip = random_horizontal_flip();
  return {{"nothing", {}, true},
          {"flip", {flip}, true},
          {"shift", {shift(3)}, true},
          {"reflected shift", {shift(11, ops::PadMode::kReflect)}, true},
          {"shift, flip", {shift(4, ops::PadMode::kReflect), flip}, true},
          {"flip, shift, flip", {flip, shift(4), flip}, true},
          {"two shifts", {shift(2), flip, shift(3, ops::PadMode::kReflect)}, true},
          {"own, shift", {invert(), shift(2), flip}, true},
          {"shift, own", {shift(2), flip, invert()}, true},
          {"smaller crop", {random_crop({9, 7}, {.padding = 2}), flip}, false},
          {"padding", {pad({1, 2, 3, 4}, ops::PadMode::kReplicate), flip}, true},
          {"upside down", {random_vertical_flip(), shift(2)}, true},
          {"turned", {random_rotation(30), flip}, true},
          {"centre", {center_crop({9, 7}), flip}, false},
          {"resize", {resize({13, 21})}, false, true},
          {"evaluation", {resize_center_crop(24, 16)}, false, true},
          {"random crop", {random_resized_crop({16, 19}), flip}, false, true},
          {"flip, random crop", {flip, random_resized_crop({30, 8}), flip}, false, true},
          {"own, random crop", {invert(), random_resized_crop(16)}, false, true},
          {"enlarging", {flip, random_resized_crop({90, 70})}, false, true},
          {"bicubic", {resize({13, 21}, ResizeFilter::kBicubic), flip}, false, true},
          {"bicubic evaluation", {resize_center_crop(24, 16, ResizeFilter::kBicubic)}, false, true},
          {"bicubic crop",
           {flip, random_resized_crop({30, 17}, {.min_area = 0.05, .filter = ResizeFilter::kBicubic})},
           false,
           true}};
}

DataLoaderOptions options_of(const Case& test, int workers) {
  return {.batch_size = 6,
          .shuffle = true,
          .seed = 5,
          .workers = workers,
          .normalization = {{0.4f, 0.5f, 0.6f}, {0.25f, 0.5f, 0.2f}},
          .transforms = test.transforms};
}

/// The pictures of an epoch as the transforms alone make them, in 8 bits, by label order of the loader.
Image transformed(const Dataset& dataset, const Transforms& transforms, int64_t epoch, int64_t index) {
  Sample sample = dataset.get(index);
  SampleRandom random(5, epoch, static_cast<uint64_t>(index));
  for (const auto& transform : transforms) transform->apply(sample, random);
  return sample.image;
}

TEST(DeviceLoader, GivesWhatTheTransformsGive) {
  constexpr int64_t kCount = 8;  // in order, so that row i is sample i
  for (const Case& test : cases()) {
    for (const int workers : {0, 2}) {
      SCOPED_TRACE(test.name);
      const auto dataset = std::make_shared<Pictures>(kCount, 3, test.one_size);
      DataLoaderOptions options = options_of(test, workers);
      options.batch_size = kCount;
      options.shuffle = false;
      options.layout = Layout::kNHWC;
      DataLoader loader(dataset, options);
      for (int64_t epoch = 0; epoch < 3; ++epoch) {
        const Batch batch = *loader.next();
        EXPECT_FALSE(loader.next());
        const auto values = batch.images.to_vector<float>();
        int64_t exact = 0;
        for (int64_t n = 0, at = 0; n < kCount; ++n) {
          EXPECT_EQ(batch.labels.data<int64_t>()[n], n % 10);
          const Image image = transformed(*dataset, test.transforms, epoch, n);
          ASSERT_EQ(batch.images.shape(), (Shape{kCount, image.height, image.width, 3}));
          for (size_t i = 0; i < image.pixels.size(); ++i, ++at) {
            const auto& [mean, std] = options.normalization;
            const float level = (values[static_cast<size_t>(at)] * std[i % 3] + mean[i % 3]) * 255.0f;
            const float difference = std::abs(level - static_cast<float>(image.pixels[i]));
            // The transforms round a resampled value to 8 bits, the loader does not.
            ASSERT_LE(difference, test.resamples ? 0.5f + 1e-3f : 1e-3f) << n << " at " << i;
            exact += difference < 1e-3f ? 1 : 0;
          }
        }
        // Fractions are kept: a half of all values at least lies off the 8-bit levels.
        if (test.resamples) {
          EXPECT_LT(exact, batch.images.numel() / 2);
        }
      }
    }
  }
}

TEST(DeviceLoader, RoundsToTheDtypeOnce) {
  const Case test{"", {shift(4), random_horizontal_flip()}, true};
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    DataLoaderOptions options = options_of(test, 1);
    DataLoader full(std::make_shared<Pictures>(20, 3, true), options);
    options.dtype = dtype;
    DataLoader half(std::make_shared<Pictures>(20, 3, true), options);
    while (const std::optional<Batch> expected = full.next()) {
      const Batch batch = *half.next();
      ASSERT_EQ(batch.images.dtype(), dtype);
      EXPECT_EQ(ops::cast(batch.images, DType::kFloat32).to_vector<float>(),
                ops::cast(ops::cast(expected->images, dtype), DType::kFloat32).to_vector<float>());
    }
  }
}

TEST(DeviceLoader, TakesPixelsFromMemoryAsFromFiles) {
  for (const Case& test : cases()) {
    SCOPED_TRACE(test.name);
    const auto files = std::make_shared<Pictures>(20, 3, test.one_size);
    DataLoader reading(files, options_of(test, 0));
    DataLoader copying(preload(*files), options_of(test, 2));
    for (int batch = 0; batch < 8; ++batch) {
      const std::optional<Batch> expected = reading.next(), got = copying.next();
      ASSERT_EQ(expected.has_value(), got.has_value());
      if (!got) continue;
      EXPECT_EQ(got->images.to_vector<float>(), expected->images.to_vector<float>());
      EXPECT_EQ(got->labels.to_vector<int64_t>(), expected->labels.to_vector<int64_t>());
    }
  }
}

TEST(DeviceLoader, NeedsItsDevice) {
  if (is_available(Device::cuda())) GTEST_SKIP() << "there is a GPU";
  const std::string message = message_of<DeviceError>(
      [] { DataLoader loader(std::make_shared<Pictures>(4, 3, true), {.device = Device::cuda()}); });
  EXPECT_EQ(message.rfind("[device] cuda:0 asked for, but ", 0), 0u) << message;
}

/// Moves a frame to nowhere.
class Astray final : public Transform {
 public:
  bool move(Frame& frame, SampleRandom&) const override {
    frame.crop(Box{0, NAN, 12, 15}, {12, 15});
    return true;
  }
  detail::FrameStep frame_step() const override { return {.kind = detail::FrameStep::Kind::kShift}; }
};

TEST(DeviceLoader, RefusesFramesFarAway) {
  DataLoader loader(std::make_shared<Pictures>(4, 3, true), {.transforms = {std::make_shared<Astray>()}});
  EXPECT_EQ(message_of<InvalidArgument>([&] { loader.next(); }),
            "[data_loader] expected a frame near the 12 x 15 image but got 12 x 15 at (0, nan)");
}

class CudaLoader : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  }
};

struct Held {
  std::optional<Batch> batch;
  std::vector<int64_t> labels() const { return batch->labels.to_vector<int64_t>(); }
};

void expect_close(const Tensor& got, const Tensor& expected) {
  ASSERT_EQ(got.spec().shape, expected.spec().shape);
  ASSERT_EQ(got.dtype(), expected.dtype());
  const auto a = ops::cast(got.to(Device::cpu()), DType::kFloat32).to_vector<float>();
  const auto b = ops::cast(expected, DType::kFloat32).to_vector<float>();
  // One rounding of values of up to 3, where the last bit of the float before it may differ.
  const float tolerance = got.dtype() == DType::kFloat32   ? 1e-5f
                          : got.dtype() == DType::kFloat16 ? 2e-3f
                                                           : 1.6e-2f;
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << i;
}

TEST_F(CudaLoader, GivesTheBatchesOfTheCpu) {
  for (const Case& test : cases()) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      for (const Layout layout : {Layout::kNCHW, Layout::kNHWC}) {
        for (const int workers : {0, 3}) {
          SCOPED_TRACE(test.name + " " + std::string(to_string(dtype)) + " " +
                       std::string(to_string(layout)));
          DataLoaderOptions options = options_of(test, workers);
          options.dtype = dtype;
          options.layout = layout;
          DataLoader cpu(std::make_shared<Pictures>(20, 3, test.one_size), options);
          options.device = Device::cuda();
          DataLoader gpu(std::make_shared<Pictures>(20, 3, test.one_size), options);
          // All batches of two epochs are kept, so that one which is overwritten later is found out.
          std::vector<std::optional<Batch>> got;
          for (int i = 0; i < 10; ++i) {
            got.push_back(gpu.next());
            if (got.back()) {
              EXPECT_EQ(got.back()->host_labels, got.back()->labels.to_vector<int64_t>());
            }
          }
          for (const std::optional<Batch>& batch : got) {
            const std::optional<Batch> expected = cpu.next();
            ASSERT_EQ(batch.has_value(), expected.has_value());
            if (!batch) continue;
            ASSERT_EQ(batch->images.device(), Device::cuda());
            ASSERT_EQ(batch->labels.device(), Device::cuda());
            EXPECT_EQ(batch->labels.to_vector<int64_t>(), expected->labels.to_vector<int64_t>());
            expect_close(batch->images, expected->images);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_F(CudaLoader, KeepsOrderOnAnyStreamAndUnderLoad) {
  const Case test{"", {random_resized_crop(64), random_horizontal_flip()}, false, true};
  DataLoaderOptions options = options_of(test, 3);
  options.batch_size = 20;
  options.prefetch = 2;
  DataLoader cpu(std::make_shared<Pictures>(60, 3, false), options);
  options.device = Device::cuda();
  DataLoader gpu(std::make_shared<Pictures>(60, 3, false), options);
  const Stream other = backend_of(Device::cuda()).create_stream(0);
  const Tensor ballast = Tensor::empty({int64_t{256} << 20}, DType::kUInt8, Device::cuda());
  const Tensor target = Tensor::empty(ballast.spec());
  for (int i = 0; i < 24; ++i) {
    const StreamGuard guard(i % 3 == 2 ? other : backend_of(Device::cuda()).default_stream(0));
    // Work before the batch's, so that the host and the copies run far ahead of it.
    for (int j = 0; j < 4; ++j) {
      copy_bytes(target.raw_data(), Device::cuda(), ballast.raw_data(), Device::cuda(),
                 ballast.spec().bytes());
    }
    const std::optional<Batch> batch = gpu.next(), expected = cpu.next();
    ASSERT_EQ(batch.has_value(), expected.has_value());
    if (batch) expect_close(batch->images, expected->images);
    if (HasFatalFailure()) return;
  }
}

TEST_F(CudaLoader, ResumesAnywhere) {
  const Case test{"", {shift(2), random_horizontal_flip()}, true};
  DataLoaderOptions options = options_of(test, 2);
  options.device = Device::cuda();
  DataLoader whole(std::make_shared<Pictures>(20, 3, true), options);
  for (int i = 0; i < 12; ++i) {
    const DataLoaderState state = whole.state();
    DataLoader resumed(std::make_shared<Pictures>(20, 3, true), options);
    resumed.load_state(state);
    const std::optional<Batch> expected = whole.next(), batch = resumed.next();
    ASSERT_EQ(batch.has_value(), expected.has_value());
    if (batch) {
      EXPECT_EQ(batch->images.to_vector<float>(), expected->images.to_vector<float>());
    }
  }
}

TEST_F(CudaLoader, CanBeDestroyedAnywhereAndLeavesNothing) {
  const auto live = [] {
    return backend_of(Device::cuda()).pinned_pool(0).stats().live_bytes +
           backend_of(Device::cuda()).memory_pool(0).stats().live_bytes;
  };
  const Case test{"", {random_resized_crop(32)}, false, true};
  DataLoaderOptions options = options_of(test, 3);
  options.device = Device::cuda();
  DataLoader(std::make_shared<Pictures>(40, 3, false), options).next();  // the workspace stays
  const size_t before = live();
  for (int batches = 0; batches < 8; ++batches) {
    DataLoader loader(std::make_shared<Pictures>(40, 3, false), options);
    for (int i = 0; i < batches; ++i) loader.next();
  }
  EXPECT_EQ(live(), before);
}

TEST_F(CudaLoader, StandsWhereItStoodWhenTheDeviceHasNoRoom) {
  const Case test{"", {shift(2)}, true};
  DataLoaderOptions options = options_of(test, 2);
  options.device = Device::cuda();
  options.batch_size = 20;
  DataLoader loader(std::make_shared<Pictures>(20, 3, true), options);
  loader.next();
  loader.next();
  DataLoader expected(std::make_shared<Pictures>(20, 3, true), options);
  expected.load_state(loader.state());
  const std::vector<float> values = expected.next()->images.to_vector<float>();
  MemoryPool& pool = backend_of(Device::cuda()).memory_pool(0);
  if (pool_mode_from_environment() == PoolMode::kPassThrough)
    GTEST_SKIP() << "the limit would stop the upload";
  // Every cached byte is taken, so that the images have no room.
  std::vector<Tensor> ballast;
  pool.trim();
  pool.set_byte_limit(pool.stats().reserved_bytes);
  try {
    for (;;) ballast.push_back(Tensor::empty({256}, DType::kUInt8, Device::cuda()));
  } catch (const OutOfMemory&) {
  }
  EXPECT_THROW(loader.next(), OutOfMemory);
  pool.set_byte_limit({});
  ballast.clear();
  EXPECT_EQ(loader.next()->images.to_vector<float>(), values);
}

}  // namespace
}  // namespace sinter::nn::data
