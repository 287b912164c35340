#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>

#include <sinter/core/base/log.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/settings.h>
#include <sinter/core/timing/choose_plan.h>
#include <sinter/core/timing/work_timer.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/passes/norm/call_race.h>

namespace sinter::passes {
namespace {

constexpr int64_t kPatternLength = 4099;  // a prime: no two channels get the same values

/// A tensor of values that are neither zero nor equal: on zeros a GPU draws less power and runs faster.
Tensor filled(const TensorSpec& spec) {
  std::vector<float> values;
  for (int64_t i = 0; i < std::min(kPatternLength, spec.shape.numel()); ++i)
    values.push_back(static_cast<float>((i * 2654435761) % 1009) / 1009.0F + 0.1F);
  const int64_t count = static_cast<int64_t>(values.size());
  const Tensor pattern = ops::cast(Tensor::from_values(values, {count}), spec.dtype);
  Tensor tensor = Tensor::empty(spec);
  auto* const data = static_cast<std::byte*>(tensor.raw_data());
  size_t done = pattern.spec().bytes();
  copy_bytes(data, spec.device, pattern.raw_data(), Device::cpu(), done);
  for (const size_t bytes = spec.bytes(); done < bytes;) {
    const size_t part = std::min(done, bytes - done);
    copy_bytes(data + done, spec.device, data, spec.device, part);
    done += part;
  }
  return tensor;
}

class Candidates final : public PlanCandidates {
 public:
  explicit Candidates(const Race& race) : race_(race), contenders_{&race.usual, &race.other} {}

  size_t count() const override { return contenders_.size(); }
  std::string name(size_t i) const override { return contenders_[i]->name; }
  bool build(size_t) override { return true; }
  bool prepare_timing() override { return true; }
  std::optional<double> time(size_t i, TimeBudget& budget) override {
    try {
      times_[i] = contenders_[i]->time(budget);
      log::debug("[race] {}: {:.1f} us", name(i), *times_[i]);
    } catch (const Error& error) {
      synchronize(race_.device);  // throws if it is the GPU that is lost
      log::debug("[race] {}: {}", name(i), error.what());
    }
    return times_[i];
  }
  /// What was measured now.
  std::string text() const {
    const auto& [usual, other] = times_;
    if (usual && other) return fmt::format("{:.1f} us, and {:.1f} us {}", *other, *usual, race_.usual_words);
    if (usual) return "no kernel runs it so";
    return settings::autotune() ? "as measured before" : "nothing is measured (autotune)";
  }

 private:
  const Race& race_;
  std::array<const Contender*, 2> contenders_;
  std::array<std::optional<double>, 2> times_;
};

/// Guarded by the caller.
PlanCache& cache_of(Device device, const std::string& topic) {
  static auto& caches = *new std::map<std::pair<int, std::string>, std::unique_ptr<PlanCache>>;
  auto& cache = caches[{device.index, topic}];
  if (cache == nullptr) {
    cache = std::make_unique<PlanCache>(
        cache_folder(), fmt::format("{} {}", backend_of(device).signature(device.index), topic));
  }
  return *cache;
}

}  // namespace

GraphNode& CopiedCalls::add(const GraphNode& node) {
  std::vector<GraphUse> inputs;
  for (const GraphUse& use : node.inputs) {
    const auto [twin, is_new] = twins_.try_emplace(use.value, nullptr);
    if (is_new) twin->second = &graph_->memory(filled(use.value->spec), GraphValue::Kind::kLeaf);
    inputs.push_back({twin->second, false});
  }
  GraphNode& made = graph_->insert(nullptr, *node.op, std::move(inputs), node.attributes, node.scope);
  for (size_t i = 0; i < node.outputs.size(); ++i) twins_[node.outputs[i]] = made.outputs[i];
  return made;
}

double CopiedCalls::time(TimeBudget& budget, const std::function<bool(const Program&)>& accepts) {
  Program program(std::move(graph_), device_);
  if (accepts && !accepts(program)) throw_error<Unsupported>("[race] this way is not worth a try");
  const std::unique_ptr<WorkTimer> timer = make_work_timer(device_);
  const StreamGuard guard(timer->stream());
  const auto run = [&] { program.run({}); };
  run();  // loads the code; the one with which measuring begins captures the work
  return timer->measure(run, budget);
}

Verdict run_race(const Race& race) {
  if (settings::deterministic()) return {false, "bits must not depend on a measurement (deterministic)"};
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  Candidates candidates(race);
  const PlanChoice choice =
      choose_plan(cache_of(race.device, race.topic), race.problem, candidates,
                  settings::autotune() ? Timing::kNow : Timing::kNever, candidates.count());
  backend_of(race.device).memory_pool(race.device.index).trim();
  return {choice.plan.value_or(0) == 1, candidates.text()};
}

void LeftCalls::report(PassContext& context, const std::string& before, const std::string& behind) const {
  for (const auto& [reason, names] : names_) {
    const std::string others = names.size() > 1 ? fmt::format(" and {} more", names.size() - 1) : "";
    context.missed(fmt::format("{}{}{}{}: {}", before, names.front(), others, behind, reason));
  }
}

}  // namespace sinter::passes
