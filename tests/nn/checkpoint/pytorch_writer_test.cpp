// Files of weights that are written for PyTorch; tests/examples/sinter_convert_test.sh has PyTorch read some.
#include <string>

#include <common/error_message.h>
#include <common/failing_file_system.h>
#include <common/temporary_folder.h>
#include <gtest/gtest.h>
#include <nn/checkpoint/checkpoint_samples.h>
#include <nn/checkpoint/pytorch_samples.h>

#include <sinter/ops/slice/slice.h>

namespace sinter::nn {
namespace {

using namespace sinter::testing;
using Failure = FailingFileSystem::Failure;

std::string serialize(const NamedTensors& tensors) {
  std::string file;
  serialize_pytorch(tensors, {}, [&](std::span<const std::byte> bytes) {
    file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  return file;
}

NamedTensors sample() {
  NamedTensors tensors;
  uint64_t seed = 0;
  for (const DType dtype : kAllDTypes) {
    for (const Shape& shape :
         {Shape{}, Shape{3}, Shape{2, 0, 3}, Shape{2, 1, 3, 5}, Shape{1, 2, 1, 2, 1, 2, 1, 3}}) {
      tensors[std::string(to_string(dtype)) + ".\xc3\xa9 " + to_string(shape)] =
          random_tensor(shape, dtype, ++seed);
    }
  }
  return tensors;
}

TEST(PytorchWriter, GivesBackEveryDtypeAndShape) {
  const std::string file = serialize(sample());
  expect_same(testing::parse_pytorch(file).tensors, sample());
  EXPECT_EQ(file, serialize(sample()));
  expect_same(testing::parse_pytorch(serialize({})).tensors, {});
}

TEST(PytorchWriter, AlignsElementsAndSumsThem) {
  std::string file = serialize({{"w", Tensor::from_values<float>({1.5f, -2.25f}, {2})}});
  const std::string elements = le(1.5f) + le(-2.25f);
  const size_t place = file.find(elements);
  ASSERT_NE(place, std::string::npos);
  EXPECT_EQ(place % 64, 0U);
  file[place] ^= 1;
  EXPECT_THROW(testing::parse_pytorch(file), IoError);
}

TEST(PytorchWriter, SharedMemoryIsWrittenOnce) {
  const Tensor tensor = random_tensor({1000}, DType::kFloat32, 1);
  const std::string once = serialize({{"a", tensor}}), shared = serialize({{"a", tensor}, {"b", tensor}});
  EXPECT_LT(shared.size(), once.size() + 1000);
  const PytorchFile file = testing::parse_pytorch(shared);
  EXPECT_EQ(file.tensors.at("a").raw_data(), file.tensors.at("b").raw_data());
  // A part of the same memory is an array of its own.
  const NamedTensors parts = {{"all", tensor}, {"part", ops::slice(tensor, 0, 10, 20)}};
  expect_same(testing::parse_pytorch(serialize(parts)).tensors, parts);
}

TEST(PytorchWriter, RefusesWhatPyTorchCannotRead) {
  const TemporaryFolder folder;
  const auto message = [&](const NamedTensors& tensors) {
    return message_of<InvalidArgument>([&] { write_pytorch(folder / "a.pth", tensors); });
  };
  const Tensor tensor = Tensor::zeros({1});
  EXPECT_EQ(message({{"w", Tensor()}}), "[pytorch] tensor \"w\" is undefined");
  EXPECT_EQ(message({{"w\xFF", tensor}}),
            "[pytorch] expected UTF-8 text without zero bytes as the name of a tensor but got \"w\\xff\"");
  NamedTensors many;
  for (int i = 0; i < 100'001; ++i) many[std::to_string(i)] = tensor;
  EXPECT_EQ(message(many), "[pytorch] expected at most 100000 tensors but got 100001");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  many.erase("0");
  EXPECT_EQ(testing::parse_pytorch(serialize(many)).tensors.size(), 100'000U);
}

TEST(PytorchWriter, EveryCallMayFail) {
  for (const Failure failure : {Failure::kOnce, Failure::kDiskFull, Failure::kGone}) {
    bool survived = false;
    for (int64_t k = 1; !survived; ++k) {
      SCOPED_TRACE(fmt::format("failure {} at call {}", static_cast<int>(failure), k));
      const TemporaryFolder folder;
      const NamedTensors before = {{"w", Tensor::zeros({3})}}, after = {{"w", Tensor::full({5}, 1)}};
      write_pytorch(folder / "a.pth", before);
      FailingFileSystem files(failure, k);
      try {
        write_pytorch(folder / "a.pth", after, {}, files);
        survived = !files.failed();
      } catch (const IoError&) {
      }
      EXPECT_EQ(files.open_files(), 0);
      const NamedTensors now = read_pytorch(folder / "a.pth").tensors;
      expect_same(now, now.at("w").numel() == 3 ? before : after);
      if (survived) expect_same(now, after);
    }
  }
}

TEST(PytorchWriter, EveryReadMayFail) {
  const TemporaryFolder folder;
  write_pytorch(folder / "a.pth", sample());
  bool survived = false;
  for (int64_t k = 1; !survived; k += 1 + k / 8) {
    FailingFileSystem files(Failure::kOnce, k);
    try {
      read_pytorch(folder / "a.pth", {}, files);
      survived = true;
    } catch (const IoError&) {
      EXPECT_TRUE(files.failed());
    }
    EXPECT_EQ(files.open_files(), 0);
  }
}

}  // namespace
}  // namespace sinter::nn
