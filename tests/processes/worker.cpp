// One rank of the tests of several processes: processes_test starts as many as it needs.
//
//   worker <what> [<folder>]
//
// What it finds wrong ends it with 1 and a message; a lost rank with 3 and the library's words.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include <unistd.h>

#include <sinter/autograd/backward.h>
#include <sinter/core/comm/communicator.h>
#include <sinter/core/runtime/random.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/nn/checkpoint/safetensors.h>
#include <sinter/nn/nn.h>
#include <sinter/ops/activation/activation.h>
#include <sinter/ops/all_reduce/all_reduce.h>

using namespace sinter;

namespace {

constexpr int kSteps = 20;
constexpr int64_t kBatch = 24, kFeatures = 12, kClasses = 5;

void expect(bool holds, const std::string& what) {
  if (!holds) throw Error("unexpected: " + what);
}

struct Network : nn::Module {
  nn::Linear first = child("first", nn::Linear(kFeatures, 40));
  nn::Linear second = child("second", nn::Linear(40, 33));
  nn::Linear last = child("last", nn::Linear(33, kClasses));

  Tensor forward(const Tensor& x) const override { return last(ops::relu(second(ops::relu(first(x))))); }
};

struct Batch {
  Tensor x, labels;
};

/// The part of step `step`'s batch that a rank takes.
Batch part_of_batch(int step, int rank, int size) {
  Generator generator(static_cast<uint64_t>(1000 + step));
  std::vector<float> x;
  std::vector<int64_t> labels;
  const int64_t rows = kBatch / size;
  for (int64_t row = 0; row < kBatch; ++row) {
    const bool own = row / rows == rank;
    const auto label = static_cast<int64_t>(generator.below(kClasses));
    if (own) labels.push_back(label);
    for (int64_t i = 0; i < kFeatures; ++i) {
      const auto value = static_cast<float>(generator.normal() + (i % kClasses == label ? 1.0 : 0.0));
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

  for (int root = 0; root < n; ++root) {
    const Tensor x = Tensor::full({5}, rank == root ? 42.0 + root : -1.0, DType::kFloat64);
    ranks.broadcast_(x, root);
    expect(x.data<double>()[4] == 42.0 + root, "broadcast");
  }
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
void train(const Communicator& ranks, Way way, int64_t accumulate, const std::string& file) {
  manual_seed(static_cast<uint64_t>(7 + ranks.rank()));
  Network network;
  nn::Sgd sgd(network.parameters(), {.momentum = 0.9, .weight_decay = 1e-3});
  nn::GradScaler scaler({.scales = false});
  std::optional<nn::TrainJob> job;
  if (way != Way::kEager) {
    nn::TrainJobOptions options{
        .clip = 1.0, .scaler = &scaler, .communicator = &ranks, .accumulate = static_cast<int>(accumulate)};
    if (way == Way::kUnbucketed) options.passes.without = {"gradient_buckets"};
    job.emplace(network, nn::CrossEntropy{}, sgd, options);
  } else {
    nn::begin_equal(network, ranks);
  }
  std::vector<float> losses;  // of all ranks
  for (int step = 0; step < kSteps; ++step) {
    const Batch batch = part_of_batch(step, ranks.rank(), ranks.size());
    if (job) {
      losses.push_back(static_cast<float>(job->step(batch.x, batch.labels, 0.1).item()));
      continue;
    }
    const Tensor loss = nn::CrossEntropy{}(network(batch.x), batch.labels);
    losses.push_back(
        static_cast<float>(ops::all_reduce(nn::share_of_loss(loss.detach(), ranks), ranks).item()));
    sgd.zero_grad();
    backward(nn::share_of_loss(loss, ranks));
    nn::reduce_gradients(sgd.parameters(), ranks);
    sgd.step(0.1, nn::clip_grad_norm(sgd.parameters(), 1.0).factor);
  }
  nn::check_equal(network, ranks);
  if (job && ranks.size() > 1 && way == Way::kJob)
    expect(job->report().find("gradient_buckets") != std::string::npos, "no buckets in the report");
  nn::State state = network.state();
  state["losses"] = Tensor::from_values(losses, {kSteps});
  if (ranks.rank() == 0) nn::write_safetensors(file, state);
  if (ranks.size() == 1) return;
  if (ranks.rank() == 1) network.first.weight.tensor().data<float>()[3] += 1;
  try {
    nn::check_equal(network, ranks);
    expect(false, "weights that differ pass");
  } catch (const CommunicationError& error) {
    expect(std::string(error.what()).find("'first.weight' of rank 1") != std::string::npos, error.what());
  }
}

/// Reduces until something happens to the last rank; the others must learn its name.
void fault(Communicator& ranks, const std::string& kind) {
  const bool is_it = ranks.rank() == ranks.size() - 1;
  const Tensor x = Tensor::zeros({kind == "midway" ? 8'000'000 : 1000});
  for (int step = 0; step < 1'000'000; ++step) {
    if (is_it && step == 5) {
      if (kind == "kill") raise(SIGKILL);
      if (kind == "stop") raise(SIGSTOP);
      if (kind == "exception") throw Error("the disk is full");
      if (kind == "midway")
        std::thread([] {
          std::this_thread::sleep_for(std::chrono::milliseconds(4));
          raise(SIGKILL);
        }).detach();
    }
    // As rank 0 saves: the others wait for it, and it hears of the loss behind its work.
    if (kind == "save" && step == 5 && ranks.rank() == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(800));
    if (kind == "save" && step == 5 && is_it) raise(SIGKILL);
    ranks.all_reduce_(x);
  }
}

int run(const std::string& what, const std::string& file) {
  CommunicatorOptions options{.join_timeout = 15.0, .timeout = 60.0, .lost_after = 4.0};
  if (what == "late") options.join_timeout = 2.0;
  if (what == "timeout") options.timeout = 2.0;
  const auto ranks = Communicator::join(options);
  if (what == "collectives") collectives(*ranks);
  if (what == "job") train(*ranks, Way::kJob, 1, file);
  if (what == "eager") train(*ranks, Way::kEager, 1, file);
  if (what == "unbucketed") train(*ranks, Way::kUnbucketed, 1, file);
  if (what == "accumulate") train(*ranks, Way::kJob, 2, file);
  if (what == "timeout" && ranks->rank() == 0) ranks->barrier();
  if (what == "timeout") std::this_thread::sleep_for(std::chrono::seconds(8));
  if (what.starts_with("fault.")) fault(*ranks, what.substr(6));
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
