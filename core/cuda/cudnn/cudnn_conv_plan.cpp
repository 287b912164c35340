#include <algorithm>
#include <array>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <sinter/core/base/log.h>
#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/cuda/cuda_memory.h>
#include <sinter/core/cuda/cudnn/cudnn_conv_graph.h>
#include <sinter/core/cuda/cudnn/cudnn_conv_limits.h>
#include <sinter/core/cuda/cudnn/cudnn_conv_plan.h>
#include <sinter/core/cuda/cudnn/depthwise_conv_plan.h>
#include <sinter/core/cuda/cudnn/staged_conv_plan.h>
#include <sinter/core/cuda/device_traits.h>
#include <sinter/core/runtime/plan_cache.h>
#include <sinter/core/runtime/plan_store.h>
#include <sinter/core/runtime/settings.h>
#include <sinter/core/timing/choose_plan.h>
#include <sinter/core/timing/work_timer.h>

namespace sinter::cuda {
namespace {

constexpr size_t kMostMeasured = 16;  // for each approach
// Engines with sums, or an epilogue, are few and alike, and most are compiled when they are built.
constexpr size_t kMostMeasuredOfSums = 4, kMostMeasuredOfEpilogues = 8;
constexpr size_t kMostMeasuredBesideOwn = 3;  // where Sinter's own plan is one of them
constexpr size_t kFavourites = 4;             // of each approach
// Times what memory takes for x, weight and y once: no plan is worth a search beside an own one of that time.
constexpr double kNearMemory = 1.5;

// ---- a plan

class CudnnConvPlan final : public ConvPlan {
 public:
  /// nullptr if cuDNN refuses the configuration.
  static std::unique_ptr<CudnnConvPlan> make(cudnnHandle_t handle, const ConvProblem& problem,
                                             std::shared_ptr<const ConvGraph> graph, ConvConfig config) {
    CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config.descriptor);
    if (!plan.try_finalize()) return nullptr;
    return std::unique_ptr<CudnnConvPlan>(
        new CudnnConvPlan(problem, std::move(graph), std::move(config), std::move(plan)));
  }

  size_t workspace_bytes() const override { return workspace_bytes_; }
  const std::string& name() const override { return config_.name; }

  void run(const Stream& stream, const ConvArrays& arrays, void* workspace) const override {
    std::array<int64_t, kMostTensors> ids;
    std::array<void*, kMostTensors> data;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      ids[i] = tensors_[i].id;
      data[i] = tensors_[i].array(problem_, arrays);
    }
    CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span(ids).first(tensors_.size()));
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::ssize(tensors_), data.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    pack.finalize();
    const cudnnHandle_t handle = cudnn_handle(stream);
    const std::lock_guard lock(mutex_);
    SINTER_CUDNN_CHECK(cudnnBackendExecute(handle, plan_.get(), pack.get()));
  }

 private:
  CudnnConvPlan(const ConvProblem& problem, std::shared_ptr<const ConvGraph> graph, ConvConfig config,
                CudnnDescriptor plan)
      : problem_(problem),
        tensors_(conv_tensors(problem)),
        graph_(std::move(graph)),
        config_(std::move(config)),
        plan_(std::move(plan)) {
    int64_t bytes = 0, found = 0;
    SINTER_CUDNN_CHECK(cudnnBackendGetAttribute(plan_.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                CUDNN_TYPE_INT64, 1, &found, &bytes));
    workspace_bytes_ = static_cast<size_t>(bytes);
  }

  static constexpr size_t kMostTensors = 8;

  ConvProblem problem_;
  std::vector<ConvTensor> tensors_;
  std::shared_ptr<const ConvGraph> graph_;  // the configuration refers to it
  ConvConfig config_;
  CudnnDescriptor plan_;
  size_t workspace_bytes_ = 0;
  mutable std::mutex mutex_;  // cuDNN does not promise that all engines run one plan from several threads
};

