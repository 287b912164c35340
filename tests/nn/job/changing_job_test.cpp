// Buffers that forward() changes between its reads: a job gives what eager code gives, whatever is rewritten.
// Single cases first, then random ones: SINTER_TEST_CASES and SINTER_TEST_SEED say how many and from which
// seed on. All outputs, what each step changes in the weights, and the buffers that are left are compared.
#include <sinter/nn/layers/conv2d.h>
#include <sinter/nn/layers/linear.h>

#include "nn/job/changing_modules.h"
#include "nn/job/random_job_support.h"

namespace sinter::nn {
namespace {

using namespace testing;

// ---- single cases

/// `read` of a buffer, then the change of it, then `use` of what was read.
struct ReadChangeUse : Module {
  using Function = std::function<Tensor(const ReadChangeUse&, const Tensor&)>;
  ReadChangeUse(const Shape& shape, DType dtype, Function read_function, Function use_function)
      : last(buffer("last", Tensor::full(shape, 0.25))),
        read(std::move(read_function)),
        use(std::move(use_function)) {
    last.to(dtype);
    const std::vector<double> weights{0.5, -1.0, 0.25, 1.5, -0.5, 1.0, -0.25, 0.75, 0.1};
    for (const Parameter& parameter : parameters()) {
      std::vector<double> values;
      for (int64_t i = 0; i < parameter.canonical_shape().numel(); ++i)
        values.push_back(weights[static_cast<size_t>(i) % weights.size()]);
      parameter.assign(Tensor::from_values(values, parameter.canonical_shape()));
    }
    norm.running_var.assign(Tensor::full({3}, 2.25));
  }
  Tensor forward(const Tensor& x) const override {
    const Tensor seen = read(*this, x);
    {
      const NoGrad no_grad;
      ops::copy_(last, ops::cast(ops::reshape(x.detach(), extents(last.shape())), last.tensor().dtype()));
    }
    return use(*this, seen);
  }

