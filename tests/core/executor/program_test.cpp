// Program: the bits of eager calls, however memory is planned, wherever inputs lie and whoever holds outputs.
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include <sinter/core/executor/program.h>
#include <sinter/core/graph/tracer.h>
#include <sinter/core/op/node.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/binary/binary.h>
#include <sinter/ops/common/samples/op_samples.h>
#include <sinter/ops/concat/concat.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/matmul/matmul.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/slice/slice.h>
#include <sinter/ops/unary/unary.h>

#include "common/error_message.h"
#include "common/test_cases.h"

namespace sinter {
namespace {

using test::message_of;
using Tensors = std::vector<Tensor>;
using Function = std::function<Tensors(const Tensors&)>;

const Device kCpu = Device::cpu();

std::vector<std::byte> bytes_of(const Tensor& tensor) {
  std::vector<std::byte> bytes(tensor.spec().bytes());
  if (!bytes.empty()) std::memcpy(bytes.data(), tensor.raw_data(), bytes.size());
  return bytes;
}

void expect_same_bits(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].spec(), b[i].spec());
    EXPECT_EQ(bytes_of(a[i]), bytes_of(b[i])) << "output " << i;
  }
}

std::unique_ptr<Graph> trace(const Function& function, const Tensors& inputs, const Tensors& leaves = {}) {
  auto graph = std::make_unique<Graph>();
  for (const Tensor& leaf : leaves) graph->memory(leaf, GraphValue::Kind::kLeaf);
  Tracer tracer(*graph);
  Tensors traced;
  for (size_t i = 0; i < inputs.size(); ++i) {
    traced.push_back(tracer.tensor(graph->add_input(inputs[i].spec(), fmt::format("x{}", i))));
  }
  for (const Tensor& result : function(traced)) graph->add_output(tracer.use_of(result));
  return graph;
}

std::unique_ptr<Program> compile(const Function& function, const Tensors& inputs,
                                 const ProgramOptions& options = {}) {
  return std::make_unique<Program>(trace(function, inputs), kCpu, options);
}

Tensors nans_like(const Tensors& inputs) {
  Tensors all;
  for (const Tensor& input : inputs)
    all.push_back(Tensor::full(input.shape(), std::numeric_limits<double>::quiet_NaN(), input.dtype()));
  return all;
}

// ---- the memory plan

/// A random function of ops that share memory in every way: elementwise ones, views, broadcasts, and ones
/// that read all before they write.
Function random_function(uint64_t seed) {
  return [seed](const Tensors& inputs) {
    ops::SampleMaker maker(seed, DType::kFloat32);
    Tensors values = inputs;  // all of (4, 6)
    const auto any = [&] {
      return values[static_cast<size_t>(
          maker.integer(std::max<int64_t>(0, std::ssize(values) - 6), std::ssize(values) - 1))];
    };
    for (int64_t i = 0, count = maker.integer(4, 25); i < count; ++i) {
      const Tensor a = any(), b = any();
      switch (maker.integer(0, 12)) {
        case 0:
          values.push_back(ops::tanh(a));
          break;
        case 1:
          values.push_back(ops::relu(a));
          break;
        case 2:
          values.push_back(ops::add(a, b));
          break;
        case 3:
          values.push_back(ops::mul(ops::sub(a, b), b));
          break;
        case 4:
          values.push_back(ops::reshape(ops::neg(ops::reshape(a, {6, 4})), {4, 6}));
          break;
        case 5:  // a row, which is a view, is added to all of its rows
          values.push_back(ops::add(a, ops::slice(maker.chance(0.5) ? a : b, 0, 1, 2)));
          break;
        case 6:
          values.push_back(ops::sub(ops::slice(b, 0, 0, 1), b));
          break;
        case 7:
          values.push_back(ops::concat({ops::slice(a, 0, 2, 4), ops::slice(b, 0, 0, 2)}, 0));
          break;
        case 8:
          values.push_back(ops::reshape(ops::permute(a, {1, 0}), {4, 6}));
          break;
        case 9:
          values.push_back(ops::mul(a, ops::mean(b, {1}, {.keep_dims = true})));
          break;
        case 10:
          values.push_back(
              ops::tanh(ops::matmul(ops::reshape(a, {4, 6}), ops::matmul(b, a, {.transpose_a = true}))));
          break;
        case 11:
          values.push_back(ops::maximum(a, ops::full({4, 6}, 0.25)));
          break;
        default:
          values.push_back(ops::batch_norm(a, {}, {}, {}, {}));
      }
    }
    Tensors results{values.back()};
    for (size_t i = inputs.size(); i + 1 < values.size(); ++i) {
      if (maker.chance(0.15)) results.push_back(values[i]);
    }
    return results;
  };
}

