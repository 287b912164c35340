// Samples of any kind: values, masks and boxes in batches, data sets of functions and tensors, own collation.
#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/nn/augment/rand_augment.h>
#include <sinter/nn/augment/random_erasing.h>
#include <sinter/nn/data/formats/load_image.h>
#include <sinter/nn/data/image/files/encode_png.h>
#include <sinter/nn/data/make_dataset.h>
#include <sinter/ops/operators.h>

#include "nn/data/data_test_support.h"
#include "nn/data/fake_dataset.h"
#include "nn/data/png_samples.h"

namespace sinter::nn::data {
namespace {

using namespace std::chrono_literals;
using testing::Bytes, testing::FakeDataset, testing::message_of, testing::TemporaryFolder;

Image filled(int64_t height, int64_t width, int64_t channels, int64_t value) {
  Image image;
  image.reshape(height, width, channels);
  std::fill(image.pixels.begin(), image.pixels.end(), static_cast<uint8_t>(value));
  return image;
}

/// Sample i has i boxes, a mask of i, and two values.
Sample rich(int64_t i) {
  Sample sample{.image = filled(4, 6, 3, i), .label = i, .mask = filled(4, 6, 1, i)};
  for (int64_t k = 0; k < i; ++k) sample.boxes.push_back({0, 1, 2, 3, 10 * i + k});
  sample.values["y"] = Tensor::from_values<float>({static_cast<float>(i), 0.5f}, {2});
  sample.values["id"] = Tensor::scalar(100 + i);
  return sample;
}

TEST(Samples, ArriveInBatchesWhole) {
  for (const Device device : {Device::cpu(), Device::cuda()}) {
    if (!is_available(device)) continue;
    for (const int workers : {0, 2}) {
      DataLoader loader(make_dataset(5, rich), {.batch_size = 3, .workers = workers, .device = device});
      std::vector<Batch> batches;  // all of them, so that one which is overwritten later is found out
      for (int epoch = 0; epoch < 3; ++epoch) {
        for (const Batch& batch : loader) batches.push_back(batch);
      }
      ASSERT_EQ(batches.size(), 6u);
      for (size_t at = 0; at < 6; at += 2) {
        const auto& [images, labels] = batches[at];
        EXPECT_EQ(images.shape(), (Shape{3, 3, 4, 6}));
        EXPECT_EQ(labels.to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2}));
        const Batch &first = batches[at], &second = batches[at + 1];
        EXPECT_EQ(first.host_labels, (std::vector<int64_t>{0, 1, 2}));
        EXPECT_EQ(second.indices, (std::vector<int64_t>{3, 4}));
        EXPECT_EQ(second.size(), 2);
        EXPECT_EQ(second["y"].device(), device);
        EXPECT_EQ(second["y"].shape(), (Shape{2, 2}));
        EXPECT_EQ(second["y"].to_vector<float>(), (std::vector<float>{3, 0.5f, 4, 0.5f}));
        EXPECT_EQ(second["id"].to_vector<int64_t>(), (std::vector<int64_t>{103, 104}));
        EXPECT_EQ(second.masks.shape(), (Shape{2, 4, 6}));
        EXPECT_EQ(second.masks.to_vector<int64_t>()[24], 4);
        EXPECT_EQ(first.boxes.labels.to_vector<int64_t>(), (std::vector<int64_t>{10, 20, 21}));
        EXPECT_EQ(first.boxes.images.to_vector<int64_t>(), (std::vector<int64_t>{1, 2, 2}));
        EXPECT_EQ(first.boxes.boxes.shape(), (Shape{3, 4}));
        EXPECT_EQ(first.boxes.boxes[2].to_vector<float>(), (std::vector<float>{0, 1, 2, 3}));
      }
      EXPECT_EQ(message_of<InvalidArgument>([&] { batches[0]["x"]; }),
                "[batch] expected the name of a value, of id, y, but got x");
    }
  }
}

TEST(Samples, WithoutMoreHaveNoMore) {
  DataLoader loader(std::make_shared<FakeDataset>(5), {.batch_size = 5});
  const Batch batch = *loader.next();
  EXPECT_FALSE(batch.masks.defined());
  EXPECT_TRUE(batch.values.empty());
  EXPECT_EQ(batch.boxes.boxes.shape(), (Shape{0, 4}));
  EXPECT_EQ(batch.boxes.labels.shape(), (Shape{0}));
  EXPECT_EQ(message_of<InvalidArgument>([&] { batch["y"]; }),
            "[batch] expected the name of a value, of which there are none, but got y");
}

