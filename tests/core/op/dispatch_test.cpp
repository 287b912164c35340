// Choosing, preparing and running kernels below call(): preparation, forced kernels, scratch when memory is
// short, ops without inputs.
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/graph/host_effect.h>
#include <sinter/core/op/call.h>
#include <sinter/core/op/dispatch.h>
#include <sinter/core/runtime/backend.h>

#include "common/error_message.h"

namespace sinter {
namespace {

using test::message_of;

std::vector<TensorSpec> infer_first(const InferContext& context) {
  return {context.input(0)};
}

constexpr size_t kMiB = size_t{1} << 20;

int preparations = 0;
std::vector<std::string> ran;

struct Doubled final : Prepared {
  explicit Doubled(size_t needed) : bytes(needed) {}
  size_t workspace_bytes() const override { return bytes; }
  std::string detail() const override { return fmt::format("{} bytes", bytes); }
  size_t bytes;
};

/// Prepares what needs 64 MiB of scratch, or what there is if that is at least 16 MiB; declines empty inputs.
std::shared_ptr<const Prepared> prepare_large(const KernelQuery& query) {
  ++preparations;
  if (query.input(0).shape.numel() == 0) return nullptr;
  const size_t bytes = std::min(64 * kMiB, query.workspace_limit());
  if (bytes < 16 * kMiB) return nullptr;
  return std::make_shared<Doubled>(bytes);
}

const Op& scratch_op() {
  static const Op* const op = [] {
    OpRegistry& registry = OpRegistry::instance();
    const Op& added =
        registry.add({.name = "test_scratch", .inputs = {{"x"}}, .outputs = {{"y"}}, .infer = infer_first});
    registry.add_kernel("test_scratch", {.name = "plain", .run = [](const KernelContext& context) {
                                           ran.push_back("plain");
                                           EXPECT_EQ(context.workspace_bytes(), 0u);
                                         }});
    registry.add_kernel(
        "test_scratch",
        {.name = "prepared", .prepare = prepare_large, .run = [](const KernelContext& context) {
           const auto& prepared = context.prepared<Doubled>();
           EXPECT_EQ(context.workspace_bytes(), prepared.bytes);
           ran.push_back("prepared " + prepared.detail());
         }});
    return &added;
  }();
  return *op;
}

TEST(Dispatch, PreparesOnceForEachCall) {
  ran.clear();
  preparations = 0;
  call(scratch_op(), {Tensor::zeros({3})});
  EXPECT_EQ(preparations, 1);
  EXPECT_EQ(ran, (std::vector<std::string>{"prepared 67108864 bytes"}));
}

TEST(Dispatch, PassesOnToTheNextKernelWhereOneDeclines) {
  ran.clear();
  call(scratch_op(), {Tensor::zeros({0})});
  EXPECT_EQ(ran, (std::vector<std::string>{"plain"}));
}

TEST(Dispatch, ServesManyRunsFromOneChoice) {
  ran.clear();
  preparations = 0;
  const Tensor x = Tensor::zeros({3}), y = Tensor::zeros({3});
  const Attributes none;
  const TensorSpec* const specs[] = {&x.spec()};
  const InferContext infer(scratch_op().definition, specs, none);
  const KernelQuery query(infer, std::span(&y.spec(), 1));
  const KernelChoice choice = choose_kernel(scratch_op(), Device::cpu(), query);
  ASSERT_EQ(choice.kernel->name, "prepared");
  std::vector<std::byte> scratch(choice.workspace_bytes);
  const TensorView in{x.raw_data(), x.shape(), x.dtype(), true};
  const TensorView out{y.raw_data(), y.shape(), y.dtype(), true};
  for (int i = 0; i < 3; ++i) {
    run_kernel(scratch_op(), choice, query,
               KernelContext(std::span(&in, 1), std::span(&out, 1), none, current_stream({}), scratch.data(),
                             choice));
  }
  EXPECT_EQ(preparations, 1);
  EXPECT_EQ(ran, (std::vector<std::string>(3, "prepared 67108864 bytes")));
}

/// Limits the CPU's pool for a test.
class CpuLimit {
 public:
  explicit CpuLimit(size_t bytes) : pool_(backend_of({}).memory_pool(0)) {
    backend_of({}).workspace(current_stream({})).release();
    pool_.trim();
    pool_.set_byte_limit(pool_.stats().reserved_bytes + bytes);
  }
  ~CpuLimit() { pool_.set_byte_limit(std::nullopt); }

