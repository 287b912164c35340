// The engines of a GPU beside libjpeg-turbo: their pixels, and the loader's batches. SINTER_TEST_PHOTOS names
// a folder (one sub-folder of JPEGs per class) whose files are compared too.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <jpeglib.h>

#include <sinter/core/base/error.h>
#include <sinter/core/image/image_decoder.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/event.h>
#include <sinter/core/tensor/tensor.h>
#include <sinter/nn/data/data_loader.h>
#include <sinter/nn/data/formats/image_folder.h>
#include <sinter/nn/data/image/baseline_jpeg.h>
#include <sinter/ops/cast/cast.h>

#include "nn/data/data_test_support.h"
#include "nn/data/engine_samples.h"

namespace sinter::nn::data {
namespace {

using testing::Bytes;
using testing::damaged_inside;
using testing::message_of;
using testing::photograph_file;
using testing::TemporaryFolder;
using testing::write_mixed_folder;

/// Levels of 255 by which the engines may differ from libjpeg-turbo, in the mean of many images. The engines
/// repeat chroma of fewer samples, libjpeg-turbo interpolates it.
constexpr double kMostMeanDifference = 1.0;
/// The same for one image, from a libjpeg-turbo that repeats chroma too: their rounding may differ.
constexpr double kMostRoundingDifference = 0.5;

class GpuDecoding : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!is_available(Device::cuda())) GTEST_SKIP() << "there is no GPU";
    try {
      decoder = hardware_image_decoder(Device::cuda());
    } catch (const Unsupported& reason) {
      GTEST_SKIP() << reason.what();
    }
  }

  /// The pixels of files of which all are plain, one after the other; `refused` as decode() gives it.
  std::vector<Bytes> decode(const std::vector<Bytes>& files, std::vector<size_t>* refused = nullptr) {
    std::vector<EncodedImage> images;
    std::vector<size_t> begins;
    size_t end = 0;
    for (const Bytes& file : files) {
      const auto jpeg = read_baseline_jpeg(file).value();
      images.push_back({file, jpeg.height, jpeg.width, nullptr});
      begins.push_back(end);
      end += static_cast<size_t>((3 * jpeg.height * jpeg.width + 255) / 256 * 256);
    }
    Tensor pixels;
    {
      const StreamGuard guard(decoder->stream());
      pixels = Tensor::empty({static_cast<int64_t>(end)}, DType::kUInt8, Device::cuda());
    }
    for (size_t i = 0; i < images.size(); ++i)
      images[i].pixels = static_cast<uint8_t*>(pixels.raw_data()) + begins[i];
    const std::vector<size_t> bad = decoder->decode(images);
    if (refused != nullptr) *refused = bad;
    Event(decoder->stream()).synchronize();
    const auto values = pixels.to_vector<uint8_t>();
    std::vector<Bytes> all;
    for (size_t i = 0; i < images.size(); ++i) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(begins[i]);
      all.emplace_back(begin, begin + 3 * images[i].height * images[i].width);
    }
    return all;
  }

  std::shared_ptr<ImageDecoder> decoder;
};

double mean_difference(const Bytes& expected, const Bytes& pixels) {
  EXPECT_EQ(expected.size(), pixels.size());
  if (expected.size() != pixels.size()) return 255;
  double sum = 0;
  for (size_t i = 0; i < pixels.size(); ++i) sum += std::abs(int{expected[i]} - int{pixels[i]});
  return sum / static_cast<double>(pixels.size());
}

Bytes decode_as_workers(const Bytes& file) {
  Image image;
  decode_jpeg(file, "", {.apply_orientation = false}, {}, image);
  return image.pixels;
}

/// Without interpolation of chroma. The file is sound: an error ends the process.
Bytes decode_repeating_chroma(const Bytes& file) {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, file.data(), file.size());
  jpeg_read_header(&info, TRUE);
  info.out_color_space = JCS_RGB;
  info.do_fancy_upsampling = FALSE;
  jpeg_start_decompress(&info);
  const size_t row = size_t{3} * info.output_width;
  Bytes pixels(row * info.output_height);
  while (info.output_scanline < info.output_height) {
    JSAMPROW at = pixels.data() + row * info.output_scanline;
    jpeg_read_scanlines(&info, &at, 1);
  }
  jpeg_finish_decompress(&info);
  jpeg_destroy_decompress(&info);
  return pixels;
}

