// OpProfile: what it counts, when, and how it tells it.
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>

#include <sinter/core/op/call.h>
#include <sinter/core/op/call_observer.h>
#include <sinter/core/op/registry.h>
#include <sinter/core/profile/copy_timer.h>
#include <sinter/core/profile/profile.h>

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

/// An op that multiplies its inputs' element counts to say how many operations it has.
const Op& counting_op() {
  static const Op* const op = [] {
    OpRegistry& registry = OpRegistry::instance();
    const Op& added =
        registry.add({.name = "test_counting",
                      .inputs = {{"x"}, {"y"}},
                      .outputs = {{"z"}},
                      .infer = infer_first,
                      .flops = [](const InferContext& context, std::span<const TensorSpec> outputs) {
                        return static_cast<double>(outputs[0].shape.numel() * context.shape(1).numel());
                      }});
    registry.add_kernel("test_counting", {.run = sleep<300>});
    return &added;
  }();
  return *op;
}

TEST(Profile, TellsScopesApartWhenAsked) {
  OpProfile profile({.by_shape = true, .by_scope = true});
  {
    const CallScope outer("layer1");
    call_sleepy(DType::kInt32, 2);
    {
      const CallScope inner("layer1.0");
      call_sleepy(DType::kInt32);
      std::thread([] { call_sleepy(DType::kInt32, 4); }).join();  // scopes are of a thread
    }
    call_sleepy(DType::kInt32);
  }
  call_sleepy(DType::kInt64);
  profile.stop();

  std::map<std::string, uint64_t> calls;
  for (const auto& row : profile.rows()) calls[row.scope + "|" + row.shapes] += row.calls;
  EXPECT_EQ(calls, (std::map<std::string, uint64_t>{{"layer1|int32 (1,) -> int32 (1,)", 3},
                                                    {"layer1.0|int32 (1,) -> int32 (1,)", 1},
                                                    {"|int32 (1,) -> int32 (1,)", 4},
                                                    {"|int64 (1,) -> int64 (1,)", 1}}));
  // Any part of that can be shown.
  std::map<std::string, uint64_t> by_scope;
  for (const auto& row : profile.rows({.by_shape = false}))
    by_scope[row.scope + "|" + row.shapes] += row.calls;
  EXPECT_EQ(by_scope, (std::map<std::string, uint64_t>{{"layer1|", 3}, {"layer1.0|", 1}, {"|", 5}}));
  const auto whole = profile.rows({.by_shape = false, .by_scope = false});
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0].calls, 9u);
  EXPECT_EQ(whole[0].bytes, 8 * 8.0 + 16.0);
  EXPECT_GE(whole[0].device_us, 9 * 200.0);
  EXPECT_NE(profile.table().find("layer1.0"), std::string::npos) << profile.table();
}

TEST(Profile, ShowsNoScopesUnlessAsked) {
  OpProfile profile;
  const CallScope scope("layer1");
  call_sleepy(DType::kInt32);
  EXPECT_EQ(profile.rows().at(0).scope, "");
  EXPECT_EQ(profile.table().find("layer1"), std::string::npos) << profile.table();
}

TEST(Profile, CountsTheOperationsThatAnOpSaysItHas) {
  OpProfile profile;
  call(counting_op(), {Tensor::empty({3}), Tensor::empty({5})});
  call(counting_op(), {Tensor::empty({2}), Tensor::empty({4})});
  call_sleepy(DType::kInt32);
  profile.stop();
  for (const auto& row : profile.rows()) {
    const bool counts = row.op == "test_counting";
    EXPECT_EQ(row.flops, counts ? 23.0 : 0.0);
    EXPECT_DOUBLE_EQ(row.teraflops(), row.flops / (row.device_us * 1e-6) / 1e12);
  }
}

TEST(Profile, ComparesWithCopiesOfTheSameBytes) {
  CopyTimer copies;
  const double small = copies.microseconds(Device::cpu(), 2 * 4096.0);
  const double large = copies.microseconds(Device::cpu(), 2 * 33'554'432.0);
  EXPECT_GT(small, 0.0);
  EXPECT_GT(large, 10 * small);  // 8192 times as much
  EXPECT_EQ(copies.microseconds(Device::cpu(), 0.0), 0.0);
  // Timed once, also for others.
  EXPECT_EQ(CopyTimer().microseconds(Device::cpu(), 2 * 4096.0), small);
  const double twice = copies.microseconds(Device::cpu(), 2 * 8192.0);
  EXPECT_DOUBLE_EQ(copies.microseconds(Device::cpu(), 2 * 6144.0), (small + twice) / 2);

  OpProfile profile;
  call(sleepy_op(), {Tensor::empty({1024}, DType::kInt32)});
  call(sleepy_op(), {Tensor::empty({2048}, DType::kInt32)});
  profile.stop();
  const auto rows = profile.rows();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_DOUBLE_EQ(rows[0].copy_us, small + twice);
  EXPECT_DOUBLE_EQ(rows[0].copy_share(), rows[0].copy_us / rows[0].device_us);
}

TEST(Profile, KeepsARateForWhatIsTooLargeToTry) {
  CopyTimer copies;
  const double largest = copies.microseconds(Device::cpu(), 0x1p29);
  EXPECT_GT(largest, 0.0);
  EXPECT_DOUBLE_EQ(copies.microseconds(Device::cpu(), 0x1p33), 16 * largest);
}

TEST(Profile, AddsUpTheRowsThatATableLeavesOut) {
  OpProfile profile({.by_scope = true});
  for (const char* name : {"a", "b", "c", "d"}) {
    const CallScope scope(name);
    call_sleepy(DType::kInt32);
  }
  call(counting_op(), {Tensor::empty({3}), Tensor::empty({5})});
  profile.stop();
  const std::string table = profile.table({.max_rows = 2});
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 5) << table;  // titles, two rows, others, totals
  EXPECT_NE(table.find("3 others "), std::string::npos) << table;
  EXPECT_NE(profile.table({.max_rows = 4}).find("1 other "), std::string::npos) << table;
  EXPECT_EQ(profile.rows({.max_rows = 2}).size(), 2u);
  EXPECT_EQ(profile.table({.by_scope = false, .max_rows = 2}).find("others"), std::string::npos);
}

TEST(Profile, LinesFitATerminal) {
  OpProfile profile({.by_scope = true});
  const std::string deep = "backbone.stage.3.block.17.residual.branch.0.convolution.inner";
  const CallScope scope(deep);
  for (int i = 0; i < 100; ++i) call(counting_op(), {Tensor::empty({1'000'000}), Tensor::empty({1'000'000})});
  profile.stop();
  std::istringstream table(profile.table());
  for (std::string line; std::getline(table, line);) EXPECT_LE(line.size(), 120u) << line;
  EXPECT_NE(profile.table().find(".convolution.inner"), std::string::npos) << profile.table();
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
