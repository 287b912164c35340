// The tree of modules: members that are forgotten, layouts that do not fit, copies, and descriptions.
#include <sstream>

#include <sinter/core/base/log.h>
#include <sinter/nn/nn.h>
#include <sinter/ops/activation/activation.h>

#include "nn/nn_test_support.h"

namespace sinter::nn {
namespace {

using testing::floats;
using testing::message_of;

// ---- forgotten members

struct Forgetful : Module {
  Linear first = child("first", Linear(2, 4));
  Linear second = Linear(4, 3);  // the mistake
  Tensor forward(const Tensor& x) const override { return second(first(x)); }
};

TEST(ModuleTreeTest, AForgottenMemberIsAnErrorAtItsFirstCall) {
  const Forgetful net;
  EXPECT_EQ(message_of([&] {
              net(floats({5, 2}, 0));
            }),
            "[module] Forgetful calls a Linear (with parameters weight, bias) that is not registered with "
            "it, so it is "
            "neither trained, moved nor saved: initialise the member with child(\"name\", ...), or with "
            "borrow(...) if that is meant");
  // Also within containers, and from deeper callers.
  EXPECT_NE(message_of([] {
              Sequential(Forgetful(), ReLU())(floats({5, 2}, 0));
            }).find("calls a Linear"),
            std::string::npos);
}

TEST(ModuleTreeTest, AForgottenModeIsAnErrorToo) {
  struct Dropping : Module {
    Dropout dropout = Dropout(0.5);
    Tensor forward(const Tensor& x) const override { return dropout(x); }
  };
  const Dropping net;
  EXPECT_EQ(message_of([&] {
              net(floats({5, 2}, 0));
            }),
            "[module] Dropping calls a Dropout that is not registered with it, so train() and eval() do not "
            "reach it: initialise a member with child(\"name\", ...)");
}

TEST(ModuleTreeTest, StatelessLayersNeedNoRegistration) {
  struct Plain : Module {
    Tensor forward(const Tensor& x) const override { return ReLU()(MaxPool2d(2)(x)); }
  };
  EXPECT_EQ(Plain()(floats({1, 2, 4, 4}, 0)).shape(), (Shape{1, 2, 2, 2}));
}

TEST(ModuleTreeTest, BorrowedModulesAreCalledButNotOwned) {
  struct Student : Module {
    explicit Student(const Linear& other) : teacher(borrow(other)) {}
    Linear own = child("own", Linear(2, 3));
    Linear teacher;
    Tensor forward(const Tensor& x) const override { return own(x) - teacher(x); }
  };
  const Student net(Linear(2, 3));
  EXPECT_EQ(net(floats({5, 2}, 0)).shape(), (Shape{5, 3}));
  EXPECT_EQ(net.parameters().size(), 2u);
}

TEST(ModuleTreeTest, AMemberMayCallWhatItsOwnerOwns) {
  struct Calls : Module {
    explicit Calls(Linear head) : head_(std::move(head)) {}
    Tensor forward(const Tensor& x) const override { return head_(x); }
    Linear head_;
  };
  struct Owner : Module {
    Linear head = child("head", Linear(2, 3));
    Calls calls = child("calls", Calls(head));
    Tensor forward(const Tensor& x) const override { return calls(x); }
  };
  EXPECT_EQ(Owner()(floats({5, 2}, 0)).shape(), (Shape{5, 3}));
}

// ---- layouts

TEST(ModuleTreeTest, AChainOfMixedLayoutsIsRefused) {
  // Sides and channels agree, so that nothing but the layouts tells the mistake.
  const Conv2dOptions nhwc{.padding = 1, .layout = Layout::kNHWC};
  EXPECT_EQ(
      message_of([&] { Sequential(Conv2d(8, 8, 3, nhwc), ReLU(), BatchNorm2d(8)); }),
      "[sequential] module '2' (BatchNorm2d) works in NCHW but '0' (Conv2d) before it gives NHWC; "
      "to(Layout) of the whole model sets one for all of it, and an nn::ChangeLayout may stand between two "
      "parts");
  EXPECT_NE(message_of([&] { Sequential(Sequential(Conv2d(8, 8, 3, nhwc)), PReLU(8)); }).find("'1' (PReLU)"),
            std::string::npos);
  const Sequential mixed(Conv2d(8, 8, 3, nhwc), ChangeLayout(Layout::kNHWC, Layout::kNCHW), ReLU(),
                         BatchNorm2d(8));
  EXPECT_EQ(mixed(floats({2, 8, 8, 8}, 0)).shape(), (Shape{2, 8, 8, 8}));
  EXPECT_EQ(mixed.layout(), Layout::kNHWC) << "what goes in";
  EXPECT_NO_THROW(Sequential(Conv2d(8, 8, 3, nhwc), PReLU(1))) << "one slope fits every layout";
}

TEST(ModuleTreeTest, MembersOfMixedLayoutsAreWarnedOfOnce) {
  struct Mixed : Module {
    explicit Mixed(Layout of_norms) {
      child("norm", BatchNorm2d(8, {.layout = of_norms}));
      child("slopes", PReLU(8, {.layout = of_norms}));
    }
    Conv2d conv = child("conv", Conv2d(8, 8, 3, {.layout = Layout::kNHWC}));
    Tensor forward(const Tensor& x) const override { return conv(x); }
  };
  std::vector<std::string> lines;
  log::set_sink([&](log::Level, std::string_view text) { lines.emplace_back(text); });
  const Mixed right(Layout::kNHWC);
  EXPECT_TRUE(lines.empty());
  const Mixed mixed(Layout::kNCHW);
  log::set_sink({});
  EXPECT_EQ(lines,
            (std::vector<std::string>{
                "[module] member 'norm' (BatchNorm2d) works in NCHW but 'conv' in NHWC; unless images are "
                "permuted between them, set one layout for the whole model with to(Layout)"}));
}

TEST(ModuleTreeTest, ErrorsHintAtTheOtherLayout) {
  EXPECT_EQ(
      message_of([] {
        BatchNorm2d(3)(floats({2, 8, 8, 3}, 0));
      }),
      "[batch_norm2d] expected 3 channels in axis 1, as the layer works in NCHW, but got shape (2, 8, 8, 3), "
      "which looks like NHWC; model.to(Layout::kNHWC) makes the model work in it");
  EXPECT_NE(message_of([] {
              Conv2d(3, 4, 3)(floats({2, 8, 8, 3}, 0));
            }).find("looks like NHWC"),
            std::string::npos);
  EXPECT_NE(message_of([] {
              PReLU(3, {.layout = Layout::kNHWC})(floats({2, 3, 8, 8}, 0));
            }).find("looks like NCHW"),
            std::string::npos);
}

// ---- clone

TEST(ModuleTreeTest, ClonesShareNothing) {
  struct Net : Module {
    Conv2d conv = child("conv", Conv2d(1, 2, 3, {.layout = Layout::kNHWC}));
    Sequential tail = child("tail", Sequential(BatchNorm2d(2, {.layout = Layout::kNHWC}), AnyModule(PReLU(1)),
                                               GlobalAvgPool2d(Layout::kNHWC), Linear(2, 3)));
    std::vector<Linear> more;
    Parameter scale = parameter("scale", Tensor::full({1}, 1.0));
    Net() { more.push_back(child("more", Linear(3, 3))); }
    Tensor forward(const Tensor& x) const override { return more[0](tail(conv(x))) * scale; }
  };
  const Net net;
  net.conv.set_requires_grad(false);
  net.eval();
  const Tensor x = floats({2, 6, 6, 1}, 0);
  const std::vector<float> before = net(x).to_vector<float>();
  const Net copy = clone(net);
  EXPECT_EQ(copy(x).to_vector<float>(), before);
  EXPECT_FALSE(copy.training());
  EXPECT_FALSE(copy.conv.weight.tensor().requires_grad());
  ASSERT_EQ(copy.parameters().size(), net.parameters().size());
  for (size_t i = 0; i < copy.parameters().size(); ++i) {
    const Parameter mine = copy.parameters()[i], theirs = net.parameters()[i];
    EXPECT_EQ(mine.name(), theirs.name());
    EXPECT_FALSE(mine.is_same(theirs));
    EXPECT_NE(mine.tensor().raw_data(), theirs.tensor().raw_data()) << mine.name();
    mine.assign(Tensor::zeros(mine.canonical_shape()));
  }
  copy.train();
  copy(x);  // moves the running statistics of the copy
  EXPECT_EQ(copy(x).to_vector<float>(), std::vector<float>(6, 0.0f)) << "members see what was assigned";
  EXPECT_FALSE(net.training());
  EXPECT_EQ(net(x).to_vector<float>(), before);
  copy.eval();
  copy.scale.assign(Tensor::full({1}, 2.0));
  copy.more[0].bias.assign(Tensor::full({3}, 5.0));
  EXPECT_EQ(copy(x).to_vector<float>(), std::vector<float>(6, 10.0f)) << "members see what was assigned";
}

TEST(ModuleTreeTest, ClonesKeepWhatIsShared) {
  struct Tied : Module {
    Linear a = child("a", Linear(3, 3));
    Linear b = child("b", a);
    Tensor forward(const Tensor& x) const override { return b(a(x)); }
  };
  const Tied copy = clone(Tied());
  EXPECT_EQ(copy.parameters().size(), 2u);
  EXPECT_TRUE(copy.a.weight.is_same(copy.b.weight));
  const AnyModule any = Linear(2, 2);
  const AnyModule other = clone(any);
  EXPECT_FALSE(any.parameters()[0].is_same(other.parameters()[0]));
  EXPECT_EQ(any(floats({1, 2}, 0)).to_vector<float>(), other(floats({1, 2}, 0)).to_vector<float>());
}

TEST(ModuleTreeTest, ResNetsCanBeCloned) {
  const ResNet net = resnet20({.classes = 4, .width = 2});
  const ResNet copy = clone(net);
  for (const Parameter& parameter : copy.parameters())
    parameter.assign(Tensor::zeros(parameter.canonical_shape()));
  net.eval();
  copy.eval();
  EXPECT_EQ(copy(floats({1, 3, 8, 8}, 0)).to_vector<float>(), std::vector<float>(4, 0.0f));
  EXPECT_NE(net(floats({1, 3, 8, 8}, 0)).to_vector<float>(), std::vector<float>(4, 0.0f));
}

TEST(ModuleTreeTest, CopiesOutsideOfCloneStillShare) {
  const Linear layer(2, 2);
  (void)clone(layer);
  const Linear copy = layer;
  EXPECT_TRUE(copy.weight.is_same(layer.weight));
}

// ---- other signatures

TEST(ModuleTreeTest, ModulesMayTakeAndGiveSeveralTensors) {
  struct Pair : ModuleOf<std::pair<Tensor, Tensor>(const Tensor&, const Tensor&)> {
    Linear shared = child("shared", Linear(2, 3));
    std::pair<Tensor, Tensor> forward(const Tensor& a, const Tensor& b) const override {
      return {shared(a), shared(b)};
    }
  };
  struct Distance : ModuleOf<Tensor(const Tensor&, const Tensor&)> {
    Pair pair = child("pair", Pair());
    Tensor forward(const Tensor& a, const Tensor& b) const override {
      const auto [x, y] = pair(a, b);
      return x - y;
    }
  };
  const Distance net;
  EXPECT_EQ(net(floats({5, 2}, 0), floats({5, 2}, 0)).to_vector<float>(), std::vector<float>(15, 0.0f));
  EXPECT_EQ(net.named_parameters()[0].first, "pair.shared.weight");
  const Summary table = summary(net, [&] { net(floats({5, 2}, 0), floats({5, 2}, 1)); });
  EXPECT_EQ(table.multiply_adds, 2 * 5 * 2 * 3);
}

// ---- words

TEST(ModuleTreeTest, ModulesPrintAsATree) {
  struct Scale : Module {
    Parameter scale = parameter("scale", Tensor::full({1}, 1.0));
    Tensor forward(const Tensor& x) const override { return x * scale; }
  };
  const Sequential model(Conv2d(3, 8, 3, {.padding = 1, .bias = false}), Sequential(BatchNorm2d(8), ReLU()),
                         Scale(), AnyModule(Linear(8, 2)));
  const std::string expected =
      "Sequential(\n"
      "  (0): Conv2d(3, 8, kernel 3x3, padding 1x1, no bias)\n"
      "  (1): Sequential(\n"
      "    (0): BatchNorm2d(8)\n"
      "    (1): ReLU()\n"
      "  )\n"
      "  (2): Scale(scale (1,))\n"
      "  (3): Linear(8, 2)\n"
      ")";
  EXPECT_EQ(to_string(model), expected);
  EXPECT_EQ(fmt::format("{}", model), expected);
  std::ostringstream stream;
  stream << model;
  EXPECT_EQ(stream.str(), expected);
  EXPECT_EQ(to_string(ReLU()), "ReLU()");
}

TEST(ModuleTreeTest, SummaryCountsShapesParametersAndMultiplyAdds) {
  const Sequential model(Conv2d(3, 8, 3, {.padding = 1}), BatchNorm2d(8), GlobalAvgPool2d(), Linear(8, 10));
  model.parameters()[0].tensor().set_requires_grad(false);
  const BatchNorm2d norm(8);
  const Summary table = summary(model, {2, 3, 16, 16});
  ASSERT_EQ(table.rows.size(), 5u);
  EXPECT_EQ(table.rows[1].path, "0");
  EXPECT_EQ(table.rows[1].output, (Shape{2, 8, 16, 16}));
  EXPECT_EQ(table.rows[1].multiply_adds, 2 * 8 * 16 * 16 * 27);
  EXPECT_EQ(table.rows[1].parameters, 8 * 27 + 8);
  EXPECT_EQ(table.rows[2].multiply_adds, 0);
  EXPECT_EQ(table.rows[4].multiply_adds, 2 * 8 * 10);
  EXPECT_EQ(table.multiply_adds, 2 * 8 * 16 * 16 * 27 + 2 * 8 * 10);
  EXPECT_EQ(table.rows[0].multiply_adds, table.multiply_adds);
  EXPECT_EQ(table.parameters, model.parameter_count());
  EXPECT_EQ(table.frozen_parameters, 8 * 27);
  EXPECT_TRUE(model.training()) << "the mode is restored";
  EXPECT_EQ(model.state().at("1.num_batches_tracked").item(), 0) << "the call was one of evaluation";
  const std::string text = table.to_string();
  EXPECT_NE(text.find("  0: Conv2d(3, 8, kernel 3x3, padding 1x1)  (2, 8, 16, 16)"), std::string::npos)
      << text;
  EXPECT_NE(text.find("330 parameters (216 frozen), 110,752 multiply-adds"), std::string::npos) << text;
}

TEST(ModuleTreeTest, SummaryOfResNet18IsTheKnownOne) {
  const Summary table = summary(resnet18(), {1, 3, 224, 224});
  EXPECT_EQ(table.parameters, 11'689'512);
  // 1.81 billion, as in the papers that compare networks: convolutions and the linear layer, nothing else.
  EXPECT_EQ(table.multiply_adds, 1'814'073'344);
}

TEST(ModuleTreeTest, EvalModeRestoresEveryMode) {
  const Sequential model(Dropout(0.5), Linear(2, 2), Dropout(0.5));
  model[2].eval();
  {
    const EvalMode eval(model);
    EXPECT_FALSE(model.training());
    EXPECT_FALSE(model[0].training());
  }
  EXPECT_TRUE(model.training());
  EXPECT_TRUE(model[0].training());
  EXPECT_FALSE(model[2].training());
}

}  // namespace
}  // namespace sinter::nn
