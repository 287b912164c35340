// Batch normalisation on a GPU beyond its samples: tensors that fill it, each kernel, the same bits in every
// run. The CPU's results are the reference. Hard statistics are in batch_norm_statistics_cuda_test.cpp.
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/core/op/call.h>
#include <sinter/core/op/dispatch.h>
#include <sinter/core/profile/profile.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/random.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/common/samples/op_samples.h>

#include "common/deterministic.h"
#include "ops/batch_norm_cuda_support.h"

namespace sinter::ops {
namespace {

using namespace testing_batch_norm;

/// One test for each case, so that a sanitizer can take them side by side.
class BatchNormCases : public BatchNormOnCuda, public testing::WithParamInterface<size_t> {};

TEST_P(BatchNormCases, AgreeWithTheCpu) {
  const Case& c = cases()[GetParam()];
  uint64_t seed = 12 * GetParam();
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    for (const fused::Activation activation :
         {fused::Activation::kNone, fused::Activation::kRelu, fused::Activation::kPRelu}) {
      ++seed;
      const bool adds = seed % 2 == 0, normalizes = seed % 4 == 1, offset = seed % 5 == 0;
      const Call call(c, dtype, activation, adds, normalizes, seed);
      SCOPED_TRACE(fmt::format("{} {} {} {}{}{}", c.shape, dtype, to_string(activation), adds ? "adds " : "",
                               normalizes ? "normalizes " : "", offset ? "offset" : ""));
      const Call::Results here = call.run(false, false);
      const std::vector<Tensor> expected = here.all(), got = call.run(true, offset, &here.outputs).all();
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        expect_close(got[i], expected[i], "result " + std::to_string(i));
        if (HasFatalFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, BatchNormCases, testing::Range(size_t{0}, cases().size()));

TEST_F(BatchNormOnCuda, AgreesWithTheCpuOnTensorsThatGoThroughTheChipInRoundsOrInPart) {
  uint64_t seed = 2;
  for (const Case& c : {Case{{64, 264, 26, 26}, Layout::kNCHW},
                        {{16, 40, 112, 112}, Layout::kNCHW},
                        {{64, 28, 28, 256}, Layout::kNHWC},
                        {{16, 128, 123, 32}, Layout::kNHWC},
                        {{15, 211, 307, 8}, Layout::kNHWC},
                        {{64, 29, 30, 192}, Layout::kNHWC}}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
      const Call call(c, dtype, fused::Activation::kRelu, seed % 4 < 2, false, seed);
      ++seed;
      SCOPED_TRACE(fmt::format("{} {}", c.shape, dtype));
      const Call::Results here = call.run(false, false);
      const std::vector<Tensor> expected = here.all(), got = call.run(true, false, &here.outputs).all();
      for (size_t i = 0; i < got.size(); ++i) {
        expect_close(got[i], expected[i], "result " + std::to_string(i));
        if (HasFatalFailure()) return;
      }
    }
  }
}

/// Blocks that wait for each other must all find a place on the GPU, whatever runs beside them.
TEST_F(BatchNormOnCuda, EndsOnTwoStreamsAtOnce) {
  const Case c{{32, 28, 28, 256}, Layout::kNHWC};
  const Tensor x = on_gpu(normal(c.shape, 0.3, 1.0)), y = on_gpu(normal(c.shape, -0.3, 1.0, 8));
  const BatchNormOptions options{.layout = c.layout};
  const auto run = [&](const Tensor& input) {
    return batch_norm(input, {}, {}, {}, {}, options).to(Device::cpu());
  };
  const Tensor expected_x = run(x), expected_y = run(y);
  backend_of(kGpu).synchronize(backend_of(kGpu).default_stream(0));
  const Stream streams[] = {backend_of(kGpu).create_stream(0), backend_of(kGpu).create_stream(0)};
  std::vector<Tensor> results[2];
  for (int i = 0; i < 40; ++i) {
    for (size_t k = 0; k < 2; ++k) {
      const StreamGuard guard(streams[k]);
      results[k].push_back(batch_norm(k == 0 ? x : y, {}, {}, {}, {}, options));
    }
  }
  for (const Stream& stream : streams) backend_of(kGpu).synchronize(stream);
  for (size_t k = 0; k < 2; ++k) {
    const Tensor& expected = k == 0 ? expected_x : expected_y;
    for (const Tensor& result : results[k]) {
      const Tensor got = result.to(Device::cpu());
      ASSERT_EQ(std::memcmp(got.raw_data(), expected.raw_data(), got.spec().bytes()), 0);
    }
  }
}

TEST_F(BatchNormOnCuda, AgreesWithCudnn) {
  const Case c{{9, 24, 24, 64}, Layout::kNHWC};
  for (const bool adds : {false, true}) {
    const Call call(c, DType::kFloat16, fused::Activation::kRelu, adds, false, 5);
    SCOPED_TRACE(adds);
    const auto run = [&](NormBackend backend) {
      const char* const kernel = backend == NormBackend::kCudnn ? "cudnn" : "resident";
      const ForcedKernel forward("batch_norm_act", kernel), gradient("batch_norm_act_grad", kernel);
      const auto leaf = [&](size_t i) {
        return call.inputs[i].defined() ? on_gpu(call.inputs[i]).set_requires_grad(true) : Tensor();
      };
      const Tensor x = leaf(0), weight = leaf(1), bias = leaf(2), addend = leaf(7);
      const Tensor mean = Tensor::zeros({64}, DType::kFloat32, kGpu);
      const Tensor var = Tensor::full({64}, 1.0, DType::kFloat32, kGpu);
      BatchNormActOptions options = call.options;
      options.backend = backend;
      const Tensor y = fused::batch_norm_act(x, {weight, bias, mean, var, {}}, addend, {}, {}, options);
      backward(y, {.gradient = on_gpu(call.dy)});
      EXPECT_EQ(forward.runs(), 1);
      EXPECT_EQ(gradient.runs(), 1);
      std::vector<Tensor> results = {y, x.grad(), weight.grad(), bias.grad(), mean, var};
      if (adds) results.push_back(addend.grad());
      return results;
    };
    const std::vector<Tensor> own = run(NormBackend::kSinter), theirs = run(NormBackend::kCudnn);
    for (size_t i = 0; i < own.size(); ++i) {
      const ReferenceTensor a = reference_of(own[i].detach().to(Device::cpu()));
      const ReferenceTensor b = reference_of(theirs[i].detach().to(Device::cpu()));
      double largest = 0.0;
      int64_t differing = 0;
      for (const double value : b.values) largest = std::max(largest, std::abs(value));
      for (int64_t j = 0; j < own[i].numel(); ++j)
        differing += std::abs(a[j] - b[j]) > 4e-3 * (1.0 + largest) ? 1 : 0;
      // A bit of the mask may differ where the argument is within rounding of 0.
      EXPECT_LE(differing, own[i].numel() / 10000) << "result " << i;
    }
  }
}

TEST_F(BatchNormOnCuda, RefusesWhatCudnnCannotDo) {
  const Tensor ones = Tensor::full({8}, 1.0, DType::kFloat32, kGpu);
  const auto run = [&](const Tensor& x) {
    return fused::batch_norm_act(x, {.weight = ones, .bias = ones}, {}, {}, {},
                                 {.layout = Layout::kNHWC, .backend = NormBackend::kCudnn});
  };
  const Tensor halves = normal({4, 3, 3, 8}, 0.0, 1.0);
  EXPECT_THROW(run(on_gpu(halves)), Unsupported) << "float32";
  EXPECT_THROW(run(on_gpu(cast(halves, DType::kFloat16), true)), Unsupported) << "not aligned";
  EXPECT_NO_THROW(run(on_gpu(cast(halves, DType::kFloat16))));
}

TEST_F(BatchNormOnCuda, RefusesAReserveSpaceOfAnotherSize) {
  std::vector<Tensor> inputs(18);
  inputs[0] = on_gpu(cast(normal({4, 3, 3, 8}, 0.0, 1.0), DType::kFloat16));
  inputs[1] = inputs[2] = Tensor::full({8}, 1.0, DType::kFloat32, kGpu);
  std::vector<const TensorSpec*> specs;
  for (const Tensor& input : inputs) specs.push_back(input.defined() ? &input.spec() : nullptr);
  BatchNormActOptions options{.layout = Layout::kNHWC, .backend = NormBackend::kCudnn};
  const int64_t needed = norm_reserve_bytes(specs, options);
  RecordProperty("reserve_bytes", std::to_string(needed));
  options.reserve_bytes = needed;
  EXPECT_NO_THROW(call(builtin("batch_norm_act"), inputs, options));
  if (needed == 0) GTEST_SKIP() << "this cuDNN needs no reserve space";
  options.reserve_bytes = needed - 1;
  EXPECT_THROW(call(builtin("batch_norm_act"), inputs, options), InvalidArgument);
}

/// The kernel that a call of an op runs on.
std::string kernel_of(const char* op, const std::vector<Tensor>& inputs, const Attributes& attributes) {
  OpProfile profile;
  call(builtin(op), inputs, attributes);
  profile.stop();
  const std::vector<OpProfile::Row> rows = profile.rows();
  return rows.size() == 1 && rows[0].op == op ? rows[0].kernel : "(none)";
}

/// The first kernel that can run is chosen: nothing is timed.
TEST_F(BatchNormOnCuda, KeepsOnChipWhatFitsThere) {
  const test::Deterministic deterministic;
  const auto run = [&](const Shape& shape, Layout layout, DType dtype, bool offset = false) {
    const Tensor x = on_gpu(cast(normal(shape, 0.0, 1.0), dtype), offset);
    return kernel_of("batch_norm", {x, {}, {}, {}, {}}, BatchNormOptions{.layout = layout});
  };
  EXPECT_EQ(run({32, 28, 28, 256}, Layout::kNHWC, DType::kFloat16), "resident");
  EXPECT_EQ(run({32, 256, 28, 28}, Layout::kNCHW, DType::kFloat32), "resident");
  EXPECT_EQ(run({32, 28, 28, 256}, Layout::kNHWC, DType::kFloat16, true), "streaming") << "not aligned";
  EXPECT_EQ(run({32, 28, 28, 255}, Layout::kNHWC, DType::kFloat16), "streaming") << "odd channels";
  EXPECT_EQ(run({32, 28, 28, 256}, Layout::kNHWC, DType::kFloat64), "streaming");
  EXPECT_EQ(run({2, 24, 24, 696}, Layout::kNHWC, DType::kFloat32), "resident") << "blocks that stay alone";
  EXPECT_EQ(run({359, 479, 2, 2}, Layout::kNCHW, DType::kFloat32), "streaming") << "short planes";
  EXPECT_EQ(run({128, 7127}, Layout::kNCHW, DType::kFloat16), "streaming") << "odd channels";
  const Tensor x = on_gpu(normal({32, 28, 28, 256}, 0.0, 1.0)), vector = Tensor::full({256}, 1.0).to(kGpu);
  for (const bool training : {true, false}) {
    const char* const expected = training ? "resident" : "streaming";
    EXPECT_EQ(kernel_of("batch_norm", {x, {}, {}, vector, vector},
                        BatchNormOptions{.training = training, .layout = Layout::kNHWC}),
              expected);
    EXPECT_EQ(kernel_of("batch_norm_grad", {x, x, {}, vector, vector},
                        BatchNormGradOptions{.training = training, .layout = Layout::kNHWC}),
              expected);
  }
}

/// Each kernel on its own, wherever it can run, whichever would have been chosen.
TEST_F(BatchNormOnCuda, AgreesWithTheCpuOnEachKernel) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  for (const char* const kernel : {"resident", "streaming"}) {
    int64_t runs = 0;
    for (size_t k = 0; k < cases().size(); ++k) {
      for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
        const fused::Activation activation =
            (seed + k) % 3 == 0 ? fused::Activation::kNone : fused::Activation::kRelu;
        Call call(cases()[k], dtype, activation, (seed + k) % 2 == 0, false, seed % 1000 + k);
        call.dy2 = {};
        SCOPED_TRACE(fmt::format("{} {} {} {}", kernel, cases()[k].shape, dtype, to_string(activation)));
        const Call::Results here = call.run(false, false);
        Call::Results there;
        const ForcedKernel forward("batch_norm_act", kernel), gradient("batch_norm_act_grad", kernel);
        try {
          there = call.run(true, false, &here.outputs);
        } catch (const Unsupported&) {
          ASSERT_STRNE(kernel, "streaming") << "it runs any call";
          continue;
        }
        ASSERT_EQ(forward.runs(), 1);
        ASSERT_EQ(gradient.runs(), 1);
        ++runs;
        const std::vector<Tensor> got = there.all(), expected = here.all();
        ASSERT_EQ(got.size(), expected.size());
        for (size_t i = 0; i < got.size(); ++i) {
          expect_close(got[i], expected[i], "result " + std::to_string(i));
          if (HasFatalFailure()) return;
        }
      }
    }
    EXPECT_GE(runs, 6) << kernel;
  }
}

TEST_F(BatchNormOnCuda, RefusesToKeepOnChipWhatDoesNotFitThere) {
  const Tensor x = on_gpu(normal({4, 3, 5, 7}, 0.0, 1.0)), ones = Tensor::full({3}, 1.0).to(kGpu);
  const ForcedKernel forward("batch_norm", "resident"), gradient("batch_norm_grad", "resident");
  EXPECT_THROW(batch_norm(x, {}, {}, {}, {}), Unsupported);
  EXPECT_THROW(vjp::batch_norm(x, x, {}, ones, ones), Unsupported);
  EXPECT_EQ(forward.runs() + gradient.runs(), 0);
}

/// Where three of x's elements are NaN, in inference, so that they stay where they are.
TEST_F(BatchNormOnCuda, SendsNanWhereTheCpuDoes) {
  for (const Case& c : cases()) {
    for (const fused::Activation activation : {fused::Activation::kRelu, fused::Activation::kPRelu}) {
      for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kFloat64}) {
        SCOPED_TRACE(fmt::format("{} {} {}", c.shape, dtype, to_string(activation)));
        Call call(c, dtype == DType::kFloat64 ? DType::kFloat32 : dtype, activation, false, false, 4);
        const int64_t channels = c.shape[axis_of(c)];
        Tensor x = cast(call.inputs[0], DType::kFloat32);
        for (const int64_t i : {int64_t{0}, x.numel() / 2, x.numel() - 1}) x.data<float>()[i] = std::nanf("");
        call.inputs[0] = cast(x, dtype);
        call.inputs[3] = Tensor::zeros({channels});
        call.inputs[4] = Tensor::full({channels}, 1.0);
        call.dy = cast(call.dy, dtype), call.dy2 = {};
        if (dtype == DType::kFloat64) {
          for (size_t i = 1; i < call.inputs.size(); ++i) {
            if (call.inputs[i].defined()) call.inputs[i] = cast(call.inputs[i], dtype);
          }
        }
        call.options.training = false;
        const Call::Results here = call.run(false, false);
        const std::vector<Tensor> expected = here.all(), got = call.run(true, false, &here.outputs).all();
        for (size_t k = 0; k < got.size(); ++k) {
          const ReferenceTensor a = reference_of(got[k].to(Device::cpu())), b = reference_of(expected[k]);
          for (int64_t i = 0; i < got[k].numel(); ++i)
            ASSERT_EQ(std::isnan(a[i]), std::isnan(b[i])) << "result " << k << " element " << i;
        }
        const ReferenceTensor dx = reference_of(got[here.outputs.size()].to(Device::cpu()));
        EXPECT_FALSE(std::isnan(dx[0])) << "dy, or alpha * dy";
        const ReferenceTensor dx_here = reference_of(expected[here.outputs.size()]);
        for (int64_t i = 0; i < x.numel(); ++i) {
          if (std::isnan(dx_here[i])) continue;  // compared above
          ASSERT_NEAR(dx[i], dx_here[i], 0.02 * (1.0 + std::abs(dx_here[i]))) << "element " << i;
        }
        if (expected[3].dtype() == DType::kUInt8) {
          const auto mask = got[3].to(Device::cpu()).to_vector<uint8_t>();
          EXPECT_EQ((mask[0] & 1) != 0, activation == fused::Activation::kRelu);
        }
      }
    }
  }
}

