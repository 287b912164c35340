// The kernel that transposes small tensors: which it takes, its threads executed on the host, and on a GPU
// against the CPU.
#include <cstdlib>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sinter/core/op/node.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/random.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/permute/plain_transpose.h>

namespace sinter::ops {
namespace {

std::optional<PlainJob> choose(int64_t batch, int64_t rows, int64_t columns, int element_bytes,
                               uintptr_t input = 0, uintptr_t output = 0) {
  return choose_plain(batch, rows, columns, element_bytes, input, output);
}

TEST(PlainTransposeTest, TakesSmallTransposesOfFullTiles) {
  EXPECT_TRUE(choose(1, 74, 12808, 4));
  EXPECT_TRUE(choose(64, 128, 128, 4));
  EXPECT_TRUE(choose(1, 1000, 1001, 2));
  EXPECT_TRUE(choose(1, 255, 257, 8));
  EXPECT_FALSE(choose(1, 1 << 12, 1 << 12, 4)) << "large";
  EXPECT_FALSE(choose(839, 205, 16, 2)) << "columns of a quarter of a tile";
  EXPECT_FALSE(choose(1, 100000, 33, 2)) << "half of each tile";
  EXPECT_FALSE(choose(1, 128, 128, 16));
  EXPECT_FALSE(choose(1, 1 << 30, 1 << 30, 2));
  EXPECT_FALSE(choose(1, 1000, 1000, 1)) << "bytes";
}

TEST(PlainTransposeTest, TakesUnitsWhereRunsAndAddressesAllow) {
  const auto wide = [](int64_t rows, int64_t columns, uintptr_t input, uintptr_t output) {
    return choose(1, rows, columns, 2, input, output).value().wide;
  };
  EXPECT_TRUE(wide(1000, 1000, 0, 4));
  EXPECT_FALSE(wide(1001, 1000, 8, 0));
  EXPECT_FALSE(wide(1000, 1001, 0, 0));
  EXPECT_FALSE(wide(1000, 1000, 0, 6));
  EXPECT_FALSE(wide(1000, 1000, 2, 0));
}

/// Memory that ends with its last element, so that a checker of memory sees every access beyond.
template <class T>
std::vector<T> random_elements(int64_t count, Generator& generator) {
  std::vector<T> elements(static_cast<size_t>(count));
  for (T& element : elements) element = static_cast<T>(generator.below(UINT64_MAX));
  return elements;
}

template <class T, bool kWide>
void run(const PlainJob& job, const T* in, T* out) {
  constexpr int kSide = PlainTile<T>::kSide;
  std::vector<uint64_t> shared(size_t{kSide * PlainTile<T>::kPitch} / 8);
  const auto image = reinterpret_cast<std::byte*>(shared.data());
  for (int matrix = 0; matrix < job.batch; ++matrix) {
    for (int row = 0; row < job.rows; row += kSide) {
      for (int column = 0; column < job.columns; column += kSide) {
        for (int t = 0; t < kPlainThreads; ++t) {
          load_plain<T, kWide>(in, job.rows, job.columns, row, column, matrix, t, image);
        }
        for (int t = 0; t < kPlainThreads; ++t) {
          store_plain<T, kWide>(out, job.rows, job.columns, row, column, matrix, t, image);
        }
      }
    }
  }
}

template <class T, bool kWide>
void check(int batch, int rows, int columns) {
  const PlainJob job{batch, rows, columns, kWide};
  const int64_t count = int64_t{1} * batch * rows * columns;
  Generator generator(static_cast<uint64_t>(count));
  const std::vector<T> in = random_elements<T>(count, generator);
  std::vector<T> out(in.size());
  run<T, kWide>(job, in.data(), out.data());
  int wrong = 0;
  for (int b = 0; b < batch; ++b) {
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < columns; ++c) {
        const size_t from = static_cast<size_t>((b * rows + r) * columns + c),
                     to = static_cast<size_t>((b * columns + c) * rows + r);
        if (in[from] != out[to]) ++wrong;
      }
    }
  }
  EXPECT_EQ(wrong, 0) << batch << " x " << rows << " x " << columns << " of " << sizeof(T) << " bytes";
}

