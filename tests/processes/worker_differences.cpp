#include "processes/worker_differences.h"

#include <array>
#include <functional>
#include <optional>
#include <vector>

#include <sinter/autograd/backward.h>
#include <sinter/core/runtime/random.h>
#include <sinter/nn/checkpoint/safetensors.h>
#include <sinter/nn/nn.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/all_gather/all_gather.h>
#include <sinter/ops/all_reduce/all_reduce.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/sync_batch_norm/sync_batch_norm.h>

namespace sinter::testing {
namespace {

constexpr int64_t kRows = 32, kFeatures = 8;

void expect(bool holds, const std::string& what) {
  if (!holds) throw Error("unexpected: " + what);
}

/// That of the CommunicationError of `function`.
std::string message_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const CommunicationError& error) {
    return error.what();
  }
  return "no error";
}

void expect_told(const std::function<void()>& function, const std::string& words) {
  const std::string text = message_of(function);
  expect(text.find(words) != std::string::npos, "'" + text + "' without '" + words + "'");
}

struct Pair : nn::Module {
  nn::Linear first = child("first", nn::Linear(kFeatures, kFeatures));
  nn::Linear second = child("second", nn::Linear(kFeatures, kFeatures));
  bool has_first = true, has_second = true;  // whether they are used
  Tensor forward(const Tensor& x) const override {
    Tensor y = x;
    if (has_first) y = first(y);
    if (has_second) y = second(y);
    return y;
  }
};

struct Dropping : nn::Module {
  nn::Linear first = child("first", nn::Linear(kFeatures, 20));
  nn::Dropout drop = child("drop", nn::Dropout(0.4));
  nn::Linear second = child("second", nn::Linear(20, 20));
  nn::StochasticDepth rows = child("rows", nn::StochasticDepth(0.3));
  nn::StochasticDepth batch = child("batch", nn::StochasticDepth(0.3, nn::StochasticDepthMode::kBatch));
  nn::Linear last = child("last", nn::Linear(20, 3));

  Tensor forward(const Tensor& x) const override {
    const Tensor y = drop(ops::relu(first(x)));
    const Tensor z = y + rows(second(y));
    return last(z + batch(z));
  }
};

Tensor step_of(nn::SGD& sgd, const Pair& model, const Tensor& x, const Communicator& ranks) {
  const Tensor loss = nn::MSELoss{}(model(x), Tensor::zeros({4, kFeatures}));
  sgd.zero_grad();
  backward(nn::scale_loss(loss, ranks));
  nn::all_reduce_gradients(sgd.parameters(), ranks);
  return loss;
}

}  // namespace

