// In-place ops that are given other inputs in the memory that they change: all are read before it is written.
#include <chrono>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include <sinter/core/executor/program.h>
#include <sinter/core/graph/tracer.h>
#include <sinter/core/op/call_tracer.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/put_rows/put_rows.h>
#include <sinter/ops/slice/slice.h>

#include "ops/ops_test_support.h"

namespace sinter::ops {
namespace {

using testing::counting;

class OverlappingMemory : public ::testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (!is_available(device())) GTEST_SKIP() << "no GPU";
  }
  Device device() const { return GetParam() == DeviceType::kCpu ? Device::cpu() : Device::cuda(); }

  /// 1, 2, ..., rows - 1, 0.
  Tensor next(int64_t rows) const {
    std::vector<int64_t> order(static_cast<size_t>(rows));
    std::iota(order.begin(), order.end(), 1);
    order.back() = 0;
    return Tensor::from_values(order, {rows}, device());
  }
};
INSTANTIATE_TEST_SUITE_P(, OverlappingMemory, ::testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                         [](const auto& test) { return test.param == DeviceType::kCpu ? "Cpu" : "Cuda"; });

TEST_P(OverlappingMemory, IndexCopyPutsWhatTheRowsWere) {
  constexpr int64_t kRows = 5000;
  const auto expect_moved = [](const char* what, const Tensor& target, int64_t axis, const Tensor& indices,
                               const Tensor& source) {
    const Tensor expected = copy(target);
    index_copy_(expected, axis, copy(indices), copy(source));
    index_copy_(target, axis, indices, source);
    EXPECT_EQ(not_equal(target, expected).any().item(), 0) << what;
  };
  const Tensor order = next(kRows), table = counting({kRows, 3}).to(device());
  expect_moved("itself", table, 0, order, table);
  expect_moved("a view that begins before it", slice(table, 0, 1, kRows), 0, slice(order, 0, 0, kRows - 2),
               slice(table, 0, 0, kRows - 2));
  expect_moved("rows of one element", table.flatten(), 0, order, slice(table.flatten(), 0, 0, kRows));
  const Tensor turned = transpose(table, 0, 1);
  expect_moved("itself along another axis", turned, 1, order, turned);
  expect_moved("its indices", order, 0, order, copy(order));
  expect_moved("its indices and itself", order, 0, order, order);
}

TEST_P(OverlappingMemory, CopiesMoveBySomeElementsAtOnce) {
  constexpr int64_t kCount = 10'000'000;
  const Tensor whole = counting({kCount}).to(device());
  for (const int64_t shift : {kCount / 3, int64_t{1}}) {
    const Tensor first = slice(whole, 0, 0, kCount - shift), last = slice(whole, 0, shift, kCount);
    for (const auto& [to, from] : {std::pair(first, last), std::pair(last, first)}) {
      const Tensor expected = copy(from);
      const auto begin = std::chrono::steady_clock::now();
      copy_(to, from);
      synchronize(device());
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      EXPECT_LT(seconds.count(), 2.0) << "a call for each element takes ten";
      EXPECT_EQ(not_equal(to, expected).any().item(), 0) << "moved by " << shift;
    }
  }
}

TEST_P(OverlappingMemory, ProgramsPutWhatTheRowsWere) {
  constexpr int64_t kRows = 5000;
  const Tensor order = next(kRows), table = counting({kRows, 3}).to(device()), expected = copy(table);
  const TensorSpec spec{Shape{1}, DType::kFloat32, device()};
  auto graph = std::make_unique<Graph>();
  graph->memory(table, GraphValue::Kind::kLeaf, "table");
  Tracer tracer(*graph);
  const Tensor x = tracer.tensor(graph->add_input(spec, "x"));
  index_copy_(table, 0, order, table);
  graph->add_output(tracer.use_of(-x));
  Program program(std::move(graph), device());
  const Tensor input = Tensor::empty(spec);
  for (int run = 0; run < 4; ++run) {
    program.run({&input, 1});
    const Untraced untraced;
    index_copy_(expected, 0, order, copy(expected));
    ASSERT_EQ(table.to_vector<float>(), expected.to_vector<float>()) << "run " << run;
  }
}

}  // namespace
}  // namespace sinter::ops
