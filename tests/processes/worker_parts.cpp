#include "processes/worker_parts.h"

#include <chrono>
#include <cstring>
#include <thread>

#include <sinter/autograd/backward.h>
#include <sinter/core/op/autotune/choose_by_time.h>
#include <sinter/core/op/call.h>
#include <sinter/core/runtime/random.h>
#include <sinter/nn/checkpoint/safetensors.h>
#include <sinter/nn/loss/partial_fc.h>
#include <sinter/nn/nn.h>
#include <sinter/ops/activation/activation.h>

namespace sinter::testing {
namespace {

constexpr int kSteps = 10;
constexpr int64_t kRows = 24, kFeatures = 6, kClasses = 4;

void expect(bool holds, const std::string& what) {
  if (!holds) throw Error("unexpected: " + what);
}

struct Backbone : nn::Module {
  nn::Linear first = child("first", nn::Linear(kFeatures, 8));
  Tensor forward(const Tensor& x) const override { return ops::relu(first(x)); }
};

struct Batch {
  Tensor x, labels;
};

/// `rows` of a step's batch from row `first` on.
Batch batch_of(int step, int64_t first, int64_t rows) {
  Generator generator(static_cast<uint64_t>(100 + step));
  std::vector<float> x;
  std::vector<int64_t> labels;
  for (int64_t row = 0; row < first + rows; ++row) {
    const auto label = static_cast<int64_t>(generator.below(kClasses));
    if (row >= first) labels.push_back(label);
    for (int64_t i = 0; i < kFeatures; ++i) {
      const auto value = static_cast<float>(generator.normal() + (i == label ? 2.0 : 0.0));
      if (row >= first) x.push_back(value);
    }
  }
  return {Tensor::from_values(x, {rows, kFeatures}), Tensor::from_values(labels, {rows})};
}

template <class F>
std::string message_of(F function) {
  try {
    function();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

void expect_both_named(const std::string& text, const std::string& tag, int64_t rows, int64_t fewer) {
  for (const std::string& part : {"[" + tag + "] expected equal parts", std::string("rank 0 ("),
                                  fmt::format(" has {} rows", rows), fmt::format(" has {};", fewer)}) {
    expect(text.find(part) != std::string::npos, text);
  }
}

void unequal_job(const Communicator& ranks) {
  Backbone model;
  nn::SGD sgd(model.parameters());
  nn::TrainJob job(model, nn::MSELoss{}, sgd, {.communicator = &ranks});
  const auto step = [&](int64_t rows) {
    return job.step(Tensor::full({rows, kFeatures}, 1.0), Tensor::full({rows, 8}, 1.0), 0.1).item();
  };
  const double first = step(4);
  const std::vector<float> weight = model.first.weight.tensor().to_vector<float>();
  const bool is_last = ranks.rank() == ranks.size() - 1;
  expect_both_named(message_of([&] { step(is_last ? 3 : 4); }), "train_job", 4, 3);
  expect(model.first.weight.tensor().to_vector<float>() == weight, "a step that was refused has trained");
  expect(step(4) < first, "no step after one that was refused");
  expect(step(3) < first, "no step of other parts that are equal");
  nn::check_parameters_equal(model, ranks);
}

void unequal_labels(const Communicator& ranks) {
  nn::PartialFC centres(5, 400, {.sample_rate = 0.5, .min_classes = 16, .communicator = &ranks});
  nn::SGD sgd(centres.head().parameters());
  const bool is_last = ranks.rank() == ranks.size() - 1;
  const auto begin = [&](int64_t rows) {
    const std::vector<int64_t> labels(static_cast<size_t>(rows), ranks.rank());
    return centres.sample(labels, sgd);
  };
  // More than ever before, fewer, and more again; refused ones in between.
  for (const int64_t rows : {4, 2, 4, 5}) {
    expect_both_named(message_of([&] { begin(is_last ? rows - 1 : rows); }), "partial_fc", rows, rows - 1);
    const std::vector<int64_t> all = begin(rows).to_vector<int64_t>();
    expect(static_cast<int64_t>(all.size()) == rows * ranks.size(), "the number of labels");
    for (int64_t i = 0; i < static_cast<int64_t>(all.size()); ++i) {
      const int64_t place = all[static_cast<size_t>(i)], label = i / rows;
      const int64_t own = label - centres.first_class();
      const bool is_own = own >= 0 && own < centres.local_classes();
      expect(is_own == (place >= 0) && (!is_own || centres.sampled()[static_cast<size_t>(place)] == own),
             "a label");
    }
    centres.update(sgd);
  }
}

int rank_of_process = 0;
std::string last_kernel;

/// The identity, slow on rank 0 or on all others.
template <bool slow_on_first>
void copy_slowly(const KernelContext& context) {
  last_kernel = slow_on_first ? "second" : "first";
  if ((rank_of_process == 0) == slow_on_first) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::memcpy(context.output(0).data, context.input(0).data,
              static_cast<size_t>(context.input(0).numel()) * size_of(context.input(0).dtype));
}

const Op& identity_op() {
  static const Op* const op = [] {
    OpRegistry& registry = OpRegistry::instance();
    const Op& added =
        registry.add({.name = "test_identity",
                      .inputs = {{"x"}},
                      .outputs = {{"y"}},
                      .infer = [](const InferContext& c) { return std::vector{c.input(0)}; },
                      .gradient = [](const GradientContext& c) { return std::vector{c.grad()}; },
                      .choose = choose_by_time});
    registry.add_kernel("test_identity", {.name = "first", .run = copy_slowly<false>});
    registry.add_kernel("test_identity", {.name = "second", .run = copy_slowly<true>});
    return &added;
  }();
  return *op;
}

}  // namespace

void shared_kernels(const Communicator& ranks) {
  rank_of_process = ranks.rank();
  const nn::Linear model(4, 400);
  nn::SGD sgd(model.parameters());
  const auto loss = [&](std::span<const Tensor> in) {
    return std::vector<Tensor>{nn::MSELoss{}(call(identity_op(), {model(in[0])}).front(), in[1])};
  };
  nn::TrainJob job(model, sgd, loss, {.communicator = &ranks});
  const Tensor x = Tensor::full({400, 4}, 1.0), y = Tensor::zeros({400, 400});
  job.step(x, y, 0.1);
  expect(last_kernel == "first", last_kernel + " runs on rank " + std::to_string(ranks.rank()));
  // By themselves they would not agree, as on a shape that the job has not met.
  call(identity_op(), {Tensor::zeros({401, 400})});
  expect(last_kernel == (ranks.rank() == 0 ? "first" : "second"), "eager calls run " + last_kernel);
}

void sums_beside_backward(const Communicator& ranks) {
  constexpr int64_t kWide = 2100;  // two buckets and more
  struct Wide : nn::Module {
    nn::Linear first = child("first", nn::Linear(kFeatures, kWide));
    nn::Linear second = child("second", nn::Linear(kWide, kWide));
    Tensor forward(const Tensor& x) const override { return second(ops::relu(first(x))); }
  };
  const Wide model;
  nn::SGD sgd(nn::parameter_groups(model, {}, {.decay_vectors = false}));
  nn::TrainJob job(model, nn::MSELoss{}, sgd, {.communicator = &ranks});
  job.step(Tensor::full({2, kFeatures}, 1.0), Tensor::full({2, kWide}, 1.0), 0.1);
  std::string order;
  for (const GraphNode* const node : job.program().graph().nodes()) {
    if (node->op->name() == "begin_all_reduce") order += " sum";
    if (node->op->name().starts_with("linear_grad_weight")) order += " gradient";
  }
  expect(order.find(" sum") < order.rfind(" gradient"), "sums and gradients stand as" + order);
}

void train_beside(const Communicator& ranks, const std::string& way, const std::string& file) {
  manual_seed(static_cast<uint64_t>(7 + ranks.rank()));
  Backbone model;
  nn::Linear head(8, kClasses);
  std::vector<nn::Parameter> all = model.parameters();
  for (const nn::Parameter& parameter : head.parameters()) all.push_back(parameter);
  nn::SGD sgd(all, {.momentum = 0.9});
  nn::EMA ema(model, {.decay = 0.8});
  const auto loss_of = [&](const Tensor& x, const Tensor& labels) {
    return nn::CrossEntropyLoss{}(head(model(x)), labels);
  };
  std::optional<nn::TrainJob> job;
  if (way == "job") {
    const auto step = [&](std::span<const Tensor> in) { return std::vector<Tensor>{loss_of(in[0], in[1])}; };
    job.emplace(model, sgd, step, nn::TrainJobOptions{.ema = &ema, .communicator = &ranks});
  } else {
    nn::broadcast_parameters(sgd.parameters(), ranks);
    ema.broadcast(ranks);
  }
  const int64_t rows = kRows / ranks.size();
  for (int step = 0; step < kSteps; ++step) {
    const Batch batch = batch_of(step, ranks.rank() * rows, rows);
    if (job) {
      job->step(batch.x, batch.labels, 0.1);
      continue;
    }
    sgd.zero_grad();
    backward(nn::scale_loss(loss_of(batch.x, batch.labels), ranks));
    nn::all_reduce_gradients(sgd.parameters(), ranks);
    sgd.step(0.1);
    ema.update();
  }
  nn::check_parameters_equal(sgd.parameters(), ranks);
  nn::check_parameters_equal(ema.averages(), ranks);
  nn::State state = ema.averaged_state();
  for (const nn::Parameter& parameter : sgd.parameters())
    state["now." + std::to_string(state.size())] = parameter.tensor().detach();
  if (ranks.rank() == 0) nn::write_safetensors(file, state);
  if (ranks.size() == 1) return;
  if (ranks.rank() == 1) head.bias.tensor().data<float>()[1] += 1;
  std::string text;
  try {
    nn::check_parameters_equal(sgd.parameters(), ranks);
  } catch (const CommunicationError& error) {
    text = error.what();
  }
  expect(text.find("'bias' of rank 1") != std::string::npos, "a head that differs passes: " + text);
  nn::check_parameters_equal(sgd.parameters(), ranks, {head.bias});
}

void unequal_parts(const Communicator& ranks) {
  unequal_job(ranks);
  unequal_labels(ranks);
}

}  // namespace sinter::testing
