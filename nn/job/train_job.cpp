#include <algorithm>
#include <array>
#include <functional>

#include <sinter/autograd/hooks_internal.h>
#include <sinter/core/base/log.h>
#include <sinter/core/op/node.h>
#include <sinter/nn/job/html/html_page.h>
#include <sinter/nn/job/report/job_clock.h>
#include <sinter/nn/job/shared_choices.h>
#include <sinter/nn/job/train_job_compiled.h>
#include <sinter/nn/parallel/data_parallel.h>
#include <sinter/nn/parallel/sync_batch_norm.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/fill/fill.h>

namespace sinter::nn {
namespace {

constexpr size_t kMostThrownOut = 64;
constexpr const char* kOneJobAThread =
    "each thread that trains needs a model, an optimiser and a job of its own";

/// Throws InvalidArgument if a parameter has a hook: its gradients stay within the job.
void check_no_hooks(const Optimizer& optimizer) {
  if (!autograd::any_hooks()) [[likely]]
    return;
  for (const Parameter& parameter : optimizer.parameters()) {
    SINTER_CHECK(
        !autograd::has_hook(parameter.tensor()),
        "[train_job] '{}' has a hook (register_hook), which no job calls: let the traced code scale or clip "
        "what reaches it, or train without a job",
        parameter.name());
  }
}

/// What the host counts beside a step is written behind the step.
void check_counters_are_not_read(const Graph& traced, std::span<const HostEffect> effects) {
  for (const GraphValue* value : traced.memories()) {
    const auto is_written = [&](const HostEffect& effect) {
      return effect.written != nullptr && effect.written == value->tensor.storage();
    };
    SINTER_CHECK(
        !value->is_used() || std::ranges::none_of(effects, is_written),
        "[train_job] '{}' is a number that the host counts in each step, which ops of the step cannot "
        "read; count in a buffer of your own, with ops",
        value->name);
  }
}

}  // namespace

TrainJob::TrainJob(Traced, const ModuleBase& model, JobFunction function, Optimizer& optimizer,
                   const TrainJobOptions& options)
    : model_(model), function_(std::move(function)), optimizer_(optimizer), options_(options) {
  SINTER_CHECK(options.max_grad_norm >= 0.0, "[train_job] expected a clip >= 0 but got {}",
               options.max_grad_norm);
  const bool leaves_some =
      std::ranges::any_of(optimizer.groups(), [](const ParameterGroup& group) { return !group.clip; });
  SINTER_CHECK(
      options.max_grad_norm == 0.0 || !leaves_some || options.scaler != nullptr ||
          options.precision == DType::kFloat16,
      "[train_job] a group of the optimiser is not to be clipped, which needs a scaler: give one with "
      "{{.enabled = false}}");
  SINTER_CHECK(options.accumulate > 0, "[train_job] expected accumulate > 0 but got {}", options.accumulate);
  SINTER_CHECK(options.max_graphs > 0, "[train_job] expected max_graphs > 0 but got {}", options.max_graphs);
  const passes::Pipeline names_are_known(options.passes);  // throws otherwise, here rather than in a step
  if (options.communicator != nullptr) {
    SINTER_CHECK(options.communicator->size() == 1 || options.sharded.empty() ||
                     options.max_grad_norm == 0.0 || options.scaler != nullptr ||
                     options.precision == DType::kFloat16,
                 "[train_job] parameters that are sharded cannot be clipped without a scaler: give one with "
                 "{{.enabled = false}}");
    broadcast_parameters(model, *options.communicator, options.sharded);
    broadcast_parameters(exclude(optimizer.parameters(), model.parameters()), *options.communicator,
                         options.sharded);
    if (options.ema != nullptr) options.ema->broadcast(*options.communicator, options.sharded);
  }
  if (!options.precision) return;
  SINTER_CHECK(is_half(*options.precision),
               "[train_job] expected a precision of float16 or bfloat16 but got {}", *options.precision);
  make_mixed();
  if (*options.precision == DType::kFloat16 && options.scaler == nullptr) {
    own_scaler_ = std::make_unique<GradScaler>(GradScaler::options_for(DType::kFloat16));
    options_.scaler = own_scaler_.get();
  }
}

TrainJob::~TrainJob() = default;

Device TrainJob::device_of_model() const {
  return optimizer_.parameters().front().tensor().device();
}

TrainJob::Part TrainJob::next_part() const {
  Part part{.first = calls_of_series_ == 0, .last = calls_of_series_ + 1 == options_.accumulate};
  if (part.first) return part;
  const std::vector<Parameter> parameters = optimizer_.parameters();
  part.summed.resize(summed_.size());
  for (size_t i = 0; i < summed_.size(); ++i)  // one that was frozen since has lost its gradient
    part.summed[i] = summed_[i] && *summed_[i] == parameters[i].freezes();
  return part;
}

void TrainJob::note_sums(const std::vector<bool>& sums) {
  const std::vector<Parameter> parameters = optimizer_.parameters();
  summed_.assign(sums.size(), std::nullopt);
  for (size_t i = 0; i < sums.size(); ++i) {
    if (sums[i]) summed_[i] = parameters[i].freezes();
  }
}

const Tensor& TrainJob::sum_of(size_t place, const Parameter& parameter) {
  sums_.resize(std::max(sums_.size(), place + 1));
  auto& [sum, layout] = sums_[place];
  const TensorSpec& spec = parameter.tensor().spec();
  if (layout != parameter.layout()) {
    const Untraced untraced;
    sum = parameter.follow(sum, layout);
    layout = parameter.layout();
  }
  SINTER_CHECK(calls_of_series_ == 0 || !sum.defined() || sum.spec() == spec,
               "[train_job] a parameter that was {} is {} now, in the middle of the {} calls that make one "
               "update; convert or move the model between updates, or call reset_accumulation()",
               sum.spec(), spec, options_.accumulate);
  if (!sum.defined() || sum.spec() != spec) {
    const Untraced untraced;
    sum = ops::zeros(spec.shape, spec.dtype, spec.device);
  }
  return sum;
}

void TrainJob::make_mixed() const {
  const std::vector<Parameter> parameters = model_.parameters();
  const bool is_mixed = std::ranges::all_of(parameters, [this](const Parameter& parameter) {
    return parameter.is_mixed()
               ? parameter.working().dtype() == *options_.precision
               : !is_float(parameter.tensor().dtype()) ||
                     (parameter.options().keep_float32 && parameter.tensor().dtype() == DType::kFloat32);
  });
  if (!is_mixed) model_.to_mixed(*options_.precision);
}

void TrainJob::trace_forward(Tracer& tracer, std::span<const TensorSpec> inputs, Compiled& compiled) const {
  std::optional<SyncBatchNormScope> together;
  std::optional<RandomPartScope> part;
  if (options_.communicator != nullptr) {
    const Communicator& ranks = *options_.communicator;
    if (options_.sync_batch_norm) together.emplace(ranks);
    part.emplace(ranks.rank(), ranks.size());
  }
  const std::string xy[] = {"x", "y"};
  const std::span<const std::string> names = inputs.size() == 2 ? xy : std::span<const std::string>();
  // The code sees float32; the casts that show it are taken out again by the pass.
  const auto widened = [](const Parameter& parameter) {
    return ops::cast(parameter.working(), DType::kFloat32);
  };
  compiled.late_reads = trace_function(tracer, model_, function_, inputs, names, "(loss)", compiled.model,
                                       options_.precision ? widened : StandInFor());
}

// What a step of the graph sums over the ranks. Ranks that would sum other gradients, or in another order,
// would give nonsense, or wait for ever.
void TrainJob::describe_sums(const Graph& graph, Compiled& compiled) {
  std::string& text = compiled.sums_over_ranks;  // has the names of parameters
  for (const GraphNode* node : graph.nodes()) {
    if (!node->is_collective()) continue;
    // Without devices: each rank has a GPU of its own. Not of all inputs: batches may differ in size.
    const auto add = [&](const GraphValue& value) {
      text += fmt::format(" {} {}", value.spec.dtype, value.spec.shape);
    };
    text += node->op->name();
    for (const GraphValue* output : node->outputs) add(*output);
    for (size_t i = 0; node->definition().variadic && i < node->inputs.size(); ++i) add(*node->input(i));
    text += ";";
  }
}

// What the ranks have for the call that comes. Where not all have a graph, those that have compare in words
// what they sum with those that have not, once these have made theirs.
TrainJob::Met TrainJob::meet_ranks(const char* call, std::span<const TensorSpec> inputs,
                                   const Compiled* found) const {
  if (options_.communicator == nullptr || options_.communicator->size() == 1) return {.have_agreed = true};
  const int64_t rows = inputs.empty() || inputs[0].shape.rank() == 0 ? 0 : inputs[0].shape[0];
  const int64_t none = 0;
  const auto sums = [&] {
    return static_cast<int64_t>(std::hash<std::string>()(found->sums_over_ranks) | 1);
  };
  const std::array own = {rows, found == nullptr ? none : sums()};
  const std::vector<int64_t> all = options_.communicator->exchange(call, own);
  std::vector<int64_t> parts;
  Met met{.have_agreed = true, .all_compile = true};
  for (size_t i = 0; i < all.size(); i += own.size()) {
    parts.push_back(all[i]);
    met.have_agreed = met.have_agreed && all[i + 1] != none && all[i + 1] == all[1];
    met.all_compile = met.all_compile && all[i + 1] == none;
  }
  check_parts("train_job", parts, *options_.communicator);
  return met;
}

void TrainJob::agree_on_sums(const Compiled& compiled) const {
  if (options_.communicator != nullptr)
    options_.communicator->check_equal(compiled.sums_over_ranks, "the sums over ranks in the job");
}

std::unique_ptr<Graph> TrainJob::make_graph(std::span<const TensorSpec> inputs, double learning_rate,
                                            std::span<const Tensor> data, passes::PassContext context,
                                            Compiled& compiled) {
  compiled.report.inputs.assign(inputs.begin(), inputs.end());
  const Device device = device_of_model();
  auto graph = std::make_unique<Graph>();
  passes::Pipeline pipeline(options_.passes, "train");
  context.precision = options_.precision;
  context.layout = options_.layout;
  PhaseClock clock(compiled.report.phases);
  declare_leaves(*graph, model_);
  if (options_.scaler != nullptr) {
    compiled.scaler_tensors = options_.scaler->tensors_on(device);
    graph->memory(compiled.scaler_tensors[0], GraphValue::Kind::kLeaf, "loss_scale");
    graph->memory(compiled.scaler_tensors[1], GraphValue::Kind::kLeaf, "loss_scale.counts");
  }
  if (options_.ema != nullptr) {
    for (const auto& [name, tensor] : options_.ema->tensors())
      graph->memory(tensor, GraphValue::Kind::kLeaf, name);
  }
  {
    Tracer tracer(*graph);
    trace_forward(tracer, inputs, compiled);
    tracer.check_nothing_is_kept();
    compiled.host_effects = tracer.host_effects();
    check_counters_are_not_read(*graph, compiled.host_effects);
    compiled.constants = TracedConstants(tracer);
  }
  SINTER_CHECK(!graph->outputs().empty() && graph->outputs()[0].value->spec.shape.numel() == 1,
               "[train_job] expected a loss of one element but got {}",
               graph->outputs().empty() ? "none" : sinter::to_string(graph->outputs()[0].value->spec));
  graph->verify();
  pipeline.dump(*graph, "traced");
  clock.finish("trace");

  compiled.wants_data = pipeline.verifies() && data.empty();
  if (!data.empty()) pipeline.verify_on(data, device);
  pipeline.run(passes::forward_passes(), *graph, context);
  clock.finish("forward passes");
  {
    Tracer tracer(*graph);
    trace_gradients(tracer, tracer.tensor(graph->outputs()[0]), learning_rate, compiled);
    const auto& effects = tracer.host_effects();
    compiled.host_effects.insert(compiled.host_effects.end(), effects.begin(), effects.end());
  }
  graph->verify();
  pipeline.dump(*graph, "differentiated");
  clock.finish("differentiation");

  const bool is_divided = options_.communicator != nullptr && options_.communicator->size() > 1;
  compiled.random.finish_trace(*graph, device, is_divided);
  context.differentiated = true;
  pipeline.run(passes::step_passes(), *graph, context);
  clock.finish("step passes");
  compiled.report.passes = pipeline.reports();
  compiled.report.history = pipeline.history();
  compiled.report.checks_calls = pipeline.verifies_calls();
  compiled.optimizer_revision = optimizer_.revision();
  if (options_.ema != nullptr) compiled.ema_revision = options_.ema->revision();
  return graph;
}

void TrainJob::warn_of_memory(const Compiled& compiled, size_t limit) {
  const size_t bytes = compiled.program->stats().arena_bytes;
  if (bytes <= limit) return;
  std::string reason;
  for (const passes::PassReport& pass : compiled.report.passes) {
    if (pass.name == "recompute" && !pass.missed.empty()) reason = " (" + pass.missed.back() + ")";
  }
  log::warning(
      "[recompute] {} bytes lie between the calls of a step, more than the memory limit of {}: the step "
      "takes them all the same{}",
      bytes, limit, reason);
}

std::unique_ptr<TrainJob::Compiled> TrainJob::compile(std::span<const TensorSpec> inputs,
                                                      double learning_rate, std::span<const Tensor> data,
                                                      bool all_compile) {
  if (options_.precision) make_mixed();
  auto compiled = std::make_unique<Compiled>(model_, optimizer_.parameters());
  compiled->part = next_part();
  std::unique_ptr<Graph> graph =
      make_graph(inputs, learning_rate, data, {.memory_limit = options_.memory_limit}, *compiled);
  PhaseClock clock(compiled->report.phases);
  describe_sums(*graph, *compiled);
  agree_on_sums(*compiled);
  if (all_compile) share_kernel_choices(*graph, device_of_model(), *options_.communicator);
  compiled->program = std::make_unique<Program>(std::move(graph), device_of_model(), options_.program);
  clock.finish("kernels and memory");
  if (options_.memory_limit) warn_of_memory(*compiled, *options_.memory_limit);
  ++compilations_;
  return compiled;
}

bool TrainJob::owners_hold(const Compiled& compiled) const {
  return (!compiled.part.last || compiled.optimizer_revision == optimizer_.revision()) &&
         (options_.scaler == nullptr || options_.scaler->owns(compiled.scaler_tensors)) &&
         (options_.ema == nullptr || compiled.ema_revision == options_.ema->revision());
}

TrainJob::Compiled* TrainJob::find_compiled(std::span<const TensorSpec> inputs,
                                            std::span<const Tensor> data) {
  const Part part = next_part();
  const auto fits = [&](const std::unique_ptr<Compiled>& c) {
    return std::ranges::equal(inputs, c->report.inputs) && c->part == part &&
           c->settings == SettingsSnapshot() && (data.empty() || !c->wants_data) && owners_hold(*c) &&
           c->constants.hold() && c->model.holds();
  };
  const auto found = std::find_if(compiled_.rbegin(), compiled_.rend(), fits);
  if (found == compiled_.rend()) return nullptr;
  std::rotate(found.base() - 1, found.base(), compiled_.end());  // the one used last comes last
  return compiled_.back().get();
}

std::string TrainJob::reason_to_compile(std::span<const TensorSpec> inputs) const {
  if (compiled_.empty()) return compilations_ == 0 ? "the first step" : "the ones before fitted no more";
  const Compiled& last = *compiled_.back();
  if (inputs.size() != last.report.inputs.size())
    return fmt::format("it has {} inputs and had {}", inputs.size(), last.report.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] != last.report.inputs[i])
      return fmt::format("input {} is {} and was {}", i, inputs[i], last.report.inputs[i]);
  }
  if (!(last.part == next_part())) return "another part of the calls that make one update";
  if (!last.model.modes_hold()) return "a mode of the model was switched";
  if (!last.model.hooks_hold()) return "a forward hook was added or taken away";
  if (!last.model.variables_hold()) return "a variable was frozen, thawed, moved, converted or added";
  if (!last.constants.hold()) return "a tensor was changed that had been taken for a constant";
  if (last.optimizer_revision != optimizer_.revision())
    return "an option or the state of the optimiser was exchanged";
  if (!(last.settings == SettingsSnapshot()))
    return "a setting (TF32, deterministic, autotune, threads) was switched";
  if (last.wants_data) return "its passes had not been checked on data";
  return "the state of the scaler or of the average was exchanged";
}

