// What the tests of the kernel tuner share: an op of six kernels that do nothing, whose estimates and times a
// test writes, and a timer that tells them.
#pragma once

#include <array>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/base/log.h>
#include <sinter/core/op/autotune/kernel_tuner.h>
#include <sinter/core/op/call.h>
#include <sinter/core/runtime/settings.h>

#include "common/temporary_folder.h"

namespace sinter::testing_tuner {

using Names = std::vector<std::string>;

inline constexpr std::array kNames = {"a", "b", "c", "d", "e", "f"};
inline constexpr double kNever = std::numeric_limits<double>::infinity();

/// What the kernels are, and what became of them.
struct Script {
  std::map<std::string, double> estimates, times;  // a kernel without a time cannot run
  std::map<std::string, size_t> workspaces;
  std::set<std::string> failing;
  std::optional<std::string> timer_fails;  // as "capture" or "memory"
  size_t largest_scratch = size_t{1} << 40;

  Names timed, prepared;
  std::map<std::string, int> runs;
  std::string running;
  double best = 0;  // before the last was timed
  int timers = 0;
  std::vector<uintptr_t> offsets;  // of the inputs of the last run
};
inline Script script;

struct Nothing final : Prepared {
  explicit Nothing(size_t needed) : bytes(needed) {}
  size_t workspace_bytes() const override { return bytes; }
  size_t bytes;
};

template <size_t i>
void add_kernel(OpRegistry& registry) {
  registry.add_kernel(
      "test_tuned",
      {.name = kNames[i],
       .microseconds = [](const KernelQuery&, const Prepared*) { return script.estimates.at(kNames[i]); },
       .prepare = [](const KernelQuery&) -> std::shared_ptr<const Prepared> {
         if (!script.times.contains(kNames[i])) return nullptr;
         script.prepared.emplace_back(kNames[i]);
         return std::make_shared<Nothing>(script.workspaces[kNames[i]]);
       },
       .run =
           [](const KernelContext& context) {
             script.running = kNames[i];
             ++script.runs[kNames[i]];
             script.offsets.clear();
             for (size_t k = 0; k < context.input_count(); ++k)
               script.offsets.push_back(reinterpret_cast<uintptr_t>(context.input(k).data) % 16);
             if (script.failing.contains(kNames[i])) throw Error("[test] broken");
           }});
}

struct TunedAttributes {
  int64_t kind = 0;
  bool operator==(const TunedAttributes&) const = default;
  static constexpr auto fields() { return std::tuple(field("kind", &TunedAttributes::kind)); }
};

inline int choices_by_time = 0;

inline const Op& tuned_op() {
  static const Op* const op = [] {
    OpRegistry& registry = OpRegistry::instance();
    const Op& added = registry.add({.name = "test_tuned",
                                    .inputs = {{"x"}, {"w", true}},
                                    .outputs = {{"y"}},
                                    .infer = [](const InferContext& c) { return std::vector{c.input(0)}; },
                                    .choose =
                                        [](const Op& asked, Device device, const KernelQuery& query) {
                                          ++choices_by_time;
                                          return choose_by_estimate(asked, device, query);
                                        }});
    // The one registered last comes first: a.
    add_kernel<5>(registry), add_kernel<4>(registry), add_kernel<3>(registry);
    add_kernel<2>(registry), add_kernel<1>(registry), add_kernel<0>(registry);
    return &added;
  }();
  return *op;
}

class ScriptedTimer final : public WorkTimer {
 public:
  ScriptedTimer() {
    if (script.timer_fails == "capture") throw Unsupported("[test] work is being captured");
    if (script.timer_fails == "memory") throw OutOfMemory("[test] no room");
    ++script.timers;
  }
  const Stream& stream() const override { return stream_; }
  void* scratch(size_t bytes) override {
    if (bytes > script.largest_scratch) throw OutOfMemory("[test] no room");
    return block_;  // the kernels touch nothing
  }
  double measure(const std::function<void()>& queue, TimeBudget& budget) override {
    queue();
    script.timed.push_back(script.running);
    script.best = budget.best();
    return budget.measure([] { return RunTime{script.times.at(script.running)}; });
  }

 private:
  Stream stream_;
  alignas(256) std::byte block_[1024];
};

/// A call that the tuner is asked about.
class Question {
 public:
  explicit Question(int64_t rows = 1024, Attributes attributes = TunedAttributes{}, uintptr_t address = 0)
      : x_{{rows, 1024}, DType::kFloat32, {}},
        attributes_(std::move(attributes)),
        views_{{reinterpret_cast<void*>(address), x_.shape, x_.dtype, true}, {}} {}

  std::optional<TunedPlan> measured(KernelTuner& tuner) const {
    const TensorSpec* const inputs[] = {&x_, nullptr};
    const InferContext infer(tuned_op().definition, inputs, attributes_);
    return tuner.measured(tuned_op(), Device::cpu(), KernelQuery(infer, std::span(&x_, 1), views_));
  }

  std::string ask(KernelTuner& tuner) const {
    const TensorSpec* const inputs[] = {&x_, nullptr};
    const InferContext infer(tuned_op().definition, inputs, attributes_);
    return tuner.choose(tuned_op(), Device::cpu(), KernelQuery(infer, std::span(&x_, 1), views_))
        .kernel->name;
  }

 private:
  TensorSpec x_;
  Attributes attributes_;
  std::vector<TensorView> views_;
};

class KernelTunerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    tuned_op();
    settings::set_autotune(true);
    settings::set_deterministic(false);
    log::set_sink([this](log::Level level, std::string_view message) {
      if (level == log::Level::kWarning) warnings_.emplace_back(message);
    });
    write({10, 11, 12}, {100, 90, 80});
  }
  void TearDown() override {
    log::set_sink({});
    settings::set_autotune(autotune_);
    settings::set_deterministic(deterministic_);
    settings::set_allow_tf32(tf32_);
  }

  static void write(const std::vector<double>& estimates, const std::vector<double>& times) {
    script = {};
    for (size_t i = 0; i < estimates.size(); ++i) {
      script.estimates[kNames[i]] = estimates[i];
      script.times[kNames[i]] = times[i];
    }
  }
  KernelTuner make() {
    return KernelTuner(folder_.path(), [](Device) { return std::make_unique<ScriptedTimer>(); });
  }

  testing::TemporaryFolder folder_;
  Names warnings_;

 private:
  bool autotune_ = settings::autotune(), deterministic_ = settings::deterministic(),
       tf32_ = settings::allow_tf32();
};

}  // namespace sinter::testing_tuner
