// Steps in which a call fails: whatever call it is, what a job leaves is what eager code could have left that
// failed, counters and random numbers included, and the step after it is right.
#include <set>

#include <sinter/core/op/call_observer.h>

#include "nn/job/small_trainer.h"

namespace sinter::nn {
namespace {

using namespace testing;

struct Failure : Error {
  using Error::Error;
};

/// Lets the k-th kernel that runs fail before it has done anything, or only counts them.
class FailingCall final : public CallObserver {
 public:
  explicit FailingCall(int k) : left_(k), previous_(set_call_observer(this)) {}
  ~FailingCall() override { set_call_observer(previous_); }

  void before(const Op& op, const Kernel&, const KernelQuery&, const Stream&) override {
    ++calls;
    if (left_-- == 0) throw Failure(op.name());
  }
  void after(const Stream&) override {}

  int calls = 0;

 private:
  int left_;
  CallObserver* previous_;
};

constexpr int kNone = 1 << 30;

struct Outcome {
  std::string failed;  // the op; empty: none
  int calls = 0;
};

/// A step in which call k fails.
Outcome step_failing(Trainer& trainer, bool by_job, int k) {
  const FailingCall failing(k);
  Outcome outcome;
  try {
    trainer.step(batch(4, 2, trainer.options.working), by_job);
  } catch (const Failure& failure) {
    outcome.failed = failure.what();
    trainer.key = default_generator().key();
  }
  outcome.calls = failing.calls;
  return outcome;
}

/// Everything of a trainer, to be compared.
std::string snapshot(const Trainer& trainer) {
  std::string all;
  const CheckpointData data = trainer.save();
  for (const auto& [part, tensors] : data.tensors) {
    for (const auto& [name, value] : tensors) {
      const std::vector<std::byte> bytes = bytes_of(value);
      all += part + "/" + name + "=" + std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
  }
  return all + fmt::format("random={},{}", trainer.key.seed, trainer.key.offset);
}

std::unique_ptr<Trainer> begun(const TrainerOptions& options, bool by_job) {
  auto trainer = std::make_unique<Trainer>(options);
  trainer->step(batch(4, 1, options.working), by_job);
  return trainer;
}

void expect_states_of_eager_code(const TrainerOptions& options) {
  std::set<std::string> of_eager_code;
  const int eager_calls = step_failing(*begun(options, false), false, kNone).calls;
  for (int k = 0; k <= eager_calls; ++k) {
    const auto eager = begun(options, false);
    step_failing(*eager, false, k);
    of_eager_code.insert(snapshot(*eager));
  }
  EXPECT_GT(of_eager_code.size(), 5u);
  const int calls = step_failing(*begun(options, true), true, kNone).calls;
  const auto twin = begun(options, false);
  std::set<std::string> met;
  for (int k = 0; k <= calls; ++k) {
    const auto trainer = begun(options, true);
    const Outcome outcome = step_failing(*trainer, true, k);
    SCOPED_TRACE(fmt::format("call {} of {}: {}", k, calls, outcome.failed));
    EXPECT_EQ(outcome.failed.empty(), k == calls);
    EXPECT_TRUE(of_eager_code.contains(snapshot(*trainer)));
    met.insert(snapshot(*trainer));
    if (k % 4 != 0 && k != calls) continue;
    twin->load(trainer->save());
    const Batch next = batch(4, 3, options.working);
    EXPECT_TRUE(same_bits(trainer->step(next, true), twin->step(next, false)));
    EXPECT_EQ(differences(*trainer, *twin), "") << "after the next step";
  }
  EXPECT_GT(met.size(), 3u) << "failures at different calls leave different states";
}

TEST(FailedStep, LeavesWhatEagerCodeWouldLeave) {
  expect_states_of_eager_code({.clip = 0.5, .averages = true});
}

TEST(FailedStep, LeavesWhatEagerCodeWouldLeaveWithAScaler) {
  expect_states_of_eager_code({.working = DType::kFloat16, .averages = true});
}

// Passes make other calls of the model's, which then belong together as before.
TEST(FailedStep, CountsBatchesWithTheStatisticsThatTheyMove) {
  const TrainerOptions options{.averages = true, .job = {}};
  const int calls = step_failing(*begun(options, true), true, kNone).calls;
  bool counted = false, not_counted = false;
  for (int k = 0; k <= calls; ++k) {
    const auto trainer = begun(options, true);
    const Tensor mean = ops::copy(trainer->model->norm.running_mean.tensor());
    const Outcome outcome = step_failing(*trainer, true, k);
    SCOPED_TRACE(fmt::format("call {} of {}: {}", k, calls, outcome.failed));
    const bool moved = !same_bits(mean, trainer->model->norm.running_mean.tensor());
    EXPECT_EQ(trainer->model->norm.num_batches_tracked.tensor().item(), moved ? 2.0 : 1.0);
    (moved ? counted : not_counted) = true;
    EXPECT_EQ(trainer->ema->updates(), k < calls ? 1 : 2);
  }
  EXPECT_TRUE(counted && not_counted);
}

}  // namespace
}  // namespace sinter::nn
