// One rank of the tests of several processes: processes_test starts as many as it needs.
//
//   worker <what> [<folder>]
//
// What it finds wrong ends it with 1 and a message; a lost rank with 3 and the library's words.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include <sinter/autograd/backward.h>
#include <sinter/core/comm/communicator.h>
#include <sinter/core/op/node.h>
#include <sinter/core/runtime/random.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/checkpoint/safetensors.h>
#include <sinter/nn/loss/partial_fc.h>
#include <sinter/nn/nn.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/all_gather/all_gather.h>
#include <sinter/ops/all_reduce/all_reduce.h>
#include <sinter/ops/batch_norm/batch_norm.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/operators.h>
#include <sinter/ops/reduce/reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/slice/slice.h>
#include <sinter/ops/sync_batch_norm/sync_batch_norm.h>
#include <sinter/ops/unary/unary.h>

#include "processes/worker_differences.h"
#include "processes/worker_faults.h"
#include "processes/worker_parts.h"

using namespace sinter;

namespace {

constexpr int kSteps = 20;
constexpr int64_t kBatch = 24, kFeatures = 12, kClasses = 5, kFaces = 11, kDimensions = 7;

void expect(bool holds, const std::string& what) {
  if (!holds) throw Error("unexpected: " + what);
}

struct Network : nn::Module {
  nn::Linear first = child("first", nn::Linear(kFeatures, 40));
  nn::Linear second = child("second", nn::Linear(40, 33));
  nn::Linear last = child("last", nn::Linear(33, kClasses));

  Tensor forward(const Tensor& x) const override { return last(ops::relu(second(ops::relu(first(x))))); }
};

/// Norms with what jobs fuse behind them: ReLU, a sum with ReLU, a normalised shortcut, PReLU, and a norm of
/// features.
struct NormNetwork : nn::Module {
  nn::Conv2d stem = child("stem", nn::Conv2d(1, 4, 3, {.padding = 1}));
  nn::BatchNorm2d first = child("first", nn::BatchNorm2d(4));
  nn::Conv2d middle = child("middle", nn::Conv2d(4, 6, 3, {.padding = 1}));
  nn::BatchNorm2d second = child("second", nn::BatchNorm2d(6));
  nn::Conv2d side = child("side", nn::Conv2d(4, 6, 1));
  nn::BatchNorm2d shortcut = child("shortcut", nn::BatchNorm2d(6));
  nn::Conv2d late = child("late", nn::Conv2d(6, 6, 3, {.padding = 1}));
  nn::BatchNorm2d third = child("third", nn::BatchNorm2d(6));
  nn::PReLU slopes = child("slopes", nn::PReLU(6));
  nn::BatchNorm2d fourth = child("fourth", nn::BatchNorm2d(6));
  nn::Linear last = child("last", nn::Linear(6 * kFeatures, kClasses));
  nn::BatchNorm1d features = child("features", nn::BatchNorm1d(kClasses));

  Tensor forward(const Tensor& x) const override {
    const Tensor a = ops::relu(first(stem(ops::reshape(x, {x.shape()[0], 1, 3, kFeatures / 3}))));
    const Tensor b = ops::relu(second(middle(a)) + shortcut(side(a)));
    const Tensor c = ops::relu(third(late(b)) + b);
    const Tensor d = slopes(fourth(c));
    return features(last(ops::reshape(d, {x.shape()[0], 6 * kFeatures})));
  }
};

/// Sums over the ranks in its forward pass: its features are centred by their mean over the batches of all,
/// and a mean that runs along is added.
struct CentredNetwork : nn::Module {
  explicit CentredNetwork(const Communicator& communicator) : ranks(&communicator) {}

  Tensor forward(const Tensor& x) const override {
    const Tensor y = ops::relu(first(x));
    Tensor shift;
    {
      const NoGrad no_grad;
      const Tensor mean = ops::all_reduce(ops::mean(y.detach(), {0}), *ranks) * (1.0 / ranks->size());
      ops::copy_(running, running * 0.75 + mean * 0.25);
      shift = running - mean;
    }
    const Tensor z = ops::relu(second(y + shift));
    return last(z * scale_of(z.detach()));
  }
  Tensor scale_of(const Tensor& z) const {
    const NoGrad no_grad;
    const Tensor squares = ops::all_reduce(ops::mean(ops::square(z)), *ranks) * (1.0 / ranks->size());
    return ops::rsqrt(squares + 1.0);
  }

