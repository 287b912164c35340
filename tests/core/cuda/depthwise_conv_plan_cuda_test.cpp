// Depthwise convolutions by Sinter's own kernels, on a GPU, against sums of products in float64.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/base/float16.h>
#include <sinter/core/cuda/cudnn/cudnn_conv_limits.h>
#include <sinter/core/cuda/cudnn/depthwise_conv_plan.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/random.h>
#include <sinter/core/runtime/settings.h>
#include <sinter/core/tensor/tensor.h>

#include "common/test_cases.h"

namespace sinter::cuda {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
constexpr ConvPass kPasses[] = {ConvPass::kForward, ConvPass::kGradInput, ConvPass::kGradWeight};

/// With y's extents as they follow.
ConvProblem problem_of(std::array<int64_t, 4> x, std::array<int64_t, 3> group_and_taps,
                       std::array<int64_t, 2> stride, std::array<int64_t, 2> padding) {
  const auto [group, down, across] = group_and_taps;
  ConvProblem made{.dtype = DType::kFloat16,
                   .layout = Layout::kNHWC,
                   .x = x,
                   .weight = {x[1], group, down, across},
                   .y = {x[0], x[1], 0, 0},
                   .stride = stride,
                   .padding = padding};
  for (const size_t i : {size_t{0}, size_t{1}}) {
    made.y[2 + i] = (x[2 + i] + 2 * padding[i] - made.weight[2 + i]) / stride[i] + 1;
  }
  return made;
}

int64_t count_of(const std::array<int64_t, 4>& extents) {
  return extents[0] * extents[1] * extents[2] * extents[3];
}

/// Values as they are rounded to the dtype, and its bytes.
struct Values {
  DType dtype;
  std::vector<double> values;
  std::vector<std::byte> bytes;

  Values(int64_t count, DType type, Generator& generator)
      : dtype(type), bytes(static_cast<size_t>(count) * size_of(type)) {
    for (int64_t i = 0; i < count; ++i) {
      const auto value = static_cast<float>(generator.below(2001)) / 1000.0f - 1.0f;
      dispatch_float(dtype, "test", [&]<class T> {
        const T rounded(value);
        std::memcpy(&bytes[static_cast<size_t>(i) * sizeof(T)], &rounded, sizeof(T));
        values.push_back(static_cast<double>(rounded));
      });
    }
  }
};

/// An array on the GPU amid bytes 0xFF, which are NaN in every dtype, and none of which may change.
class Guarded {
 public:
  explicit Guarded(size_t bytes)
      : bytes_(bytes),
        room_(Tensor::full({static_cast<int64_t>(bytes + 2 * kMargin)}, 0xFF, DType::kUInt8)
                  .to(Device::cuda())) {}
  explicit Guarded(const std::vector<std::byte>& content) : Guarded(content.size()) {
    copy_bytes(data(), Device::cuda(), content.data(), Device::cpu(), content.size());
  }

  void* data() const { return static_cast<std::byte*>(room_.raw_data()) + kMargin; }
  bool margins_are_whole() const {
    const std::vector<uint8_t> all = room_.to_vector<uint8_t>();
    const auto is_whole = [](uint8_t byte) { return byte == 0xFF; };
    return std::all_of(all.begin(), all.begin() + kMargin, is_whole) &&
           std::all_of(all.end() - kMargin, all.end(), is_whole);
  }
  std::vector<std::byte> content() const {
    std::vector<std::byte> bytes(bytes_);
    copy_bytes(bytes.data(), Device::cpu(), data(), Device::cuda(), bytes_);
    return bytes;
  }

