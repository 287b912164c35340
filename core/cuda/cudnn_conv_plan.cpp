#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include <sinter/core/base/log.h>
#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/cuda/cudnn_conv_graph.h>
#include <sinter/core/cuda/cudnn_conv_plan.h>
#include <sinter/core/cuda/kernel_timer.h>
#include <sinter/core/runtime/plan_cache.h>
#include <sinter/core/runtime/settings.h>

namespace sinter::cuda {
namespace {

constexpr size_t kMostMeasured = 16;

// ---- a plan

class CudnnConvPlan final : public ConvPlan {
 public:
  /// nullptr if cuDNN refuses the configuration.
  static std::unique_ptr<CudnnConvPlan> make(cudnnHandle_t handle, std::shared_ptr<const ConvGraph> graph,
                                             ConvConfig config) {
    CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config.descriptor);
    if (!plan.try_finalize()) return nullptr;
    return std::unique_ptr<CudnnConvPlan>(
        new CudnnConvPlan(std::move(graph), std::move(config), std::move(plan)));
  }

  size_t workspace_bytes() const override { return workspace_bytes_; }
  const std::string& name() const override { return config_.name; }

  void run(const Stream& stream, void* x, void* weight, void* y, void* workspace) const override {
    void* const data[] = {x, weight, y};
    CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, kConvTensorIds);
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::ssize(data), data);
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    pack.finalize();
    const cudnnHandle_t handle = cudnn_handle(stream);
    const std::lock_guard lock(mutex_);
    SINTER_CUDNN_CHECK(cudnnBackendExecute(handle, plan_.get(), pack.get()));
  }

 private:
  CudnnConvPlan(std::shared_ptr<const ConvGraph> graph, ConvConfig config, CudnnDescriptor plan)
      : graph_(std::move(graph)), config_(std::move(config)), plan_(std::move(plan)) {
    int64_t bytes = 0, found = 0;
    SINTER_CUDNN_CHECK(cudnnBackendGetAttribute(plan_.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                CUDNN_TYPE_INT64, 1, &found, &bytes));
    workspace_bytes_ = static_cast<size_t>(bytes);
  }

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

class ConvCandidates final : public PlanCandidates {
 public:
  ConvCandidates(cudnnHandle_t handle, const ConvProblem& problem, const ConvRules& rules)
      : handle_(handle), problem_(problem), graph_(make_conv_graph(handle, problem)) {
    if (graph_ != nullptr) configs_ = propose_conv_configs(*graph_, problem.dtype, rules);
    for (const ConvConfig& config : configs_) names_.push_back(config.name);
    plans_.resize(configs_.size());
  }

  size_t count() const override { return configs_.size(); }
  std::string name(size_t i) const override { return names_[i]; }

  bool prepare_timing() override {
    try {
      timer_ = std::make_unique<KernelTimer>(problem_.device);
      x_ = timer_->scratch(bytes_of(problem_.x, problem_.dtype));
      weight_ = timer_->scratch(bytes_of(problem_.weight, problem_.dtype));
      y_ = timer_->scratch(bytes_of(problem_.y, problem_.dtype));
      return true;
    } catch (const OutOfMemory& error) {
      log::info("[cudnn] {}: plans are not timed. {}", to_string(problem_), error.what());
      timer_.reset();
      return false;
    }
  }

  bool build(size_t i) override {
    plans_[i] = CudnnConvPlan::make(handle_, graph_, std::move(configs_[i]));
    if (plans_[i] != nullptr && plans_[i]->workspace_bytes() > problem_.workspace_limit) plans_[i].reset();
    return plans_[i] != nullptr;
  }

  std::optional<double> time(size_t i) override {
    const CudnnConvPlan& plan = *plans_[i];
    try {
      grow_workspace(plan.workspace_bytes());
      const double time = timer_->measure([&] { plan.run(timer_->stream(), x_, weight_, y_, workspace_); });
      log::debug("[cudnn] {}: {:.1f} us, {} bytes, {}", to_string(problem_), time, plan.workspace_bytes(),
                 plan.name());
      return time;
    } catch (const OutOfMemory& error) {
      log::debug("[cudnn] {}: {}: {}", to_string(problem_), plan.name(), error.what());
      throw;
    } catch (const Error& error) {
      if (device_lost()) throw;
      log::debug("[cudnn] {}: {} failed: {}", to_string(problem_), plan.name(), error.what());
      return std::nullopt;
    }
  }

  std::unique_ptr<ConvPlan> take(size_t i) { return std::move(plans_[i]); }