  const Communicator* ranks;
  nn::Linear first = child("first", nn::Linear(kFeatures, 40));
  nn::Linear second = child("second", nn::Linear(40, 33));
  nn::Linear last = child("last", nn::Linear(33, kClasses));
  nn::Buffer running = buffer("running", Tensor::zeros({40}));
};

struct Batch {
  Tensor x, labels;
};

/// The part of step `step`'s batch that a rank takes.
Batch part_of_batch(int step, int rank, int size, int64_t classes = kClasses) {
  Generator generator(static_cast<uint64_t>(1000 + step));
  std::vector<float> x;
  std::vector<int64_t> labels;
  const int64_t rows = kBatch / size;
  for (int64_t row = 0; row < kBatch; ++row) {
    const bool own = row / rows == rank;
    const auto label = static_cast<int64_t>(generator.below(static_cast<uint64_t>(classes)));
    if (own) labels.push_back(label);
    for (int64_t i = 0; i < kFeatures; ++i) {
      const auto value = static_cast<float>(generator.normal() + (i % classes == label ? 1.0 : 0.0));
      if (own) x.push_back(value);
    }
  }
  return {Tensor::from_values(x, {rows, kFeatures}), Tensor::from_values(labels, {rows})};
}

template <class T>
void check_sums(const Communicator& ranks, double tolerance) {
  const int64_t count = 1003;
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<T>(static_cast<float>(ranks.rank() + i % 7)));
  const Tensor x = Tensor::from_values(values, {count});
  ranks.all_reduce_(x);
  const int n = ranks.size();
  for (int64_t i = 0; i < count; ++i) {
    const double expected = n * (n - 1) / 2.0 + static_cast<double>(n * (i % 7));
    expect(std::abs(static_cast<double>(x.data<T>()[i]) - expected) <= tolerance, "a sum");
  }
}

/// The ops of the same names, and their gradients.
void gather_and_scatter(const Communicator& ranks) {
  const int n = ranks.size(), rank = ranks.rank();
  const Tensor mine = Tensor::full({2, 3}, rank + 1.0).set_requires_grad(true);
  const Tensor all = ops::all_gather(mine, ranks);
  expect(all.shape() == Shape{2 * n, 3}, "the shape of ops::all_gather");
  for (int64_t i = 0; i < all.numel(); ++i)
    expect(all.data<float>()[i] == static_cast<float>(i / 6 + 1), "ops::all_gather");
  backward(ops::sum(all * Tensor::full(all.shape(), rank + 1.0)));
  for (const float grad : mine.grad().to_vector<float>())
    expect(grad == static_cast<float>(n * (n + 1) / 2), "the gradient of all_gather");
  const Tensor whole = Tensor::full({4 * n}, rank + 1.0).set_requires_grad(true);
  const Tensor part = ops::reduce_scatter(whole, ranks);
  expect(part.shape() == Shape{4}, "the shape of ops::reduce_scatter");
  for (const float value : part.to_vector<float>())
    expect(value == static_cast<float>(n * (n + 1) / 2), "ops::reduce_scatter");
  backward(ops::sum(part * Tensor::full({4}, rank + 1.0)));
  for (int64_t i = 0; i < whole.numel(); ++i)
    expect(whole.grad().data<float>()[i] == static_cast<float>(i / 4 + 1), "the gradient of reduce_scatter");
}

