// Attributes, the registry, the schema checks of call(), and tensors as handles.
#include <optional>

#include <gtest/gtest.h>

#include <sinter/core/op/call.h>
#include <sinter/core/op/call_observer.h>
#include <sinter/core/op/registry.h>

#include "common/error_message.h"

namespace sinter {
namespace {

using test::message_of;

struct TestAttributes {
  std::array<int64_t, 2> stride{1, 2};
  Layout layout = Layout::kNHWC;
  double factor = 0.5;
  bool flag = true;
  std::optional<int64_t> limit = {};

  bool operator==(const TestAttributes&) const = default;
  static constexpr auto fields() {
    return std::tuple(field("stride", &TestAttributes::stride), field("layout", &TestAttributes::layout),
                      field("factor", &TestAttributes::factor), field("flag", &TestAttributes::flag),
                      field("limit", &TestAttributes::limit));
  }
};

TEST(AttributesTest, CompareHashAndPrintByTheirFields) {
  const Attributes a = TestAttributes{}, b = TestAttributes{}, c = TestAttributes{.limit = 3};
  EXPECT_EQ(to_string(a), "stride=[1, 2], layout=NHWC, factor=0.5, flag=true, limit=none");
  EXPECT_EQ(to_string(c), "stride=[1, 2], layout=NHWC, factor=0.5, flag=true, limit=3");
  EXPECT_TRUE(a == b);
  EXPECT_EQ(a.hash(), b.hash());
  EXPECT_FALSE(a == c);
  EXPECT_FALSE(a == Attributes());
  EXPECT_TRUE(Attributes() == Attributes());
  EXPECT_EQ(a.as<TestAttributes>().factor, 0.5);
  EXPECT_THROW(Attributes().as<TestAttributes>(), InternalError);
}

TEST(AttributesTest, HashEqualNumbersAlike) {
  const Attributes plus = TestAttributes{.factor = 0.0}, minus = TestAttributes{.factor = -0.0};
  ASSERT_TRUE(plus == minus);
  EXPECT_EQ(plus.hash(), minus.hash());
  EXPECT_NE(plus.hash(), Attributes(TestAttributes{.factor = 1.0}).hash());
}

TEST(AttributesTest, GiveAndChangeOneField) {
  const Attributes a = TestAttributes{};
  ASSERT_NE(a.find<Layout>("layout"), nullptr);
  EXPECT_EQ(*a.find<Layout>("layout"), Layout::kNHWC);
  EXPECT_EQ(a.find<double>("layout"), nullptr);
  EXPECT_EQ(a.find<Layout>("order"), nullptr);
  EXPECT_EQ(Attributes().find<Layout>("layout"), nullptr);
  const Attributes b = a.with("layout", Layout::kNCHW);
  EXPECT_EQ(b.as<TestAttributes>().layout, Layout::kNCHW);
  EXPECT_EQ(a.as<TestAttributes>().layout, Layout::kNHWC) << "the first ones stay";
  EXPECT_TRUE(b.with("layout", Layout::kNHWC) == a);
  EXPECT_EQ(to_string(a.with("limit", std::optional<int64_t>(7))),
            "stride=[1, 2], layout=NHWC, factor=0.5, flag=true, limit=7");
  EXPECT_THROW(a.with("order", Layout::kNCHW), InvalidArgument);
  EXPECT_THROW(a.with("factor", 1.0f), InvalidArgument) << "a float is no double";
}

std::vector<TensorSpec> infer_first(const InferContext& context) {
  return {context.input(0)};
}

void copy_first(const KernelContext& context) {
  const TensorView& x = context.input(0);
  std::copy_n(x.as<float>(), x.numel(), context.output(0).as<float>());
}

/// An op with a required, an optional and a mutated input; its kernel takes float32 only.
const Op& test_op() {
  static const Op* const op = [] {
    OpRegistry& registry = OpRegistry::instance();
    const Op& added = registry.add({.name = "test_op",
                                    .inputs = {{"x"}, {"extra", true}, {"state", true, true}},
                                    .outputs = {{"y"}},
                                    .infer = infer_first});
    registry.add_kernel("test_op",
                        {.name = "float32",
                         .can_run = [](const KernelQuery& q) { return q.input(0).dtype == DType::kFloat32; },
                         .run = copy_first});
    return &added;
  }();
  return *op;
}

TEST(Call, ChecksInputsAgainstTheSchema) {
  const Tensor x = Tensor::full({2}, 1.0f);
  EXPECT_EQ(message_of([&] { call(test_op(), {x}); }), "[test_op] expected 3 inputs but got 1");
  EXPECT_EQ(message_of([&] { call(test_op(), {Tensor(), x, x}); }), "[test_op] input 'x' is undefined");
  EXPECT_EQ(call(test_op(), {x, Tensor(), Tensor()}).front().to_vector<float>(), (std::vector<float>{1, 1}));
}

TEST(Registry, HoldsTheBuiltInOpsFromTheFirstAccess) {
  // No test of this program calls one of Sinter's op functions.
  EXPECT_NE(OpRegistry::instance().find("relu"), nullptr);
  EXPECT_GT(OpRegistry::instance().names().size(), 90u);
  EXPECT_EQ(message_of([] {
              OpRegistry::instance().add(
                  {.name = "relu", .inputs = {{"x"}}, .outputs = {{"y"}}, .infer = infer_first});
            }),
            "[registry] op 'relu' is registered already");
}

TEST(Call, SaysWhichKernelIsMissing) {
  const Tensor x = Tensor::full({2}, 1.0, DType::kFloat16);
  EXPECT_EQ(message_of<Unsupported>([&] {
              call(test_op(), {x, Tensor(), Tensor()});
            }),
            "[test_op] no kernel on cpu for inputs (float16 (2,), none, none)");
}

TEST(Call, RaisesTheVersionOfWhatItMutates) {
  const Tensor x = Tensor::full({2}, 1.0f), state = Tensor::full({2}, 1.0f);
  const uint64_t before = state.version();
  call(test_op(), {x, Tensor(), state});
  EXPECT_EQ(state.version(), before + 1);
  EXPECT_EQ(x.version(), 0u);
}

TEST(Call, RaisesTheVersionOfWhatAFailingKernelMayHaveChanged) {
  OpRegistry& registry = OpRegistry::instance();
  const Op& op = registry.add({.name = "test_late_failure",
                               .inputs = {{"x"}, {"state", false, true}},
                               .outputs = {{"y"}},
                               .infer = infer_first});
  registry.add_kernel("test_late_failure", {.run = [](const KernelContext& context) {
                        context.input(1).as<float>()[0] = 7;
                        throw_error<InvalidArgument>("[test_late_failure] too late");
                      }});
  const Tensor x = Tensor::full({2}, 1.0f), state = Tensor::full({2}, 1.0f);
  const uint64_t before = state.version();
  EXPECT_EQ(message_of([&] { call(op, {x, state}); }), "[test_late_failure] too late");
  EXPECT_EQ(state.version(), before + 1);
  EXPECT_EQ(x.version(), 0u);
}

class RecordingObserver final : public CallObserver {
 public:
  RecordingObserver() : previous_(set_call_observer(this)) {}
  ~RecordingObserver() override { set_call_observer(previous_); }