/// Compares what the engines made of files with libjpeg-turbo, and prints the differences.
void expect_near_libjpeg(const std::vector<Bytes>& files, const std::vector<Bytes>& pixels) {
  double sum = 0, worst = 0, rounding = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    const double alike = mean_difference(decode_repeating_chroma(files[i]), pixels[i]);
    EXPECT_LE(alike, kMostRoundingDifference) << "file " << i;
    const double difference = mean_difference(decode_as_workers(files[i]), pixels[i]);
    sum += difference;
    worst = std::max(worst, difference);
    rounding = std::max(rounding, alike);
  }
  const double mean = sum / static_cast<double>(files.size());
  EXPECT_LE(mean, kMostMeanDifference);
  std::printf("%zu files: mean difference %.3f levels, worst file %.3f, %.3f with chroma repeated\n",
              files.size(), mean, worst, rounding);
}

TEST_F(GpuDecoding, IsNearLibjpeg) {
  std::vector<Bytes> files = {testing::load_picture("rgb.jpg"), testing::load_picture("orientation_1.jpg"),
                              testing::load_picture("gray.jpg")};
  for (uint64_t i = 0; i < 40; ++i)
    files.push_back(
        photograph_file(64 + static_cast<int64_t>(i) * 11, 71 + static_cast<int64_t>(i * 37 % 500), i));
  std::erase_if(files, [&](const Bytes& file) { return !decoder->takes(file); });
  ASSERT_GE(files.size(), 40u) << decoder->describe();
  expect_near_libjpeg(files, decode(files));
}

TEST_F(GpuDecoding, IsNearLibjpegOnPhotographs) {
  const char* folder = std::getenv("SINTER_TEST_PHOTOS");
  if (folder == nullptr) GTEST_SKIP() << "SINTER_TEST_PHOTOS names no folder";
  const auto dataset = open_image_folder(folder);
  std::vector<Bytes> files;
  int64_t plain = 0;
  for (int64_t i = 0; i < std::min<int64_t>(dataset->size(), 512); ++i) {
    EncodedSample sample;
    ASSERT_TRUE(dataset->read_encoded(i, sample));
    const auto jpeg = read_baseline_jpeg(sample.bytes);
    if (!jpeg || jpeg->height * jpeg->width > 4'000'000) continue;
    ++plain;
    if (decoder->takes(sample.bytes)) files.push_back(sample.bytes);
  }
  EXPECT_EQ(static_cast<int64_t>(files.size()), plain) << "the engines take all plain files";
  std::vector<Bytes> pixels;
  for (size_t begin = 0; begin < files.size(); begin += 64) {
    const auto at = [&](size_t i) {
      return files.begin() + static_cast<std::ptrdiff_t>(std::min(i, files.size()));
    };
    std::ranges::move(decode({at(begin), at(begin + 64)}), std::back_inserter(pixels));
  }
  expect_near_libjpeg(files, pixels);
}

