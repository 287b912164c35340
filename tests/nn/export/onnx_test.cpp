// What export_onnx writes, decoded, and what it refuses. What ONNX Runtime makes of it: onnx_runtime_test.py.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include <sinter/core/op/call.h>
#include <sinter/core/op/registry.h>
#include <sinter/core/runtime/random.h>
#include <sinter/nn/export/onnx_trace.h>
#include <sinter/nn/export/onnx_translations.h>
#include <sinter/nn/layers/activation.h>
#include <sinter/nn/layers/conv2d.h>
#include <sinter/nn/layers/linear.h>
#include <sinter/nn/layers/norm/batch_norm.h>
#include <sinter/nn/layers/pool.h>
#include <sinter/nn/layers/simple.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/dropout/dropout.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/pool/pool.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/slice/slice.h>
#include <sinter/ops/topk/topk.h>

#include "common/temporary_folder.h"
#include "nn/export/onnx_cases.h"
#include "nn/export/onnx_decoder.h"
#include "nn/nn_test_support.h"

namespace sinter::nn::testing {
namespace {

using sinter::testing::TemporaryFolder;

struct SmallNet : Module {
  explicit SmallNet(Layout layout = Layout::kNCHW)
      : conv(child("conv", Conv2d(3, 4, 3, {.stride = 2, .padding = 1, .bias = false, .layout = layout}))),
        bn(child("bn", BatchNorm2d(4, {.epsilon = 1e-3, .layout = layout}))),
        prelu(child("prelu", PReLU(4, {.layout = layout}))),
        pool(child("pool", GlobalAvgPool2d(layout))),
        fc(child("fc", Linear(4, 5))) {}

  Tensor forward(const Tensor& x) const override { return fc(pool(prelu(bn(conv(x))))); }

  Conv2d conv;
  BatchNorm2d bn;
  PReLU prelu;
  GlobalAvgPool2d pool;
  Linear fc;
};

/// A module of one function.
struct FunctionNet : Module {
  explicit FunctionNet(std::function<Tensor(const Tensor&)> function) : function_(std::move(function)) {}
  Tensor forward(const Tensor& x) const override { return function_(x); }

 private:
  std::function<Tensor(const Tensor&)> function_;
};

/// As a part of a model, so that messages name it.
struct Within : Module {
  explicit Within(std::function<Tensor(const Tensor&)> function)
      : head(child("head", FunctionNet(std::move(function)))) {}
  Tensor forward(const Tensor& x) const override { return head(x); }
  FunctionNet head;
};

class Onnx : public ::testing::Test {
 protected:
  template <class Model>
  DecodedOnnx exported(const Model& model, const Shape& input, const OnnxOptions& options = {}) {
    export_onnx(model, input, folder_ / "model.onnx", options);
    return DecodedOnnx(file_bytes(folder_ / "model.onnx"));
  }
  template <class E = Unsupported>
  std::string refusal(std::function<Tensor(const Tensor&)> function, const Shape& input = {4, 6},
                      const OnnxOptions& options = {}) {
    const std::string message = message_of<E>(
        [&] { export_onnx(Within(std::move(function)), input, folder_ / "refused.onnx", options); });
    EXPECT_FALSE(std::filesystem::exists(folder_ / "refused.onnx"));
    return message;
  }

