#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include <sinter/core/base/log.h>
#include <sinter/core/executor/program.h>
#include <sinter/core/runtime/median_time.h>
#include <sinter/core/runtime/plan_cache.h>
#include <sinter/core/runtime/settings.h>
#include <sinter/ops/batch_norm_act/batch_norm_act_call.h>
#include <sinter/ops/batch_norm_act/cudnn_norm_constraint.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/passes/norm/norm_backend_race.h>

namespace sinter::passes {
namespace {

constexpr size_t kFlushBytes = size_t{128} << 20;  // more than a GPU's cache, twice: read and written
constexpr int64_t kPatternLength = 4099;           // a prime: no two channels get the same values

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

/// A pair in a graph of its own, on tensors of its own.
NormPair copy_pair(const NormPair& pair, Graph& graph) {
  std::map<const GraphValue*, GraphValue*> twins{{nullptr, nullptr}};
  const auto copy = [&](const GraphNode& node) {
    std::vector<GraphUse> inputs;
    for (const GraphUse& use : node.inputs) {
      const auto [twin, is_new] = twins.try_emplace(use.value, nullptr);
      if (is_new) twin->second = &graph.memory(filled(use.value->spec), GraphValue::Kind::kLeaf);
      inputs.push_back({twin->second, false});
    }
    GraphNode& made = graph.insert(nullptr, *node.op, std::move(inputs), node.attributes, node.scope);
    for (size_t i = 0; i < node.outputs.size(); ++i) twins[node.outputs[i]] = made.outputs[i];
    return &made;
  };
  GraphNode* const forward = copy(*pair.forward);
  return {forward, copy(*pair.gradient)};
}

/// A pair on both backends.
class NormCandidates final : public PlanCandidates {
 public:
  NormCandidates(const NormPair& pair, int64_t reserve_bytes) : pair_(pair), reserve_bytes_(reserve_bytes) {}

  static constexpr size_t kSinter = 0, kCudnn = 1;

  size_t count() const override { return 2; }
  std::string name(size_t i) const override { return i == kCudnn ? "cudnn" : "sinter"; }
  bool build(size_t) override { return true; }
  bool prepare_timing() override { return true; }
  std::optional<double> time(size_t i) override {
    try {
      const double time = time_norm_pair(pair_, i == kCudnn ? std::optional(reserve_bytes_) : std::nullopt);
      log::debug("[norm] {} {} on {}: {:.1f} us", pair_.forward->op->name(), pair_.forward->scope, name(i),
                 time);
      times_[i] = time;
      return time;
    } catch (const Error& error) {
      // cuDNN may refuse what its constraints allow, at any of its calls; the kernel is out then, not the
      // job.
      synchronize(pair_.forward->outputs[0]->spec.device);  // throws if it is the GPU that is lost
      log::debug("[norm] {}: {}", name(i), error.what());
      return std::nullopt;
    }
  }
  const std::optional<double>& time_of(size_t i) const { return times_[i]; }

 private:
  NormPair pair_;
  int64_t reserve_bytes_;
  std::optional<double> times_[2];
};

/// What the disk remembers a pair by.
std::string problem_text(const NormPair& pair) {
  const TensorSpec& x = pair.forward->input(ops::NormActInput::kX)->spec;
  const auto& options = pair.forward->attributes.as<ops::BatchNormActOptions>();
  return fmt::format("{} {} {} {}{}", x.dtype, x.shape, to_string(options.layout),
                     to_string(options.activation),
                     pair.forward->input(ops::NormActInput::kAddend) != nullptr ? " add" : "");
}

PlanCache& cache_of(Device device) {
  static std::mutex mutex;
  static auto& caches = *new std::map<int, std::unique_ptr<PlanCache>>;
  const std::lock_guard lock(mutex);
  auto& cache = caches[device.index];
  if (cache == nullptr) {
    // "cuda:0: NVIDIA H200, ...": equal devices share what was measured.
    std::string model = backend_of(device).describe(device.index);
    if (const size_t name = model.find(": "); name != std::string::npos) model.erase(0, name + 2);
    cache = std::make_unique<PlanCache>(cache_folder(),
                                        fmt::format("{} norms, cudnn {}", model, ops::cudnn_norm_version()));
  }
  return *cache;
}

}  // namespace

double time_norm_pair(const NormPair& pair, std::optional<int64_t> reserve_bytes) {
  const Device device = pair.forward->outputs[0]->spec.device;
  auto graph = std::make_unique<Graph>();
  const NormPair copied = copy_pair(pair, *graph);
  if (reserve_bytes) move_to_cudnn(*graph, copied, *reserve_bytes);
  Program program(std::move(graph), device);
  Backend& backend = backend_of(device);
  const Stream stream = current_stream(device);
  std::shared_ptr<Storage> flush;
  if (!device.is_cpu()) flush = Storage::allocate(2 * kFlushBytes, device);
  const auto run = [&] {
    if (flush != nullptr) {
      auto* const half = static_cast<std::byte*>(flush->data());
      backend.copy(half + kFlushBytes, device, half, device, kFlushBytes, stream);
    }
    const auto start = backend.mark_time(stream);
    program.run({});
    return backend.mark_time(stream)->microseconds_since(*start);
  };
  for (int warm_up = 0; warm_up < 3; ++warm_up) run();  // code is loaded, work captured
  return median_time(run, std::numeric_limits<double>::infinity());
}

int64_t NormBackendRace::cudnn_version() {
  return ops::cudnn_norm_version();
}

int64_t NormBackendRace::reserve_bytes(const GraphNode& forward) {
  std::vector<const TensorSpec*> specs;
  for (const GraphUse& use : forward.inputs)
    specs.push_back(use.value != nullptr ? &use.value->spec : nullptr);
  auto options = forward.attributes.as<ops::BatchNormActOptions>();
  options.backend = ops::NormBackend::kCudnn;
  return ops::norm_reserve_bytes(specs, options);
}

NormBackendJudge::Verdict NormBackendRace::judge(const NormPair& pair) {
  if (settings::deterministic()) return {false, "bits must not depend on a measurement (deterministic)"};
  static std::mutex mutex;  // one race at a time: others would disturb its times
  const std::lock_guard lock(mutex);
  const Device device = pair.forward->outputs[0]->spec.device;
  int64_t reserve = 0;
  try {
    reserve = reserve_bytes(*pair.forward);
  } catch (const Error& error) {
    synchronize(device);  // throws if it is the GPU that is lost
    return {false, fmt::format("cuDNN refuses it: {}", error.what())};
  }
  NormCandidates candidates(pair, reserve);
  const PlanChoice choice =
      choose_plan(cache_of(device), problem_text(pair), candidates,
                  settings::autotune() ? Timing::kNow : Timing::kNever, candidates.count());
  backend_of(device).memory_pool(device.index).trim();
  const auto &own = candidates.time_of(NormCandidates::kSinter),
             &cudnns = candidates.time_of(NormCandidates::kCudnn);
  std::string reason = own && cudnns
                           ? fmt::format("{:.1f} us, and {:.1f} us on Sinter's kernels", *cudnns, *own)
                       : settings::autotune() ? "as measured before"
                                              : "nothing is measured (autotune)";
  return {choice.plan == NormCandidates::kCudnn, std::move(reason)};
}

}  // namespace sinter::passes