TEST(Program, GivesEagerBitsHoweverMemoryIsPlanned) {
  const uint64_t first = test::random_seed(std::random_device()());
  bool shares = false, writes_over = false;
  for (uint64_t seed = first; seed < first + 150; ++seed) {
    SCOPED_TRACE(fmt::format("SINTER_TEST_SEED={}", seed));
    ops::SampleMaker maker(seed, DType::kFloat32);
    const Tensors inputs{maker.tensor({4, 6}), maker.tensor({4, 6})};
    const Function function = random_function(seed);
    const Tensors expected = function(inputs);
    std::map<std::pair<bool, bool>, size_t> arena;
    for (const bool reuse : {false, true}) {
      for (const bool in_place : {false, true}) {
        const auto program = compile(function, inputs, {.reuse_memory = reuse, .write_in_place = in_place});
        arena[{reuse, in_place}] = program->stats().arena_bytes;
        EXPECT_GE(program->stats().arena_bytes, program->stats().least_arena_bytes);
        // What is left in the arena is NaN everywhere, so that a read before the write shows.
        program->run(nans_like(inputs));
        expect_same_bits(expected, program->run(inputs));
        expect_same_bits(expected, program->run(inputs));
      }
    }
    shares = shares || arena[{true, false}] < arena[{false, false}];
    writes_over = writes_over || arena[{false, true}] < arena[{false, false}];
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << trace(function, inputs)->to_string();
      return;
    }
  }
  EXPECT_TRUE(shares);
  EXPECT_TRUE(writes_over);
}

TEST(Program, DoesNotWriteOverARowThatItStillReads) {
  const Tensor x = Tensor::from_values<float>({1, 2, 3, 4, 5, 6}, {3, 2});
  for (const bool row_first : {false, true}) {
    const Function function = [&](const Tensors& inputs) {
      const Tensor y = ops::affine(inputs[0], 2.0, 0.0);
      const Tensor row = ops::slice(y, 0, 0, 1);
      return Tensors{row_first ? ops::add(row, y) : ops::add(y, row)};
    };
    expect_same_bits({Tensor::from_values<float>({4, 8, 8, 12, 12, 16}, {3, 2})},
                     compile(function, {x})->run({&x, 1}));
  }
}

TEST(Program, WritesOverInputsThatDie) {
  const Tensor x = Tensor::zeros({1000});
  const Function chain = [](const Tensors& inputs) {
    return Tensors{ops::exp(ops::neg(ops::exp(ops::neg(ops::exp(inputs[0])))))};
  };
  EXPECT_EQ(compile(chain, {x})->stats().arena_bytes,
            compile(chain, {x}, {.reuse_memory = false})->stats().arena_bytes);
  EXPECT_GE(compile(chain, {x}, {.reuse_memory = false, .write_in_place = false})->stats().arena_bytes,
            5u * 4000u);
  EXPECT_LT(compile(chain, {x})->stats().arena_bytes, 2u * 4000u);
}

// ---- inputs

TEST(Program, ReadsInputsThatAreNotAligned) {
  const Function function = [](const Tensors& inputs) {
    const Tensor half = ops::slice(inputs[0], 0, 1, 3);
    return Tensors{ops::matmul(inputs[0], inputs[1]), ops::mul(half, half), ops::reshape(inputs[1], {-1})};
  };
  ops::SampleMaker maker(5, DType::kFloat32);
  const Tensors inputs{maker.tensor({4, 5}), maker.tensor({5, 7})};
  const Tensors expected = function(inputs);
  const auto program = compile(function, inputs);
  for (const size_t offset : {4u, 8u, 20u, 0u, 36u, 0u}) {
    Tensors shifted;
    for (const Tensor& input : inputs) {
      const Tensor memory = Tensor::empty({input.numel() + 16});
      const Tensor view = Tensor::over(memory.storage(), offset, input.spec());
      std::memcpy(view.raw_data(), input.raw_data(), input.spec().bytes());
      shifted.push_back(view);
    }
    expect_same_bits(expected, program->run(shifted));
  }
}

TEST(Program, FollowsInputsToOtherPlaces) {
  const Function function = [](const Tensors& inputs) {
    return Tensors{ops::add(ops::slice(inputs[0], 0, 1, 2), inputs[1]), inputs[1]};
  };
  ops::SampleMaker maker(6, DType::kFloat32);
  const Tensors first{maker.tensor({3, 4}), maker.tensor({1, 4})};
  const auto program = compile(function, first);
  Tensors held = first;  // so that no address comes twice
  for (int i = 0; i < 10; ++i) {
    const Tensors inputs{maker.tensor({3, 4}), maker.tensor({1, 4})};
    held.insert(held.end(), inputs.begin(), inputs.end());
    expect_same_bits(function(inputs), program->run(inputs));
  }
  // One tensor as two inputs of one spec.
  const Function sum = [](const Tensors& inputs) {
    return Tensors{ops::sub(ops::exp(inputs[0]), inputs[1])};
  };
  const Tensor x = maker.tensor({4});
  expect_same_bits(sum({x, x}), compile(sum, {x, x})->run(Tensors{x, x}));
}