/// Kernels that keep tensors of different sizes on chip need different amounts of shared memory.
TEST_F(BatchNormOnCuda, KeepsItsSharedMemoryBesideAnotherThread) {
  const BatchNormOptions options{.layout = Layout::kNHWC};
  const Tensor inputs[] = {on_gpu(normal({32, 28, 28, 256}, 0.3, 1.0)),
                           on_gpu(normal({2, 7, 7, 64}, 0.3, 1.0))};
  std::string errors[2];
  std::vector<std::thread> threads;
  for (size_t k = 0; k < 2; ++k) {
    threads.emplace_back([&, k] {
      const StreamGuard guard(backend_of(kGpu).create_stream(0));
      try {
        for (int i = 0; i < 2000; ++i) batch_norm(inputs[k], {}, {}, {}, {}, options);
        synchronize(kGpu);
      } catch (const Error& error) {
        errors[k] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(errors[0], "");
  EXPECT_EQ(errors[1], "");
}

TEST_F(BatchNormOnCuda, GivesTheSameBitsInEveryRun) {
  uint64_t seed = 1;
  for (const Case& c : cases()) {
    const fused::Activation activation = seed % 2 == 0 ? fused::Activation::kRelu : fused::Activation::kPRelu;
    const Call call(c, DType::kFloat16, activation, true, seed % 3 == 0, seed);
    ++seed;
    const std::vector<Tensor> first = call.run(true, false).all();
    for (int i = 0; i < 3; ++i) {
      const std::vector<Tensor> again = call.run(true, false).all();
      for (size_t j = 0; j < first.size(); ++j) {
        const Tensor a = first[j].to(Device::cpu()), b = again[j].to(Device::cpu());
        EXPECT_EQ(std::memcmp(a.raw_data(), b.raw_data(), a.spec().bytes()), 0)
            << to_string(c.shape) << " result " << j;
      }
    }
  }
}

}  // namespace
}  // namespace sinter::ops
