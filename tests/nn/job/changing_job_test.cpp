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

/// What eager code and a job give for an input that lies in the buffer `last`, which `forward` changes;
/// nothing for the job if it asks for a clone.
struct OfInputInBuffer {
  using Forward = std::function<Tensor(const ReadChangeUse&, const Tensor&)>;
  OfInputInBuffer(const Forward& forward, const InferJobOptions& options = {}, int64_t first_row = 0,
                  int64_t rows = 2) {
    const ReadChangeUse model({2, 3, 4, 4}, DType::kFloat32, nullptr, nullptr);
    const NoGrad no_grad;
    const EvalMode eval(model);
    const auto input = [&] {
      ops::copy_(model.last, images(1));
      return ops::slice(model.last.tensor().detach(), 0, first_row, first_row + rows);
    };
    InferJob job(
        model, [&](const Tensor& x) { return forward(model, x); }, options);
    job(ops::slice(images(1), 0, first_row, first_row + rows));  // which lies elsewhere
    eager = forward(model, input()).to_vector<float>();
    try {
      of_job = job(input()).to_vector<float>();
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find("input 0 lies in memory that the code changes"),
                std::string::npos)
          << error.what();
    }
  }
  std::vector<float> eager;
  std::optional<std::vector<float>> of_job;
};

void change(const ReadChangeUse& model) {
  ops::fill_(model.last, 7.0);
}

// A job sees such an input as it is when the run begins. Passes may move the reads: what counts is where the
// code has them.
TEST(ChangingBuffer, AnInputThatLiesInItIsReadBeforeTheChangeOrRefused) {
  const auto behind = [](const OfInputInBuffer::Forward& forward, const InferJobOptions& options = {}) {
    return OfInputInBuffer(forward, options).of_job.has_value();
  };
  EXPECT_FALSE(behind([](const auto& m, const Tensor& x) {
    change(m);
    return x * 1.0;
  }));
  EXPECT_FALSE(behind([](const auto& m, const Tensor& x) {
    change(m);
    return x;
  }));
  EXPECT_FALSE(behind([](const auto& m, const Tensor& x) {
    change(m);
    return ops::reshape(x, {6, 16});
  }));
  EXPECT_FALSE(behind([](const auto& m, const Tensor& x) {
    const Tensor a = x * 2.0;
    change(m);
    return a + x * 2.0;  // one call for both
  }));
  const auto around = [](const auto& m, const Tensor& x) {
    const Tensor a = m.convolution(x);
    change(m);
    return a + m.norm(x);
  };
  EXPECT_FALSE(behind(around, {.layout = Layout::kNHWC}));
  EXPECT_FALSE(behind(around, {.precision = DType::kBFloat16}));

  const auto before = [](const OfInputInBuffer::Forward& forward, int64_t first_row = 0, int64_t rows = 2) {
    const OfInputInBuffer results(forward, {}, first_row, rows);
    ASSERT_TRUE(results.of_job);
    ASSERT_EQ(results.of_job->size(), results.eager.size());
    for (size_t i = 0; i < results.eager.size(); ++i)
      EXPECT_NEAR((*results.of_job)[i], results.eager[i], 1e-5) << i;
  };
  before([](const auto& m, const Tensor& x) {
    const Tensor y = x * 1.0;
    change(m);
    return y;
  });
  before([](const auto& m, const Tensor& x) {
    const Tensor a = m.convolution(x);
    change(m);
    return m.norm(a);  // folded into the convolution
  });
  before([](const auto& m, const Tensor& x) {
    const Tensor a = m.norm(x);
    change(m);
    return m.convolution(a);
  });
  before(
      [](const auto& m, const Tensor& x) {
        ops::fill_(ops::slice(m.last, 0, 0, 1), 7.0);  // beside it
        return x * 1.0;
      },
      1, 1);
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
