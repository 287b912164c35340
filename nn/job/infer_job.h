// InferJob: a model that is traced once in evaluation mode, rewritten, planned, and then repeated.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <sinter/core/executor/program.h>
#include <sinter/core/runtime/exclusive_use.h>
#include <sinter/nn/job/html/html_report.h>
#include <sinter/nn/job/job_trace.h>
#include <sinter/nn/module/module.h>
#include <sinter/passes/pipeline.h>

namespace sinter::nn {

struct InferJobOptions {
  /// Compute in this 16-bit type wherever ops allow it (passes/mixed_precision.cpp), from the model's float32
  /// weights, which stay as they are. Results are float32 where the model's are.
  std::optional<DType> precision = {};
  /// Turn images to this layout (passes/channels_last.cpp), whatever layout the model is written for. Inputs,
  /// results and weights stay as they are.
  std::optional<Layout> layout = {};
  /// Passes that are left out, dumps, and checks of passes on real data (passes/pipeline.h).
  passes::PipelineOptions passes = {};
  ProgramOptions program = {};
  /// How many graphs are kept: one for each set of input shapes. The one that was not used for longest goes.
  int max_graphs = 8;
};

/// What `model(x)` gives in evaluation mode, without gradients, as one program. As TrainJob, it runs the
/// model's code once for inputs of each spec, and always computes with the present values of the model's
/// variables, so that it may stand beside training.
///
///   nn::InferJob infer(model);
///   Tensor logits = infer(images);
///
/// Norms go into the convolutions before them, and weights that passes change are made again when the model's
/// change, not at every call.
///
/// The model must outlive the job. One call at a time: one that comes while another thread's runs throws
/// InvalidArgument. Threads have a job each, of one model (docs/predictions.md).
class InferJob {
 public:
  template <class Model>
  requires std::derived_from<Model, ModuleBase> && std::is_invocable_r_v<Tensor, const Model&, Tensor>
  explicit InferJob(const Model& model, const InferJobOptions& options = {})
      : InferJob(Traced(), model, JobFunction([&model](std::span<const Tensor> inputs) {
                   SINTER_CHECK(inputs.size() == 1, "[infer_job] expected 1 input but got {}", inputs.size());
                   return std::vector<Tensor>{model(inputs[0])};
                 }),
                 options) {}
  /// The job calls the model for as long as it lives: a temporary one would be gone.
  template <class Model>
  requires std::derived_from<Model, ModuleBase> &&
      (!std::is_lvalue_reference_v<Model>)explicit InferJob(Model&& model,
                                                            const InferJobOptions& options = {}) = delete;
  /// Any function, as of TrainJob; `model` is that whose variables it computes with.
  template <StepFunction F>
  InferJob(const ModuleBase& model, F function, const InferJobOptions& options = {})
      : InferJob(Traced(), model, as_job_function(std::move(function), "infer_job"), options) {}
  ~InferJob();
  InferJob(const InferJob&) = delete;
  InferJob& operator=(const InferJob&) = delete;

  /// The first result. It stays as it is for as long as it is held. Throws InvalidArgument as eager code
  /// does, and for what cannot be traced.
  Tensor operator()(const Tensor& x) { return run({&x, 1}).front(); }
  /// All results.
  std::vector<Tensor> run(std::span<const Tensor> inputs);

  /// As of TrainJob.
  std::string report() const;
  void write_report(const std::filesystem::path& path, const HtmlReportOptions& options = {}) const;
  const Program& program() const;
  int64_t compilations() const { return compilations_; }

  /// What it was made of, and the specs of the inputs of its last call: for whoever makes something else of
  /// them (nn/export/onnx.h). input_specs() throws InvalidArgument before the first call.
  const ModuleBase& model() const { return model_; }
  const JobFunction& function() const { return function_; }
  std::vector<TensorSpec> input_specs() const;

 private:
  struct Traced {};  // names the constructor that the others call
  InferJob(Traced, const ModuleBase& model, JobFunction function, const InferJobOptions& options);

  struct Compiled;

  std::unique_ptr<Compiled> compile(std::span<const Tensor> inputs);
  std::string reason_to_compile(std::span<const Tensor> inputs) const;

  const ModuleBase model_;
  JobFunction function_;
  InferJobOptions options_;
  std::vector<std::unique_ptr<Compiled>> compiled_;  // the one used last comes last
  JobStream stream_;
  int64_t compilations_ = 0;
  ExclusiveUse use_;
};

}  // namespace sinter::nn