TEST(PlainTransposeTest, MovesEveryElement) {
  for (const int rows : {1, 31, 32, 64, 97, 130}) {
    for (const int columns : {1, 31, 32, 63, 128, 131}) {
      check<uint16_t, false>(2, rows, columns);
      check<uint32_t, false>(3, rows, columns);
      check<uint64_t, false>(2, rows, columns);
      check<uint16_t, true>(1, 2 * rows, 2 * columns);
    }
  }
}

/// How many different words the lanes of a warp read of the bank of which they read most.
template <class T, bool kWide>
size_t most_in_a_bank() {
  constexpr int kElements = kWide ? PlainTile<T>::kUnit : 1;
  constexpr int kLanes = sizeof(T) == 8 ? 16 : 32;  // that are served at once
  std::map<int, std::set<int>> words;
  for (int lane = 0; lane < kLanes; ++lane) {
    const int word = plain_row<T, kWide>(lane * kElements) / 4;
    for (int half = 0; half < (sizeof(T) == 8 ? 2 : 1); ++half) words[(word + half) % 32].insert(word + half);
  }
  size_t most = 0;
  for (const auto& [bank, in_bank] : words) most = std::max(most, in_bank.size());
  return most;
}

TEST(PlainTransposeTest, LanesReadDifferentBanks) {
  EXPECT_EQ((most_in_a_bank<uint16_t, true>()), 1u);
  EXPECT_EQ((most_in_a_bank<uint16_t, false>()), 1u);
  EXPECT_EQ((most_in_a_bank<uint32_t, false>()), 1u);
  EXPECT_EQ((most_in_a_bank<uint64_t, false>()), 1u);
}

TEST(PlainTransposeCudaTest, AgreesWithTheCpuAtAnyAlignment) {
  if (!is_available(Device::cuda())) GTEST_SKIP() << "no GPU";
  const NoGrad no_grad;
  Generator generator(29);
  const auto below = [&](uint64_t bound) { return static_cast<int64_t>(generator.below(bound)); };
  const DType dtypes[] = {DType::kBFloat16, DType::kFloat32, DType::kFloat64};
  std::map<size_t, int> taken;
  for (int i = 0; i < 300; ++i) {
    const DType dtype = dtypes[below(3)];
    const auto size = static_cast<int64_t>(size_of(dtype));
    const int64_t unit = below(3) == 0 ? 1 : size < 4 ? 4 / size : 1;
    const Shape shape{1 + below(5), unit * (25 + below(140)), unit * (25 + below(140))};
    Tensor x = Tensor::empty(shape, dtype);
    for (size_t byte = 0; byte < x.spec().bytes(); ++byte) {
      static_cast<uint8_t*>(x.raw_data())[byte] = static_cast<uint8_t>(generator.below(256));
    }
    const int64_t phase = below(2) == 0 ? 0 : below(8);
    const TensorSpec spec{shape, dtype, Device::cuda()};
    const Tensor memory = Tensor::empty(Shape{x.numel() + phase}, dtype, spec.device);
    const Tensor view = Tensor::over(memory.storage(), static_cast<size_t>(phase * size), spec);
    copy_bytes(view.raw_data(), spec.device, x.raw_data(), x.device(), spec.bytes());
    const Tensor got = permute(view, {0, 2, 1}).to(Device{}), expected = permute(x, {0, 2, 1});
    ASSERT_EQ(std::memcmp(got.raw_data(), expected.raw_data(), expected.spec().bytes()), 0)
        << to_string(x.spec()) << " from element " << phase;
    if (choose(shape[0], shape[1], shape[2], static_cast<int>(size),
               reinterpret_cast<uintptr_t>(view.raw_data()))) {
      ++taken[size_of(dtype)];
    }
  }
  for (const DType dtype : dtypes) EXPECT_GT(taken[size_of(dtype)], 5) << size_of(dtype) << " bytes";
}

}  // namespace
}  // namespace sinter::ops
