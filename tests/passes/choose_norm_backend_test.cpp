// Whose kernels run fused normalisations: every constraint of cuDNN broken in turn, on graphs for a GPU that
// need not be there.
#include <sinter/autograd/differentiate.h>
#include <sinter/core/op/node.h>
#include <sinter/core/tensor/trace_access.h>
#include <sinter/nn/job/train_job.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/batch_norm/cudnn_norm.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/slice/slice.h>
#include <sinter/passes/norm/norm_backend.h>

#include "common/error_message.h"
#include "passes/passes_test_support.h"

namespace sinter::passes {
namespace {

using namespace testing;
using ops::NormBackend;
using ops::fused::Activation;

using Texts = std::vector<std::string>;

/// One fused normalisation with its gradient; the default is what cuDNN runs.
struct Fused {
  Device device = Device::cuda();
  DType dtype = DType::kFloat16;
  Shape shape = {2, 3, 3, 8};
  ops::BatchNormActOptions options = {.layout = Layout::kNHWC};
  bool parameters = true;
  bool parameters_are_frozen = false;
  bool sums = false;
  bool given = false;
  bool addend = false;
  bool addend_is_constant = false;
  int users = 1;
  bool is_sliced = false;
  int64_t version = 91900;
};

std::unique_ptr<Graph> graph_of(const Fused& fused) {
  auto graph = std::make_unique<Graph>();
  Tracer tracer(*graph);
  tracer.set_scope("bn");
  int inputs = 0;
  const auto input = [&](const Shape& shape, DType dtype, bool differentiable = true) {
    GraphValue& value = graph->add_input({shape, dtype, fused.device}, fmt::format("i{}", inputs++));
    return tracer.tensor({&value, differentiable});
  };
  const int64_t channels = fused.shape[fused.options.layout == Layout::kNHWC ? fused.shape.rank() - 1 : 1];
  const DType of_parameters = accumulate_dtype(fused.dtype);
  const auto vector = [&] { return input({channels}, of_parameters, !fused.parameters_are_frozen); };
  const auto image = [&](bool differentiable = true) {
    return input(fused.shape, fused.dtype, differentiable);
  };
  Tensor x;
  if (fused.is_sliced) {
    std::vector<int64_t> sizes(fused.shape.begin(), fused.shape.end());
    ++sizes[0];
    x = ops::slice(input(Shape(sizes), fused.dtype), 0, 1, sizes[0]);
  } else {
    x = image();
  }
  ops::NormTensors norm, addend_norm;
  if (fused.parameters) norm.weight = vector(), norm.bias = vector();
  if (fused.given) norm.mean = vector(), norm.inv_std = vector();
  if (fused.sums) norm.sums = input({2, channels}, of_parameters, false);
  Tensor addend, alpha;
  if (fused.addend) addend = image(!fused.addend_is_constant);
  if (fused.options.normalize_addend) addend_norm.weight = vector(), addend_norm.bias = vector();
  if (fused.options.activation == Activation::kPRelu) alpha = vector();
  const Tensor y = ops::fused::batch_norm_act(x, norm, addend, addend_norm, alpha, fused.options);
  Tensor result = y * image(false);
  for (int user = 1; user < fused.users; ++user) result = result + y * image(false);
  graph->add_output(tracer.use_of(result));
  differentiate(tracer, result, image(false));
  return graph;
}

/// A library of that version, as long as it lives.
class FakeCudnn {
 public:
  explicit FakeCudnn(int64_t version = 91900) {
    ops::set_cudnn_norm({.version = version, .reserve_bytes = [](const KernelQuery&) { return kReserve; }});
  }
  ~FakeCudnn() { ops::set_cudnn_norm(real_); }
  FakeCudnn(const FakeCudnn&) = delete;
  FakeCudnn& operator=(const FakeCudnn&) = delete;

  static constexpr int64_t kReserve = 4321;