 private:
  MemoryPool& pool_;
};

TEST(Dispatch, ChoosesWhatNeedsLessWhereMemoryIsShort) {
  const Tensor x = Tensor::zeros({3});
  ran.clear();
  {
    const CpuLimit limit(40 * kMiB);
    call(scratch_op(), {x});
  }
  {
    const CpuLimit limit(8 * kMiB);
    call(scratch_op(), {x});
  }
  EXPECT_EQ(ran, (std::vector<std::string>{"prepared 16777216 bytes", "plain"}));
  const CpuLimit limit(8 * kMiB);
  const ForcedKernel forced("test_scratch", "prepared");
  EXPECT_THROW(call(scratch_op(), {x}), OutOfMemory) << "no kernel that is allowed needs less";
}

TEST(ForcedKernelTest, RunsTheNamedKernelOnly) {
  scratch_op();
  const Tensor x = Tensor::zeros({3});
  ran.clear();
  {
    const ForcedKernel forced("test_scratch", "plain");
    call(scratch_op(), {x});
    EXPECT_EQ(forced.runs(), 1);
    {
      const ForcedKernel inner("test_scratch", "prepared");
      call(scratch_op(), {x});
      EXPECT_EQ(inner.runs(), 1);
    }
    call(scratch_op(), {x});
    EXPECT_EQ(forced.runs(), 2);
  }
  call(scratch_op(), {x});
  EXPECT_EQ(ran, (std::vector<std::string>{"plain", "prepared 67108864 bytes", "plain",
                                           "prepared 67108864 bytes"}));
}

TEST(ForcedKernelTest, FailsWhereTheKernelCannotRun) {
  scratch_op();
  EXPECT_EQ(message_of([] { const ForcedKernel forced("test_scratch", "fast"); }),
            "[test_scratch] there is no kernel 'fast' to force; there are 'prepared' on cpu, 'plain' on cpu");
  const ForcedKernel forced("test_scratch", "prepared");
  EXPECT_EQ(message_of<Unsupported>([] { call(scratch_op(), {Tensor::zeros({0})}); }),
            "[test_scratch] no kernel 'prepared', which is forced, on cpu for inputs (float32 (0,))");
  EXPECT_EQ(forced.runs(), 0);
}

TEST(ForcedKernelTest, RunsAKernelThatDoesNotPay) {
  OpRegistry& registry = OpRegistry::instance();
  const Op& op =
      registry.add({.name = "test_pays", .inputs = {{"x"}}, .outputs = {{"y"}}, .infer = infer_first});
  registry.add_kernel("test_pays", {.name = "other", .run = [](const KernelContext&) {}});
  registry.add_kernel("test_pays",
                      {.name = "special",
                       .microseconds = [](const KernelQuery&, const Prepared*) { return best_if(false); },
                       .run = [](const KernelContext&) { ran.push_back("special"); }});
  ran.clear();
  call(op, {Tensor::zeros({3})});
  EXPECT_EQ(ran, std::vector<std::string>());
  const ForcedKernel forced("test_pays", "special");
  call(op, {Tensor::zeros({3})});
  EXPECT_EQ(ran, std::vector<std::string>{"special"});
}

TEST(Dispatch, TakesTheLeastEstimateBeforeTheOrderOfRegistration) {
  static std::vector<double> estimates;  // of "third", "second" and "first"
  static std::vector<std::string> asked;
  OpRegistry& registry = OpRegistry::instance();
  const Op& op =
      registry.add({.name = "test_estimates", .inputs = {{"x"}}, .outputs = {{"y"}}, .infer = infer_first});
  const auto can_run = [](const KernelQuery& query) { return query.input(0).shape.numel() > 1; };
  const auto run = [](const KernelContext&) {};
  registry.add_kernel("test_estimates", {.name = "plain", .run = run});
  registry.add_kernel("test_estimates", {.name = "first",
                                         .microseconds =
                                             [](const KernelQuery&, const Prepared* prepared) {
                                               asked.emplace_back("first");
                                               EXPECT_EQ(prepared, nullptr);
                                               return estimates[2];
                                             },
                                         .run = run});
  registry.add_kernel("test_estimates", {.name = "unknown", .can_run = can_run, .run = run});
  registry.add_kernel("test_estimates", {.name = "second",
                                         .microseconds =
                                             [](const KernelQuery&, const Prepared*) {
                                               asked.emplace_back("second");
                                               return estimates[1];
                                             },
                                         .run = run});
  registry.add_kernel("test_estimates",
                      {.name = "third",
                       .microseconds =
                           [](const KernelQuery&, const Prepared* prepared) {
                             asked.emplace_back("third");
                             EXPECT_NE(prepared, nullptr);
                             return estimates[0];
                           },
                       .prepare = [](const KernelQuery&) -> std::shared_ptr<const Prepared> {
                         return std::make_shared<Doubled>(0);
                       },
                       .run = run});
  const auto chosen = [&op](std::vector<double> times, int64_t count = 3) {
    estimates = std::move(times);
    asked.clear();
    const TensorSpec spec{{count}, DType::kFloat32, {}};
    const TensorSpec* const specs[] = {&spec};
    const Attributes none;
    const InferContext infer(op.definition, specs, none);
    const KernelQuery query(infer, std::span(&spec, 1));
    const std::string name = choose_kernel(op, Device::cpu(), query).kernel->name;
    std::vector<std::string> names;
    for (const KernelCandidate& each : kernel_candidates(op, Device::cpu(), query))
      names.push_back(each.choice.kernel->name);
    EXPECT_EQ(name, names.front());
    return names;
  };
  const double never = best_if(false);
  using Names = std::vector<std::string>;
  EXPECT_EQ(chosen({3, 2, 1}), (Names{"first", "second", "third", "unknown", "plain"}));
  EXPECT_EQ(chosen({2, 2, 2}), (Names{"third", "second", "first", "unknown", "plain"}));
  EXPECT_EQ(chosen({never, 2, never}), (Names{"second", "unknown", "plain"}));
  EXPECT_EQ(chosen({never, never, never}), (Names{"unknown", "plain"}));
  EXPECT_EQ(chosen({never, never, never}, 1), (Names{"plain"}));

  estimates = {best_if(true), 1, 1};
  asked.clear();
  call(op, {Tensor::zeros({3})});
  EXPECT_EQ(asked, Names{"third"}) << "nothing is better than the best";
}

struct PlaceAttributes {
  int64_t count = 0;
  Device device = {};
  bool operator==(const PlaceAttributes&) const = default;
  static constexpr auto fields() {
    return std::tuple(field("count", &PlaceAttributes::count), field("device", &PlaceAttributes::device));
  }
};

TEST(Call, RunsOpsWithoutInputsWhereTheirOutputLies) {
  OpRegistry& registry = OpRegistry::instance();
  const Op& op = registry.add(
      {.name = "test_source", .inputs = {}, .outputs = {{"y"}}, .infer = [](const InferContext& context) {
         const auto& a = context.attributes<PlaceAttributes>();
         return std::vector<TensorSpec>{{Shape{a.count}, DType::kInt64, a.device}};
       }});
  registry.add_kernel("test_source", {.run = [](const KernelContext& context) {
                        for (int64_t i = 0; i < context.output(0).numel(); ++i) {
                          context.output(0).as<int64_t>()[i] = i;
                        }
                      }});
  EXPECT_EQ(call(op, {}, PlaceAttributes{.count = 3}).front().to_vector<int64_t>(),
            (std::vector<int64_t>{0, 1, 2}));
}

class Effects final : public HostEffectRecorder {
 public:
  Effects() : previous_(set_host_effect_recorder(this)) {}
  ~Effects() override { set_host_effect_recorder(previous_); }
  void record(HostEffect effect) override { recorded.push_back(std::move(effect)); }

  std::vector<HostEffect> recorded;

 private:
  HostEffectRecorder* previous_;
};

TEST(HostEffects, RunAtOnceUnlessTheyAreRecorded) {
  int count = 0;
  const Tensor x = Tensor::zeros({1});
  host_effect(x, [&count] { ++count; });
  EXPECT_EQ(count, 1);
  std::vector<HostEffect> recorded;
  {
    Effects effects;
    host_effect(x, [&count] { ++count; });
    recorded = effects.recorded;
  }
  EXPECT_EQ(count, 1);
  ASSERT_EQ(recorded.size(), 1u);
  recorded[0].run();
  recorded[0].run();
  EXPECT_EQ(count, 3);
  host_effect(x, [&count] { ++count; });
  EXPECT_EQ(count, 4);
}

}  // namespace
}  // namespace sinter