void collectives(const Communicator& ranks) {
  const int n = ranks.size(), rank = ranks.rank();
  check_sums<float>(ranks, 0);
  check_sums<double>(ranks, 0);
  check_sums<int64_t>(ranks, 0);
  check_sums<int32_t>(ranks, 0);
  check_sums<float16>(ranks, 0);
  check_sums<bfloat16>(ranks, 0);
  ranks.all_reduce_(Tensor::zeros({0}));

  const Tensor mine = Tensor::full({2, 3}, rank + 1.0);
  const Tensor all = ranks.all_gather(mine);
  expect(all.shape() == Shape{2 * n, 3}, "the shape of all_gather");
  for (int64_t i = 0; i < all.numel(); ++i)
    expect(all.data<float>()[i] == static_cast<float>(i / 6 + 1), "all_gather");

  std::vector<float> rows;
  for (int64_t i = 0; i < 4 * n; ++i) rows.push_back(static_cast<float>(i * (rank + 1)));
  const Tensor part = ranks.reduce_scatter(Tensor::from_values(rows, {2 * n, 2}));
  expect(part.shape() == Shape{2, 2}, "the shape of reduce_scatter");
  for (int64_t i = 0; i < 4; ++i)
    expect(part.data<float>()[i] == static_cast<float>((4 * rank + i) * n * (n + 1) / 2), "reduce_scatter");

  gather_and_scatter(ranks);
  for (int root = 0; root < n; ++root) {
    const Tensor x = Tensor::full({5}, rank == root ? 42.0 + root : -1.0, DType::kFloat64);
    ranks.broadcast_(x, root);
    expect(x.data<double>()[4] == 42.0 + root, "broadcast");
  }
  const auto last = rank == n - 1;
  expect(ranks.agree(last ? 4 : 1) == 0, "an agreement before the first");
  expect(ranks.agree(0) == (n == 1 ? 0 : 5), "what was asked");
  expect(ranks.agree(rank == 0 ? 2 : 0) == 0, "what nobody asked");
  expect(ranks.agree(0) == 2, "what rank 0 asked");
  ranks.barrier();
  ranks.check_equal("the same", "texts");
  try {
    ranks.check_equal(rank == n - 1 ? "other" : "the same", "texts");
    expect(false, "texts that differ pass");
  } catch (const CommunicationError& error) {
    expect(std::string(error.what()).find("texts of rank " + std::to_string(n - 1)) != std::string::npos,
           error.what());
  }
}

enum class Way { kJob, kEager, kUnbucketed };

/// Trains and writes the weights; ranks begin with different ones.
template <class Model>
void train(const Communicator& ranks, Way way, int64_t accumulate, const std::string& file) {
  constexpr bool has_norms = std::is_same_v<Model, NormNetwork>;
  manual_seed(static_cast<uint64_t>(7 + ranks.rank()));
  const Model network = [&] {
    if constexpr (std::is_constructible_v<Model, const Communicator&>)
      return Model(ranks);
    else
      return Model();
  }();
  nn::SGD sgd(network.parameters(), {.momentum = 0.9, .weight_decay = 1e-3});
  nn::GradScaler scaler({.enabled = false});
  std::optional<nn::TrainJob> job;
  if (way != Way::kEager) {
    nn::TrainJobOptions options{.max_grad_norm = 1.0,
                                .scaler = &scaler,
                                .communicator = &ranks,
                                .sync_batch_norm = has_norms,
                                .accumulate = static_cast<int>(accumulate)};
    if (way == Way::kUnbucketed) options.passes.without = {"gradient_buckets"};
    job.emplace(network, nn::CrossEntropyLoss{}, sgd, options);
  } else {
    nn::broadcast_parameters(network, ranks);
  }
  std::vector<float> losses;  // of all ranks
  for (int step = 0; step < kSteps; ++step) {
    const Batch batch = part_of_batch(step, ranks.rank(), ranks.size());
    if (job) {
      losses.push_back(static_cast<float>(job->step(batch.x, batch.labels, 0.1).item()));
      continue;
    }
    const nn::SyncBatchNormScope together(ranks);
    const Tensor loss = nn::CrossEntropyLoss{}(network(batch.x), batch.labels);
    losses.push_back(static_cast<float>(ops::all_reduce(nn::scale_loss(loss.detach(), ranks), ranks).item()));
    sgd.zero_grad();
    backward(nn::scale_loss(loss, ranks));
    nn::all_reduce_gradients(sgd.parameters(), ranks);
    sgd.step(0.1, nn::clip_grad_norm(sgd.parameters(), 1.0).factor);
  }
  nn::check_parameters_equal(network, ranks);
  if (job && ranks.size() > 1 && way == Way::kJob)
    expect(job->report().find("gradient_buckets") != std::string::npos, "no buckets in the report");
  if (job && ranks.size() > 1 && has_norms) {
    for (const char* text : {"batch_norm_act + relu in first", "batch_norm_act + add(batch_norm_act in",
                             "batch_norm_act + add + relu in third", "batch_norm_act + prelu in fourth"})
      expect(job->report().find(text) != std::string::npos, std::string("no ") + text + job->report());
  }
  nn::State state = network.state();
  state["losses"] = Tensor::from_values(losses, {kSteps});
  if (ranks.rank() == 0) nn::write_safetensors(file, state);
  if (ranks.size() == 1) return;
  if (ranks.rank() == 1) network.last.weight.tensor().template data<float>()[3] += 1;
  try {
    nn::check_parameters_equal(network, ranks);
    expect(false, "weights that differ pass");
  } catch (const CommunicationError& error) {
    expect(std::string(error.what()).find("'last.weight' of rank 1") != std::string::npos, error.what());
  }
}