// A worker's buffers go from sample to sample; what one has and the next has not must not stay.
TEST(Samples, LeaveNothingBehind) {
  class Sometimes final : public Dataset {
   public:
    int64_t size() const override { return 6; }
    void read(int64_t index, Sample& sample, const DecodeHintFunction&) const override {
      sample.image = filled(2, 2, 1, index);
      sample.label = index;
      if (index < 3) {
        sample.mask = filled(2, 2, 1, 9);
        sample.boxes.push_back({0, 0, 1, 1, index});
        sample.values["v"] = Tensor::scalar(index);
      }
    }
  };
  DataLoader loader(std::make_shared<Sometimes>(), {.batch_size = 3});
  EXPECT_TRUE(loader.next()->masks.defined());
  const Batch second = *loader.next();
  EXPECT_FALSE(second.masks.defined());
  EXPECT_TRUE(second.values.empty());
  EXPECT_EQ(second.boxes.labels.numel(), 0);
  EXPECT_EQ(message_of<InvalidArgument>(
                [] { DataLoader(std::make_shared<Sometimes>(), {.batch_size = 6}).next(); }),
            "[data_loader] expected a mask for all samples of a batch or for none but row 3 of 6 has none");
}

TEST(Samples, MustGoTogether) {
  const auto error = [](const std::function<void(Sample&, int64_t)>& change) {
    const auto data = make_dataset(2, [&](int64_t i) {
      Sample sample = rich(1);
      change(sample, i);
      return sample;
    });
    return message_of<InvalidArgument>([&] { DataLoader(data, {.batch_size = 2}).next(); });
  };
  EXPECT_EQ(
      error([](Sample& s, int64_t i) { s.values["y"] = Tensor::zeros({2 + i}); }),
      "[data_loader] expected y of all samples of a batch to be float32 (2,) on cpu but that of sample 1 is "
      "float32 (3,) on cpu");
  EXPECT_EQ(
      error([](Sample& s, int64_t i) {
        if (i == 1) s.values.erase("id");
      }),
      "[data_loader] expected a value id for all samples of a batch or for none but row 1 of 2 has none");
  EXPECT_EQ(error([](Sample& s, int64_t) { s.values["y"] = Tensor(); }),
            "[data_loader] expected values on the CPU but y of sample 0 is undefined");
  EXPECT_EQ(error([](Sample& s, int64_t) { s.mask = filled(4, 5, 1, 0); }),
            "[data_loader] expected a mask of 4 x 6 x 1, as its image, for sample 0 but got 4 x 5 x 1");
  EXPECT_EQ(error([](Sample& s, int64_t) { s.mask = filled(4, 6, 3, 0); }),
            "[data_loader] expected a mask of 4 x 6 x 1, as its image, for sample 0 but got 4 x 6 x 3");
  EXPECT_EQ(error([](Sample& s, int64_t) { s.mask.pixels.resize(3); }),
            "[data_loader] expected the mask of 4 x 6 x 1 for sample 0 but got 3 bytes");
  EXPECT_EQ(error([](Sample& s, int64_t) { s = Sample{}; }),
            "[data_loader] expected the pixels of 0 x 0 x 0 for sample 0 but got 0 bytes");
}

TEST(Samples, WithMasksAreRefusedWhereTheyWouldNotFollow) {
  DataLoader loader(make_dataset(5, rich), {.augmentations = {RandAugment()}});
  EXPECT_EQ(message_of<InvalidArgument>([&] { loader.next(); }),
            "[rand_augment] expected samples without masks and boxes, which do not follow where it moves "
            "images, but "
            "sample 0 has them; random_rotation and other transforms take them along");
  DataLoader erasing(make_dataset(5, rich), {.augmentations = {RandomErasing({.probability = 1})}});
  EXPECT_TRUE(erasing.next()->masks.defined());  // nothing moves
}

TEST(Samples, ArePreloadedWhole) {
  const DatasetPtr data = preload(*make_dataset(5, rich));
  const Batch batch = *DataLoader(data, {.batch_size = 5}).next();
  EXPECT_EQ(batch.masks.shape(), (Shape{5, 4, 6}));
  EXPECT_EQ(batch["id"].to_vector<int64_t>(), (std::vector<int64_t>{100, 101, 102, 103, 104}));
  EXPECT_THROW(preload(*make_dataset(5, rich), 5 * 4 * 6 * 3), OutOfMemory);  // masks count
}

