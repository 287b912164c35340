#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include <sinter/core/base/log.h>
#include <sinter/core/op/autotune/choose_by_time.h>
#include <sinter/core/op/autotune/kernel_tuner.h>
#include <sinter/core/runtime/settings.h>
#include <sinter/core/timing/choose_plan.h>

namespace sinter {
namespace {

constexpr size_t kAlignment = 16;            // that kernels of such ops may ask for
constexpr size_t kWorkspaceAlignment = 256;  // KernelContext::workspace()

size_t offset_of(const KernelQuery& query, size_t i) {
  return i < query.inputs().size() ? reinterpret_cast<uintptr_t>(query.inputs()[i].data) % kAlignment : 0;
}

size_t traffic_of(const KernelQuery& query) {
  size_t bytes = 0;
  for (size_t i = 0; i < query.input_count(); ++i) bytes += query.has_input(i) ? query.input(i).bytes() : 0;
  for (const TensorSpec& output : query.outputs()) bytes += output.bytes();
  return bytes;
}

/// What files and other ranks know a problem by. With the kernels that there are: a winner among others does
/// not count.
std::string problem_text(const Op& op, Device device, const KernelQuery& query) {
  std::string text = op.name() + " of";
  for (const Kernel& kernel : op.kernels) {
    if (kernel.device == device.type) text += " " + kernel.name;
  }
  text += ":";
  for (size_t i = 0; i < query.input_count(); ++i) {
    text += query.has_input(i) ? fmt::format(" {}{}", query.input(i).dtype, query.input(i).shape) : " none";
    if (const size_t offset = offset_of(query, i); offset > 0) text += fmt::format("+{}", offset);
  }
  const std::string attributes = to_string(query.attributes());
  if (!attributes.empty()) text += " " + attributes;
  return settings::allow_tf32() ? text + " tf32" : text;
}

/// Runs candidates on tensors of their own.
class Trials final : public PlanCandidates {
 public:
  Trials(Device device, const KernelQuery& query, std::span<const KernelCandidate> candidates,
         const KernelTuner::MakeTimer& make_timer)
      : device_(device), query_(query), candidates_(candidates), make_timer_(make_timer) {}

  size_t count() const override { return candidates_.size(); }
  std::string name(size_t i) const override { return candidates_[i].choice.kernel->name; }
  bool build(size_t) override { return true; }
  bool was_timed() const { return timer_ != nullptr; }

  bool prepare_timing() override {
    try {
      timer_ = make_timer_(device_);
      for (size_t i = 0; i < query_.input_count(); ++i) {
        inputs_.push_back(query_.has_input(i) ? view_of(query_.input(i), offset_of(query_, i))
                                              : TensorView{});
      }
      for (const TensorSpec& output : query_.outputs()) outputs_.push_back(view_of(output, 0));
      return true;
    } catch (const OutOfMemory& error) {
      return go_without_timing(error);
    } catch (const Unsupported& error) {
      return go_without_timing(error);
    }
  }

  std::optional<double> time(size_t i, TimeBudget& budget) override {
    const KernelChoice& choice = candidates_[i].choice;
    try {
      if (choice.workspace_bytes > workspace_bytes_) {
        void* block = timer_->scratch(choice.workspace_bytes + kWorkspaceAlignment);
        size_t room = choice.workspace_bytes + kWorkspaceAlignment;
        workspace_ = std::align(kWorkspaceAlignment, choice.workspace_bytes, block, room);
        workspace_bytes_ = choice.workspace_bytes;
      }
      const KernelContext context(inputs_, outputs_, query_.attributes(), timer_->stream(), workspace_,
                                  choice);
      const double time = timer_->measure([&] { choice.kernel->run(context); }, budget);
      log::debug("[autotune] {} {}: {:.1f} us", query_.op().name, name(i), time);
      return time;
    } catch (const OutOfMemory&) {
      throw;
    } catch (const Error& error) {
      backend_of(device_).synchronize(timer_->stream());  // throws if it is the GPU that is lost
      log::debug("[autotune] {} {}: {}", query_.op().name, name(i), error.what());
      return std::nullopt;
    }
  }

 private:
  TensorView view_of(const TensorSpec& spec, size_t offset) {
    return {static_cast<std::byte*>(timer_->scratch(spec.bytes() + offset)) + offset, spec.shape, spec.dtype,
            true};
  }

  bool go_without_timing(const Error& why) {
    log::info("[autotune] {}: kernels are not timed. {}", query_.op().name, why.what());
    timer_.reset();
    return false;
  }

