// The bits of a convolution on the CPU must not depend on how many threads there are: random shapes, mostly
// small and awkward, all three ops in both layouts.
#include <cstdlib>
#include <cstring>

#include <gtest/gtest.h>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/conv2d/conv2d.h>
#include <sinter/ops/conv2d/conv2d_geometry.h>

#include "common/test_cases.h"
#include "common/threads.h"

namespace sinter::ops {
namespace {

using test::Threads;

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.spec() == b.spec() && std::memcmp(a.raw_data(), b.raw_data(), a.spec().bytes()) == 0;
}

/// x, weight and options of one convolution.
struct Problem {
  Tensor x, weight;
  Conv2dAttributes options;

  Conv2dGeometry geometry() const { return conv2d_geometry("test", x.shape(), weight.shape(), options); }
};

/// y, dx and dweight with each number of threads, compared with those of one thread.
void expect_same_on_all_threads(const Problem& p, SampleMaker& maker) {
  const Conv2dGeometry g = p.geometry();
  const Tensor dy = maker.tensor(g.y_shape());
  std::vector<Tensor> first;
  for (const int threads : {1, 2, 3, 5}) {
    const Threads guard(threads);
    const std::vector<Tensor> results = {
        conv2d(p.x, p.weight, {}, p.options),
        vjp::conv2d_input(dy, p.weight, {g.height.input, g.width.input}, p.options),
        vjp::conv2d_weight(dy, p.x, {g.height.kernel, g.width.kernel}, p.options)};
    if (first.empty()) first = results;
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_TRUE(same_bytes(results[i], first[i])) << (i == 0   ? "y"
                                                        : i == 1 ? "dx"
                                                                 : "dweight")
                                                    << " with " << threads << " threads";
    }
  }
}

Problem random_problem(SampleMaker& maker) {
  Problem p;
  p.options.layout = maker.pick({Layout::kNCHW, Layout::kNHWC});
  p.options.groups = maker.pick<int64_t>({1, 1, 1, 2, 3});
  std::array<int64_t, 2> size{}, kernel{};
  for (size_t axis = 0; axis < 2; ++axis) {
    kernel[axis] = maker.integer(1, 5);
    p.options.stride[axis] = maker.integer(1, 4);
    p.options.dilation[axis] = maker.pick<int64_t>({1, 1, 2});
    const int64_t reach = p.options.dilation[axis] * (kernel[axis] - 1);
    p.options.padding[axis] = maker.integer(0, reach + 1);
    const int64_t least = std::max<int64_t>(1, reach + 1 - 2 * p.options.padding[axis]);
    size[axis] = least + maker.integer(0, maker.chance(0.3) ? 40 : 6);
  }
  const int64_t in = maker.integer(1, 20), out = maker.integer(1, 40), batch = maker.integer(1, 9);
  p.x = maker.tensor(image_shape(p.options.layout, batch, in * p.options.groups, size[0], size[1]));
  p.weight = maker.tensor(image_shape(p.options.layout, out * p.options.groups, in, kernel[0], kernel[1]));
  return p;
}

TEST(Conv2dThreads, DoNotChangeOneThatTheyChanged) {
  SampleMaker maker(1, DType::kFloat32);
  for (int64_t out = 1; out <= 40; ++out) {
    SCOPED_TRACE(out);
    const Problem p{
        maker.tensor({4, 13, 7, 4}), maker.tensor({out, 13, 5, 3}), {.stride = {1, 4}, .padding = {2, 0}}};
    expect_same_on_all_threads(p, maker);
  }
}

TEST(Conv2dThreads, DoNotChangeRandomOnes) {
  const uint64_t seed = test::random_seed(20261122);
  constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat32, DType::kFloat16, DType::kFloat64};
  for (uint64_t i = 0; i < 200; ++i) {
    SampleMaker maker(seed + i, kDTypes[i % 4]);
    const Problem p = random_problem(maker);
    SCOPED_TRACE(fmt::format("seed {}: x {} weight {} stride {},{} padding {},{} dilation {},{} {} {}",
                             seed + i, p.x.shape(), p.weight.shape(), p.options.stride[0],
                             p.options.stride[1], p.options.padding[0], p.options.padding[1],
                             p.options.dilation[0], p.options.dilation[1], to_string(p.options.layout),
                             p.x.dtype()));
    expect_same_on_all_threads(p, maker);
  }
}

}  // namespace
}  // namespace sinter::ops