TEST(TensorDataset, GivesRowsByName) {
  const Tensor x = Tensor::arange(12).reshape({6, 2}),
               y = Tensor::from_values<int64_t>({0, 1, 2, 3, 4, 5}, {6});
  const DatasetPtr data = tensor_dataset({{"x", x.slice(0, 1, 6)}, {"y", y.slice(0, 1, 6)}});
  EXPECT_EQ(data->size(), 5);
  for (const int workers : {0, 2}) {
    DataLoader loader(data, {.batch_size = 4, .workers = workers});
    const Batch first = *loader.next(), second = *loader.next();
    EXPECT_EQ(first["x"].shape(), (Shape{4, 2}));
    EXPECT_EQ(first["y"].to_vector<int64_t>(), (std::vector<int64_t>{1, 2, 3, 4}));
    EXPECT_EQ(second["x"].to(DType::kFloat32).to_vector<float>(), (std::vector<float>{10, 11}));
    EXPECT_FALSE(first.images.defined());
    EXPECT_EQ(second.size(), 1);
  }
  EXPECT_EQ(data->get(2).values.at("y").item<int64_t>(), 3);
  EXPECT_EQ(data->fingerprint(),
            tensor_dataset({{"x", x.slice(0, 1, 6)}, {"y", y.slice(0, 1, 6)}})->fingerprint());
  EXPECT_NE(data->fingerprint(),
            tensor_dataset({{"x", x.slice(0, 0, 5)}, {"y", y.slice(0, 1, 6)}})->fingerprint());
}

TEST(TensorDataset, RefusesWhatHasNoRows) {
  const auto error = [](std::map<std::string, Tensor> fields) {
    return message_of<InvalidArgument>([&] { tensor_dataset(fields); });
  };
  EXPECT_EQ(error({}), "[tensor_dataset] expected at least one tensor but got none");
  EXPECT_EQ(error({{"a", Tensor::zeros({2})}, {"b", Tensor::zeros({3})}}),
            "[tensor_dataset] expected 2 rows, as a has, but b has 3");
  EXPECT_EQ(error({{"a", Tensor::zeros({})}}),
            "[tensor_dataset] expected a tensor of rows on the CPU for a but got float32 () on cpu");
  DataLoader loader(tensor_dataset({{"a", Tensor::zeros({2})}}), {.transforms = {resize(4)}});
  EXPECT_EQ(message_of<InvalidArgument>([&] { loader.next(); }),
            "[data_loader] expected an image for the transforms but sample 0 has none");
}

TEST(Transforms, OfAFunctionChangeValuesToo) {
  const auto noise = make_transform([](Sample& sample, SampleRandom& random) {
    sample.values["x"] = sample.values["x"] + random.uniform(1, 2);
  });
  DataLoader loader(tensor_dataset({{"x", Tensor::zeros({8})}}), {.batch_size = 8, .transforms = {noise}});
  const auto values = (*loader.next())["x"].to_vector<float>();
  for (const float value : values) EXPECT_TRUE(value >= 1 && value < 2);
  EXPECT_NE(values[0], values[1]);
}

TEST(Collate, MakesBatchesOfSamplesOfAnySize) {
  const auto sizes =
      make_dataset(5, [](int64_t i) { return Sample{.image = filled(2 + i, 3, 1, i), .label = i}; });
  const auto doubled = make_transform([](Sample& sample, SampleRandom&) { sample.label *= 2; });
  for (const int workers : {0, 2}) {
    DataLoader loader(sizes, {.batch_size = 2,
                              .workers = workers,
                              .transforms = {doubled},
                              .collate = [](std::vector<Sample> samples) {
                                std::vector<int64_t> heights, labels;
                                for (const Sample& sample : samples) {
                                  heights.push_back(sample.image.height);
                                  labels.push_back(sample.label);
                                }
                                const auto count = static_cast<int64_t>(samples.size());
                                Batch batch;
                                batch.labels = Tensor::from_values(labels, {count});
                                batch.values["heights"] = Tensor::from_values(heights, {count});
                                return batch;
                              }});
    std::vector<int64_t> heights, labels;
    for (const Batch& batch : loader) {
      for (const int64_t height : batch["heights"].to_vector<int64_t>()) heights.push_back(height);
      for (const int64_t label : batch.host_labels) labels.push_back(label);
      EXPECT_EQ(batch.indices.size(), static_cast<size_t>(batch.size()));
    }
    EXPECT_EQ(heights, (std::vector<int64_t>{2, 3, 4, 5, 6}));
    EXPECT_EQ(labels, (std::vector<int64_t>{0, 2, 4, 6, 8}));
  }
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              DataLoader(sizes, {.augmentations = {RandAugment()},
                                 .collate = [](std::vector<Sample>) { return Batch(); }});
            }),
            "[data_loader] expected no augmentations beside collate, which makes the batch as it is to be");
  DataLoader throwing(sizes,
                      {.workers = 1, .collate = [](std::vector<Sample>) -> Batch { throw Error("mine"); }});
  EXPECT_EQ(message_of<Error>([&] { throwing.next(); }), "mine");
}

