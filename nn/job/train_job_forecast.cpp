// What a step will take, from the graphs and plans that it would be made of.
#include <algorithm>
#include <set>

#include <sinter/core/memory/block_bytes.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/settings.h>
#include <sinter/nn/job/train_job_compiled.h>

namespace sinter::nn {
namespace {

/// What convolutions are allowed on a GPU, and no other kernel of a network comes near
/// (core/cuda/cudnn/cudnn_conv_plan.h).
constexpr size_t kMostScratchOfGpu = size_t{1} << 30;
/// The part of the arena that is allowed for what wins races on a GPU: cuDNN's norms, which leave more for
/// their gradients than Sinter's, and the sums of convolutions.
constexpr size_t kShareOfRaces = 32;

using Storages = std::set<const Storage*>;

void add(Storages& storages, const Tensor& tensor) {
  if (tensor.defined()) storages.insert(tensor.storage().get());
}

size_t bytes_of(const Storages& storages) {
  size_t bytes = 0;
  for (const Storage* storage : storages) bytes += pool_block_bytes(storage->bytes());
  return bytes;
}

size_t bytes_of(std::span<const TensorSpec> specs) {
  size_t bytes = 0;
  for (const TensorSpec& spec : specs) bytes += pool_block_bytes(spec.bytes());
  return bytes;
}

/// Without timing, rewrites that must win a race stay out.
class NoTiming {
 public:
  explicit NoTiming(bool on) {
    if (on) settings::set_autotune(false);
  }
  ~NoTiming() { settings::set_autotune(before_); }
  NoTiming(const NoTiming&) = delete;
  NoTiming& operator=(const NoTiming&) = delete;

 private:
  const bool before_ = settings::autotune();
};

size_t calls_added_by(const std::string& pass, const std::vector<passes::PassReport>& reports) {
  const auto found = std::ranges::find(reports, pass, &passes::PassReport::name);
  return found == reports.end() ? 0 : found->nodes_after - found->nodes_before;
}

}  // namespace

/// Puts back what a forecast moves: where the series of calls stands, and the thread's generator.
struct TrainJob::ForecastScope {
  explicit ForecastScope(TrainJob& of) : job(of) {}
  ~ForecastScope() {
    job.calls_of_series_ = calls;
    job.summed_ = summed;
  }
  ForecastScope(const ForecastScope&) = delete;
  ForecastScope& operator=(const ForecastScope&) = delete;

  TrainJob& job;
  const int calls = job.calls_of_series_;
  const std::vector<std::optional<int64_t>> summed = job.summed_;
  const GeneratorScope generator;
};

std::vector<TrainJob::ForecastProgram> TrainJob::plan_series(std::span<const TensorSpec> inputs,
                                                             const ForecastOptions& options,
                                                             Program::Kernels kernels) {
  std::vector<ForecastProgram> programs;
  for (calls_of_series_ = 0; calls_of_series_ < options_.accumulate; ++calls_of_series_) {
    const Part part = next_part();
    if (!programs.empty() && programs.back().made->part == part) {  // all between the first and the last
      ++programs.back().runs;
      continue;
    }
    auto made = std::make_unique<Compiled>(model_, optimizer_.parameters());
    made->part = part;
    std::unique_ptr<Graph> graph = make_graph(
        inputs, 0.0, {},
        {.memory_limit = options.memory_limit ? options.memory_limit : options_.memory_limit}, *made);
    note_sums(made->sums);
    auto program = Program::planned(std::move(graph), device_of_model(), options_.program, kernels);
    programs.push_back({std::move(made), std::move(program)});
  }
  return programs;
}

StepForecast TrainJob::forecast(std::span<const TensorSpec> inputs, const ForecastOptions& options) {
  check_not_traced("train_job");
  const ExclusiveUse::Scope in_use(use_, "train_job", "ask before the first step, or between steps");
  const Device device = device_of_model();
  const DeviceType target = options.device.value_or(device.type);
  const bool measures = options.measure && target == device.type;
  const bool gpu = target != DeviceType::kCpu;
  SINTER_CHECK(gpu || device.is_cpu(), "[train_job] a model on {} cannot be planned for a CPU: move it there",
               device);
  const NoTiming no_timing(!measures);
  const ForecastScope scope(*this);
  stream_.follow(device);
  if (options_.precision) make_mixed();
  const std::vector<ForecastProgram> programs =
      plan_series(inputs, options, measures || !gpu ? Program::Kernels::kChosen : Program::Kernels::kLeft);

  Storages gradients, state, others;
  for (const GradientSum& sum : sums_) add(gradients, sum.value);
  for (const Parameter& parameter : optimizer_.parameters()) add(gradients, parameter.grad());
  for (const auto& [name, tensor] : optimizer_.tensors()) add(state, tensor);
  if (options_.scaler != nullptr) {
    for (const Tensor& tensor : options_.scaler->tensors_on(device)) add(state, tensor);
  }
  if (options_.ema != nullptr) {
    for (const auto& [name, tensor] : options_.ema->tensors()) add(state, tensor);
  }
  StepForecast forecast;
  for (const auto& [made, program, runs] : programs) {
    const Graph& graph = program->graph();
    const ProgramStats& stats = program->stats();
    for (const GraphValue* value : graph.memories()) {
      if (value->tensor.device() != device_of_model()) continue;  // as counters on the host
      const Storage* const storage = value->tensor.storage().get();
      if (!gradients.contains(storage) && !state.contains(storage)) others.insert(storage);
    }
    std::vector<TensorSpec> results;
    for (const GraphUse& use : graph.outputs()) results.push_back(use.value->spec);
    // The set of the run before is still held, if that was this program's and outputs() has some of it.
    const size_t sets = results.size() > 1 && (runs > 1 || programs.size() == 1) ? 2 : 1;
    forecast.outputs.bytes += sets * bytes_of(results);
    forecast.arena.bytes += pool_block_bytes(stats.arena_bytes);
    forecast.workspaces.bytes +=
        pool_block_bytes(measures || !gpu ? stats.workspace_bytes : kMostScratchOfGpu);
    if (gpu) forecast.inputs.bytes += bytes_of(inputs);
    forecast.calls += runs * stats.calls;
    forecast.moved_bytes += runs * stats.moved_bytes;
    forecast.recomputed_calls += runs * calls_added_by("recompute", made->report.passes);
  }
  forecast.parameters.bytes = bytes_of(others);
  forecast.gradients.bytes = bytes_of(gradients);
  forecast.optimizer.bytes = bytes_of(state);
  forecast.inputs.bytes += bytes_of(inputs);
  if (!measures && gpu) forecast.arena = {forecast.arena.bytes + forecast.arena.bytes / kShareOfRaces, false};
  forecast.workspaces.exact = measures;
  return forecast;
}

}  // namespace sinter::nn
