// Permutations on a GPU against those on the CPU: sizes around tiles and packs, every element size, views
// that are not aligned, and more than 2^31 elements. SINTER_TEST_CASES changes the number of random cases,
// for tools under which kernels take long.
#include <numeric>
#include <span>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sinter/core/op/dispatch.h>
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/random.h>
#include <sinter/ops/permute/permute.h>

#include "common/test_cases.h"

namespace sinter::ops {
namespace {

int random_cases() {
  return test::random_cases(1500);
}

/// Bytes that differ from element to element.
Tensor random_tensor(const Shape& shape, DType dtype, Generator& generator) {
  Tensor tensor = Tensor::empty(shape, dtype);
  auto* bytes = static_cast<uint8_t*>(tensor.raw_data());
  for (size_t i = 0; i < tensor.spec().bytes(); i += 8) {
    const uint64_t word = generator.below(UINT64_MAX);
    std::memcpy(bytes + i, &word, std::min<size_t>(8, tensor.spec().bytes() - i));
  }
  return tensor;
}

/// On the GPU, beginning `phase` elements into its memory.
Tensor on_gpu(const Tensor& tensor, int64_t phase) {
  const TensorSpec spec{tensor.shape(), tensor.dtype(), Device::cuda()};
  const Tensor memory = Tensor::empty(Shape{tensor.numel() + phase}, spec.dtype, spec.device);
  const Tensor view = Tensor::over(memory.storage(), static_cast<size_t>(phase) * size_of(spec.dtype), spec);
  copy_bytes(view.raw_data(), spec.device, tensor.raw_data(), tensor.device(), spec.bytes());
  return view;
}

void expect_same(const Tensor& got, const Tensor& expected, const Tensor& x, const std::vector<int64_t>& axes,
                 int64_t phase) {
  ASSERT_EQ(got.shape(), expected.shape());
  ASSERT_EQ(std::memcmp(got.to(Device{}).raw_data(), expected.raw_data(), expected.spec().bytes()), 0)
      << to_string(x.spec()) << " by " << fmt::format("{}", fmt::join(axes, ",")) << " from element "
      << phase;
}

void expect_same_as_cpu(const Tensor& x, const std::vector<int64_t>& axes, int64_t phase) {
  const NoGrad no_grad;
  expect_same(permute(on_gpu(x, phase), axes), permute(x, axes), x, axes, phase);
}

TEST(PermuteCudaTest, AgreesWithTheCpuInRandomCases) {
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  Generator generator(3);
  const auto below = [&](uint64_t bound) { return static_cast<int64_t>(generator.below(bound)); };
  const DType dtypes[] = {DType::kUInt8, DType::kFloat16, DType::kFloat32, DType::kFloat64};
  for (int i = 0; i < random_cases(); ++i) {
    const size_t rank = 2 + generator.below(4);
    std::vector<int64_t> extents(rank), axes(rank);
    int64_t count = 1;
    for (size_t j = 0; j < rank; ++j) {
      const int64_t edges[] = {1,  2,  3,  4,  7,   8,   15,  16,  17,  31, 32,
                               33, 63, 64, 65, 127, 128, 129, 255, 256, 257};
      extents[j] = edges[below(21)];
      if (count * extents[j] > 300000) extents[j] = 1 + below(3);
      count *= extents[j];
    }
    std::iota(axes.begin(), axes.end(), int64_t{0});
    const int64_t order =
        below(5);  // the last two axes change places, so do all, or those two and the others
    const size_t shuffled = order < 2 ? 0 : order < 4 ? rank : rank - 2;
    for (size_t j = shuffled; j > 1; --j) std::swap(axes[j - 1], axes[generator.below(j)]);
    if (shuffled != rank) std::swap(axes[rank - 1], axes[rank - 2]);
    const Tensor x = random_tensor(Shape(extents), dtypes[below(4)], generator);
    expect_same_as_cpu(x, axes, below(3) == 0 ? below(16) : 0);
    if (HasFatalFailure()) FAIL() << "case " << i;
  }
}

struct RandomCase {
  std::vector<int64_t> extents, axes;
};

/// A transpose of matrices, or any order of up to five axes.
RandomCase random_case(Generator& generator) {
  const auto below = [&](uint64_t bound) { return static_cast<int64_t>(generator.below(bound)); };
  if (below(3) == 0) return {{1 + below(5), 20 + below(300), 20 + below(300)}, {0, 2, 1}};
  RandomCase random;
  const size_t rank = 2 + generator.below(4);
  for (int64_t count = 1; random.extents.size() < rank; count *= random.extents.back()) {
    const uint64_t bounds[] = {3, 9, 40, 300};
    const int64_t extent = std::min(1 + below(bounds[below(4)]), 1 + 100000 / count);
    random.extents.push_back(below(2) == 0 && count * extent < 40000 ? 8 * extent : extent);
  }
  random.axes.resize(rank);
  std::iota(random.axes.begin(), random.axes.end(), int64_t{0});
  for (size_t j = rank; j > 1; --j) std::swap(random.axes[j - 1], random.axes[generator.below(j)]);
  return random;
}

TEST(PermuteCudaTest, EveryKernelAgreesWithTheCpuWhereItCanRun) {
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  const NoGrad no_grad;
  for (const char* const kernel : {"rows", "plain", "tiles", "woven"}) {
    Generator generator(17);
    int ran = 0;
    for (int i = 0; i < random_cases(); ++i) {
      const RandomCase random = random_case(generator);
      const DType dtypes[] = {DType::kUInt8, DType::kFloat16, DType::kFloat32, DType::kFloat64};
      const Tensor x = random_tensor(Shape(random.extents), dtypes[generator.below(4)], generator);
      const auto phase = static_cast<int64_t>(generator.below(3) == 0 ? generator.below(16) : 0);
      const Tensor expected = permute(x, random.axes), view = on_gpu(x, phase);
      Tensor got;
      try {
        const ForcedKernel forced("permute", kernel);
        got = permute(view, random.axes);
        ran += static_cast<int>(forced.runs());
      } catch (const Unsupported&) {
        continue;
      }
      expect_same(got, expected, x, random.axes, phase);
      if (HasFatalFailure()) FAIL() << "case " << i << " by " << kernel;
    }
    EXPECT_GE(ran, random_cases() / 20) << kernel;
  }
}

struct LargeCase {
  Shape shape;
  std::vector<int64_t> axes;
  DType dtype;
};

/// Aligned and not.
void expect_same_as_cpu(std::span<const LargeCase> cases) {
  Generator generator(7);
  for (const LargeCase& one : cases) {
    const Tensor x = random_tensor(one.shape, one.dtype, generator);
    for (const int64_t phase : {0, 3}) expect_same_as_cpu(x, one.axes, phase);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(PermuteCudaTest, AgreesWithTheCpuInSmallMatricesWideSidesGroupsAndRuns) {
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  const LargeCase cases[] = {{{31, 40, 31, 7, 4}, {2, 1, 0, 4, 3}, DType::kFloat16},
                             {{41, 337, 127, 8}, {1, 0, 3, 2}, DType::kFloat16},
                             {{183, 140, 19, 7}, {1, 0, 3, 2}, DType::kUInt8},
                             {{14, 199, 25, 31}, {1, 0, 3, 2}, DType::kFloat32},
                             {{24, 5, 7, 61, 8}, {2, 0, 1, 4, 3}, DType::kFloat64},
                             {{25, 32, 192, 12, 11}, {1, 0, 2, 4, 3}, DType::kInt32},
                             {{1127, 277, 16}, {0, 2, 1}, DType::kUInt8},
                             {{24, 275, 22, 8}, {3, 1, 0, 2}, DType::kInt64},
                             {{64, 171, 32, 8}, {1, 3, 0, 2}, DType::kFloat32},
                             {{1642, 11, 19, 27}, {1, 3, 0, 2}, DType::kFloat16},
                             {{14, 7, 3, 269, 298}, {3, 0, 4, 2, 1}, DType::kUInt8},
                             {{16, 27, 100, 107}, {0, 2, 1, 3}, DType::kUInt8},
                             {{9, 131, 144, 67}, {2, 0, 1, 3}, DType::kFloat16},
                             {{47, 59, 5003}, {1, 0, 2}, DType::kUInt8},
                             {{47, 59, 3001}, {1, 0, 2}, DType::kFloat16},
                             {{60001, 200}, {1, 0}, DType::kFloat16},
                             {{24000, 300}, {1, 0}, DType::kUInt8},
                             {{23560, 17, 64}, {2, 1, 0}, DType::kFloat16},
                             {{2, 21001, 3, 72}, {0, 3, 2, 1}, DType::kFloat32}};
  expect_same_as_cpu(cases);
}

TEST(PermuteCudaTest, AgreesWithTheCpuInRowsOfAnyLength) {
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  Generator generator(11);
  const auto below = [&](uint64_t bound) { return static_cast<int64_t>(generator.below(bound)); };
  const DType dtypes[] = {DType::kUInt8, DType::kFloat16, DType::kFloat32, DType::kFloat64};
  for (int i = 0; i < std::min(random_cases(), 300); ++i) {
    const DType dtype = dtypes[below(4)];
    const int64_t length = 1 + below(700) / static_cast<int64_t>(size_of(dtype));
    const bool has_more = below(2) == 0;  // axes
    const Shape shape = has_more ? Shape{2 + below(3), 2 + below(20), 2 + below(5), 2 + below(20), length}
                                 : Shape{2 + below(60), 2 + below(60), length};
    const std::vector<int64_t> axes =
        has_more ? std::vector<int64_t>{3, 1, 0, 2, 4} : std::vector<int64_t>{1, 0, 2};
    expect_same_as_cpu(random_tensor(shape, dtype, generator), axes, below(3) == 0 ? below(16) : 0);
    if (HasFatalFailure()) FAIL() << "case " << i;
  }
}

TEST(PermuteCudaTest, AgreesWithTheCpuInTilesOfLinesAndJoinedRuns) {
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  const LargeCase cases[] = {{{50, 1040, 64}, {0, 2, 1}, DType::kFloat32},
                             {{2360, 40, 64}, {2, 1, 0}, DType::kFloat16},
                             {{14, 8, 541, 80}, {1, 3, 2, 0}, DType::kFloat32},
                             {{2, 28672, 243}, {2, 0, 1}, DType::kUInt8},
                             {{131, 19, 20, 59, 7}, {2, 4, 1, 3, 0}, DType::kUInt8},
                             {{131, 19, 20, 59, 7}, {4, 2, 1, 3, 0}, DType::kUInt8},
                             {{67, 2, 60, 31, 30}, {4, 2, 1, 3, 0}, DType::kFloat16},
                             {{33, 2, 300, 11, 9}, {4, 2, 1, 3, 0}, DType::kFloat32},
                             {{21, 7, 12432, 16}, {3, 0, 2, 1}, DType::kUInt8},
                             {{3024, 4, 176}, {0, 2, 1}, DType::kUInt8},
                             {{3000, 6, 88}, {0, 2, 1}, DType::kFloat16},
                             {{20, 1627, 56}, {0, 2, 1}, DType::kUInt8}};
  expect_same_as_cpu(cases);
}

TEST(PermuteCudaTest, AgreesWithTheCpuInWovenTiles) {
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  const std::pair<Shape, std::vector<int64_t>> woven[] = {{{8, 17, 15, 27, 8, 5}, {1, 3, 2, 5, 0, 4}},
                                                          {{8, 4, 31, 64, 4, 4}, {3, 2, 1, 5, 0, 4}},
                                                          {{7, 56, 24, 29, 6}, {0, 2, 4, 3, 1}},
                                                          {{151, 3, 4, 47, 5}, {0, 4, 3, 2, 1}},
                                                          {{17, 2, 208, 32}, {2, 0, 3, 1}},
                                                          {{31, 14, 6, 4, 17, 31}, {3, 2, 1, 5, 4, 0}},
                                                          {{5, 32, 515, 7}, {0, 3, 2, 1}},
                                                          {{19, 3, 129, 2, 33}, {4, 2, 0, 3, 1}}};
  for (const DType dtype : {DType::kUInt8, DType::kFloat16, DType::kFloat32, DType::kFloat64}) {
    for (const auto& [shape, axes] : woven) {
      const LargeCase one[] = {{shape, axes, dtype}};
      expect_same_as_cpu(one);
      if (HasFatalFailure()) return;
    }
  }
  // Elements of 16 bytes, and more than fit in one wave.
  const LargeCase cases[] = {{{17, 12, 31, 8, 5, 4}, {1, 3, 2, 4, 0, 5}, DType::kFloat32},
                             {{8, 97, 15, 27, 8, 5}, {1, 3, 2, 5, 0, 4}, DType::kFloat16},
                             {{31, 24, 6, 4, 17, 31}, {3, 2, 1, 5, 4, 0}, DType::kFloat16},
                             {{147, 56, 24, 29, 6}, {0, 2, 4, 3, 1}, DType::kUInt8}};
  expect_same_as_cpu(cases);
}

TEST(PermuteCudaTest, AgreesWithTheCpuInMatricesOfManyPacks) {
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  const LargeCase cases[] = {{{5189, 74, 16}, {0, 2, 1}, DType::kFloat16},
                             {{661, 264, 5}, {0, 2, 1}, DType::kFloat16},
                             {{459, 240, 12}, {0, 2, 1}, DType::kBFloat16},
                             {{2288, 4, 105}, {0, 2, 1}, DType::kInt64},
                             {{777, 130, 14}, {0, 2, 1}, DType::kFloat32},
                             {{933, 60, 48}, {0, 2, 1}, DType::kUInt8},
                             {{3, 29, 102, 12, 16}, {2, 1, 0, 4, 3}, DType::kFloat16}};
  expect_same_as_cpu(cases);
}

TEST(PermuteCudaTest, AgreesWithTheCpuInRowsShorterThanSectors) {
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  const LargeCase cases[] = {
      {{1001, 707, 5}, {1, 0, 2}, DType::kUInt8},       {{1001, 707, 16}, {1, 0, 2}, DType::kUInt8},
      {{1051, 636, 7, 6}, {2, 0, 1, 3}, DType::kUInt8}, {{501, 407, 7}, {1, 0, 2}, DType::kFloat16},
      {{501, 407, 5}, {1, 0, 2}, DType::kFloat32},      {{33, 201, 107, 3}, {2, 0, 1, 3}, DType::kFloat32},
      {{501, 407, 7}, {1, 0, 2}, DType::kInt32}};
  expect_same_as_cpu(cases);
}

TEST(PermuteCudaTest, AgreesWithTheCpuInMatricesWhoseRowsLieApart) {
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  const LargeCase cases[] = {{{216, 13, 13, 7, 128}, {3, 0, 1, 4, 2}, DType::kUInt8},
                             {{208, 7, 128, 16}, {2, 0, 3, 1}, DType::kFloat16},
                             {{301, 11, 3, 67}, {2, 0, 3, 1}, DType::kUInt8},
                             {{5, 77, 9, 6, 35}, {0, 3, 1, 4, 2}, DType::kFloat32}};
  expect_same_as_cpu(cases);
}

TEST(PermuteCudaTest, AgreesWithTheCpuInMatricesThatSkipBanks) {
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  const LargeCase cases[] = {
      {{839, 205, 16}, {0, 2, 1}, DType::kBFloat16}, {{1001, 128, 32}, {0, 2, 1}, DType::kFloat16},
      {{1003, 63, 24}, {0, 2, 1}, DType::kFloat32},  {{777, 512, 8}, {0, 2, 1}, DType::kUInt8},
      {{501, 511, 12}, {0, 2, 1}, DType::kUInt8},    {{3333, 100, 2}, {0, 2, 1}, DType::kFloat16},
      {{333, 65, 12}, {0, 2, 1}, DType::kFloat64},   {{1, 40007, 48, 14}, {0, 1, 3, 2}, DType::kUInt8}};
  expect_same_as_cpu(cases);
}

TEST(PermuteCudaTest, AgreesWithTheCpuInTilesCutAtSectors) {
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  const LargeCase cases[] = {{{936, 5, 1600}, {2, 1, 0}, DType::kFloat16},
                             {{3, 1000, 1608}, {0, 2, 1}, DType::kFloat16},
                             {{264, 9, 3208}, {2, 1, 0}, DType::kBFloat16},
                             {{1040, 7, 1616}, {2, 1, 0}, DType::kUInt8},
                             {{7, 528, 3232}, {0, 2, 1}, DType::kUInt8}};
  expect_same_as_cpu(cases);
  Generator generator(9);  // memory that begins in the middle of a sector
  expect_same_as_cpu(random_tensor(Shape{936, 5, 1600}, DType::kFloat16, generator), {2, 1, 0}, 8);
}

TEST(PermuteCudaTest, AgreesWithTheCpuInTilesOfBytes) {
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  const LargeCase cases[] = {{{56, 149, 18, 18}, {0, 2, 3, 1}, DType::kUInt8},
                             {{11, 188, 2048}, {0, 2, 1}, DType::kUInt8},
                             {{709, 37, 8, 88}, {1, 3, 2, 0}, DType::kUInt8},
                             {{4, 676, 197, 31}, {0, 3, 1, 2}, DType::kUInt8},
                             {{4, 676, 197, 34}, {0, 3, 1, 2}, DType::kUInt8},
                             {{113, 1, 321, 215}, {3, 2, 0, 1}, DType::kUInt8},
                             {{68, 16, 83, 128}, {0, 2, 3, 1}, DType::kUInt8},
                             {{19, 48, 10001}, {0, 2, 1}, DType::kUInt8},
                             {{8, 20, 23, 24, 4, 64}, {0, 1, 2, 5, 4, 3}, DType::kUInt8},
                             {{96, 4096, 100}, {0, 2, 1}, DType::kUInt8},
                             {{36743, 1024}, {1, 0}, DType::kUInt8},
                             {{36743, 514}, {1, 0}, DType::kUInt8},
                             {{54, 3, 1, 19, 172, 3}, {4, 5, 3, 0, 1, 2}, DType::kUInt8},
                             {{440, 26, 3, 709}, {3, 2, 1, 0}, DType::kUInt8},
                             {{184, 279, 14, 11}, {3, 1, 0, 2}, DType::kUInt8}};
  expect_same_as_cpu(cases);
}

TEST(PermuteCudaTest, AgreesWithTheCpuInRandomTilesOfBytes) {
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  Generator generator(13);
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(generator.below(static_cast<uint64_t>(bound)));
  };
  for (int i = 0; i < std::min(random_cases(), 400); ++i) {
    const int64_t unit = below(3) == 0 ? 16 : below(2) == 0 ? 4 : 1;
    const int64_t rows = unit * (1 + below(700 / unit)), columns = unit * (1 + below(400 / unit));
    const int64_t few = 2 + below(6);
    const std::pair<Shape, std::vector<int64_t>> shapes[] = {
        {{few, rows, columns}, {0, 2, 1}},
        {{rows, few, columns}, {2, 1, 0}},
        {{128 + rows / 3, 2, few, 16 + columns / 4}, {1, 3, 2, 0}},
        {{20 + rows / 8, 2, few, columns}, {3, 2, 1, 0}}};
    const auto& [shape, axes] = shapes[i % 4];
    expect_same_as_cpu(random_tensor(shape, DType::kUInt8, generator), axes, below(2) * below(16));
    if (HasFatalFailure()) FAIL() << "case " << i;
  }
}

TEST(PermuteCudaTest, AgreesWithTheCpuInShortRowsOfWords) {
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  const LargeCase cases[] = {{{51, 191, 37, 7, 5}, {3, 2, 0, 1, 4}, DType::kFloat32},
                             {{301, 207, 15}, {1, 0, 2}, DType::kFloat32},
                             {{100, 99, 20, 3}, {2, 1, 0, 3}, DType::kFloat32},
                             {{100, 99, 20, 3}, {2, 1, 0, 3}, DType::kFloat64},
                             {{301, 207, 7}, {1, 0, 2}, DType::kInt64},
                             {{301, 207, 10}, {1, 0, 2}, DType::kFloat16},
                             {{11, 120, 57, 20}, {0, 2, 1, 3}, DType::kUInt8}};
  expect_same_as_cpu(cases);
}

std::vector<uint8_t> bytes_of(const Tensor& tensor, int64_t begin, int64_t count) {
  std::vector<uint8_t> bytes(static_cast<size_t>(count));
  copy_bytes(bytes.data(), Device{}, static_cast<std::byte*>(tensor.raw_data()) + begin, tensor.device(),
             bytes.size());
  return bytes;
}

/// A matrix of bytes with x[r][c] = line[r % 12 + c], transposed.
void expect_transposed_lines(int64_t rows, int64_t columns) {
  const NoGrad no_grad;
  constexpr int64_t kShifts = 12;
  Generator generator(5);
  const auto line =
      bytes_of(random_tensor(Shape{columns + kShifts}, DType::kUInt8, generator), 0, columns + kShifts);
  const Tensor x = Tensor::empty(Shape{rows, columns}, DType::kUInt8, Device::cuda());
  for (int64_t r = 0; r < rows; ++r) {
    copy_bytes(static_cast<std::byte*>(x.raw_data()) + r * columns, Device::cuda(), line.data() + r % kShifts,
               Device{}, static_cast<size_t>(columns));
  }
  const Tensor y = permute(x, {1, 0});
  for (int64_t c = 0; c < columns; c += c + 1 < columns ? std::min<int64_t>(97, columns - 1 - c) : 1) {
    const auto column = bytes_of(y, c * rows, rows);
    for (int64_t r = 0; r < rows; ++r) {
      ASSERT_EQ(column[static_cast<size_t>(r)], line[static_cast<size_t>(r % kShifts + c)]) << r << ", " << c;
    }
  }
}

TEST(PermuteCudaTest, TransposesMoreElementsThanFitIn32Bits) {
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  expect_transposed_lines(46349, 46337);  // 2^31 + 189965 elements
}

TEST(PermuteCudaTest, TransposesBytesOfOddSizes) {  // the kernels of the test above, for tools that are slow
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  expect_transposed_lines(463, 1021);
}

/// Rows of `length` bytes in another order, compared at each row's begin, middle and end.
void expect_moved_rows(int64_t length, int64_t part) {
  const NoGrad no_grad;
  constexpr int64_t kFirst = 2, kSecond = 3;
  Generator generator(6);
  const Tensor x = Tensor::zeros(Shape{kFirst, kSecond, length}, DType::kUInt8, Device::cuda());
  const Tensor parts = random_tensor(Shape{kFirst * kSecond, part}, DType::kUInt8, generator);
  const auto begin_of = [&](int64_t row, int64_t place) {
    return row * length + place * (length - part) / 2;
  };
  for (int64_t row = 0; row < kFirst * kSecond; ++row) {
    for (int64_t place = 0; place < 3; ++place) {
      copy_bytes(static_cast<std::byte*>(x.raw_data()) + begin_of(row, place), Device::cuda(),
                 parts.data<uint8_t>() + row * part, Device{}, static_cast<size_t>(part));
    }
  }
  const Tensor y = permute(x, {1, 0, 2});
  for (int64_t row = 0; row < kFirst * kSecond; ++row) {
    const int64_t moved = row % kSecond * kFirst + row / kSecond;
    for (int64_t place = 0; place < 3; ++place) {
      ASSERT_EQ(bytes_of(y, begin_of(moved, place), part), bytes_of(parts, row * part, part))
          << row << ", " << place;
    }
  }
}

TEST(PermuteCudaTest, MovesRowsBeyond32Bits) {
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  expect_moved_rows(357914103, 5000);  // 2^31 + 970 elements
}

TEST(PermuteCudaTest, MovesRowsOfOddSizes) {  // the kernels of the test above, for tools that are slow
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  expect_moved_rows(50021, 5000);
}

}  // namespace
}  // namespace sinter::ops