// ---- the candidates for a problem

size_t bytes_of(const std::array<int64_t, 4>& extents, DType dtype) {
  int64_t count = 1;
  for (const int64_t extent : extents) count *= extent;
  return static_cast<size_t>(count) * size_of(dtype);
}

/// Bytes of x, weight and y.
double traffic_of(const ConvProblem& problem) {
  size_t bytes = 0;
  for (const auto* extents : {&problem.x, &problem.weight, &problem.y})
    bytes += bytes_of(*extents, problem.dtype);
  return static_cast<double>(bytes);
}

/// One way to put the problem to cuDNN: as it is, or staged.
struct Approach {
  std::optional<ConvStaging> staging;
  ConvProblem problem;
  std::shared_ptr<const ConvGraph> graph;  // null if cuDNN refuses the problem
  std::vector<ConvConfig> configs;

  Approach(cudnnHandle_t handle, const ConvProblem& asked, const ConvRules& rules,
           std::optional<ConvStaging> how = std::nullopt)
      : staging(how), problem(staging ? staged_problem(asked, *staging) : asked) {
    if (staging) {
      const size_t copies = StagedConvPlan::copies_bytes(asked, *staging);
      if (copies > asked.workspace_limit) return;
      problem.workspace_limit -= copies;
    }
    graph = make_conv_graph(handle, problem);
    if (graph != nullptr) configs = propose_conv_configs(*graph, problem.dtype, rules, !staging);
  }
};

class ConvCandidates final : public PlanCandidates {
 public:
  ConvCandidates(cudnnHandle_t handle, const ConvProblem& problem, const ConvRules& rules)
      : handle_(handle), problem_(problem) {
    if (is_depthwise_conv(problem)) {
      std::unique_ptr<ConvPlan> own = make_depthwise_conv_plan(problem);
      candidates_.push_back({.name = own->name(), .plan = std::move(own)});
      good_time_ = kNearMemory * traffic_of(problem) / device_traits(problem.device).dram_bytes_per_us;
    }
    const std::vector<ConvStaging> stagings = stagings_of(problem, rules);
    if (!problem.sums || stagings.empty()) approaches_.emplace_back(handle, problem, rules);
    for (const ConvStaging& staging : stagings) approaches_.emplace_back(handle, problem, rules, staging);
    // In turns, so that the favourites of all approaches are among the first.
    size_t turns = 0;
    for (const Approach& approach : approaches_) turns = std::max(turns, approach.configs.size());
    for (size_t turn = 0; turn < turns; ++turn) {
      for (Approach& approach : approaches_) {
        if (turn < approach.configs.size()) add(approach, approach.configs[turn]);
      }
    }
  }

  static std::vector<ConvStaging> stagings_of(const ConvProblem& problem, const ConvRules& rules) {
    return conv_stagings(problem, is_half(problem.dtype) || rules.allow_tf32);
  }

  size_t count() const override { return candidates_.size(); }
  std::string name(size_t i) const override { return candidates_[i].name; }
  /// How many to time.
  size_t most_measured() const {
    if (is_depthwise_conv(problem_)) return kMostMeasuredBesideOwn;
    const size_t each = problem_.sums                  ? kMostMeasuredOfSums
                        : problem_.epilogue.is_there() ? kMostMeasuredOfEpilogues
                                                       : kMostMeasured;
    return each * approaches_.size();
  }