TrainJob::Compiled& TrainJob::compiled_for(const char* call, std::span<const TensorSpec> inputs,
                                           double learning_rate, std::span<const Tensor> data) {
  stream_.follow(device_of_model());
  Compiled* const found = find_compiled(inputs, data);
  const Met met = meet_ranks(call, inputs, found);
  if (found != nullptr) {
    if (!met.have_agreed) agree_on_sums(*found);
    return *found;
  }
  const std::string reason = reason_to_compile(inputs);
  if (!compiled_.empty()) log::info("[train_job] another graph is made: {}", reason);
  const GeneratorScope generator;
  std::unique_ptr<Compiled> made = compile(inputs, learning_rate, data, met.all_compile);
  made->report.reason = reason;
  keep(std::move(made));
  return *compiled_.back();
}

void TrainJob::keep(std::unique_ptr<Compiled> made) {
  // Those whose tensors are gone will never fit again.
  std::erase_if(compiled_, [this](const std::unique_ptr<Compiled>& compiled) {
    return !owners_hold(*compiled) || !compiled->model.tensors_hold();
  });
  const int parts = std::min(options_.accumulate, 3);  // the first calls of series, those between, the last
  const int most = options_.max_graphs * parts;
  if (static_cast<int>(compiled_.size()) >= most) {
    const Compiled& oldest = *compiled_.front();
    std::pair key(oldest.report.inputs, oldest.part);
    compiled_.erase(compiled_.begin());
    if (std::ranges::find(thrown_out_, key) == thrown_out_.end()) {
      if (thrown_out_.size() == kMostThrownOut) thrown_out_.erase(thrown_out_.begin());
      thrown_out_.push_back(std::move(key));
    }
  }
  const auto is_it = [&](const auto& key) {
    return key.first == made->report.inputs && key.second == made->part;
  };
  if (std::ranges::any_of(thrown_out_, is_it) && ++made_again_ == 2 * most) {
    log::warning(
        "[train_job] graphs are made again and again, since more than {} sets of shapes and modes come in "
        "turn; give steps fewer shapes, or raise max_graphs",
        options_.max_graphs);
  }
  compiled_.push_back(std::move(made));
}

