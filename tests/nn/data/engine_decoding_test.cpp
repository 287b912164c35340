// Batches whose JPEGs a device decodes, with a decoder that stands in for its engines: they are those of the
// workers.
#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/core/image/image_decoder.h>
#include <sinter/nn/data/formats/image_folder.h>
#include <sinter/nn/data/loader/batch_assembler.h>
#include <sinter/nn/data/loader/batch_workers.h>

#include "nn/data/data_test_support.h"
#include "nn/data/engine_samples.h"

namespace sinter::nn::data {
namespace {

using testing::damaged_inside;
using testing::message_of;
using testing::photograph_file;
using testing::TemporaryFolder;
using testing::write_mixed_folder;

/// Decodes as the workers do, but at full size, and refuses what is damaged or is told to be refused.
class StandIn final : public ImageDecoder {
 public:
  using Choice = std::function<bool(std::span<const uint8_t>)>;
  explicit StandIn(Choice refuses = {}, Choice takes = {})
      : refuses_(std::move(refuses)), takes_(std::move(takes)) {}

  std::string describe() const override { return "a stand-in"; }
  Stream stream() const override { return {}; }
  bool takes(std::span<const uint8_t> file) override { return !takes_ || takes_(file); }
  std::vector<size_t> decode(std::span<const EncodedImage> images) override {
    ++calls;
    std::vector<size_t> refused;
    for (size_t i = 0; i < images.size(); ++i) {
      const EncodedImage& image = images[i];
      std::fill_n(image.pixels, 3 * image.height * image.width, uint8_t{99});
      Image decoded;
      try {
        if (refuses_ && refuses_(image.file)) throw IoError("refused");
        decode_jpeg(image.file, "", {}, {}, decoded);
      } catch (const IoError&) {
        refused.push_back(i);
        continue;
      }
      EXPECT_EQ(decoded.height, image.height);
      EXPECT_EQ(decoded.width, image.width);
      std::copy(decoded.pixels.begin(), decoded.pixels.end(), image.pixels);
    }
    return refused;
  }

  std::atomic<int> calls = 0;

 private:
  const Choice refuses_, takes_;
};

DataLoaderOptions options_of(int workers) {
  return {.batch_size = 5,
          .shuffle = true,
          .seed = 5,
          .workers = workers,
          .normalization = {{0.4f, 0.5f, 0.6f}, {0.25f, 0.5f, 0.2f}},
          .transforms = {random_resized_crop({90, 70}), random_horizontal_flip()}};
}

/// Gives the batches of an assembler in order, with or without threads.
class Batches {
 public:
  Batches(std::shared_ptr<BatchAssembler> assembler, int workers) : assembler_(std::move(assembler)) {
    if (workers > 0) workers_ = std::make_unique<BatchWorkers>(assembler_, BatchPosition{0, 0});
  }
  Batch next() {
    if (workers_) return workers_->take();
    WorkerBuffers buffers;
    const int64_t batches = assembler_->batches_per_epoch();
    BatchTask task = assembler_->make_task(number_ / batches, number_ % batches);
    ++number_;
    assembler_->fill_rows(task, 0, task.rows, buffers, never_);
    assembler_->upload(task, buffers);
    return assembler_->finish(task);
  }