  Device device_;
  const KernelQuery& query_;
  std::span<const KernelCandidate> candidates_;
  const KernelTuner::MakeTimer& make_timer_;
  std::unique_ptr<WorkTimer> timer_;
  std::vector<TensorView> inputs_, outputs_;
  void* workspace_ = nullptr;
  size_t workspace_bytes_ = 0;
};

}  // namespace

KernelTuner::Key::Key(const Op& asked, Device device, const KernelQuery& query, uint64_t generation)
    : op(&asked), attributes(query.attributes()) {
  words.reserve(4 + 5 * query.input_count());
  const uint64_t flags = uint64_t{settings::allow_tf32()} | uint64_t{settings::deterministic()} << 1 |
                         uint64_t{settings::autotune()} << 2;
  const auto pack = [](auto value, auto other) {
    return static_cast<uint64_t>(value) << 32 | static_cast<uint64_t>(other);
  };
  words.push_back(pack(device.type, device.index));
  words.push_back(pack(device.is_cpu() ? query.threads() : 0, flags));
  words.push_back(generation);
  for (size_t i = 0; i < query.input_count(); ++i) {
    words.push_back(~uint64_t{0});
    if (!query.has_input(i)) continue;
    const TensorSpec& input = query.input(i);
    words.back() = pack(input.dtype, offset_of(query, i) << 8 | static_cast<uint64_t>(input.shape.rank()));
    for (const int64_t extent : input.shape) words.push_back(static_cast<uint64_t>(extent));
  }
}

size_t KernelTuner::Hash::operator()(const Key& key) const {
  uint64_t hash = 0xCBF29CE484222325u ^ reinterpret_cast<uintptr_t>(key.op);  // FNV-1a over words
  const auto mix = [&hash](uint64_t value) { hash = (hash ^ value) * 0x100000001B3u; };
  mix(key.attributes.hash());
  for (const uint64_t word : key.words) mix(word);
  return static_cast<size_t>(hash ^ (hash >> 32));
}

KernelTuner& KernelTuner::instance() {
  static auto& tuner = *new KernelTuner;  // outlives every static tensor
  return tuner;
}

KernelChoice KernelTuner::choose(const Op& op, Device device, const KernelQuery& query) {
  const Key key(op, device, query, generation_.load(std::memory_order_acquire));
  if (const auto found = store_.find(key)) return **found;
  std::vector<KernelCandidate> candidates = kernel_candidates(op, device, query);
  const size_t limit = settings::plan_limit();
  if (candidates.size() == 1 || settings::deterministic() || traffic_of(query) < kLeastTraffic)
    return *store_.add(key, std::make_shared<KernelChoice>(std::move(candidates[0].choice)), limit);

  if (OnlyKnownPlans::wanted()) return std::move(candidates[0].choice);
  const std::lock_guard lock(mutex_);
  if (const auto found = store_.find(key)) return **found;
  auto [choice, settled] = search(problem_text(op, device, query), device, query, std::move(candidates));
  auto shared = std::make_shared<KernelChoice>(std::move(choice));
  return settled ? *store_.add(key, std::move(shared), limit)
                 : *store_.add_for_now(key, std::move(shared), limit);
}

KernelTuner::Found KernelTuner::search(const std::string& problem, Device device, const KernelQuery& query,
                                       std::vector<KernelCandidate> candidates) {
  const auto named = std::ranges::find_if(candidates, [&](const KernelCandidate& candidate) {
    const auto told = told_.find(problem);
    return told != told_.end() && told->second == candidate.choice.kernel->name;
  });
  if (named != candidates.end()) {
    chosen_[problem] = named->choice.kernel->name;
    return {std::move(named->choice)};
  }
  const auto hopeless = [least = candidates[0].microseconds](const KernelCandidate& candidate) {
    return candidate.microseconds != kUnknownTime && candidate.microseconds > kHopeless * least;
  };
  const auto promising = std::ranges::stable_partition(candidates, std::not_fn(hopeless)).begin();
  const size_t most = std::min(kMostTimed, static_cast<size_t>(promising - candidates.begin()));
  const bool times = settings::autotune() && most > 1 && timed_ < kMostProblems;
  Trials trials(device, query, candidates, make_timer_);
  const PlanChoice choice =
      choose_plan(cache_of(device), problem, trials, times ? Timing::kNow : Timing::kNever, most, kMargin);
  if (trials.was_timed()) ++timed_;
  KernelChoice& chosen = candidates[choice.plan.value_or(0)].choice;
  if (choice.settled) chosen_[problem] = chosen.kernel->name;
  return {std::move(chosen), choice.settled};
}

std::optional<TunedPlan> KernelTuner::measured(const Op& op, Device device, const KernelQuery& query) {
  const std::lock_guard lock(mutex_);
  return cache_of(device).find(problem_text(op, device, query));
}

PlanCache& KernelTuner::cache_of(Device device) {
  auto& cache = caches_[device];
  if (cache == nullptr) {
    cache = std::make_unique<PlanCache>(
        folder_, fmt::format("{} kernels", backend_of(device).signature(device.index)));
  }
  return *cache;
}

std::string KernelTuner::choices() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const auto& [problem, kernel] : chosen_) text += fmt::format("{}\t{}\n", kernel, problem);
  return text;
}

void KernelTuner::follow(const std::string& choices) {
  const std::lock_guard lock(mutex_);
  bool differs = false;
  for (size_t at = 0, end = 0; (end = choices.find('\n', at)) != std::string::npos; at = end + 1) {
    const size_t tab = choices.find('\t', at);
    if (tab >= end) continue;
    const std::string kernel = choices.substr(at, tab - at), problem = choices.substr(tab + 1, end - tab - 1);
    told_[problem] = kernel;
    const auto own = chosen_.find(problem);
    differs = differs || (own != chosen_.end() && own->second != kernel);
  }
  if (differs) generation_.fetch_add(1, std::memory_order_acq_rel);
}

KernelChoice choose_by_time(const Op& op, Device device, const KernelQuery& query) {
  return KernelTuner::instance().choose(op, device, query);
}

}  // namespace sinter