 private:
  static constexpr size_t kMargin = 256;
  size_t bytes_;
  Tensor room_;
};

/// What a pass computes, and for each of its elements the sum of the products' magnitudes.
struct Sums {
  std::vector<double> values, magnitudes;
};

Sums expected(const ConvProblem& p, const std::array<const std::vector<double>*, 3>& arrays) {
  const auto [n, channels, height, width] = p.x;
  const auto [filters, group, down, across] = p.weight;
  const auto written = static_cast<size_t>(p.pass == ConvPass::kForward     ? 2
                                           : p.pass == ConvPass::kGradInput ? 0
                                                                            : 1);
  Sums sums;
  sums.values.resize(arrays[written]->size());
  sums.magnitudes = sums.values;
  const auto add = [&](const std::array<int64_t, 3>& at) {  // in x, weight and y
    double product = 1;
    for (size_t i = 0; i < 3; ++i) {
      if (i != written) product *= (*arrays[i])[static_cast<size_t>(at[i])];
    }
    sums.values[static_cast<size_t>(at[written])] += product;
    sums.magnitudes[static_cast<size_t>(at[written])] += std::abs(product);
  };
  for (int64_t pixel = 0; pixel < n * p.y[2] * p.y[3]; ++pixel) {
    const int64_t image = pixel / (p.y[2] * p.y[3]);
    for (int64_t tap = 0; tap < down * across; ++tap) {
      const int64_t row = pixel / p.y[3] % p.y[2] * p.stride[0] - p.padding[0] + tap / across;
      const int64_t column = pixel % p.y[3] * p.stride[1] - p.padding[1] + tap % across;
      if (row < 0 || row >= height || column < 0 || column >= width) continue;
      for (int64_t i = 0; i < channels * group; ++i) {
        const int64_t out = i / group, in = out / group * group + i % group;
        add({((image * height + row) * width + column) * channels + in,
             (out * down * across + tap) * group + i % group, pixel * channels + out});
      }
    }
  }
  return sums;
}

/// One pass, twice: right within what rounding explains, the same both times, all of the result and nothing
/// else written.
void check(ConvProblem problem, uint64_t seed) {
  SCOPED_TRACE(fmt::format("seed {}: {}", seed, to_string(problem)));
  ASSERT_TRUE(is_depthwise_conv(problem));
  Generator generator(seed);
  const Values x(count_of(problem.x), problem.dtype, generator),
      weight(count_of(problem.weight), problem.dtype, generator),
      y(count_of(problem.y), problem.dtype, generator);
  const Sums want = expected(problem, {&x.values, &weight.values, &y.values});
  const std::unique_ptr<ConvPlan> plan = make_depthwise_conv_plan(problem);
  std::vector<std::byte> first;
  for (int run = 0; run < 2; ++run) {
    // What a pass writes is NaN before.
    const auto place = [&](const Values& values, ConvPass writes) {
      return problem.pass == writes ? Guarded(values.bytes.size()) : Guarded(values.bytes);
    };
    const Guarded gpu_x = place(x, ConvPass::kGradInput), gpu_weight = place(weight, ConvPass::kGradWeight),
                  gpu_y = place(y, ConvPass::kForward), workspace(plan->workspace_bytes());
    plan->run(current_stream(Device::cuda()),
              {.x = gpu_x.data(), .weight = gpu_weight.data(), .y = gpu_y.data()}, workspace.data());
    for (const Guarded* const array : {&gpu_x, &gpu_weight, &gpu_y, &workspace}) {
      ASSERT_TRUE(array->margins_are_whole());
    }
    const Guarded& result = problem.pass == ConvPass::kForward     ? gpu_y
                            : problem.pass == ConvPass::kGradInput ? gpu_x
                                                                   : gpu_weight;
    const std::vector<std::byte> got = result.content();
    EXPECT_TRUE(run == 0 || got == first) << "the runs differ";
    first = got;
  }
  const double rounding = problem.dtype == DType::kFloat32   ? 1e-6
                          : problem.dtype == DType::kFloat16 ? 0x1p-11
                                                             : 0x1p-8;
  dispatch_float(problem.dtype, "test", [&]<class T> {
    for (size_t i = 0; i < want.values.size(); ++i) {
      T got;
      std::memcpy(&got, &first[i * sizeof(T)], sizeof(T));
      const double bound = rounding * std::abs(want.values[i]) + 4e-6 * want.magnitudes[i] + 1e-6;
      ASSERT_LE(std::abs(static_cast<double>(got) - want.values[i]), bound) << "element " << i;
    }
  });
}

void check_all(ConvProblem problem, uint64_t seed) {
  for (const DType dtype : kDTypes) {
    for (const ConvPass pass : kPasses) {
      problem.dtype = dtype;
      problem.pass = pass;
      check(problem, seed);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

class DepthwiseConvPlanCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_available(Device::cuda())) GTEST_SKIP() << "needs a GPU";
  }
};

TEST_F(DepthwiseConvPlanCuda, SumsProductsAsTheyAreDefined) {
  const ConvProblem problems[] = {
      problem_of({2, 128, 14, 28}, {1, 3, 3}, {1, 1}, {1, 1}),  // as MobileFaceNet has them
      problem_of({2, 256, 14, 14}, {1, 3, 3}, {2, 2}, {1, 1}),
      problem_of({2, 128, 9, 56}, {2, 3, 3}, {1, 1}, {1, 1}),
      problem_of({3, 512, 7, 7}, {1, 7, 7}, {1, 1}, {0, 0}),
      problem_of({2, 144, 11, 19}, {1, 3, 3}, {1, 1}, {1, 1}),  // lanes that are left over
      problem_of({2, 132, 11, 19}, {2, 3, 3}, {2, 1}, {0, 2}),
      problem_of({1, 4, 1, 1}, {1, 1, 1}, {1, 1}, {0, 0}),
      problem_of({5, 8, 13, 17}, {1, 5, 5}, {2, 3}, {2, 1}),
      problem_of({2, 36, 10, 9}, {2, 4, 8}, {3, 5}, {3, 7}),
      problem_of({1, 12, 37, 300}, {1, 8, 3}, {1, 2}, {7, 2}),
      problem_of({44, 16, 33, 31}, {1, 3, 3}, {1, 1}, {1, 1}),  // many items for a block
  };
  for (const ConvProblem& problem : problems) check_all(problem, 1);
}

TEST_F(DepthwiseConvPlanCuda, RandomProblems) {
  const uint64_t first = test::random_seed(20261127);
  const auto count = static_cast<uint64_t>(test::random_cases(30));
  for (uint64_t seed = first; seed < first + count; ++seed) {
    Generator generator(seed);
    const auto draw = [&](int64_t least, int64_t most) {
      return least + static_cast<int64_t>(generator.below(static_cast<uint64_t>(most - least + 1)));
    };
    std::array<int64_t, 2> taps{}, stride{}, padding{}, size{};
    const int64_t group = draw(1, 2);
    for (size_t i = 0; i < 2; ++i) {
      taps[i] = draw(0, 2) > 0 ? 3 : draw(1, 5);
      stride[i] = draw(1, 3);
      padding[i] = draw(0, taps[i] - 1);
      size[i] = std::max<int64_t>(1, taps[i] - 2 * padding[i]) + draw(0, 20);
    }
    check_all(problem_of({draw(1, 3), 4 * draw(1, 40), size[0], size[1]}, {group, taps[0], taps[1]}, stride,
                         padding),
              seed);
    if (HasFatalFailure()) return;
  }
}

TEST_F(DepthwiseConvPlanCuda, IsTheFirstThatIsAskedFor) {
  const bool autotune = settings::autotune();
  settings::set_autotune(false);
  ConvProblem problem = problem_of({2, 128, 14, 14}, {1, 3, 3}, {1, 1}, {1, 1});
  for (const ConvPass pass : kPasses) {
    problem.pass = pass;
    const auto plan = find_conv_plan(problem);
    ASSERT_NE(plan, nullptr);
    EXPECT_EQ(plan->name(), "depthwise");
  }
  settings::set_autotune(autotune);
}

TEST(DepthwiseConvPlan, TakesWhatItsKernelsCompute) {
  const ConvProblem known = problem_of({2, 128, 14, 14}, {1, 3, 3}, {1, 1}, {1, 1});
  EXPECT_TRUE(is_depthwise_conv(known));
  const auto refuses = [&](auto change) {
    ConvProblem changed = known;
    change(changed);
    return !is_depthwise_conv(changed);
  };
  EXPECT_TRUE(refuses([](ConvProblem& p) { p.layout = Layout::kNCHW; }));
  EXPECT_TRUE(refuses([](ConvProblem& p) { p.dtype = DType::kFloat64; }));
  EXPECT_TRUE(refuses([](ConvProblem& p) { p.dilation = {1, 2}; }));
  EXPECT_TRUE(refuses([](ConvProblem& p) { p.sums = true; }));
  EXPECT_TRUE(refuses([](ConvProblem& p) { p.epilogue.bias = true; }));
  EXPECT_TRUE(refuses([](ConvProblem& p) { p.weight[1] = 4; }));
  EXPECT_TRUE(refuses([](ConvProblem& p) { p.weight[0] = p.y[1] = 256; }));
  EXPECT_TRUE(refuses([](ConvProblem& p) { p.x[1] = p.weight[0] = p.y[1] = 126; }));
  EXPECT_TRUE(refuses([](ConvProblem& p) { p.weight[3] = 9; }));
  EXPECT_TRUE(refuses([](ConvProblem& p) { p.weight = {128, 2, 7, 7}; }));
  EXPECT_TRUE(refuses([](ConvProblem& p) { p.x[0] = p.y[0] = int64_t{1} << 30; }));
  EXPECT_TRUE(refuses([](ConvProblem& p) { p.x[2] = p.y[2] = 0; }));
}

}  // namespace
}  // namespace sinter::cuda