  void before(const Op& op, const Kernel& kernel, const KernelQuery& query, const Stream& stream) override {
    events.push_back(
        fmt::format("before {} {} {} on {}", op.name(), kernel.name, query.input(0).shape, stream.device));
  }
  void after(const Stream& stream) override { events.push_back(fmt::format("after on {}", stream.device)); }

  std::vector<std::string> events;

 private:
  CallObserver* previous_;
};

TEST(Call, TellsTheObserverOfEveryKernel) {
  const Tensor x = Tensor::full({2}, 1.0f);
  std::vector<std::string> events;
  {
    RecordingObserver observer;
    call(test_op(), {x, Tensor(), Tensor()});
    EXPECT_THROW(call(test_op(), {Tensor(), x, x}), InvalidArgument);
    events = observer.events;
  }
  EXPECT_EQ(events, (std::vector<std::string>{"before test_op float32 (2,) on cpu", "after on cpu"}));
  EXPECT_EQ(set_call_observer(nullptr), nullptr);
}

TEST(Registry, PrefersTheKernelRegisteredLastThatCanRun) {
  static int chosen = 0;
  OpRegistry& registry = OpRegistry::instance();
  const Op& op =
      registry.add({.name = "test_order", .inputs = {{"x"}}, .outputs = {{"y"}}, .infer = infer_first});
  registry.add_kernel("test_order", {.run = [](const KernelContext&) { chosen = 1; }});
  registry.add_kernel("test_order",
                      {.can_run = [](const KernelQuery& q) { return q.input(0).shape.numel() > 1; },
                       .run = [](const KernelContext&) { chosen = 2; }});
  call(op, {Tensor::full({1}, 0)});
  EXPECT_EQ(chosen, 1);
  call(op, {Tensor::full({2}, 0)});
  EXPECT_EQ(chosen, 2);
}

TEST(Registry, LetsKernelsChooseByAlignment) {
  static int chosen = 0;
  OpRegistry& registry = OpRegistry::instance();
  const Op& op =
      registry.add({.name = "test_alignment", .inputs = {{"x"}}, .outputs = {{"y"}}, .infer = infer_first});
  registry.add_kernel("test_alignment", {.run = [](const KernelContext&) { chosen = 1; }});
  registry.add_kernel("test_alignment", {.can_run = [](const KernelQuery& q) { return q.is_aligned(0, 16); },
                                         .run = [](const KernelContext&) { chosen = 2; }});
  const Tensor memory = Tensor::full({16}, 0);
  const auto address = reinterpret_cast<uintptr_t>(memory.raw_data());
  for (const size_t skipped : {size_t{0}, size_t{4}}) {
    const size_t aligned = (16 - address % 16) % 16;
    call(op, {Tensor::over(memory.storage(), memory.offset_bytes() + aligned + skipped,
                           {{4}, DType::kFloat32, Device::cpu()})});
    EXPECT_EQ(chosen, skipped == 0 ? 2 : 1);
  }
}

TEST(Registry, RefusesAndSuggests) {
  test_op();
  OpRegistry& registry = OpRegistry::instance();
  EXPECT_EQ(message_of([&] { registry.get("test_opp"); }),
            "[registry] there is no op 'test_opp'; did you mean 'test_op'?");
  EXPECT_EQ(message_of([&] {
              registry.add({.name = "test_op", .inputs = {{"x"}}, .outputs = {{"y"}}, .infer = infer_first});
            }),
            "[registry] op 'test_op' is registered already");
  EXPECT_EQ(message_of([&] { registry.add_kernel("nowhere", {.run = copy_first}); }),
            "[registry] kernel 'default' names the op 'nowhere', which is not registered");
  EXPECT_EQ(message_of([&] { registry.add_kernel("test_op", {.name = "empty"}); }),
            "[registry] kernel 'empty' of op 'test_op' has no run function");
}

TEST(Registry, LoadLibraryNamesTheFile) {
  const std::string message = message_of<IoError>([] { load_library("./no_such_library.so"); });
  EXPECT_TRUE(message.starts_with("[load_library] ./no_such_library.so: ")) << message;
}

TEST(TensorTest, IsAHandleOnDenseMemory) {
  const Tensor x = Tensor::from_values(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor same = x;
  same.data<float>()[0] = 9;
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{9, 2, 3, 4, 5, 6}));
  EXPECT_EQ(x.size(-1), 3);
  EXPECT_TRUE(x.is_same(same));
  EXPECT_FALSE(x.is_same(x.detach()));
  EXPECT_EQ(to_string(x.spec()), "float32 (2, 3) on cpu");
  EXPECT_EQ(Tensor::scalar(2.5).item(), 2.5);
  EXPECT_EQ(Tensor::full({3}, 1.5, DType::kBFloat16).to_vector<bfloat16>()[2], 1.5f);
}

TEST(TensorTest, RefusesMisuse) {
  const Tensor x = Tensor::full({2, 3}, 0.0);
  EXPECT_EQ(message_of([&] { x.data<double>(); }), "[tensor] data<float64>() asked of a float32 tensor");
  EXPECT_EQ(message_of([&] { x.item(); }),
            "[tensor] item() needs a tensor with one element but got shape (2, 3)");
  EXPECT_EQ(message_of([&] { x.size(2); }), "[tensor] axis 2 is out of range for a tensor of rank 2");
  EXPECT_EQ(message_of([&] { Tensor().shape(); }),
            "[tensor] expected a tensor but got an undefined one, such as the gradient of a leaf that no "
            "backward() has reached or that is frozen");
  EXPECT_EQ(message_of([&] { Tensor::from_values(std::vector<float>{1}, {2}); }),
            "[tensor] shape (2,) has 2 elements but 1 values were given");
  EXPECT_EQ(message_of([&] { Tensor::full({1}, 0, DType::kInt64).set_requires_grad(true); }),
            "[tensor] only floating-point tensors can require a gradient, not int64");
  EXPECT_EQ(message_of([&] { x.set_grad(Tensor::full({2}, 0.0)); }),
            "[tensor] a gradient must match its tensor: expected float32 (2, 3) on cpu but got float32 (2,) "
            "on cpu");
}

}  // namespace
}  // namespace sinter