struct Faces : nn::ModuleOf<Tensor(const Tensor&, const Tensor&)> {
  explicit Faces(const nn::MarginHead& centres) : head(child("head", centres)) {}
  Tensor forward(const Tensor& x, const Tensor& rows) const override {
    return head(last(ops::relu(first(x))), rows);
  }

  nn::Linear first = child("first", nn::Linear(kFeatures, 20));
  nn::Linear last = child("last", nn::Linear(20, kDimensions));
  nn::MarginHead head;
};

/// "arc", "cos" or "all" margins or one that differs from row to row, one job or eager steps, all centres or
/// a part of them.
nn::PartialFCOptions face_options(const Communicator& ranks, const std::string& kind) {
  nn::CombinedMargin margin{.scale = 16.0};
  if (kind.starts_with("cos")) margin = {.scale = 16.0, .m2 = 0.0, .m3 = 0.4};
  if (kind.starts_with("all"))
    margin = {.scale = 16.0, .m1 = 1.0, .m2 = 0.3, .m3 = 0.2, .interclass_filter = 0.4};
  nn::MarginHeadOptions head{.margin = margin, .init_std = 0.3};
  if (kind.starts_with("adaface")) head.margin = nn::AdaFace{.scale = 16.0};
  if (kind.starts_with("elastic")) head.margin = nn::ElasticFace{.scale = 16.0, .sorted = true};
  if (kind.starts_with("magface"))
    head.margin = nn::MagFace{.scale = 16.0, .least_norm = 0.5, .most_norm = 8.0};
  if (kind.starts_with("curricular")) head.margin = nn::CurricularFace{.scale = 16.0};
  if (kind.starts_with("subcentres")) head.sub_centres = 3;
  const bool samples = kind.ends_with("sampled");
  return {.head = head,
          .sample_rate = samples ? 0.3 : 1.0,
          .min_classes = samples ? kBatch : 1,
          .seed = 5,
          .communicator = &ranks};
}

/// Of this rank: WORKER_ON_GPU gives each a GPU of its own.
Device own_device() {
  return std::getenv("WORKER_ON_GPU") != nullptr ? Device::cuda(read_process_environment().rank)
                                                 : Device::cpu();
}