 private:
  ops::CudnnNorm real_ = ops::cudnn_norm();
};

/// Runs the pass with a judge who prefers one side; gives how often it was asked.
int choose(Graph& graph, PassContext& context, bool prefers_cudnn) {
  int asked = 0;
  choose_norm_backend(graph, context, [&](const NormPair& pair) -> Verdict {
    ++asked;
    EXPECT_NE(pair.forward, nullptr);
    return {prefers_cudnn, prefers_cudnn ? "faster" : "slower"};
  });
  graph.verify();
  return asked;
}

/// The backends of all calls that have one, in program order.
std::string backends(const Graph& graph) {
  std::string text;
  for (const GraphNode* node : graph.nodes()) {
    if (const auto* const backend = node->attributes.find<NormBackend>("backend"))
      text += (text.empty() ? "" : " ") + std::string(to_string(*backend));
  }
  return text;
}

struct Case {
  std::string name;
  Fused fused;
  std::string reason;  ///< empty: cuDNN
};

std::vector<Case> all_cases() {
  const auto with = [](const std::function<void(Fused&)>& change) {
    Fused fused;
    change(fused);
    return fused;
  };
  return {
      {"all that cuDNN wants", {}, ""},
      {"no activation", with([](Fused& f) { f.options.activation = Activation::kNone; }),
       "none instead of relu"},
      {"a plain addend", with([](Fused& f) { f.addend = true; }), ""},
      {"the CPU", with([](Fused& f) { f.device = Device::cpu(); }), "cpu instead of a GPU"},
      {"float32", with([](Fused& f) { f.dtype = DType::kFloat32; }), "float32 instead of float16"},
      {"bfloat16", with([](Fused& f) { f.dtype = DType::kBFloat16; }), "bfloat16 instead of float16"},
      {"NCHW", with([](Fused& f) {
         f.options.layout = Layout::kNCHW, f.shape = {2, 8, 3, 3};
       }),
       "NCHW instead of NHWC"},
      {"features", with([](Fused& f) {
         f.shape = {6, 8};
       }),
       "rank 2 instead of 4"},
      {"channels not in fours", with([](Fused& f) {
         f.shape = {2, 3, 3, 6};
       }),
       "6 channels, no multiple of 4"},
      {"too many elements", with([](Fused& f) {
         f.shape = {256, 1024, 1024, 8};
       }),
       "2147483648 elements, more than 2^31 - 1"},
      {"PReLU", with([](Fused& f) { f.options.activation = Activation::kPRelu; }), "prelu instead of relu"},
      {"no parameters", with([](Fused& f) { f.parameters = false; }), "no weight or no bias"},
      {"statistics from the convolution", with([](Fused& f) { f.sums = true; }),
       "statistics that came with x"},
      {"two normalised branches", with([](Fused& f) { f.addend = f.options.normalize_addend = true; }),
       "two normalised branches"},
      {"two users", with([](Fused& f) { f.users = 2; }),
       "an output with two users, whose gradients are to be added up"},
      {"frozen parameters", with([](Fused& f) { f.parameters_are_frozen = true; }),
       "gradients of parameters or addend that are not wanted"},
      {"an addend without a gradient", with([](Fused& f) { f.addend = f.addend_is_constant = true; }),
       "gradients of parameters or addend that are not wanted"},
      {"a view that is not aligned", with([](Fused& f) {
         f.is_sliced = true, f.shape = {2, 3, 3, 4};
       }),
       "a tensor that does not begin at a multiple of 16 bytes"},
      {"a view that is aligned", with([](Fused& f) { f.is_sliced = true; }), ""},
      {"no library", with([](Fused& f) { f.version = 0; }), "a build without cuDNN"},
  };
}

TEST(ChooseNormBackend, FollowsEveryConstraintOfCudnn) {
  for (const Case& each : all_cases()) {
    SCOPED_TRACE(each.name);
    const auto graph = graph_of(each.fused);
    run(sum_gradients, *graph, true, true);
    const FakeCudnn library(each.fused.version);
    PassContext context;
    const int asked = choose(*graph, context, true);
    if (each.reason.empty()) {
      EXPECT_EQ(context.report.done, Texts{"batch_norm_act in bn on cuDNN: faster"});
      EXPECT_EQ(context.report.missed, Texts{});
      EXPECT_EQ(backends(*graph), "cudnn cudnn");
    } else {
      EXPECT_EQ(context.report.done, Texts{});
      EXPECT_EQ(context.report.missed, Texts{"batch_norm_act in bn on cuDNN: " + each.reason});
      EXPECT_EQ(backends(*graph), "sinter sinter");
    }
    EXPECT_EQ(asked, each.reason.empty() ? 1 : 0);
  }
}

TEST(ChooseNormBackend, LeavesEvaluationAndEmptyBatches) {
  const FakeCudnn library;
  const Device gpu = Device::cuda();  // there need not be one
  const auto constraint = [&](int64_t images, bool training) {
    const TensorSpec x{Shape{images, 3, 3, 8}, DType::kFloat16, gpu}, vector{Shape{8}, DType::kFloat32, gpu};
    const OpDef& op = ops::builtin("batch_norm_act").definition;
    const std::vector<const TensorSpec*> inputs = {&x, &vector, &vector, &vector, &vector};
    const Attributes attributes(ops::BatchNormActOptions{.training = training, .layout = Layout::kNHWC});
    const InferContext infer(op, inputs, attributes);
    const std::vector<TensorSpec> outputs = op.infer(infer);
    const KernelQuery query(infer, outputs);
    return ops::cudnn_norm_constraint(&query, nullptr);
  };
  EXPECT_EQ(constraint(2, true), std::nullopt);
  EXPECT_EQ(constraint(2, false), "statistics that are constants");
  EXPECT_EQ(constraint(0, true), "no elements");
}

TEST(ChooseNormBackend, LeavesGivenStatistics) {
  const FakeCudnn library;
  for (const Activation activation : {Activation::kNone, Activation::kRelu}) {
    Fused fused{.given = true};
    fused.options.training = false;
    fused.options.activation = activation;
    const auto graph = graph_of(fused);
    PassContext context;
    EXPECT_EQ(choose(*graph, context, true), 0);
    EXPECT_EQ(context.report.missed, Texts{});
    EXPECT_EQ(backends(*graph), "sinter sinter");
  }
}

TEST(ChooseNormBackend, StaysWithSintersKernelsWhereTheyAreFaster) {
  const FakeCudnn library;
  const auto graph = graph_of({});
  PassContext context;
  choose(*graph, context, false);
  EXPECT_EQ(backends(*graph), "sinter sinter");
  EXPECT_EQ(context.report.missed, Texts{"batch_norm_act in bn on cuDNN: slower"});
}

TEST(ChooseNormBackend, HandsTheReserveSpaceFromOneCallToTheOther) {
  const FakeCudnn library;
  const auto graph = graph_of({});
  ASSERT_EQ(norm_pairs(*graph).size(), 1U);
  PassContext context;
  choose(*graph, context, true);
  EXPECT_EQ(norm_pairs(*graph).size(), 0U) << "they have been moved";
  const GraphNode *forward = nullptr, *gradient = nullptr;
  for (const GraphNode* node : graph->nodes()) {
    if (node->attributes.find<NormBackend>("backend") == nullptr) continue;
    (forward == nullptr ? forward : gradient) = node;
  }
  ASSERT_NE(gradient, nullptr);
  ASSERT_EQ(forward->outputs.size(), 4U);
  EXPECT_EQ(forward->outputs[3]->spec,
            (TensorSpec{Shape{FakeCudnn::kReserve}, DType::kUInt8, Device::cuda()}));
  EXPECT_EQ(gradient->input(3), forward->outputs[3]) << "the mask";
  EXPECT_EQ(gradient->input(6), forward->outputs[1]) << "the mean";
  EXPECT_EQ(gradient->input(7), forward->outputs[2]) << "the inverse deviation";
  EXPECT_EQ(*gradient->attributes.find<double>("epsilon"), *forward->attributes.find<double>("epsilon"));
}

TEST(ChooseNormBackend, TellsInErrorsWhatCudnnMisses) {
  const std::string message = test::message_of<Unsupported>([] {
    ops::fused::batch_norm_act(Tensor::zeros({4, 3, 3, 8}), {}, {}, {}, {},
                               {.layout = Layout::kNHWC, .backend = NormBackend::kCudnn});
  });
  EXPECT_EQ(message, "[batch_norm_act] cuDNN cannot run this call: cpu instead of a GPU");
}

TEST(ChooseNormBackend, TimesPairs) {
  const Device device = is_available(Device::cuda()) ? Device::cuda() : Device::cpu();
  const auto graph = graph_of({.device = device});
  const std::vector<NormPair> pairs = norm_pairs(*graph);
  ASSERT_EQ(pairs.size(), 1U);
  CopiedCalls copied(device);
  copied.add(*pairs[0].forward);
  copied.add(*pairs[0].gradient);
  TimeBudget budget;
  EXPECT_GT(copied.time(budget), 0.0);
  if (device.is_cpu()) GTEST_SKIP() << "the rest needs a GPU";
  PassContext context;
  choose_norm_backend(*graph, context, [&](const NormPair& pair) {
    const Verdict verdict = race_norm_backends(pair);
    EXPECT_NE(verdict.reason, "no kernel runs it so");
    return verdict;
  });
  EXPECT_EQ(context.report.done.size() + context.report.missed.size(), 1U);
}

}  // namespace
}  // namespace sinter::passes