void TrainJob::prepare(std::span<const TensorSpec> inputs) {
  const ExclusiveUse::Scope scope(use_, "train_job", kOneJobAThread);
  compiled_for("TrainJob::prepare", inputs, 0.0, {});
}

Tensor TrainJob::step(std::span<const Tensor> inputs, double learning_rate) {
  check_not_traced("train_job");
  check_no_hooks(optimizer_);
  SINTER_CHECK(grad_enabled(), "[train_job] a step needs gradients, but a NoGrad is alive");
  const ExclusiveUse::Scope scope(use_, "train_job", kOneJobAThread);
  // What was captured runs without any code that would notice a rank that is lost.
  if (options_.communicator != nullptr) options_.communicator->check();
  std::vector<TensorSpec> specs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    SINTER_CHECK(inputs[i].defined(), "[train_job] input {} is undefined", i);
    SINTER_CHECK(!inputs[i].requires_grad(),
                 "[train_job] input {} asks for a gradient, which no job gives: detach() it, or compute it "
                 "within the job",
                 i);
    specs.push_back(inputs[i].spec());
  }
  Compiled& compiled = compiled_for("TrainJob::step", specs, learning_rate, inputs);
  compiled.late_reads.check(inputs, "train_job");
  optimizer_.set_learning_rate(learning_rate);
  if (options_.ema != nullptr) options_.ema->set_decay();
  compiled.random.begin_run();
  std::vector<Tensor> results;
  try {
    results = run_program(*compiled.program, inputs, compiled.report);
  } catch (...) {
    compiled.random.end_failed_run(*compiled.program);
    run_effects_of_failed_run(compiled.host_effects, *compiled.program);
    throw;
  }
  if (options_.communicator != nullptr) options_.communicator->note_work("a step");
  for (const HostEffect& effect : compiled.host_effects) effect.run();
  note_sums(compiled.sums);
  calls_of_series_ = (calls_of_series_ + 1) % options_.accumulate;
  outputs_.assign(results.begin() + 1, results.end());
  return results.front();
}

const Program& TrainJob::program() const {
  SINTER_CHECK(!compiled_.empty(), "[train_job] there is no program before the first step");
  return *compiled_.back()->program;
}

std::string TrainJob::report() const {
  std::string text;
  for (const auto& compiled : compiled_) text += to_string(compiled->report, *compiled->program);
  return text.empty() ? "no step yet\n" : text;
}

void TrainJob::write_report(const std::filesystem::path& path, const HtmlReportOptions& options) const {
  html::Settings settings = html::common_settings(program().device(), options_.precision, options_.layout);
  std::vector<html::PageGraph> graphs;
  for (const auto& compiled : compiled_) graphs.push_back({&compiled->report, compiled->program.get()});
  const auto add = [&settings](const char* name, auto value) {
    settings.emplace_back(name, fmt::format("{}", value));
  };
  add("clip", options_.max_grad_norm);
  add("calls that make an update", options_.accumulate);
  add("ranks", options_.communicator != nullptr ? options_.communicator->size() : 1);
  add("memory limit, bytes", options_.memory_limit ? std::to_string(*options_.memory_limit) : "none");
  html::write_page(
      path, html::page(options.title.empty() ? "A training job" : options.title, graphs, settings, options));
}

}  // namespace sinter::nn