  bool prepare_timing() override {
    try {
      timer_ = make_work_timer(Device::cuda(problem_.device));
      const size_t channels = static_cast<size_t>(problem_.y[1]),
                   y_bytes = bytes_of(problem_.y, problem_.dtype);
      arrays_ = {};
      arrays_.x = timer_->scratch(bytes_of(problem_.x, problem_.dtype));
      arrays_.weight = timer_->scratch(bytes_of(problem_.weight, problem_.dtype));
      arrays_.y = timer_->scratch(y_bytes);
      if (problem_.sums) arrays_.sums = static_cast<float*>(timer_->scratch(2 * sizeof(float) * channels));
      if (problem_.epilogue.bias) arrays_.bias = timer_->scratch(channels * size_of(problem_.dtype));
      if (problem_.epilogue.addend) arrays_.addend = timer_->scratch(y_bytes);
      if (problem_.epilogue.activation == ConvActivation::kPRelu)
        arrays_.slope = timer_->scratch(channels * sizeof(float));
      return true;
    } catch (const OutOfMemory& error) {
      return go_without_timing(error);
    } catch (const Unsupported& error) {
      return go_without_timing(error);
    }
  }

  bool build(size_t i) override {
    if (best_time_ <= good_time_) return false;
    if (candidates_[i].plan != nullptr) {  // an own one
      return candidates_[i].plan->workspace_bytes() <= problem_.workspace_limit;
    }
    const Approach& approach = *candidates_[i].approach;
    std::unique_ptr<ConvPlan> plan =
        CudnnConvPlan::make(handle_, approach.problem, approach.graph, std::move(*candidates_[i].config));
    if (plan == nullptr || plan->workspace_bytes() > approach.problem.workspace_limit) return false;
    if (approach.staging) {
      plan = std::make_unique<StagedConvPlan>(problem_, *approach.staging, std::move(plan));
    }
    candidates_[i].plan = std::move(plan);
    return true;
  }

  size_t favourites() const override {
    const auto proposes = [](const Approach& approach) { return !approach.configs.empty(); };
    return kFavourites *
           static_cast<size_t>(std::max<int64_t>(std::ranges::count_if(approaches_, proposes), 1));
  }

  std::optional<double> time(size_t i, TimeBudget& budget) override {
    const ConvPlan& plan = *candidates_[i].plan;
    try {
      grow_workspace(plan.workspace_bytes());
      const auto run = [&] { plan.run(timer_->stream(), arrays_, workspace_); };
      const double time = timer_->measure(run, budget);
      best_time_ = budget.best();
      log::debug("[cudnn] {}: {:.1f} us, {} bytes, {}", to_string(problem_), time, plan.workspace_bytes(),
                 plan.name());
      return time;
    } catch (const OutOfMemory& error) {
      log::debug("[cudnn] {}: {}: {}", to_string(problem_), plan.name(), error.what());
      throw;
    } catch (const Error& error) {
      if (device_lost(problem_.device)) throw;
      log::debug("[cudnn] {}: {} failed: {}", to_string(problem_), plan.name(), error.what());
      return std::nullopt;
    }
  }

  std::unique_ptr<ConvPlan> take(size_t i) { return std::move(candidates_[i].plan); }

 private:
  struct Candidate {
    const Approach* approach = nullptr;
    ConvConfig* config = nullptr;
    std::string name;
    std::unique_ptr<ConvPlan> plan;
  };

  bool go_without_timing(const Error& why) {
    log::info("[cudnn] {}: plans are not timed. {}", to_string(problem_), why.what());
    timer_.reset();
    return false;
  }

  void add(Approach& approach, ConvConfig& config) {
    candidates_.push_back(
        {.approach = &approach,
         .config = &config,
         .name = approach.staging ? StagedConvPlan::name_of(*approach.staging, config.name) : config.name,
         .plan = nullptr});
  }

  void grow_workspace(size_t bytes) {
    if (bytes <= workspace_bytes_) return;
    workspace_ = timer_->scratch(bytes);
    workspace_bytes_ = bytes;
  }

  cudnnHandle_t handle_;
  ConvProblem problem_;
  std::list<Approach> approaches_;  // candidates point into it
  std::vector<Candidate> candidates_;
  std::unique_ptr<WorkTimer> timer_;
  double best_time_ = std::numeric_limits<double>::infinity(), good_time_ = 0;  // microseconds
  ConvArrays arrays_;
  void* workspace_ = nullptr;
  size_t workspace_bytes_ = 0;
};