 private:
  void grow_workspace(size_t bytes) {
    if (bytes <= workspace_bytes_) return;
    workspace_ = timer_->scratch(bytes);
    workspace_bytes_ = bytes;
  }

  cudnnHandle_t handle_;
  ConvProblem problem_;
  std::shared_ptr<const ConvGraph> graph_;
  std::vector<ConvConfig> configs_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<CudnnConvPlan>> plans_;
  std::unique_ptr<KernelTimer> timer_;
  void *x_ = nullptr, *weight_ = nullptr, *y_ = nullptr, *workspace_ = nullptr;
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
    mix(key.rules.allow_tf32), mix(key.rules.deterministic), mix(key.autotune);
    return static_cast<size_t>(hash ^ (hash >> 32));
  }
};

/// What the disk remembers a problem by.
std::string cache_text(const PlanKey& key) {
  std::string text = to_string(key.problem);
  text += fmt::format(" m{}", key.problem.workspace_limit);
  if (key.rules.allow_tf32) text += " tf32";
  if (key.rules.deterministic) text += " deterministic";
  return text;
}

class PlanStore {
 public:
  static PlanStore& instance() {
    // Never destroyed: plans belong to cuDNN, which may be gone when statics end.
    static auto& store = *new PlanStore;
    return store;
  }

  const ConvPlan* find(const PlanKey& key) {
    {
      const std::shared_lock lock(plans_mutex_);
      if (const auto found = plans_.find(key); found != plans_.end()) return found->second.get();
    }
    const std::lock_guard search(search_mutex_);  // one at a time: searches would disturb each other's times
    {
      const std::shared_lock lock(plans_mutex_);
      if (const auto found = plans_.find(key); found != plans_.end()) return found->second.get();
    }
    std::unique_ptr<ConvPlan> plan = search_plan(key);
    const std::lock_guard lock(plans_mutex_);
    return plans_.emplace(key, std::move(plan)).first->second.get();
  }

 private:
  std::unique_ptr<ConvPlan> search_plan(const PlanKey& key) {
    const int device = key.problem.device;
    const DeviceGuard guard(device);
    const Stream stream = current_stream(Device::cuda(device));
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    SINTER_CUDA_CHECK(cudaStreamIsCapturing(static_cast<cudaStream_t>(stream.native), &capture));

    ConvCandidates candidates(cudnn_handle(stream), key.problem, key.rules);
    const bool measure = key.autotune && candidates.count() > 1 && capture == cudaStreamCaptureStatusNone;
    const std::string text = cache_text(key);
    const std::optional<size_t> chosen =
        choose_plan(cache_of(device), text, candidates, measure, kMostMeasured);
    if (chosen) return candidates.take(*chosen);
    log::warning("[cudnn] no plan for {}: Sinter's own kernel runs, which is slower", text);
    return nullptr;
  }

  PlanCache& cache_of(int device) {
    auto& cache = caches_[device];
    if (cache == nullptr) {
      cudaDeviceProp properties{};
      SINTER_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
      cache = std::make_unique<PlanCache>(cache_folder(),
                                          fmt::format("{} cudnn {}", properties.name, cudnnGetVersion()));
    }
    return *cache;
  }

  std::shared_mutex plans_mutex_;
  std::unordered_map<PlanKey, std::unique_ptr<ConvPlan>, PlanKeyHash> plans_;
  std::mutex search_mutex_;
  std::map<int, std::unique_ptr<PlanCache>> caches_;  // under search_mutex_
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

}  // namespace

std::string to_string(const ConvProblem& problem) {
  const auto list = [](const auto& values) {
    std::string text;
    for (const int64_t value : values) text += fmt::format("{}{}", text.empty() ? "" : ",", value);
    return text;
  };
  return fmt::format("{} {} {} x({}) w({}) y({}) s{} p{} d{}", name_of(problem.pass), problem.dtype,
                     to_string(problem.layout), list(problem.x), list(problem.weight), list(problem.y),
                     list(problem.stride), list(problem.padding), list(problem.dilation));
}

const ConvPlan* find_conv_plan(const ConvProblem& problem) {
  return PlanStore::instance().find(
      {.problem = problem,
       .rules = {.allow_tf32 = settings::allow_tf32(), .deterministic = settings::deterministic()},
       // A lower limit than usual means that memory is short: no time for trials that take more of it.
       .autotune = settings::autotune() && problem.workspace_limit == kConvWorkspaceLimit});
}

}  // namespace sinter::cuda