  Conv2d convolution = child("convolution", Conv2d(3, 3, 1, {.bias = true}));
  BatchNorm2d norm = child("norm", BatchNorm2d(3));
  PReLU prelu = child("prelu", PReLU(1));
  Linear linear = child("linear", Linear(4, 4));
  Buffer last;
  Function read, use;
};

Tensor images(int step) {
  ops::SampleMaker maker(static_cast<uint64_t>(step) + 5, DType::kFloat32);
  return maker.tensor({2, 3, 4, 4}, -1.0, 1.0);
}

double largest_difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = doubles(a), y = doubles(b);
  double most = x.size() == y.size() ? 0.0 : INFINITY;
  for (size_t i = 0; i < x.size() && i < y.size(); ++i) most = std::max(most, std::abs(x[i] - y[i]));
  return most;
}

using Make = std::function<ReadChangeUse()>;

void expect_infers_alike(const Make& make, const InferJobOptions& options, double tolerance) {
  const ReadChangeUse one = make(), other = make();
  InferJob job(other, options);
  const EvalMode eval(one);
  const NoGrad no_grad;
  for (int step = 0; step < 3; ++step) {
    const Tensor expected = one(images(step));
    EXPECT_LE(largest_difference(expected, job(images(step))), tolerance) << step;
    EXPECT_TRUE(same_bits(one.last, other.last)) << step;
  }
}

void expect_trains_alike(const Make& make, const TrainJobOptions& options, double tolerance) {
  const ReadChangeUse one = make(), other = make();
  if (options.precision) {
    const DType kept = other.last.tensor().dtype();
    other.to_mixed(*options.precision);  // which would make the buffer float32
    other.last.to(kept);
  }
  SGD eager(one.parameters()), traced(other.parameters());
  const auto loss = [](const ReadChangeUse& model, const Tensor& x) {
    return ops::mean(ops::square(model(x)));
  };
  TrainJob job(
      other, traced, [&](std::span<const Tensor> inputs) { return std::vector{loss(other, inputs[0])}; },
      options);
  for (int step = 0; step < 3; ++step) {
    const Tensor expected = loss(one, images(step));
    eager.zero_grad();
    backward(expected);
    eager.step(0.1);
    const std::vector<Tensor> inputs{images(step)};
    EXPECT_LE(largest_difference(expected.detach(), job.step(inputs, 0.1)), tolerance) << step;
    EXPECT_TRUE(same_bits(one.last, other.last)) << step;
  }
  for (size_t i = 0; i < one.parameters().size(); ++i) {
    const Parameter a = one.parameters()[i], b = other.parameters()[i];
    EXPECT_LE(largest_difference(a.canonical(), b.canonical()), tolerance) << a.name();
  }
}

TEST(ChangingBuffer, ANormIsNotFoldedIntoAConvolutionOfWhatWasThereBefore) {
  const auto make = [] {
    return ReadChangeUse(
        {2, 3, 4, 4}, DType::kFloat32, [](const auto& m, const Tensor&) { return m.convolution(m.last); },
        [](const auto& m, const Tensor& seen) { return m.norm(seen); });
  };
  expect_infers_alike(make, {}, 1e-5);
  const ReadChangeUse model = make();
  InferJob job(model);
  job(images(0));
  EXPECT_NE(job.report().find("leaf 'last' of the job changes behind the convolution"), std::string::npos)
      << job.report();
}

TEST(ChangingBuffer, APermutedCopyIsNotReplacedByTheMemory) {
  const auto make = [] {
    return ReadChangeUse(
        {2, 4, 4, 3}, DType::kFloat32,
        [](const auto& m, const Tensor&) {
          return ops::permute(m.last, {0, 3, 1, 2});
        },
        [](const auto& m, const Tensor& seen) { return m.convolution(seen); });
  };
  expect_infers_alike(make, {.layout = Layout::kNHWC}, 1e-5);
  expect_trains_alike(make, {.layout = Layout::kNHWC}, 1e-5);
}

// A view of the copy became a view of the memory, which was read even later.
TEST(ChangingBuffer, APermutedCopyIsNotReplacedByTheMemoryBelowAView) {
  const auto make = [] {
    return ReadChangeUse(
        {2, 4, 4, 3}, DType::kFloat32,
        [](const auto& m, const Tensor&) {
          return ops::slice(ops::permute(m.last, {0, 3, 1, 2}), 0, 0, 1);
        },
        [](const auto& m, const Tensor& seen) { return m.convolution(seen); });
  };
  expect_infers_alike(make, {.layout = Layout::kNHWC}, 1e-5);
  expect_trains_alike(make, {.layout = Layout::kNHWC}, 1e-5);
}

TEST(ChangingBuffer, ACastCopyIsNotReplacedByTheMemory) {
  for (const bool through_a_view : {false, true}) {
    const auto make = [=] {
      ReadChangeUse model(
          {24, 4}, DType::kFloat16,
          [=](const auto& m, const Tensor&) {
            const Tensor wide = ops::cast(m.last, DType::kFloat32);
            return through_a_view ? ops::reshape(wide, {24, 4}) : wide;
          },
          [](const auto& m, const Tensor& seen) { return m.linear(seen); });
      return model;
    };
    expect_infers_alike(make, {.precision = DType::kFloat16}, 5e-3);
    GradScaler scaler({.initial_scale = 16.0});
    expect_trains_alike(make, {.precision = DType::kFloat16, .scaler = &scaler}, 5e-3);
  }
}

// Fused with its neighbours, a norm's gradient would read more than its own does.
TEST(ChangingBuffer, GradientsOfFusedCallsReadNothingThatHasChanged) {
  for (const bool slope : {false, true}) {
    const auto make = [=] {
      return ReadChangeUse(
          {2, 3, 4, 4}, DType::kFloat32,
          [=](const auto& m, const Tensor& x) {
            const Tensor sum = m.norm(m.convolution(x)) + m.last;
            return slope ? m.prelu(sum) : ops::relu(sum);
          },
          [](const auto&, const Tensor& seen) { return seen; });
    };
    expect_trains_alike(make, {}, 1e-5);
  }
}

// A job copies such an input where its device asks for that: reading it behind the change would give other
// numbers than eager code does.
TEST(ChangingBuffer, AnInputThatLiesInItIsReadBeforeTheChangeOrRefused) {
  const ReadChangeUse model(
      {2, 3, 4, 4}, DType::kFloat32, [](const auto&, const Tensor& x) { return x; },
      [](const auto& m, const Tensor& seen) { return seen + m.last; });
  const auto result_of = [&](bool reads_before) {
    ops::copy_(model.last, images(1));
    const auto forward = [&](std::span<const Tensor> inputs) {
      const NoGrad no_grad;
      const Tensor before = reads_before ? inputs[0] * 1.0 : Tensor();
      ops::fill_(model.last, 7.0);
      return std::vector{reads_before ? before : inputs[0] * 1.0};
    };
    InferJob job(model, forward);
    job.run(std::vector{images(1)});  // which lies elsewhere
    ops::copy_(model.last, images(1));
    return job.run(std::vector{model.last.tensor().detach()})[0];
  };
  EXPECT_EQ(largest_difference(result_of(true), images(1)), 0.0);
  EXPECT_EQ(model.last.tensor().to_vector<float>()[0], 7.0F);
  EXPECT_THROW(result_of(false), InvalidArgument);
}

// A view shows what its memory holds when it is read, as in eager code.
TEST(ChangingBuffer, AViewFromBeforeShowsTheChange) {
  const auto make = [] {
    return ReadChangeUse(
        {2, 3, 4, 4}, DType::kFloat32,
        [](const auto& m, const Tensor&) {
          return ops::slice(ops::reshape(m.last, {6, 4, 4}), 0, 0, 3);
        },
        [](const auto& m, const Tensor& seen) {
          return ops::reshape(seen, {1, 3, 4, 4}) + m.last;
        });
  };
  expect_infers_alike(make, {}, 0.0);
  expect_infers_alike(make, {.layout = Layout::kNHWC}, 0.0);
}

// ---- random ones

class ChangingBuffers : public RandomJob {};

INSTANTIATE_TEST_SUITE_P(Devices, ChangingBuffers, ::testing::Values(DeviceType::kCpu, DeviceType::kCuda),
                         [](const auto& given) { return given.param == DeviceType::kCpu ? "Cpu" : "Cuda"; });

Training two_steps() {
  return {.steps = 2, .learning_rate = 0.1, .make_optimizer = [](const auto& parameters) {
            return std::make_unique<SGD>(parameters);
          }};
}

TEST_P(ChangingBuffers, TrainAlike) {
  std::map<std::string, int> rewrites;
  const int count = test::random_cases(40);
  for_cases(
      count, {},
      [&](const Case& c) {
        const Training training = two_steps();
        const State start = make_network(c).state();
        const Outcome eager = train_eagerly(c, training);
        const double rounding = c.dtype == DType::kFloat32 ? rounding_error(c, start, eager, training) : 0.0;
        const auto compare = [&](const std::string& name, bool keeps_bits, const TrainJobOptions& options) {
          const Outcome job = train_by_job(c, training, options);
          const std::string found =
              keeps_bits ? bit_differences(eager, job)
                         : value_differences(start, eager, job, tolerance_of_case(c.dtype), rounding);
          EXPECT_EQ(found, "") << "with " << name << "\n" << describe(c, job.graph);
          for (const passes::Pass& pass : all_passes())
            rewrites[pass.name] += has_done_something(job.report, pass.name);
        };
        compare("no passes", true, {.passes = {.without = {"all"}}});
        compare("all passes", false,
                {.layout = layout_of_case(c.seed), .memory_limit = c.seed % 2 == 0 ? kLeast : std::nullopt});
        const Layout layout = c.seed % 2 == 0 ? Layout::kNHWC : Layout::kNCHW;
        for (const passes::Pass& pass : all_passes()) {
          compare(pass.name, pass.keeps_bits,
                  {.layout = layout, .passes = only(pass.name), .memory_limit = kLeast});
        }
      },
      NetworkKind::kChanging);
  if (HasFailure() || count < 40) return;
  expect_all_at_work(rewrites, {"mixed_precision", "choose_norm_backend", "convolution_sums",
                                "fold_normalization", "fold_input_normalization", "fuse_convolution"});
}

TEST_P(ChangingBuffers, InferAlike) {
  const int count = test::random_cases(40), calls = 2;
  for_cases(
      count, {},
      [&](const Case& c) {
        const State start = make_network(c).state();
        const Outcome eager = infer_eagerly(c, calls);
        const auto compare = [&](const std::string& name, bool keeps_bits, const InferJobOptions& options) {
          const Outcome job = infer_by_job(c, calls, options);
          const std::string found = keeps_bits
                                        ? bit_differences(eager, job)
                                        : value_differences(start, eager, job, tolerance_of_case(c.dtype));
          EXPECT_EQ(found, "") << "with " << name << "\n" << describe(c, job.graph);
        };
        compare("no passes", true, {.passes = {.without = {"all"}}});
        compare("all passes", false, {.layout = layout_of_case(c.seed)});
        const Layout layout = c.seed % 2 == 0 ? Layout::kNHWC : Layout::kNCHW;
        for (const passes::Pass& pass : passes::forward_passes())
          compare(pass.name, pass.keeps_bits, {.layout = layout, .passes = only(pass.name)});
      },
      NetworkKind::kChanging);
}

/// The largest difference of two tensors' elements, relative to the largest of them.
double apart(const Tensor& a, const Tensor& b) {
  return largest_difference(a, b) / std::max(largest(doubles(a)), 0.1);
}

TEST_P(ChangingBuffers, MixedPrecisionStaysNear) {
  // Single networks may be badly conditioned; a read that was moved shows in many.
  std::vector<double> trained, inferred;
  for_cases(
      test::random_cases(60), DType::kFloat32,
      [&](const Case& c) {
        const Training training = two_steps();
        const Outcome eager = train_eagerly(c, training);
        GradScaler scaler({.initial_scale = 64.0});
        const Outcome job = train_by_job(
            c, training, {.precision = DType::kFloat16, .layout = layout_of_case(c.seed), .scaler = &scaler});
        for (size_t i = 0; i < eager.results.size(); ++i)
          trained.push_back(apart(eager.results[i], job.results[i]));
        const Outcome in_float32 = infer_eagerly(c, 2);
        const Outcome in_float16 =
            infer_by_job(c, 2, {.precision = DType::kFloat16, .layout = layout_of_case(c.seed)});
        for (size_t i = 0; i < in_float32.results.size(); ++i)
          inferred.push_back(apart(in_float32.results[i], in_float16.results[i]));
      },
      NetworkKind::kChanging);
  if (HasFailure()) return;
  for (std::vector<double>* all : {&trained, &inferred}) {
    std::ranges::sort(*all);
    EXPECT_LT((*all)[all->size() / 2], 0.002);
    EXPECT_LT((*all)[all->size() * 19 / 20], 0.03);
  }
}

}  // namespace
}  // namespace sinter::nn