void different_calls(const Communicator& ranks) {
  const bool is_last = ranks.rank() == ranks.size() - 1;
  const auto other = [&](Shape shape, Shape of_last) { return Tensor::full(is_last ? of_last : shape, 1.0); };
  const std::string last = "rank " + std::to_string(ranks.size() - 1) + " (";
  // Few and many bytes, more and fewer, and none.
  for (const auto& [shape, of_last] : {std::pair(Shape{3}, Shape{4}), std::pair(Shape{4}, Shape{300}),
                                       std::pair(Shape{300}, Shape{4}), std::pair(Shape{1000}, Shape{70000}),
                                       std::pair(Shape{0}, Shape{5}), std::pair(Shape{6}, Shape{2, 3})}) {
    const Tensor x = other(shape, of_last);
    const std::string words = fmt::format("calls all_reduce of float32 {}, where rank 0 (", of_last);
    expect_told([&] { ranks.all_reduce_(x); }, words);
    expect_told([&] { ranks.all_reduce_(x); }, last);
    expect_told([&] { ranks.all_gather(x); }, fmt::format("calls all_gather of float32 {}", of_last));
    expect_told([&] { ranks.broadcast_(x); },
                fmt::format("calls broadcast of float32 {} from rank 0", of_last));
    expect_told([&] { ops::all_reduce(x, ranks); }, "the ranks differ: rank ");
    expect_told([&] { ops::all_gather(x, ranks); }, "the ranks differ: rank ");
    expect_told([&] { nn::all_reduce(x, ranks); }, "the ranks differ: rank ");
  }
  const auto n = static_cast<int64_t>(ranks.size());
  expect_told([&] { ranks.reduce_scatter(other({n}, {2 * n})); }, "calls reduce_scatter of float32");
  expect_told([&] { ops::reduce_scatter(other({n}, {2 * n}), ranks); }, "calls reduce_scatter of float32");
  const DType dtype = is_last ? DType::kInt32 : DType::kFloat32;
  expect_told([&] { ranks.all_reduce_(Tensor::full({4}, 1.0, dtype)); }, "calls all_reduce of int32 (4,)");
  expect_told([&] { ranks.all_gather(Tensor::full({400}, 1.0, dtype)); }, "calls all_gather of int32 (400,)");
  expect_told([&] { ranks.broadcast_(Tensor::full({4}, 1.0), is_last ? 1 : 0); },
              "from rank 1, where rank 0");
  const int64_t channels = is_last ? 4 : 3;
  const Tensor ones = Tensor::full({channels}, 1.0);
  const Tensor images = Tensor::full({2, channels, 2, 2}, 1.0);
  expect_told([&] { ops::sync_batch_norm(images, ones, ones, {}, {}, {}, ranks); },
              "calls sync_batch_norm of float32 (4,), where rank 0");
  const Tensor same = Tensor::full({4}, 1.0);
  expect_told([&] { is_last ? ranks.barrier() : ranks.all_reduce_(same); }, "calls barrier, where rank 0");
  expect_told([&] { is_last ? ranks.check_equal("a", "texts") : ranks.barrier(); }, "comparison of texts");
  expect(same.to_vector<float>() == std::vector<float>(4, 1.0F), "a call that was refused has changed x");
  ranks.all_reduce_(same);
  expect(same.to_vector<float>() == std::vector<float>(4, static_cast<float>(n)), "a sum after refused ones");
}

void different_gradients(const Communicator& ranks) {
  const bool is_last = ranks.rank() == ranks.size() - 1;
  const Tensor x = Tensor::full({4, kFeatures}, 1.0), y = Tensor::zeros({4, kFeatures});
  const std::string words = "the sums over ranks in the job of rank ";
  const auto freeze = [&](Pair& model, bool second, bool frozen) {
    const nn::Linear& layer = second ? model.second : model.first;
    frozen ? layer.freeze() : layer.unfreeze();
  };
  const auto expect_as_before = [&](const Pair& model, const std::vector<float>& weight) {
    expect(model.second.weight.tensor().to_vector<float>() == weight, "a step that was refused has trained");
  };
  {  // from the start
    Pair model;
    nn::SGD sgd(model.parameters());
    nn::TrainJob job(model, nn::MSELoss{}, sgd, {.communicator = &ranks});
    freeze(model, is_last, true);
    const std::vector<float> weight = model.second.weight.tensor().to_vector<float>();
    expect_told([&] { job.step(x, y, 0.1); }, words);
    expect_as_before(model, weight);
    freeze(model, is_last, false);
    job.step(x, y, 0.1);
    nn::check_parameters_equal(model, ranks);
    // In the middle: first a graph that one rank lacks, then graphs that all have.
    const std::vector<float> later = model.second.weight.tensor().to_vector<float>();
    if (is_last) freeze(model, true, true);
    expect_told([&] { job.step(x, y, 0.1); }, words);
    freeze(model, true, true);
    job.step(x, y, 0.1);
    if (is_last) freeze(model, true, false);
    expect_told([&] { job.step(x, y, 0.1); }, words);
    expect_told([&] { job.prepare(std::array{x.spec(), y.spec()}); }, words);
    expect_as_before(model, later);
    freeze(model, true, false);
    const auto prepare = [&] { job.prepare(std::array{x.spec(), y.spec()}); };
    expect_told([&] { is_last ? prepare() : static_cast<void>(job.step(x, y, 0.1)); },
                "calls TrainJob::prepare, where rank 0");
    job.step(x, y, 0.1);
    nn::check_parameters_equal(model, ranks);
  }
  {  // unused
    Pair model;
    (is_last ? model.has_first : model.has_second) = false;
    nn::SGD sgd(model.parameters());
    nn::TrainJob job(model, nn::MSELoss{}, sgd, {.communicator = &ranks});
    expect_told([&] { job.step(x, y, 0.1); }, words);
  }
  Pair model;
  nn::SGD sgd(model.parameters());
  nn::broadcast_parameters(model, ranks);
  freeze(model, is_last, true);
  expect_told([&] { step_of(sgd, model, x, ranks); }, "the parameters that have gradients of rank ");
  freeze(model, is_last, false);
  step_of(sgd, model, x, ranks);
}