// ---- plans by problem

/// A problem with all that decides which plan it gets.
struct PlanKey {
  ConvProblem problem;
  ConvRules rules;
  bool autotune = false;

  bool operator==(const PlanKey&) const = default;
};

struct PlanKeyHash {
  size_t operator()(const PlanKey& key) const {
    uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a over words
    const auto mix = [&hash](auto value) { hash = (hash ^ static_cast<uint64_t>(value)) * 0x100000001B3u; };
    const ConvProblem& p = key.problem;
    mix(p.device), mix(p.pass), mix(p.dtype), mix(p.layout), mix(p.workspace_limit);
    for (const auto* extents : {&p.x, &p.weight, &p.y}) {
      for (const int64_t extent : *extents) mix(extent);
    }
    for (const auto* pair : {&p.stride, &p.padding, &p.dilation}) mix((*pair)[0]), mix((*pair)[1]);
    mix(p.epilogue.bias), mix(p.epilogue.addend), mix(p.epilogue.activation), mix(p.epilogue.slope_dtype);
    mix(p.sums), mix(key.rules.allow_tf32), mix(key.rules.deterministic), mix(key.autotune);
    return static_cast<size_t>(hash ^ (hash >> 32));
  }
};

/// What the disk remembers a problem by.
std::string cache_text(const PlanKey& key) {
  std::string text = to_string(key.problem);
  text += fmt::format(" m{}", key.problem.workspace_limit);
  if (key.rules.allow_tf32) text += " tf32";
  if (key.rules.deterministic) text += " deterministic";
  // A winner among fewer candidates, found by an earlier version, does not count.
  const size_t stagings = ConvCandidates::stagings_of(key.problem, key.rules).size();
  if (stagings > 0) text += fmt::format(" stagings {}", stagings);
  if (is_depthwise_conv(key.problem)) text += " depthwise";
  return text;
}

class ConvPlans {
 public:
  static ConvPlans& instance() {
    // Never destroyed: plans belong to cuDNN, which may be gone when statics end.
    static auto& plans = *new ConvPlans;
    return plans;
  }

  std::shared_ptr<const ConvPlan> find(const PlanKey& key) {
    if (auto found = plans_.find(key)) return *std::move(found);
    if (auto known = build_known(key)) return plans_.add(key, std::move(known), settings::plan_limit());
    if (OnlyKnownPlans::wanted()) return nullptr;
    const std::lock_guard search(search_mutex_);  // one at a time: searches would disturb each other's times
    if (auto found = plans_.find(key)) return *std::move(found);
    auto [plan, settled] = search_plan(key);
    if (settled) return plans_.add(key, std::move(plan), settings::plan_limit());
    if (plan != nullptr) provisional_.push_back(plan);
    return plans_.add_for_now(key, std::move(plan), settings::plan_limit());
  }

 private:
  struct Found {
    std::shared_ptr<const ConvPlan> plan;
    bool settled;  // else it is what the moment allowed
  };

  /// The plan that the disk remembers; null if there is none.
  std::shared_ptr<const ConvPlan> build_known(const PlanKey& key) {
    PlanCache& cache = cache_of(key.problem.device);
    const std::string text = cache_text(key);
    if (!is_safe_for_cudnn(key.problem) || !cache.find(text)) return nullptr;
    const DeviceGuard guard(key.problem.device);
    const cudnnHandle_t handle = cudnn_handle(current_stream(Device::cuda(key.problem.device)));
    ConvCandidates candidates(handle, key.problem, key.rules);
    const std::optional<size_t> known = build_known_plan(cache, text, candidates);
    return known ? candidates.take(*known) : nullptr;
  }

