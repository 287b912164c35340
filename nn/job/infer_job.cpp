#include <algorithm>

#include <sinter/core/op/call_observer.h>
#include <sinter/core/op/node.h>
#include <sinter/nn/job/html/html_page.h>
#include <sinter/nn/job/infer_job.h>
#include <sinter/nn/job/module_snapshot.h>
#include <sinter/nn/job/report/graph_report.h>
#include <sinter/nn/job/report/job_clock.h>
#include <sinter/nn/job/settings_snapshot.h>

namespace sinter::nn {

struct InferJob::Compiled {
  explicit Compiled(const ModuleBase& watched) : model(watched) {}

  /// Whether it can run before it is known that it holds: nothing comes of a run but its results.
  bool can_begin() const {
    return program->is_launched_alone() && !random.draws() && !report.checks_calls &&
           call_observer() == nullptr;
  }

  /// Whether it computes what the model's code would, in evaluation mode.
  bool holds() const {
    return settings == SettingsSnapshot() && traced.constants.hold() && model.variables_hold() &&
           model.outside_modes_hold() && model.hooks_hold();
  }

  ModuleSnapshot model;
  TracedInference traced;
  SettingsSnapshot settings;
  GraphReport report;
  JobRandom random;
  std::unique_ptr<Program> program;
};

InferJob::InferJob(Traced, const ModuleBase& model, JobFunction function, const InferJobOptions& options)
    : model_(model), function_(std::move(function)), options_(options) {
  SINTER_CHECK(options.max_graphs > 0, "[infer_job] expected max_graphs > 0 but got {}", options.max_graphs);
  SINTER_CHECK(!options.precision || is_half(*options.precision),
               "[infer_job] expected a precision of float16 or bfloat16 but got {}", *options.precision);
  const passes::Pipeline names_are_known(options.passes);  // throws otherwise, here rather than in a call
}

InferJob::~InferJob() = default;

std::unique_ptr<InferJob::Compiled> InferJob::compile(std::span<const Tensor> inputs) {
  const GeneratorScope generator;
  auto compiled = std::make_unique<Compiled>(model_);
  GraphReport& report = compiled->report;
  for (const Tensor& input : inputs) report.inputs.push_back(input.spec());
  SINTER_CHECK(!inputs.empty(), "[infer_job] expected at least one input");
  const Device device = inputs[0].device();

  auto graph = std::make_unique<Graph>();
  passes::Pipeline pipeline(options_.passes, "infer");
  passes::PassContext context{.training = false, .precision = options_.precision, .layout = options_.layout};
  PhaseClock clock(report.phases);
  compiled->traced = trace_inference(*graph, model_, function_, report.inputs, options_.precision.has_value(),
                                     compiled->model);
  compiled->random.finish_trace(*graph, device);
  graph->verify();
  pipeline.dump(*graph, "traced");
  clock.finish("trace");
  pipeline.verify_on(inputs, device);
  pipeline.run(passes::forward_passes(), *graph, context);
  context.differentiated = true;
  pipeline.run(passes::step_passes(), *graph, context);
  report.passes = pipeline.reports();
  report.history = pipeline.history();
  report.checks_calls = pipeline.verifies_calls();
  clock.finish("passes");
  compiled->program = std::make_unique<Program>(std::move(graph), device, options_.program);
  clock.finish("kernels and memory");
  ++compilations_;
  return compiled;
}

std::string InferJob::reason_to_compile(std::span<const Tensor> inputs) const {
  if (compilations_ == 0) return "the first call";
  const auto has_them = [&](const std::unique_ptr<Compiled>& c) {
    return same_specs(inputs, c->report.inputs);
  };
  const auto found = std::find_if(compiled_.rbegin(), compiled_.rend(), has_them);
  if (found == compiled_.rend()) return "other inputs";
  if (!(*found)->traced.constants.hold()) return "a tensor was changed that had been taken for a constant";
  if (!(*found)->model.variables_hold()) return "a variable was frozen, thawed, moved, converted or added";
  if (!(*found)->model.outside_modes_hold()) return "a mode of a module outside of the model was switched";
  if (!(*found)->model.hooks_hold()) return "a forward hook was added or taken away";
  return "a setting (TF32, deterministic, autotune, threads) was switched";
}

std::vector<Tensor> InferJob::run(std::span<const Tensor> inputs) {
  check_not_traced("infer_job");
  const ExclusiveUse::Scope scope(use_, "infer_job",
                                  "give each thread an InferJob of its own, of the same model");
  for (size_t i = 0; i < inputs.size(); ++i) {
    SINTER_CHECK(inputs[i].defined(), "[infer_job] input {} is undefined", i);
  }
  if (!inputs.empty()) stream_.follow(inputs[0].device());
  const NoGrad no_grad;
  const auto has_specs = [&](const std::unique_ptr<Compiled>& c) {
    return same_specs(inputs, c->report.inputs);
  };
  // To ask hundreds of variables takes longer than to launch: the device begins meanwhile.
  const auto latest = std::find_if(compiled_.rbegin(), compiled_.rend(), has_specs);
  if (latest != compiled_.rend() && (*latest)->can_begin()) {
    (*latest)->traced.late_reads.check(inputs, "infer_job");
    std::vector<Tensor> results = (*latest)->program->run(inputs);
    if ((*latest)->holds()) {
      std::rotate(latest.base() - 1, latest.base(), compiled_.end());
      return results;
    }
  }
  const auto fits = [&](const std::unique_ptr<Compiled>& c) { return has_specs(c) && c->holds(); };
  const auto found = std::find_if(compiled_.rbegin(), compiled_.rend(), fits);
  if (found == compiled_.rend()) {
    const EvalMode eval(model_);
    const std::string reason = reason_to_compile(inputs);
    std::unique_ptr<Compiled> made = compile(inputs);
    made->report.reason = reason;
    // Those whose tensors are gone will never fit again.
    std::erase_if(compiled_, [](const auto& compiled) { return !compiled->model.tensors_hold(); });
    if (static_cast<int>(compiled_.size()) == options_.max_graphs) compiled_.erase(compiled_.begin());
    compiled_.push_back(std::move(made));
  } else {
    std::rotate(found.base() - 1, found.base(), compiled_.end());
  }
  Compiled& compiled = *compiled_.back();
  compiled.traced.late_reads.check(inputs, "infer_job");
  compiled.random.begin_run();
  try {
    return run_program(*compiled.program, inputs, compiled.report);
  } catch (...) {
    compiled.random.end_failed_run(*compiled.program);
    throw;
  }
}

std::vector<TensorSpec> InferJob::input_specs() const {
  SINTER_CHECK(!compiled_.empty(), "[infer_job] there are no inputs before the first call");
  return compiled_.back()->report.inputs;
}

const Program& InferJob::program() const {
  SINTER_CHECK(!compiled_.empty(), "[infer_job] there is no program before the first call");
  return *compiled_.back()->program;
}

std::string InferJob::report() const {
  std::string text;
  for (const auto& compiled : compiled_) text += to_string(compiled->report, *compiled->program);
  return text.empty() ? "no call yet\n" : text;
}

void InferJob::write_report(const std::filesystem::path& path, const HtmlReportOptions& options) const {
  const Device device = program().device();
  std::vector<html::PageGraph> graphs;
  for (const auto& compiled : compiled_) graphs.push_back({&compiled->report, compiled->program.get()});
  html::write_page(path,
                   html::page(options.title.empty() ? "An inference job" : options.title, graphs,
                              html::common_settings(device, options_.precision, options_.layout), options));
}

}  // namespace sinter::nn
