// OpProfile: what it counts, when, and how it tells it.
#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include <sinter/core/op/call.h>
#include <sinter/core/op/profile.h>
#include <sinter/core/op/registry.h>

namespace sinter {
namespace {

using std::chrono::microseconds;

template <int time_us>
void sleep(const KernelContext&) {
  std::this_thread::sleep_for(microseconds(time_us));
}

std::vector<TensorSpec> infer_first(const InferContext& context) {
  return {context.input(0)};
}

/// An op whose kernel sleeps: 2 ms on float32, 200 us on all other dtypes.
const Op& sleepy_op() {
  static const Op* const op = [] {
    OpRegistry& registry = OpRegistry::instance();
    const Op& added =
        registry.add({.name = "test_sleepy", .inputs = {{"x"}}, .outputs = {{"y"}}, .infer = infer_first});
    registry.add_kernel("test_sleepy", {.name = "short", .run = sleep<200>});
    registry.add_kernel("test_sleepy",
                        {.name = "long",
                         .priority = 1,
                         .can_run = [](const KernelQuery& q) { return q.input(0).dtype == DType::kFloat32; },
                         .run = sleep<2000>});
    return &added;
  }();
  return *op;
}

/// An op that is always a view.
const Op& view_op() {
  static const Op& op =
      OpRegistry::instance().add({.name = "test_view",
                                  .inputs = {{"x"}},
                                  .outputs = {{"y"}},
                                  .infer = infer_first,
                                  .view = [](const InferContext&) { return std::optional<int64_t>(0); }});
  return op;
}

void call_sleepy(DType dtype, int times = 1) {
  for (int i = 0; i < times; ++i) call(sleepy_op(), {Tensor::empty({1}, dtype)});
}

TEST(Profile, AddsUpByOpAndKernelWhileItRuns) {
  call_sleepy(DType::kFloat32);
  OpProfile profile;
  call_sleepy(DType::kInt32, 3);
  call_sleepy(DType::kFloat32, 2);
  call(view_op(), {Tensor::empty({1})});
  std::thread([] { call_sleepy(DType::kInt32); }).join();
  profile.stop();
  call_sleepy(DType::kFloat32);
  profile.stop();

  auto rows = profile.rows();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_GE(rows[0].device_us, rows[1].device_us);
  // On a busy machine the short sleeps may have taken longer.
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.kernel < b.kernel; });
  EXPECT_EQ(rows[0].op, "test_sleepy");
  EXPECT_EQ(rows[0].kernel, "long");
  EXPECT_EQ(rows[0].device, Device::cpu());
  EXPECT_EQ(rows[0].calls, 2u);
  EXPECT_GE(rows[0].device_us, 2 * 2000.0);
  EXPECT_GE(rows[0].host_us, 2 * 2000.0);
  EXPECT_EQ(rows[1].kernel, "short");
  EXPECT_EQ(rows[1].calls, 4u);
  EXPECT_GE(rows[1].device_us, 4 * 200.0);
}

TEST(Profile, ReadsItsMarksAlongTheWay) {
  static const Op& op = OpRegistry::instance().add(
      {.name = "test_nothing", .inputs = {{"x"}}, .outputs = {{"y"}}, .infer = infer_first});
  OpRegistry::instance().add_kernel("test_nothing", {.run = [](const KernelContext&) {}});
  const Tensor x = Tensor::empty({1});
  const OpProfile profile;
  for (int i = 0; i < 10'000; ++i) call(op, {x});
  const auto rows = profile.rows();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].calls, 10'000u);
  EXPECT_EQ(rows[0].kernel, "default");
}

TEST(Profile, TellsShapesApartWhenAsked) {
  static const Op& op = OpRegistry::instance().add(
      {.name = "test_shapes", .inputs = {{"x"}, {"extra", true}}, .outputs = {{"y"}}, .infer = infer_first});
  OpRegistry::instance().add_kernel("test_shapes", {.run = [](const KernelContext&) {}});
  OpProfile profile(OpProfile::Options{.by_shape = true});
  for (int i = 0; i < 3; ++i) call(op, {Tensor::empty({2, 3}), Tensor()});
  call(op, {Tensor::empty({4}), Tensor::empty({5}, DType::kFloat64)});
  profile.stop();

  auto rows = profile.rows();
  ASSERT_EQ(rows.size(), 2u);
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.calls > b.calls; });
  EXPECT_EQ(rows[0].shapes, "float32 (2, 3), none -> float32 (2, 3)");
  EXPECT_EQ(rows[0].calls, 3u);
  EXPECT_EQ(rows[0].bytes, 3 * 2 * 24.0);
  EXPECT_EQ(rows[1].shapes, "float32 (4,), float64 (5,) -> float32 (4,)");
  EXPECT_EQ(rows[1].bytes, 2 * 16.0 + 40.0);
  EXPECT_NE(profile.table().find(rows[1].shapes), std::string::npos) << profile.table();
}

TEST(Profile, PrintsATable) {
  OpProfile profile;
  EXPECT_EQ(profile.rows().size(), 0u);
  call_sleepy(DType::kFloat32, 2);
  const std::string table = profile.table();
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 3) << table;  // titles, one row, totals
  EXPECT_NE(table.find("test_sleepy"), std::string::npos) << table;
  EXPECT_NE(table.find("  100.0 "), std::string::npos) << table;
  EXPECT_NE(table.find("total "), std::string::npos) << table;
}

TEST(Profile, OnlyOneRunsAtATime) {
  OpProfile first;
  EXPECT_THROW(OpProfile(), InvalidArgument);
  call_sleepy(DType::kInt32);
  EXPECT_EQ(first.rows().size(), 1u);  // the refused one has not stopped it
  first.stop();
  const OpProfile second;
  EXPECT_TRUE(second.rows().empty());
}

TEST(Profile, ACallCountsWhereItBegan) {
  static std::unique_ptr<OpProfile> first, second;
  static const Op& op = OpRegistry::instance().add(
      {.name = "test_under_way", .inputs = {{"x"}}, .outputs = {{"y"}}, .infer = infer_first});
  OpRegistry::instance().add_kernel("test_under_way", {.run = [](const KernelContext&) {
                                      first->stop();
                                      second = std::make_unique<OpProfile>();
                                    }});
  first = std::make_unique<OpProfile>();
  call(op, {Tensor::empty({1})});
  EXPECT_EQ(first->rows().size(), 1u);
  EXPECT_TRUE(second->rows().empty());
  second.reset();
  first.reset();
}

TEST(Profile, OutlivesAKernelThatThrows) {
  static const Op& op = OpRegistry::instance().add(
      {.name = "test_throws", .inputs = {{"x"}}, .outputs = {{"y"}}, .infer = infer_first});
  OpRegistry::instance().add_kernel("test_throws",
                                    {.run = [](const KernelContext&) { throw Unsupported("no"); }});
  const OpProfile profile;
  EXPECT_THROW(call(op, {Tensor::empty({1})}), Unsupported);
  EXPECT_TRUE(profile.rows().empty());
  call_sleepy(DType::kInt32);
  EXPECT_EQ(profile.rows().size(), 1u);
}

}  // namespace
}  // namespace sinter