  Found search_plan(const PlanKey& key) {
    if (!is_safe_for_cudnn(key.problem)) {
      log::info(
          "[cudnn] {}: parts of the filter or the output lie wholly in the padding; Sinter's own kernel "
          "runs",
          to_string(key.problem));
      return {nullptr, true};
    }
    const int device = key.problem.device;
    const DeviceGuard guard(device);
    const Stream stream = current_stream(Device::cuda(device));
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    SINTER_CUDA_CHECK(cudaStreamIsCapturing(static_cast<cudaStream_t>(stream.native), &capture));

    ConvCandidates candidates(cudnn_handle(stream), key.problem, key.rules);
    Timing timing = Timing::kNever;
    if (key.autotune && candidates.count() > 1) {
      timing = capture == cudaStreamCaptureStatusNone ? Timing::kNow : Timing::kNotNow;
    }
    const std::string text = cache_text(key);
    const PlanChoice choice =
        choose_plan(cache_of(device), text, candidates, timing, candidates.most_measured());
    if (choice.plan) return {candidates.take(*choice.plan), choice.settled};
    const bool is_plain =
        !key.problem.sums && !key.problem.epilogue.is_there();  // the rest is a matter of luck
    if (is_plain && warned_.insert(text).second) {
      log::warning("[cudnn] no plan for {}: Sinter's own kernel runs, which is slower", text);
    }
    return {nullptr, choice.settled};
  }

  PlanCache& cache_of(int device) {
    const std::lock_guard lock(caches_mutex_);
    auto& cache = caches_[device];
    if (cache == nullptr) {
      cudaDeviceProp properties{};
      SINTER_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
      cache = std::make_unique<PlanCache>(cache_folder(),
                                          fmt::format("{} cudnn {}", properties.name, cudnnGetVersion()));
    }
    return *cache;
  }

  PlanStore<PlanKey, ConvPlan, PlanKeyHash> plans_;
  std::mutex caches_mutex_;
  std::map<int, std::unique_ptr<PlanCache>> caches_;  // guarded by it; stay where they are
  std::mutex search_mutex_;                           // guards what follows
  // Plans that give way to better ones although a captured graph may still run their kernels.
  std::vector<std::shared_ptr<const ConvPlan>> provisional_;
  std::set<std::string> warned_;  // problems without a plan
};

const char* name_of(ConvPass pass) {
  switch (pass) {
    case ConvPass::kForward:
      return "forward";
    case ConvPass::kGradInput:
      return "grad_input";
    case ConvPass::kGradWeight:
      return "grad_weight";
  }
  return "?";
}

std::string text_of(const ConvEpilogue& epilogue) {
  std::string text;
  if (epilogue.addend) text += " + addend";
  if (epilogue.bias) text += " + bias";
  if (epilogue.activation == ConvActivation::kRelu) text += " relu";
  if (epilogue.activation == ConvActivation::kPRelu) text += fmt::format(" prelu {}", epilogue.slope_dtype);
  return text;
}

}  // namespace

std::string to_string(const ConvProblem& problem) {
  const auto list = [](const auto& values) {
    std::string text;
    for (const int64_t value : values) text += fmt::format("{}{}", text.empty() ? "" : ",", value);
    return text;
  };
  return fmt::format("{} {} {} x({}) w({}) y({}) s{} p{} d{}{}{}", name_of(problem.pass), problem.dtype,
                     to_string(problem.layout), list(problem.x), list(problem.weight), list(problem.y),
                     list(problem.stride), list(problem.padding), list(problem.dilation),
                     problem.sums ? " with sums" : "", text_of(problem.epilogue));
}

std::shared_ptr<const ConvPlan> find_conv_plan(const ConvProblem& problem) {
  const PlanKey key{
      .problem = problem,
      .rules = {.allow_tf32 = settings::allow_tf32(), .deterministic = settings::deterministic()},
      // A lower limit than usual means that memory is short: no time for trials that take more of it.
      .autotune = settings::autotune() && problem.workspace_limit == kConvWorkspaceLimit};
  return ConvPlans::instance().find(key);
}

}  // namespace sinter::cuda