/// Trains with centres that are divided among the ranks, and writes all weights.
void train_faces(const Communicator& ranks, const std::string& kind, const std::string& file) {
  const Device device = own_device();
  manual_seed(7);
  const bool samples = kind.ends_with("sampled");
  nn::PartialFC centres(kDimensions, samples ? 211 : kFaces, face_options(ranks, kind));
  Faces network(centres.head());
  centres.to(device);
  network.to(device);
  nn::SGD sgd(network.parameters(), {.momentum = 0.9, .weight_decay = 1e-3});
  nn::GradScaler scaler({.enabled = false});
  const std::vector<nn::Parameter> apart = {network.head.weight};
  std::optional<nn::TrainJob> job;
  if (kind.ends_with("eager")) {
    nn::broadcast_parameters(network, ranks, apart);
  } else {
    const auto step = [&](std::span<const Tensor> in) { return std::vector<Tensor>{network(in[0], in[1])}; };
    job.emplace(network, sgd, step,
                nn::TrainJobOptions{
                    .max_grad_norm = 1.0, .scaler = &scaler, .communicator = &ranks, .sharded = apart});
  }
  std::vector<float> losses;
  for (int step = 0; step < kSteps; ++step) {
    const Batch batch = part_of_batch(step, ranks.rank(), ranks.size(), kFaces);
    const Tensor rows = centres.sample(batch.labels.to_vector<int64_t>(), sgd), x = batch.x.to(device);
    if (job) {
      losses.push_back(static_cast<float>(job->step(x, rows, 0.1).item()));
    } else {
      const Tensor loss = network(x, rows);
      losses.push_back(
          static_cast<float>(nn::all_reduce(nn::scale_loss(loss.detach(), ranks), ranks).item()));
      sgd.zero_grad();
      backward(nn::scale_loss(loss, ranks));
      nn::all_reduce_gradients(nn::exclude(sgd.parameters(), apart), ranks);
      scaler.step(sgd, 0.1, {.max_grad_norm = 1.0, .sharded = apart, .communicator = &ranks});
    }
    centres.update(sgd);
  }
  nn::State state = centres.state();
  for (const nn::Parameter& parameter : nn::exclude(network.parameters(), apart))
    state[parameter.name()] = parameter.tensor().detach().to(Device::cpu());
  state["losses"] = Tensor::from_values(losses, {kSteps});
  state["next"] = Tensor::scalar(default_generator().uniform());
  if (ranks.rank() == 0) nn::write_safetensors(file, state);
}

/// Centres of a file of another number of ranks come back as they are.
void reload_faces(const Communicator& ranks, const std::string& kind, const std::string& file) {
  const nn::State saved = nn::read_safetensors(file).tensors;
  const int64_t classes = saved.at("weight").size(0);
  nn::PartialFC centres(kDimensions, classes, face_options(ranks, kind));
  nn::State own;
  for (const char* name : {"weight", "steps", "momentum", "norm_mean", "norm_deviation", "t"}) {
    if (const auto found = saved.find(name); found != saved.end()) own.insert(*found);
  }
  centres.load_state(own);
  const nn::State again = centres.state();
  if (ranks.rank() != 0) return expect(again.empty(), "a state that is not of rank 0");
  for (const auto& [name, tensor] : own) {
    if (name == "steps") continue;
    expect(again.at(name).to_vector<float>() == tensor.to_vector<float>(), "rows of " + name);
  }
}

/// A norm of parts of different sizes, one of them empty: y, the gradients and the running statistics are
/// those of the whole.
void unequal_norms(const Communicator& ranks) {
  const int64_t channels = 3, pixels = 10, rows = 9;
  Generator generator(5);
  const auto values = [&](int64_t count) {
    std::vector<float> numbers(static_cast<size_t>(count));
    for (float& number : numbers) number = static_cast<float>(100.0 + generator.normal());
    return numbers;
  };
  const Tensor x = Tensor::from_values(values(rows * channels * pixels), {rows, channels, 2, pixels / 2});
  const Tensor dy = Tensor::from_values(values(x.numel()), x.shape());
  const auto run = [&](int64_t begin, int64_t end, bool together) {
    const Tensor part = ops::copy(ops::slice(x, 0, begin, end)).set_requires_grad(true);
    const Tensor weight = Tensor::full({channels}, 1.5).set_requires_grad(true);
    const Tensor bias = Tensor::zeros({channels}).set_requires_grad(true);
    const Tensor mean = Tensor::zeros({channels}), var = Tensor::full({channels}, 1.0);
    const Tensor y = together ? ops::sync_batch_norm(part, weight, bias, mean, var, {}, ranks)
                              : ops::batch_norm(part, weight, bias, mean, var);
    backward(ops::sum(y * ops::copy(ops::slice(dy, 0, begin, end))));
    const Tensor dweight = weight.grad(), dbias = bias.grad();
    if (together) ranks.all_reduce_(dweight), ranks.all_reduce_(dbias);
    return std::vector<Tensor>{y.detach(), part.grad(), mean, var, dweight, dbias};
  };
  const std::vector<Tensor> whole = run(0, rows, false);
  // The last rank has nothing, the first twice as much as the others.
  const int64_t share = rows / ranks.size(), rank = ranks.rank(), last = ranks.size() - 1;
  const int64_t begin = rank == 0 ? 0 : rows - share * (last - rank);
  const int64_t end = rank == last ? rows : rows - share * (last - rank - 1);
  const std::vector<Tensor> part = run(rank == last ? rows : begin, rank == last ? rows : end, true);
  for (size_t i = 0; i < whole.size(); ++i) {
    const auto have = part[i].to_vector<float>();
    const Tensor same =
        i < 2 ? ops::slice(whole[i], 0, rank == last ? rows : begin, rank == last ? rows : end) : whole[i];
    const auto want = ops::copy(same).to_vector<float>();
    for (size_t k = 0; k < want.size(); ++k) {
      expect(std::abs(have[k] - want[k]) <= 2e-4 * std::max(1.0F, std::abs(want[k])),
             fmt::format("result {} of a norm: {} instead of {}", i, have[k], want[k]));
    }
  }
}