TEST_F(GpuDecoding, DecodesBatchesOfAnySizeFromSeveralThreads) {
  std::vector<Bytes> files;
  for (uint64_t i = 0; i < 24; ++i)
    files.push_back(photograph_file(100 + 9 * static_cast<int64_t>(i), 260 - 5 * static_cast<int64_t>(i), i));
  const std::vector<Bytes> expected = decode(files);
  std::vector<std::thread> threads;
  std::vector<int> same(4);
  for (size_t thread = 0; thread < same.size(); ++thread) {
    threads.emplace_back([&, thread] {
      for (size_t count = 1; count <= files.size(); count += 1 + thread) {
        const std::vector<Bytes> some(files.end() - static_cast<std::ptrdiff_t>(count), files.end());
        const std::vector<Bytes> pixels = decode(some);
        same[thread] +=
            std::equal(pixels.begin(), pixels.end(), expected.end() - static_cast<std::ptrdiff_t>(count)) ? 0
                                                                                                          : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, std::vector<int>(4)) << "batches that differ, by thread";
}

TEST_F(GpuDecoding, ABadFileDoesNotConcernTheOthers) {
  std::vector<Bytes> files;
  for (uint64_t i = 0; i < 6; ++i) files.push_back(photograph_file(150, 200, i));
  const std::vector<Bytes> expected = decode(files);
  files[2] = damaged_inside(150, 200, 2);
  std::vector<size_t> refused;
  const std::vector<Bytes> pixels = decode(files, &refused);
  for (size_t i = 0; i < files.size(); ++i) {
    if (i != 2) {
      EXPECT_EQ(pixels[i], expected[i]) << i;
    }
  }
  std::printf("damage inside the coded data was %s\n", refused.empty() ? "not seen" : "refused");
}

// ---- The loader

DataLoaderOptions options_of(DecodeOn decode) {
  return {.batch_size = 8,
          .shuffle = true,
          .seed = 5,
          .workers = 3,
          .device = Device::cuda(),
          .normalization = {{0}, {1}},
          .transforms = {random_resized_crop({90, 70}), random_horizontal_flip()},
          .decode = decode};
}

TEST_F(GpuDecoding, BatchesAreNearThoseOfTheWorkers) {
  const TemporaryFolder folder;
  write_mixed_folder(folder, 33);
  auto cut = photograph_file(50, 60, 1);
  cut.resize(cut.size() / 2);
  folder.write("odd/cut.jpg", cut);
  const auto dataset = open_image_folder(folder.path());
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    DataLoaderOptions options = options_of(DecodeOn::kCpu);
    options.dtype = dtype;
    options.max_damaged = 1;
    DataLoader workers(dataset, options);
    options.decode = DecodeOn::kGpu;
    DataLoader engines(dataset, options);
    EXPECT_EQ(workers.decoder_name(), "the workers");
    EXPECT_EQ(engines.decoder_name(), decoder->describe());
    for (int epoch = 0; epoch < 3; ++epoch) {
      while (const std::optional<Batch> expected = workers.next()) {
        const Batch batch = *engines.next();
        EXPECT_EQ(batch.labels.to_vector<int64_t>(), expected->labels.to_vector<int64_t>());
        const auto got = ops::cast(batch.images, DType::kFloat32).to_vector<float>();
        const auto want = ops::cast(expected->images, DType::kFloat32).to_vector<float>();
        ASSERT_EQ(got.size(), want.size());
        double sum = 0;
        for (size_t i = 0; i < got.size(); ++i) sum += std::abs(got[i] - want[i]);
        EXPECT_LE(255 * sum / static_cast<double>(got.size()), kMostMeanDifference);
      }
      EXPECT_FALSE(engines.next());
    }
    EXPECT_GT(engines.hardware_decoded(), 3 * 20) << "most of 33 plain files";
    EXPECT_EQ(engines.damaged_samples(), 1);
  }
}

TEST_F(GpuDecoding, RepeatsBitForBitWithAnyWorkers) {
  const TemporaryFolder folder;
  write_mixed_folder(folder, 40);
  const auto dataset = open_image_folder(folder.path());
  DataLoader first(dataset, options_of(DecodeOn::kGpu));
  DataLoaderOptions options = options_of(DecodeOn::kAuto);
  for (const int workers : {0, 1, 4}) {
    options.workers = workers;
    first.start_epoch(0);
    DataLoader other(dataset, options);
    for (int i = 0; i < 12; ++i) {
      const auto expected = first.next(), batch = other.next();
      ASSERT_EQ(batch.has_value(), expected.has_value());
      if (!batch) continue;
      EXPECT_EQ(batch->images.to_vector<float>(), expected->images.to_vector<float>());
    }
  }
}

TEST_F(GpuDecoding, AnswersForADamagedFile) {
  const TemporaryFolder folder;
  auto cut = photograph_file(50, 60, 1);
  cut.resize(cut.size() / 2);
  folder.write("odd/cut.jpg", cut);
  folder.write("odd/whole.jpg", photograph_file(50, 60, 1));
  DataLoaderOptions options = options_of(DecodeOn::kGpu);
  options.batch_size = 2;
  DataLoader loader(open_image_folder(folder.path()), options);
  const std::string message = message_of<IoError>([&] { loader.next(); });
  EXPECT_NE(message.find("odd/cut.jpg"), std::string::npos) << message;
}

TEST_F(GpuDecoding, GivesItsMemoryBack) {
  const TemporaryFolder folder;
  write_mixed_folder(folder, 40);
  const auto dataset = open_image_folder(folder.path());
  const auto live = [] {
    return backend_of(Device::cuda()).pinned_pool(0).stats().live_bytes +
           backend_of(Device::cuda()).memory_pool(0).stats().live_bytes;
  };
  decoder.reset();
  DataLoader(dataset, options_of(DecodeOn::kGpu)).next();  // the workspace stays
  const size_t before = live();
  for (int batches = 0; batches < 6; ++batches) {
    DataLoader loader(dataset, options_of(DecodeOn::kGpu));
    for (int i = 0; i < batches; ++i) loader.next();
  }
  EXPECT_EQ(live(), before);
}

}  // namespace
}  // namespace sinter::nn::data