TEST(Program, RefusesOtherInputs) {
  const Tensor x = Tensor::zeros({2, 3});
  const auto program = compile([](const Tensors& inputs) { return Tensors{ops::relu(inputs[0])}; }, {x});
  EXPECT_EQ(message_of([&] { program->run({}); }), "[job] expected 1 inputs but got 0");
  EXPECT_EQ(message_of([&] {
              program->run(Tensors{Tensor::zeros({3, 2})});
            }),
            "[job] expected input 'x0' of float32 (2, 3) on cpu but got float32 (3, 2) on cpu");
  EXPECT_EQ(message_of([&] { program->run(Tensors{Tensor()}); }),
            "[job] expected input 'x0' of float32 (2, 3) on cpu but got none");
  expect_same_bits({Tensor::zeros({2, 3})}, program->run({&x, 1}));
}

// ---- outputs

TEST(Program, LeavesOutputsThatAreHeldAlone) {
  const auto program = compile(
      [](const Tensors& inputs) {
        return Tensors{ops::affine(inputs[0], 2.0, 0.0), inputs[0]};
      },
      {Tensor::zeros({2})});
  std::vector<Tensors> held;
  for (int i = 0; i < 40; ++i) {  // more than the program watches
    const Tensor x = Tensor::full({2}, i);
    held.push_back(program->run({&x, 1}));
  }
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(held[static_cast<size_t>(i)][0].to_vector<float>(),
              std::vector<float>(2, 2.0f * static_cast<float>(i)));
    EXPECT_EQ(held[static_cast<size_t>(i)][1].to_vector<float>(),
              std::vector<float>(2, static_cast<float>(i)));
  }
  // A part that is held holds all of its run.
  const Tensor x = Tensor::full({2}, 7.0);
  const Tensor part = ops::slice(program->run({&x, 1})[0], 0, 0, 1);
  const Tensor other = Tensor::full({2}, 9.0);
  for (int i = 0; i < 20; ++i) program->run({&other, 1});
  EXPECT_EQ(part.item(), 14.0);
}

TEST(Program, GivesMemoryOutAgainThatNobodyHolds) {
  const Tensor x = Tensor::zeros({2});
  const auto program = compile([](const Tensors& inputs) { return Tensors{ops::exp(inputs[0])}; }, {x});
  const void* const first = program->run({&x, 1})[0].raw_data();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(program->run({&x, 1})[0].raw_data(), first);
}

TEST(Program, OutlivesNothingAndIsOutlivedByOutputs) {
  Tensor weight = Tensor::full({2}, 3.0).set_requires_grad(true);
  const Tensor x = Tensor::full({2}, 2.0);
  auto program = compile([&](const Tensors& inputs) { return Tensors{ops::mul(inputs[0], weight)}; }, {x});
  const std::weak_ptr<Storage> storage = weight.storage();
  weight = {};
  EXPECT_FALSE(storage.expired()) << "a program keeps its leaves";
  const Tensor y = program->run({&x, 1})[0];
  program.reset();
  EXPECT_TRUE(storage.expired());
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{6, 6}));
}

// ---- leaves

TEST(Program, ChangesLeavesInOrder) {
  const Tensor buffer = Tensor::full({2}, 1.0);
  const Function function = [&](const Tensors& inputs) {
    const Tensor before = ops::add(inputs[0], buffer);
    ops::copy_(buffer, ops::affine(buffer, 2.0, 0.0));
    const Tensor between = ops::add(inputs[0], buffer);
    ops::fill_(ops::slice(buffer, 0, 0, 1), -1.0);  // through a view
    return Tensors{before, between, ops::add(inputs[0], buffer)};
  };
  const Tensor x = Tensor::zeros({2});
  const auto program = std::make_unique<Program>(trace(function, {x}, {buffer}), kCpu);
  EXPECT_EQ(buffer.to_vector<float>(), (std::vector<float>{1, 1}));
  const uint64_t version = buffer.version();
  Tensors results = program->run({&x, 1});
  EXPECT_GT(buffer.version(), version) << "autograd must notice";
  EXPECT_EQ(results[0].to_vector<float>(), (std::vector<float>{1, 1}));
  EXPECT_EQ(results[1].to_vector<float>(), (std::vector<float>{2, 2}));
  EXPECT_EQ(results[2].to_vector<float>(), (std::vector<float>{-1, 2}));
  ops::fill_(buffer, 5.0);  // what others do between runs is seen
  results = program->run({&x, 1});
  EXPECT_EQ(results[2].to_vector<float>(), (std::vector<float>{-1, 10}));
  EXPECT_EQ(buffer.to_vector<float>(), (std::vector<float>{-1, 10}));
}

TEST(Program, RunsWithNothingToDo) {
  const Tensor x = Tensor::full({2}, 4.0), empty = Tensor::zeros({0, 3});
  const auto identity = compile(
      [](const Tensors& inputs) {
        return Tensors{inputs[0], ops::reshape(inputs[0], {1, 2})};
      },
      {x});
  EXPECT_EQ(identity->stats().calls, 0u);
  expect_same_bits({x, ops::reshape(x, {1, 2})}, identity->run({&x, 1}));
  const auto nothing = compile([](const Tensors& inputs) { return Tensors{ops::exp(inputs[0])}; }, {empty});
  expect_same_bits({empty}, nothing->run({&empty, 1}));
}

}  // namespace
}  // namespace sinter