  TemporaryFolder folder_;
};

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "expected '" << part << "' in: " << text;
}

TEST_F(Onnx, AModelIsWrittenWithItsNames) {
  const SmallNet net;
  const DecodedOnnx onnx = exported(net, {1, 3, 8, 8});
  EXPECT_EQ(onnx.ir_version, 8);
  EXPECT_EQ(onnx.opset, 17);
  EXPECT_EQ(onnx.producer, "sinter");
  EXPECT_EQ(onnx.types(), "Conv BatchNormalization PRelu GlobalAveragePool Flatten Gemm");
  using Values = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(onnx.inputs, (Values{{"input", "float (batch, 3, 8, 8)"}}));
  EXPECT_EQ(onnx.outputs, (Values{{"output", "float (batch, 5)"}}));
  EXPECT_EQ(onnx.metadata, (std::map<std::string, std::string>{{"preprocessing", "none"}}));

  const DecodedNode& conv = onnx.nodes[0];
  EXPECT_EQ(conv.name, "conv/Conv");
  EXPECT_EQ(conv.inputs, (std::vector<std::string>{"input", "conv.weight"}));
  EXPECT_EQ(conv.ints("kernel_shape"), (std::vector<int64_t>{3, 3}));
  EXPECT_EQ(conv.ints("strides"), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(conv.ints("pads"), (std::vector<int64_t>{1, 1, 1, 1}));
  EXPECT_EQ(conv.integer("group"), 1);
  EXPECT_EQ(conv.attributes.at("group").integer(20), 2);  // the type of an int
  const std::string epsilon = onnx.nodes[1].attributes.at("epsilon").text(2);
  float value = 0;
  std::memcpy(&value, epsilon.data(), sizeof value);
  EXPECT_FLOAT_EQ(value, 1e-3f);
  EXPECT_EQ(onnx.nodes.back().outputs, (std::vector<std::string>{"output"}));

  State state = net.state();
  state.erase("bn.num_batches_tracked");
  ASSERT_EQ(onnx.initializers.size(), state.size());
  for (const auto& [name, tensor] : state) {
    const DecodedTensor& written = onnx.initializers.at(name);
    EXPECT_EQ(written.type, 1) << name;
    EXPECT_EQ(written.floats(), tensor.to_vector<float>()) << name;
    const std::vector<int64_t> dims(tensor.shape().begin(), tensor.shape().end());
    EXPECT_EQ(written.dims, name == "prelu.weight" ? (std::vector<int64_t>{4, 1, 1}) : dims) << name;
  }
}

TEST_F(Onnx, EveryLayoutGivesTheSameFile) {
  const SmallNet first, last(Layout::kNHWC);
  last.load_state(first.state());
  exported(first, {1, 3, 8, 8});
  const std::string bytes = file_bytes(folder_ / "model.onnx");
  exported(last, {1, 8, 8, 3});
  EXPECT_EQ(file_bytes(folder_ / "model.onnx"), bytes);
}

TEST_F(Onnx, AnExportChangesNothing) {
  SmallNet net;
  net.train();
  manual_seed(3);
  const RandomKey key = default_generator().key();
  const State before = net.state();
  exported(net, {2, 3, 8, 8});
  EXPECT_TRUE(net.training());
  EXPECT_EQ(default_generator().key().offset, key.offset);
  for (const auto& [name, tensor] : net.state()) {
    if (is_float(tensor.dtype())) {
      EXPECT_EQ(tensor.to_vector<float>(), before.at(name).to_vector<float>()) << name;
    }
  }
}

TEST_F(Onnx, AJobIsWrittenAsItsModel) {
  const SmallNet net;
  exported(net, {2, 3, 8, 8});
  const std::string bytes = file_bytes(folder_ / "model.onnx");
  InferJob job(net, {.layout = Layout::kNHWC});
  expect_contains(message_of([&] { export_onnx(job, folder_ / "job.onnx"); }), "before the first call");
  job(floats({2, 3, 8, 8}, 1));
  export_onnx(job, folder_ / "job.onnx");
  EXPECT_EQ(file_bytes(folder_ / "job.onnx"), bytes);
}

TEST_F(Onnx, SixteenBitsBecomeFloats) {
  SmallNet net;
  const std::vector<float> weights = net.fc.weight.tensor().to_vector<float>();
  SmallNet mixed = nn::clone(net);
  mixed.to_mixed(DType::kFloat16);
  EXPECT_EQ(exported(mixed, {2, 3, 8, 8}).initializers.at("fc.weight").floats(), weights);
  net.to(DType::kBFloat16);
  const DecodedOnnx onnx = exported(net, {2, 3, 8, 8});
  EXPECT_EQ(onnx.types(), "Conv BatchNormalization PRelu GlobalAveragePool Flatten Gemm");
  EXPECT_EQ(onnx.inputs[0].second, "float (batch, 3, 8, 8)");
  EXPECT_EQ(onnx.initializers.at("fc.weight").floats(),
            ops::cast(net.fc.weight.tensor(), DType::kFloat32).to_vector<float>());
  net.to(DType::kFloat64);
  expect_contains(message_of<Unsupported>([&] { exported(net, {2, 3, 8, 8}); }), "float64");
}

TEST_F(Onnx, NormsFoldWhereThatIsAskedFor) {
  const DecodedOnnx onnx = exported(SmallNet(), {2, 3, 8, 8}, {.fold_batch_norm = true});
  EXPECT_EQ(onnx.types(), "Conv PRelu GlobalAveragePool Flatten Gemm");
  EXPECT_EQ(onnx.nodes[0].inputs.size(), 3u);
}

// ---- the table

TEST_F(Onnx, EveryTranslationIsExercised) {
  std::set<std::string> seen;
  std::vector<OnnxCase> cases = onnx_op_cases();
  for (const auto& more : {onnx_image_cases(), onnx_network_cases(false)}) {
    cases.insert(cases.end(), more.begin(), more.end());
  }
  for (const OnnxCase& each : cases) {
    SCOPED_TRACE(each.name);
    const CaseModel made = each.make(CaseNumbers::kFloat);
    const OnnxOptions options{.layout = each.layout};
    const std::vector<TensorSpec> specs = each.specs(CaseNumbers::kFloat, OnnxCase::kBatch);
    const OnnxTrace trace = trace_for_onnx(*made.model, made.function, specs, options);
    for (const GraphNode* const node : trace.graph->nodes()) seen.insert(node->op->name());
    export_onnx(*made.model, made.function, specs, folder_ / "case.onnx", options);
    EXPECT_FALSE(DecodedOnnx(file_bytes(folder_ / "case.onnx")).nodes.empty());
  }
  for (const std::string& op : onnx_translated_ops()) {
    EXPECT_TRUE(seen.contains(op) || op.starts_with("test_")) << op;
  }
}

TEST(OnnxTable, EveryOpIsTranslatedOrRefused) {
  // Training, randomness, several processes, images in bytes, what passes put in place of other calls.
  const std::set<std::string> refused{"all_gather",      "augment_images",     "begin_all_reduce",
                                      "combined_margin", "conv2d_bias_act",    "conv2d_grad_weight",
                                      "conv2d_sums",     "crop_images",        "cross_entropy",
                                      "dropout",         "end_all_reduce",     "erase_images",
                                      "grad_norm",       "linear_grad_weight", "linear_grad_weight_bias",
                                      "loss_scale",      "mix_images",         "prelu_grad_x",
                                      "random_key",      "random_normal",      "rank_statistics",
                                      "reduce_scatter",  "resize_images",      "shard_cross_entropy",
                                      "shard_log_sums",  "advance_steps",      "all_reduce"};
  const std::vector<std::string> translated = onnx_translated_ops();
  for (const std::string& op : OpRegistry::instance().names()) {
    if (op.starts_with("test_")) continue;  // of other tests
    const bool by_name = op.ends_with("_grad") || op.ends_with("_step") || op.ends_with("_");
    EXPECT_NE(std::ranges::count(translated, op) > 0, by_name || refused.contains(op)) << op;
  }
}

const Op& register_cube() {
  OpRegistry& registry = OpRegistry::instance();
  registry.add(
      {.name = "test_onnx_cube",
       .inputs = {{"x"}},
       .outputs = {{"y"}},
       .infer = [](const InferContext& context) { return std::vector<TensorSpec>{context.input(0)}; }});
  return registry.get("test_onnx_cube");
}

Tensor cubed(const Tensor& x) {
  static const Op& op = register_cube();
  return call(op, {x}).front();
}

TEST_F(Onnx, AnOwnOpBringsItsTranslation) {
  expect_contains(refusal(cubed), "test_onnx_cube in head");
  const OnnxTranslation translation = [](OnnxCall& call) {
    const std::string x = call.input(0);
    call.give(call.node("Mul", {x, call.node("Mul", {x, x})}));
  };
  register_onnx_translation("test_onnx_cube", translation);
  const DecodedOnnx onnx = exported(Within(cubed), {2, 6});
  EXPECT_EQ(onnx.types(), "Mul Mul");
  EXPECT_EQ(onnx.nodes[1].inputs, (std::vector<std::string>{"input", "head/Mul"}));
  EXPECT_EQ(onnx.nodes[1].outputs, (std::vector<std::string>{"output"}));
  expect_contains(message_of([&] { register_onnx_translation("test_onnx_cube", translation); }),
                  "an op without a translation but got 'test_onnx_cube'");
  expect_contains(message_of([&] { register_onnx_translation("relu", translation); }), "'relu'");
  expect_contains(message_of([&] { register_onnx_translation("test_no_op", translation); }), "test_no_op");
  expect_contains(message_of([&] { register_onnx_translation("relu", {}); }), "got none");
}

TEST_F(Onnx, RefusalsNameOpsAndPlaces) {
  expect_contains(refusal([](const Tensor& x) { return ops::dropout(x, 0.5); }), "dropout in head");
  const std::string both =
      refusal([](const Tensor& x) { return ops::vjp::relu(ops::dropout(x, 0.5), ops::vjp::relu(x, x)); });
  expect_contains(both, "relu_grad in head");
  expect_contains(both, "dropout in head");
  EXPECT_EQ(both.find("relu_grad in head"), both.rfind("relu_grad in head")) << both;
  const Tensor one = Tensor::full({6}, 1.0);
  expect_contains(
      refusal([&](const Tensor& x) { return ops::batch_norm(x, {}, {}, {}, {}, {.training = true}); }),
      "batch_norm in head cannot be written as ONNX: it computes the statistics of the batch");
  Tensor mean = Tensor::zeros({6}), variance = Tensor::full({6}, 1.0);
  expect_contains(refusal([&](const Tensor& x) {
                    return ops::batch_norm(x, one, one, mean, variance, {.training = true});
                  }),
                  "batch_norm in head");
  expect_contains(refusal<InvalidArgument>([](const Tensor& x) { return ops::slice(x, 1, 0, 9); }),
                  "[slice]");
  const std::vector<TensorSpec> specs{{{4, 6}, DType::kFloat32, {}}};
  const JobFunction none = [](std::span<const Tensor>) { return std::vector<Tensor>(); };
  expect_contains(message_of([&] { export_onnx(Identity(), none, specs, folder_ / "none.onnx"); }),
                  "at least one output");
  expect_contains(message_of([&] { export_onnx(Identity(), none, {}, folder_ / "none.onnx"); }),
                  "at least one input");
  // A buffer that a call changes, and what is computed of it behind that.
  struct Counting : Module {
    Buffer count = buffer("count", Tensor::zeros({6}));
    Tensor forward(const Tensor& x) const override {
      ops::copy_(count.tensor(), ops::sum(x, {0}));
      return x * (count.tensor() + 1.0);
    }
  };
  expect_contains(message_of<Unsupported>([&] { exported(Counting(), {4, 6}); }), "copy_");
}

// ---- batches

TEST_F(Onnx, RefusalsNameTheShapeThatWasGiven) {
  const Linear linear(2, 3);
  expect_contains(message_of<InvalidArgument>([&] { exported(linear, {1, 5}); }), "(1, 5)");
  // What fails at other batches only.
  const auto pair = [](const Tensor& x) { return ops::reshape(x, {6, 4}); };
  expect_contains(refusal<InvalidArgument>(pair, {4, 6}), "(8, 6)");
}

TEST_F(Onnx, ExtentsThatGoWithTheBatchAreNamed) {
  const auto pairs = [](const Tensor& x) { return ops::reshape(x, {x.shape()[0] * 2, 3}); };
  DecodedOnnx onnx = exported(FunctionNet(pairs), {7, 6});
  EXPECT_EQ(onnx.inputs[0].second, "float (batch, 6)");
  EXPECT_EQ(onnx.outputs[0].second, "float (batch_times_2, 3)");
  EXPECT_EQ(onnx.initializers.at(onnx.nodes[0].inputs[1]).ints(), (std::vector<int64_t>{-1, 3}));
  onnx = exported(FunctionNet(pairs), {7, 6}, {.dynamic_batch = false});
  EXPECT_EQ(onnx.inputs[0].second, "float (7, 6)");
  EXPECT_EQ(onnx.outputs[0].second, "float (14, 3)");
  EXPECT_EQ(onnx.initializers.at(onnx.nodes[0].inputs[1]).ints(), (std::vector<int64_t>{14, 3}));
  // A square of the batch by the batch.
  onnx = exported(
      FunctionNet([](const Tensor& x) {
        return ops::broadcast_to(ops::sum(x, {1}, {.keep_dims = true}), {x.shape()[0], x.shape()[0]});
      }),
      {7, 6});
  EXPECT_EQ(onnx.outputs[0].second, "float (batch, batch)");
}

TEST_F(Onnx, OnlyInputsOfTheBatchFollowIt) {
  const Within none([](const Tensor& x) { return x; });
  const JobFunction function = [](std::span<const Tensor> x) {
    return std::vector<Tensor>{x[0] + ops::sum(x[1]), x[2]};
  };
  const std::vector<TensorSpec> specs{
      {{4, 6}, DType::kFloat32, {}}, {{3}, DType::kFloat32, {}}, {{4}, DType::kInt64, {}}};
  export_onnx(none, function, specs, folder_ / "inputs.onnx");
  const DecodedOnnx onnx(file_bytes(folder_ / "inputs.onnx"));
  using Values = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(onnx.inputs,
            (Values{{"input0", "float (batch, 6)"}, {"input1", "float (3)"}, {"input2", "7 (batch)"}}));
  EXPECT_EQ(onnx.outputs, (Values{{"output0", "float (batch, 6)"}, {"output1", "7 (batch)"}}));
  EXPECT_EQ(onnx.nodes.back().type, "Identity");  // an output that is an input
}

TEST_F(Onnx, WhatDependsOnTheBatchOtherwiseNeedsAFixedOne) {
  const auto check = [&](const std::function<Tensor(const Tensor&)>& function, const std::string& part) {
    SCOPED_TRACE(part);
    const std::string message = refusal(function);
    expect_contains(message, part);
    expect_contains(message, "dynamic_batch = false");
    exported(Within(function), {4, 6}, {.dynamic_batch = false});
  };
  check([](const Tensor& x) { return x * (1.0 / static_cast<double>(x.shape()[0])); }, "affine in head");
  check([](const Tensor& x) { return ops::slice(x, 0, 1, x.shape()[0]); }, "slice in head");
  check([](const Tensor& x) { return ops::slice(x, 0, 0, x.shape()[0] / 2 + 1); }, "slice in head");
  check([](const Tensor& x) { return ops::topk(ops::flatten(x, 0), x.shape()[0]).values; }, "topk in head");
  check([](const Tensor& x) { return x + Tensor::full({1}, static_cast<double>(x.shape()[0])); },
        "add in head");
  check([](const Tensor& x) { return x + Tensor::zeros({x.shape()[0], 1}); }, "add in head");
  check([](const Tensor& x) { return x.shape()[0] % 2 == 0 ? ops::relu(x) : ops::sigmoid(x); },
        "relu in head");
  check([](const Tensor& x) { return x.shape()[0] % 2 == 0 ? ops::relu(x) : ops::relu(ops::sigmoid(x)); },
        "in head");
  check(
      [](const Tensor& x) {
        return ops::max_pool2d(ops::reshape(x, {1, 1, -1, 6}), 2);
      },
      "max_pool2d in head");
  check([](const Tensor& x) { return ops::slice(x, 0, 0, std::min<int64_t>(x.shape()[0], 4)); },
        "slice in head");
}

// ---- options

TEST_F(Onnx, LargeWeightsGoBesideTheFile) {
  struct Wide : Module {
    Linear a = child("a", Linear(300, 20)), b = child("b", Linear(20, 70));
    Tensor forward(const Tensor& x) const override { return b(a(x)); }
  };
  const Wide net;
  const DecodedOnnx whole = exported(net, {2, 300});
  EXPECT_FALSE(std::filesystem::exists(folder_ / "model.onnx.data"));
  EXPECT_TRUE(whole.initializers.at("a.weight").external.empty());

  const uint64_t bytes = sizeof(float) * (300 * 20 + 20 + 20 * 70 + 70);
  exported(net, {2, 300}, {.external_data_above = bytes});
  EXPECT_FALSE(std::filesystem::exists(folder_ / "model.onnx.data"));
  const DecodedOnnx onnx = exported(net, {2, 300}, {.external_data_above = bytes - 1});
  const std::string data = file_bytes(folder_ / "model.onnx.data");
  uint64_t end = 0;
  for (const char* const name : {"a.weight", "b.weight"}) {
    const DecodedTensor& tensor = onnx.initializers.at(name);
    EXPECT_TRUE(tensor.raw.empty());
    EXPECT_EQ(tensor.external.at("location"), "model.onnx.data");
    const uint64_t offset = std::stoull(tensor.external.at("offset"));
    const uint64_t length = std::stoull(tensor.external.at("length"));
    EXPECT_EQ(offset % 4096, 0u);
    EXPECT_GE(offset, end);
    end = offset + length;
    EXPECT_EQ(data.substr(offset, length), whole.initializers.at(name).raw) << name;
  }
  EXPECT_EQ(data.size(), end);
  for (const char* const name : {"a.bias", "b.bias"}) {
    EXPECT_TRUE(onnx.initializers.at(name).external.empty());
    EXPECT_EQ(onnx.initializers.at(name).raw, whole.initializers.at(name).raw);
  }
}

TEST_F(Onnx, MetadataAndPreprocessing) {
  ModelMetadata metadata;
  metadata.task = "image-classification";
  metadata.classes = {"cat", "dog", "\xc3\xa4"};
  metadata.height = metadata.width = 8;
  metadata.channels = 3;
  metadata.mean = {0.5f, 0.25f, 0.0f};
  metadata.std = {0.25f, 0.5f, 1.0f};
  OnnxOptions options{.preprocessing = OnnxPreprocessing::kRgb, .metadata = metadata};
  DecodedOnnx onnx = exported(SmallNet(), {1, 3, 8, 8}, options);
  EXPECT_EQ(onnx.metadata.at("classes"), "[\"cat\",\"dog\",\"\xc3\xa4\"]");
  EXPECT_EQ(onnx.metadata.at("mean"), "[0.5,0.25,0.0]");
  EXPECT_EQ(onnx.metadata.at("preprocessing"), "rgb");
  EXPECT_EQ(onnx.types(), "Mul Add Conv BatchNormalization PRelu GlobalAveragePool Flatten Gemm");
  EXPECT_EQ(onnx.inputs[0].second, "float (batch, 3, 8, 8)");
  const std::vector<float> scale = onnx.initializers.at(onnx.nodes[0].inputs[1]).floats();
  const std::vector<float> shift = onnx.initializers.at(onnx.nodes[1].inputs[1]).floats();
  for (size_t c = 0; c < 3; ++c) {
    EXPECT_NEAR(128.0f * scale[c] + shift[c], (128.0f / 255.0f - metadata.mean[c]) / metadata.std[c], 1e-6);
  }
  options.preprocessing = OnnxPreprocessing::kUInt8;
  onnx = exported(SmallNet(Layout::kNHWC), {1, 8, 10, 3}, options);
  EXPECT_EQ(onnx.types(),
            "Transpose Cast Mul Add Conv BatchNormalization PRelu GlobalAveragePool Flatten Gemm");
  EXPECT_EQ(onnx.inputs[0].second, "2 (batch, 8, 10, 3)");
  EXPECT_EQ(onnx.nodes[0].ints("perm"), (std::vector<int64_t>{0, 3, 1, 2}));

  options.metadata.reset();
  expect_contains(message_of([&] {
                    exported(SmallNet(), {1, 3, 8, 8}, options);
                  }),
                  "mean and std of 3 channels");
  options.metadata = metadata;
  expect_contains(message_of([&] { exported(Linear(6, 2), {1, 6}, options); }), "one input, of images");
  EXPECT_EQ(parse_onnx_preprocessing("uint8"), OnnxPreprocessing::kUInt8);
  expect_contains(message_of([] { parse_onnx_preprocessing("bgr"); }), "none, rgb or uint8");
}

TEST_F(Onnx, NamesOfInputsAndOutputs) {
  const JobFunction twice = [](std::span<const Tensor> x) {
    const Tensor y = ops::relu(x[0]);
    return std::vector<Tensor>{y, y, ops::sigmoid(y)};
  };
  const Identity none;
  const std::vector<TensorSpec> specs{{{4, 6}, DType::kFloat32, {}}};
  export_onnx(none, twice, specs, folder_ / "names.onnx",
              {.input_names = {"image"}, .output_names = {"a", "b", "c"}});
  const DecodedOnnx onnx(file_bytes(folder_ / "names.onnx"));
  EXPECT_EQ(onnx.types(), "Relu Sigmoid Identity");
  EXPECT_EQ(onnx.nodes[0].inputs, (std::vector<std::string>{"image"}));
  EXPECT_EQ(onnx.nodes[0].outputs, (std::vector<std::string>{"a"}));
  EXPECT_EQ(onnx.nodes[1].inputs, (std::vector<std::string>{"a"}));
  EXPECT_EQ(onnx.nodes[2].inputs, (std::vector<std::string>{"a"}));
  EXPECT_EQ(onnx.nodes[2].outputs, (std::vector<std::string>{"b"}));
  const auto message = [&](const OnnxOptions& options) {
    return message_of([&] { export_onnx(none, twice, specs, folder_ / "names.onnx", options); });
  };
  expect_contains(message({.output_names = {"a"}}), "expected 3 output names but got 1");
  expect_contains(message({.output_names = {"a", "b", "a"}}), "'a'");
  expect_contains(message({.input_names = {"a"}, .output_names = {"a", "b", "c"}}), "'a' twice");
  expect_contains(message_of([&] {
                    exported(SmallNet(), {1, 3, 8, 8}, {.input_names = {"conv.weight"}});
                  }),
                  "'conv.weight'");
}

TEST_F(Onnx, AFileThatCannotBeWrittenIsAnError) {
  expect_contains(message_of<IoError>([&] {
                    export_onnx(SmallNet(), {1, 3, 8, 8}, folder_ / "no" / "model.onnx");
                  }),
                  "model.onnx");
}

}  // namespace
}  // namespace sinter::nn::testing