void constant_sums(const Communicator& ranks) {
  const bool is_last = ranks.rank() == ranks.size() - 1;
  const Pair model;
  nn::SGD sgd(model.parameters());
  const Tensor own = Tensor::full({1, kFeatures}, ranks.rank() + 1.0);
  // The second input is of another shape on one rank from the third step on, which traces then.
  const auto step_function = [&](const Tensor& x, const Tensor& y) {
    const Tensor sum = ops::all_reduce(own, ranks);
    return std::vector<Tensor>{nn::MSELoss{}(model(x), x) + ops::mean(y), sum};
  };
  nn::TrainJob job(model, sgd, step_function, {.communicator = &ranks});
  const double expected = ranks.size() * (ranks.size() + 1) / 2.0;
  for (int step = 0; step < 4; ++step) {
    const int64_t rows = step >= 2 && is_last ? 5 : 4;
    job.step(Tensor::full({4, kFeatures}, 1.0), Tensor::full({rows, kFeatures}, 1.0), 0.1);
    for (const float value : job.outputs().front().to_vector<float>())
      expect(value == static_cast<float>(expected), "the sum of a constant");
  }
  nn::check_parameters_equal(model, ranks);
}

void train_dropping(const Communicator& ranks, const std::string& way, const std::string& file) {
  manual_seed(11);  // alike on all, as of one process
  const Dropping model;
  nn::SGD sgd(model.parameters(), {.momentum = 0.9});
  std::optional<nn::TrainJob> job;
  if (way == "job") job.emplace(model, nn::MSELoss{}, sgd, nn::TrainJobOptions{.communicator = &ranks});
  const int64_t rows = kRows / ranks.size(), begin = rows * ranks.rank();
  std::vector<float> losses;
  for (uint64_t step = 0; step < 10; ++step) {
    Generator generator(100 + step);
    std::vector<float> values;
    for (int64_t i = 0; i < kRows * kFeatures; ++i) values.push_back(static_cast<float>(generator.normal()));
    const auto from = values.begin() + begin * kFeatures;
    const Tensor x =
        Tensor::from_values(std::vector<float>(from, from + rows * kFeatures), {rows, kFeatures});
    const Tensor y = Tensor::full({rows, 3}, 0.5);
    if (job) {
      losses.push_back(static_cast<float>(job->step(x, y, 0.1).item()));
      continue;
    }
    const RandomPartScope part(ranks.rank(), ranks.size());
    const Tensor loss = nn::scale_loss(nn::MSELoss{}(model(x), y), ranks);
    losses.push_back(static_cast<float>(nn::all_reduce(loss.detach(), ranks).item()));
    sgd.zero_grad();
    backward(loss);
    nn::all_reduce_gradients(sgd.parameters(), ranks);
    sgd.step(0.1);
  }
  nn::check_parameters_equal(model, ranks);
  nn::State state = model.state();
  state["losses"] = Tensor::from_values(losses, {static_cast<int64_t>(losses.size())});
  state["next"] = Tensor::scalar(default_generator().uniform());
  if (ranks.rank() == 0) nn::write_safetensors(file, state);
}

void shared_average(const Communicator& ranks) {
  Pair model;
  nn::SGD sgd(model.parameters());
  nn::EMA ema(model, {.decay = 0.99, .warmup = true});
  for (int i = 0; i < 5 && ranks.rank() == 0; ++i) ema.update();
  nn::TrainJob job(model, nn::MSELoss{}, sgd, {.ema = &ema, .communicator = &ranks});
  expect(ema.updates() == 5, fmt::format("{} updates", ema.updates()));
  job.step(Tensor::full({4, kFeatures}, 1.0), Tensor::zeros({4, kFeatures}), 0.1);
  nn::check_parameters_equal(ema.averages(), ranks);
}

}  // namespace sinter::testing