TEST(MaskFiles, KeepTheNumbersThatAreStored) {
  const TemporaryFolder folder;
  const std::vector<uint16_t> classes = {0, 1, 2, 3, 2, 1};
  for (const int depth : {2, 4, 8}) {
    for (const int colour_type : {0, 3}) {
      testing::PngSample sample{
          .height = 2, .width = 3, .colour_type = colour_type, .depth = depth, .values = classes};
      if (colour_type == 3) sample.chunks = {{"PLTE", Bytes(12, 77)}, {"tRNS", Bytes{0}}};
      const auto path = folder.write("mask.png", testing::make_png(sample));
      const Image mask = read_mask(path);
      EXPECT_EQ(mask.channels, 1);
      EXPECT_EQ(mask.pixels, (Bytes{0, 1, 2, 3, 2, 1})) << depth << " bits, type " << colour_type;
    }
  }
  EXPECT_EQ(
      read_mask(folder.write("mask.pgm", {'P', '5', ' ', '3', ' ', '1', ' ', '3', '\n', 0, 3, 1})).pixels,
      (Bytes{0, 3, 1}));
}

TEST(MaskFiles, RefuseColoursAndWhatLosesNumbers) {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& name, const Bytes& bytes) {
    const auto path = folder.write(name, bytes);
    const std::string message = message_of<IoError>([&] { read_mask(path); });
    const size_t at = message.find(": expected");
    return at == std::string::npos ? message : message.substr(at + 2);
  };
  EXPECT_EQ(
      error("rgb.png", testing::make_png(testing::random_png(2, 2, 2, 8, false))),
      "expected a mask, gray or with a palette, of at most 8 bits a pixel, but got one in colours of 8 bits");
  EXPECT_EQ(
      error("deep.png", testing::make_png(testing::random_png(2, 2, 0, 16, false))),
      "expected a mask, gray or with a palette, of at most 8 bits a pixel, but got one gray of 16 bits");
  EXPECT_EQ(error("alpha.png", testing::make_png(testing::random_png(2, 2, 4, 8, false))),
            "expected a mask, gray or with a palette, of at most 8 bits a pixel, but got one gray with alpha "
            "of 8 bits");
  EXPECT_EQ(error("lossy.png", testing::load_picture("gray.jpg")),
            "expected a mask as a PNG or PGM but got a JPEG, which need not keep its values");
  EXPECT_EQ(error("rgb.pgm", testing::load_picture("rgb.ppm")), "expected a mask, a PGM (P5), but got a PPM");
}

TEST(PictureFiles, AreListedByName) {
  const TemporaryFolder folder;
  for (const char* const name : {"b.jpg", "a.png", ".hidden", "folder/c.jpg"}) folder.write(name, {});
  EXPECT_EQ(list_files(folder.path()), (std::vector<std::string>{"a.png", "b.jpg"}));
  EXPECT_THROW(list_files(folder.path() / "none"), IoError);
  EXPECT_EQ(read_image(test::test_data() / "images" / "rgb.jpg").channels, 3);
  EXPECT_EQ(read_image(test::test_data() / "images" / "rgb.jpg", {.channels = 1}).channels, 1);
}

// Whatever a second thread calls while the first waits for a batch: an error there, and the first gets its
// batches as alone.
TEST(LoaderOfTwoThreads, ThrowsInTheSecond) {
  std::atomic<bool> is_reading = false, may_go_on = false;
  const auto data = make_dataset(4, [&](int64_t i) {
    is_reading = true;
    while (!may_go_on) std::this_thread::sleep_for(1ms);
    return Sample{.image = filled(2, 2, 1, i), .label = i};
  });
  for (const int workers : {0, 1}) {
    is_reading = may_go_on = false;
    DataLoader loader(data, {.batch_size = 2, .workers = workers});
    const DataLoaderState state = loader.state();
    auto first = std::async(std::launch::async, [&] { return loader.next()->host_labels; });
    while (!is_reading) std::this_thread::sleep_for(1ms);
    const std::function<void()> calls[] = {
        [&] { loader.next(); },  [&] { loader.begin(); },           [&] { loader.remaining().begin(); },
        [&] { loader.state(); }, [&] { loader.load_state(state); }, [&] { loader.start_epoch(1); },
        [&] { loader.epoch(); }};
    for (const auto& call : calls) {
      const std::string message = message_of<InvalidArgument>(call);
      EXPECT_EQ(message.rfind("[data_loader] expected calls one after the other", 0), 0u) << message;
    }
    may_go_on = true;
    EXPECT_EQ(first.get(), (std::vector<int64_t>{0, 1}));
    EXPECT_EQ(loader.next()->host_labels, (std::vector<int64_t>{2, 3}));
  }
}

}  // namespace
}  // namespace sinter::nn::data
