#include <algorithm>
#include <optional>

#include <sinter/core/op/node.h>
#include <sinter/nn/job/graph_report.h>
#include <sinter/nn/job/infer_job.h>
#include <sinter/nn/job/job_clock.h>
#include <sinter/nn/job/module_snapshot.h>
#include <sinter/nn/job/settings_snapshot.h>
#include <sinter/nn/module/stand_ins.h>

namespace sinter::nn {

struct InferJob::Compiled {
  std::optional<ModuleSnapshot> model;  // as it is in evaluation mode
  SettingsSnapshot settings;
  GraphReport report;
  JobRandom random;
  std::unique_ptr<Program> program;
};

InferJob::InferJob(const ModuleBase& model, JobFunction function, const InferJobOptions& options)
    : model_(model), function_(std::move(function)), options_(options) {
  SINTER_CHECK(options.max_graphs > 0, "[infer_job] expected max_graphs > 0 but got {}", options.max_graphs);
  SINTER_CHECK(!options.precision || is_half(*options.precision),
               "[infer_job] expected a precision of float16 or bfloat16 but got {}", *options.precision);
}

InferJob::~InferJob() = default;

std::unique_ptr<InferJob::Compiled> InferJob::compile(std::span<const Tensor> inputs) {
  auto compiled = std::make_unique<Compiled>();
  GraphReport& report = compiled->report;
  for (const Tensor& input : inputs) report.inputs.push_back(input.spec());
  SINTER_CHECK(!inputs.empty(), "[infer_job] expected at least one input");
  const Device device = inputs[0].device();

  auto graph = std::make_unique<Graph>();
  passes::Pipeline pipeline(options_.passes);
  passes::PassContext context{.training = false, .precision = options_.precision, .layout = options_.layout};
  PhaseClock clock(report.phases);
  declare_leaves(*graph, model_);
  {
    Tracer tracer(*graph);
    VariableStandIns stand_ins;
    if (options_.precision) {
      for (const Parameter& parameter : model_.parameters()) {
        if (parameter.is_mixed()) stand_ins.set(parameter, parameter.master());
      }
    }
    const std::string name = "x";
    trace_function(
        tracer, model_, options_.precision ? given_float32(function_) : function_, report.inputs,
        inputs.size() == 1 ? std::span<const std::string>(&name, 1) : std::span<const std::string>(),
        "(outside)");
    SINTER_CHECK(tracer.host_effects().empty(),
                 "[infer_job] the model counts something although it is evaluated");
  }
  compiled->random.finish_trace(*graph, device);
  graph->verify();
  pipeline.dump(*graph, "traced");
  clock.finish("trace");
  pipeline.verify_on(inputs, device);
  pipeline.run(passes::forward_passes(), *graph, context);
  context.differentiated = true;
  pipeline.run(passes::step_passes(), *graph, context);
  report.passes = pipeline.reports();
  clock.finish("passes");
  compiled->program = std::make_unique<Program>(std::move(graph), device, options_.program);
  clock.finish("kernels and memory");
  ++compilations_;
  return compiled;
}

std::vector<Tensor> InferJob::run(std::span<const Tensor> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    SINTER_CHECK(inputs[i].defined(), "[infer_job] input {} is undefined", i);
  }
  const NoGrad no_grad;
  const auto fits = [&](const std::unique_ptr<Compiled>& c) {
    return same_specs(inputs, c->report.inputs) && c->settings == SettingsSnapshot() &&
           c->model->variables_hold();
  };
  const auto found = std::find_if(compiled_.rbegin(), compiled_.rend(), fits);
  if (found == compiled_.rend()) {
    const EvalMode eval(model_);
    std::unique_ptr<Compiled> made = compile(inputs);
    made->model.emplace(model_);
    made->report.reason = compiled_.empty() ? "the first call" : "other inputs, settings or variables";
    if (static_cast<int>(compiled_.size()) == options_.max_graphs) compiled_.erase(compiled_.begin());
    compiled_.push_back(std::move(made));
  } else {
    std::rotate(found.base() - 1, found.base(), compiled_.end());
  }
  Compiled& compiled = *compiled_.back();
  compiled.random.begin_run();
  return compiled.program->run(inputs);
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

}  // namespace sinter::nn