int run(const std::string& what, const std::string& file) {
  if (what.starts_with("fault.") || what.starts_with("fake.") || what.starts_with("gpu.")) {
    testing::run_fault(what, file);
    return 0;
  }
  CommunicatorOptions options{
      .join_timeout = 15.0, .connect_timeout = 6.0, .timeout = 60.0, .heartbeat_timeout = 4.0};
  if (const char* const purpose = std::getenv("WORKER_PURPOSE")) options.purpose = purpose;
  if (what == "late") options.join_timeout = 2.0;
  if (what == "timeout") options.timeout = 2.0;
  options.device = own_device();
  if (options.device.is_cuda()) options.join_timeout = 100.0;  // NCCL's start takes a while
  const auto ranks = Communicator::join(options);
  if (what == "collectives") collectives(*ranks);
  if (what == "job") train<Network>(*ranks, Way::kJob, 1, file);
  if (what == "eager") train<Network>(*ranks, Way::kEager, 1, file);
  if (what == "unbucketed") train<Network>(*ranks, Way::kUnbucketed, 1, file);
  if (what == "accumulate") train<Network>(*ranks, Way::kJob, 2, file);
  if (what == "sums.job") train<CentredNetwork>(*ranks, Way::kJob, 1, file);
  if (what == "sums.accumulate") train<CentredNetwork>(*ranks, Way::kJob, 2, file);
  if (what == "sums.eager") train<CentredNetwork>(*ranks, Way::kEager, 1, file);
  if (what == "sums.unbucketed") train<CentredNetwork>(*ranks, Way::kUnbucketed, 1, file);
  if (what == "norms.job") train<NormNetwork>(*ranks, Way::kJob, 1, file);
  if (what == "norms.eager") train<NormNetwork>(*ranks, Way::kEager, 1, file);
  if (what.starts_with("faces.")) train_faces(*ranks, what.substr(6), file);
  if (what.starts_with("reload.")) reload_faces(*ranks, what.substr(7), file);
  if (what == "norms.parts") unequal_norms(*ranks);
  if (what.starts_with("beside.")) testing::train_beside(*ranks, what.substr(7), file);
  if (what == "parts") testing::unequal_parts(*ranks);
  if (what == "differences") testing::different_calls(*ranks);
  if (what == "gradients") testing::different_gradients(*ranks);
  if (what.starts_with("dropping.")) testing::train_dropping(*ranks, what.substr(9), file);
  if (what == "constant") testing::constant_sums(*ranks);
  if (what == "average") testing::shared_average(*ranks);
  if (what == "kernels") testing::shared_kernels(*ranks);
  if (what == "order") testing::sums_beside_backward(*ranks);
  if (what == "timeout" && ranks->rank() == 0) ranks->barrier();
  if (what == "timeout") std::this_thread::sleep_for(std::chrono::seconds(5));
  ranks->leave();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  set_num_threads(1);
  try {
    return run(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "");
  } catch (const CommunicationError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