 private:
  std::shared_ptr<BatchAssembler> assembler_;
  std::unique_ptr<BatchWorkers> workers_;
  int64_t number_ = 0;
  const std::atomic<bool> never_ = false;
};

/// Expects three epochs of `dataset` through `decoder` to be those of the workers; gives the number of images
/// that the decoder has made, of batches that were taken or read ahead.
int64_t expect_same(const std::shared_ptr<const Dataset>& dataset, const std::shared_ptr<StandIn>& decoder,
                    DataLoaderOptions options) {
  const auto assembler = std::make_shared<BatchAssembler>(dataset, options, decoder);
  Batches batches(assembler, options.workers);
  DataLoader expected(dataset, options);
  for (int epoch = 0; epoch < 3; ++epoch) {
    while (const std::optional<Batch> workers = expected.next()) {
      const Batch batch = batches.next();
      EXPECT_EQ(batch.labels.to_vector<int64_t>(), workers->labels.to_vector<int64_t>());
      EXPECT_EQ(batch.images.to_vector<float>(), workers->images.to_vector<float>());
    }
  }
  EXPECT_EQ(assembler->damaged_samples(), expected.damaged_samples());
  return assembler->hardware_decoded();
}

TEST(EngineDecoding, GivesTheBatchesOfTheWorkers) {
  const TemporaryFolder folder;
  const int64_t files = write_mixed_folder(folder, 17);
  const auto dataset = open_image_folder(folder.path());
  ASSERT_EQ(dataset->size(), files);
  for (const int workers : {0, 1, 3}) {
    SCOPED_TRACE(workers);
    const int64_t decoded = expect_same(dataset, std::make_shared<StandIn>(), options_of(workers));
    if (workers == 0) {
      EXPECT_EQ(decoded, 3 * 18);
    } else {
      EXPECT_GE(decoded, 3 * 18);
    }
  }
}

TEST(EngineDecoding, HasTheSameCropsAsAReducedDecoding) {
  const TemporaryFolder folder;
  for (int i = 0; i < 6; ++i) {
    const auto seed = static_cast<uint64_t>(i);
    folder.write("a/" + std::to_string(i) + ".jpg", photograph_file(201 + i, 302 + 5 * i, seed));
  }
  const auto dataset = open_image_folder(folder.path());
  DataLoaderOptions options = options_of(0);
  options.transforms = {random_resized_crop({32, 24}), random_horizontal_flip()};
  options.normalization = {{0}, {1}};
  const auto assembler = std::make_shared<BatchAssembler>(dataset, options, std::make_shared<StandIn>());
  Batches batches(assembler, 0);
  DataLoader expected(dataset, options);
  for (int epoch = 0; epoch < 4; ++epoch) {
    while (const std::optional<Batch> workers = expected.next()) {
      const auto got = batches.next().images.to_vector<float>(), want = workers->images.to_vector<float>();
      ASSERT_EQ(got.size(), want.size());
      double difference = 0;
      for (size_t i = 0; i < got.size(); ++i) difference += std::abs(got[i] - want[i]);
      EXPECT_LT(difference / static_cast<double>(got.size()), 1.5 / 255);
    }
  }
}

TEST(EngineDecoding, WorkersReadWhatTheDecoderLeaves) {
  const TemporaryFolder folder;
  write_mixed_folder(folder, 12);
  const auto dataset = open_image_folder(folder.path());
  const auto some = [](std::span<const uint8_t> file) { return file.size() % 3 == 0; };
  const auto all = [](std::span<const uint8_t>) { return true; };
  for (const int workers : {0, 2}) {
    const auto refusing = std::make_shared<StandIn>(some);
    const int64_t decoded = expect_same(dataset, refusing, options_of(workers));
    EXPECT_GT(decoded, 0);
    EXPECT_LT(decoded, 4 * 12);
    EXPECT_GT(refusing->calls, 3 * 4) << "those that were not refused are decoded again";
    EXPECT_EQ(expect_same(dataset, std::make_shared<StandIn>(all), options_of(workers)), 0);
    const auto none_taken =
        std::make_shared<StandIn>(StandIn::Choice{}, [&](auto file) { return !all(file); });
    EXPECT_EQ(expect_same(dataset, none_taken, options_of(workers)), 0);
    EXPECT_EQ(none_taken->calls, 0);
  }
}

TEST(EngineDecoding, ADamagedFileIsNamedOrReplaced) {
  const TemporaryFolder folder;
  write_mixed_folder(folder, 9);
  auto cut = photograph_file(50, 60, 1);
  cut.resize(cut.size() / 2);
  folder.write("odd/cut.jpg", cut);                           // shows in the markers
  folder.write("odd/inside.jpg", damaged_inside(50, 60, 2));  // only the decoder can tell
  const auto dataset = open_image_folder(folder.path());
  for (const int workers : {0, 2}) {
    DataLoaderOptions options = options_of(workers);
    options.max_damaged = 2;
    EXPECT_GT(expect_same(dataset, std::make_shared<StandIn>(), options), 0);
    options.max_damaged = 0;
    EXPECT_GT(expect_same(std::make_shared<SkipDamaged>(dataset, 2), std::make_shared<StandIn>(), options),
              0);
    for (const char* bad : {"odd/cut.jpg", "odd/inside.jpg"}) {
      const TemporaryFolder one;
      one.write("odd/a.jpg", photograph_file(40, 40, 3));
      one.write(bad, testing::load(folder.path() / bad));
      options.batch_size = 2;
      const auto assembler = std::make_shared<BatchAssembler>(open_image_folder(one.path()), options,
                                                              std::make_shared<StandIn>());
      Batches batches(assembler, workers);
      const std::string message = message_of<IoError>([&] { batches.next(); });
      EXPECT_NE(message.find(bad), std::string::npos) << message;
    }
  }
}

TEST(EngineDecoding, LeavesLargeImagesToTheWorkers) {
  const TemporaryFolder folder;
  folder.write("a/large.jpg", photograph_file(2000, 2001, 1));
  folder.write("a/small.jpg", photograph_file(200, 201, 1));
  DataLoaderOptions options = options_of(0);
  options.batch_size = 2;
  BatchAssembler assembler(open_image_folder(folder.path()), options, std::make_shared<StandIn>());
  BatchTask task = assembler.make_task(0, 0);
  WorkerBuffers buffers;
  const std::atomic<bool> never = false;
  assembler.fill_rows(task, 0, 2, buffers, never);
  assembler.upload(task, buffers);
  EXPECT_EQ(assembler.hardware_decoded(), 1);
}

TEST(EngineDecoding, IsForDevicesThatHaveEngines) {
  const TemporaryFolder folder;
  folder.write("a/0.jpg", photograph_file(40, 40, 1));
  const auto dataset = open_image_folder(folder.path());
  DataLoaderOptions options = options_of(0);
  options.batch_size = 1;
  options.decode = DecodeOn::kAuto;
  EXPECT_EQ(DataLoader(dataset, options).decoder_name(), "the workers");
  options.decode = DecodeOn::kGpu;
  EXPECT_EQ(message_of<InvalidArgument>([&] { DataLoader(dataset, options); }),
            "[data_loader] expected a GPU to decode on (DecodeOn::kGpu) but the batches are for cpu");
  options.device = Device::cuda();
  options.transforms = {random_horizontal_flip()};
  EXPECT_EQ(message_of<InvalidArgument>([&] { DataLoader(dataset, options); }),
            "[data_loader] expected transforms that all run on the device, one of which resamples, to decode "
            "there (DecodeOn::kGpu)");
  EXPECT_EQ(message_of<Unsupported>([] { hardware_image_decoder(Device::cpu()); }),
            "[image_decoder] cpu has no engines that decode");
}

TEST(EngineDecoding, DatasetsGiveTheirFilesAsTheyAre) {
  const TemporaryFolder folder;
  const auto first = photograph_file(40, 40, 1), second = testing::load_picture("progressive.jpg");
  folder.write("a/0.jpg", first);
  folder.write("b/1.jpg", second);
  const auto files = open_image_folder(folder.path(), {.decode = {.channels = 1}});
  EncodedSample sample;
  ASSERT_TRUE(files->read_encoded(1, sample));
  EXPECT_EQ(sample.bytes, second);
  EXPECT_EQ(sample.label, 1);
  EXPECT_EQ(sample.decode.channels, 1);
  EXPECT_THROW(files->read_encoded(2, sample), InvalidArgument);
  const Subset turned(files, {1, 0});
  ASSERT_TRUE(turned.read_encoded(1, sample));
  EXPECT_EQ(sample.bytes, first);
  EXPECT_FALSE(preload(*files)->read_encoded(0, sample)) << "decoded already";
  std::filesystem::remove(folder.path() / "b/1.jpg");
  EXPECT_THROW(files->read_encoded(1, sample), IoError);
  const SkipDamaged sound(files, 1);
  EXPECT_THROW(sound.read_encoded(1, sample), IoError);
  Sample read;
  sound.read(1, read, {});
  EXPECT_FALSE(sound.read_encoded(1, sample)) << "another sample stands for it";
  EXPECT_TRUE(sound.read_encoded(0, sample));
}

}  // namespace
}  // namespace sinter::nn::data
