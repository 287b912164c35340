// TrainJob: a training step that is traced once, rewritten, differentiated, planned, and then repeated.
#pragma once

#include <concepts>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <sinter/core/comm/communicator.h>
#include <sinter/core/executor/program.h>
#include <sinter/core/runtime/exclusive_use.h>
#include <sinter/nn/job/html/html_report.h>
#include <sinter/nn/job/job_trace.h>
#include <sinter/nn/job/report/step_forecast.h>
#include <sinter/nn/module/module.h>
#include <sinter/nn/optim/ema.h>
#include <sinter/nn/optim/grad_scaler.h>
#include <sinter/nn/optim/optimizer.h>
#include <sinter/passes/pipeline.h>

namespace sinter::nn {

struct TrainJobOptions {
  /// Compute in this 16-bit type wherever ops allow it (passes/mixed_precision.cpp). The job makes the model
  /// mixed, as model.to_mixed(precision) does, and traces it as if it were float32: its code need not think
  /// of 16-bit types. Results are float32 where the model's were.
  std::optional<DType> precision = {};
  /// Turn images to this layout (passes/channels_last.cpp), whatever layout the model is written for. Inputs,
  /// results, parameters and files stay as they are.
  std::optional<Layout> layout = {};
  /// Largest norm of all gradients together, as of clip_grad_norm; 0: no limit. Groups of the optimiser whose
  /// `clip` is false need a scaler.
  double max_grad_norm = 0.0;
  /// Scales the loss and skips steps whose gradients are not finite, as GradScaler says. Not owned. A job of
  /// float16 that is given none has one of its own: TrainJob::scaler().
  GradScaler* scaler = nullptr;
  /// Is updated after every update of the parameters. Not owned.
  EMA* ema = nullptr;
  /// The ranks that train together, each on an equal part of every batch. Gradients are summed over them, in
  /// buckets that go as soon as they are full (passes/ranks/gradient_buckets.cpp), and divided by their
  /// number; the last of a series of calls does so where `accumulate` is more than 1. All have the buffers of
  /// rank 0 from the start, its parameters, those of the optimiser beside the model too
  /// (broadcast_parameters), and its `ema` (EMA::broadcast). step() gives the mean of the losses of all, and
  /// throws InvalidArgument on all ranks, and changes nothing, if the first axis of its first input is not
  /// equally long on all (check_parts); CommunicationError, if they would not sum gradients of the same
  /// parameters, as where some have frozen others. Ops such as dropout draw for each rank its part of what
  /// one process with the whole batch draws (RandomPartScope). All ranks call step() and prepare() alike. Not
  /// owned; null: alone.
  const Communicator* communicator = nullptr;
  /// Batch norms take the statistics of all ranks' parts of the batch together
  /// (nn/parallel/sync_batch_norm.h); else each rank those of its own part. Nothing without a communicator of
  /// several ranks.
  bool sync_batch_norm = false;
  /// Parameters of which each rank has a part of its own, such as the centres of a PartialFC that is divided:
  /// they begin as they are, and their gradients, which are those of all ranks' losses already, are not
  /// summed. With a clip they need a scaler, as groups do that are not clipped.
  std::vector<Parameter> sharded = {};
  /// So many calls of step() make one update: each adds its gradients, divided by this number, and the last
  /// of them updates the parameters, with its learning rate. Sums of a series that is not complete are in no
  /// checkpoint.
  int accumulate = 1;
  /// Passes that are left out, dumps, and checks of passes on real data (passes/pipeline.h).
  passes::PipelineOptions passes = {};
  ProgramOptions program = {};
  /// Most bytes for what lies between the calls of a step (ProgramStats::arena_bytes): parameters, gradients
  /// that outlive a step, inputs and scratch come on top. To keep it, results such as those of norms and
  /// activations are computed again where the gradients need them, as few as it takes
  /// (passes/memory/recompute.cpp); report() tells which. Where it cannot be kept, a warning says so. Results
  /// agree with those of a step without a limit up to rounding. With `accumulate` the first, middle and last
  /// calls of a series are programs with memory of their own, and the limit is that of each.
  std::optional<size_t> memory_limit = {};
  /// How many graphs are kept, or with `accumulate` how many sets of them: one for each set of input shapes
  /// and modes that was met. The one that was not used for longest goes.
  int max_graphs = 8;
};

/// Repeats what
///
///   optimizer.zero_grad();
///   Tensor loss = loss_function(model(x), y);
///   backward(loss);
///   optimizer.step(lr);
///
/// does, as one program. The code of model and loss runs once, when step() first sees inputs of their specs,
/// on tensors without values (core/graph/tracer.h): what it decides on the host then is decided for all
/// steps. What reads a value there, as item() does, throws InvalidArgument.
///
///   nn::TrainJob job(model, nn::CrossEntropyLoss{.label_smoothing = 0.1}, sgd);
///   for (const auto& [images, labels] : loader) Tensor loss = job.step(images, labels, schedule(i++));
///
/// Parameters, buffers, momenta, counters, scaler and averages stay the tensors that the user's objects hold:
/// eager steps and steps of the job may alternate, and checkpoints do not know which made them. Gradients are
/// not kept in grad(). A job follows what changes between steps: modes (train and eval), frozen parameters, a
/// model that was moved, options of the optimiser, other shapes of inputs. Each needs another graph; report()
/// says why there are how many.
///
/// Model, optimiser, scaler and average must outlive the job. One call at a time, else InvalidArgument:
/// threads that train need a model, an optimiser and a job each. A step that throws leaves all of them, the
/// generator included, as eager code that failed at the same call: what came before the call has happened.
/// But where code throws while it is traced, nothing has.
class TrainJob {
 public:
  /// A step of `loss(model(x), y)`, with inputs x and y. Behind the loss, outputs() has what the model gave.
  template <class Model, class Loss>
  requires std::derived_from<Model, ModuleBase> && std::is_invocable_r_v<Tensor, const Loss&, Tensor, Tensor>
  TrainJob(const Model& model, Loss loss, Optimizer& optimizer, const TrainJobOptions& options = {})
      : TrainJob(
            Traced(), model, JobFunction([&model, loss = std::move(loss)](std::span<const Tensor> inputs) {
              SINTER_CHECK(inputs.size() == 2, "[train_job] expected 2 inputs but got {}", inputs.size());
              const Tensor output = model(inputs[0]);
              return std::vector<Tensor>{loss(output, inputs[1]), output};
            }),
            optimizer, options) {}
  /// The job calls the model for as long as it lives: a temporary one would be gone.
  template <class Model, class Loss>
  requires std::derived_from<Model, ModuleBase> &&
      (!std::is_lvalue_reference_v<Model>)TrainJob(Model&& model, Loss loss, Optimizer& optimizer,
                                                   const TrainJobOptions& options = {}) = delete;
  /// A step of any function: of the inputs as tensors, `[&](const Tensor& x, const Tensor& y) { ... }`, or as
  /// a std::span<const Tensor>. It gives the loss, a tensor of one element, or a vector that begins with it;
  /// outputs() has what comes behind. `model` is that whose modes are watched and whose parts name the calls
  /// in dumps.
  template <StepFunction F>
  TrainJob(const ModuleBase& model, Optimizer& optimizer, F step, const TrainJobOptions& options = {})
      : TrainJob(Traced(), model, as_job_function(std::move(step), "train_job"), optimizer, options) {}
  ~TrainJob();
  TrainJob(const TrainJob&) = delete;
  TrainJob& operator=(const TrainJob&) = delete;

  /// One step with this learning rate; gives the loss, on the device, and does not wait for it. Throws
  /// InvalidArgument as eager code does, for what cannot be traced, and Unsupported and OutOfMemory.
  Tensor step(const Tensor& x, const Tensor& y, double learning_rate) { return step({x, y}, learning_rate); }
  Tensor step(std::initializer_list<Tensor> inputs, double learning_rate) {
    return step(std::span<const Tensor>(inputs.begin(), inputs.size()), learning_rate);
  }
  Tensor step(std::span<const Tensor> inputs, double learning_rate);
  /// Forgets the gradients of a series of calls that is not complete (TrainJobOptions::accumulate): the next
  /// call is the first of a series. After an epoch whose last series was short, or where a state was loaded.
  void reset_accumulation() { calls_of_series_ = 0; }

  /// Makes the graph for inputs of these specs, if it is not there, so that the first step() need not.
  /// Changes nothing that training depends on.
  void prepare(std::span<const TensorSpec> inputs);

  /// What a step on inputs of these specs will take, as prepare() and step() will make it: from the same
  /// passes and the same plan, of which nothing is kept or allocated but what the optimiser needs anyway.
  /// Changes nothing that training depends on, and asks no other rank.
  StepForecast forecast(std::span<const TensorSpec> inputs, const ForecastOptions& options = {});

  /// The scaler of the loss, the given one or the job's own, whose state belongs into checkpoints; nullptr if
  /// there is none.
  GradScaler* scaler() const { return options_.scaler; }

  /// What the function gave behind the loss in the last step. They stay as they are for as long as they are
  /// held.
  const std::vector<Tensor>& outputs() const { return outputs_; }

  /// The passes and what each did, what was almost done and why it was not, kernels, memory, compile times,
  /// and why there are several graphs.
  std::string report() const;
  /// The same and more as one HTML file that needs no other and no network: the graph before and after every
  /// pass, what each did and what it missed and why, kernels and what they were chosen over, calls of a
  /// profile, the arena over the step, settings (docs/jobs.md). The graph used last is drawn. A file that was
  /// there is replaced in one step. Throws InvalidArgument before the first step or prepare(), and IoError.
  void write_report(const std::filesystem::path& path, const HtmlReportOptions& options = {}) const;
  /// The program of the last step or prepare(); throws InvalidArgument before the first.
  const Program& program() const;
  int64_t compilations() const { return compilations_; }

 private:
  struct Traced {};  // names the constructor that the others call
  TrainJob(Traced, const ModuleBase& model, JobFunction function, Optimizer& optimizer,
           const TrainJobOptions& options);

  struct Compiled;
  struct ForecastScope;

  /// One of the programs of a series, and how often it runs there.
  struct ForecastProgram {
    std::unique_ptr<Compiled> made;
    std::unique_ptr<const Program> program;
    size_t runs = 1;
  };
  std::vector<ForecastProgram> plan_series(std::span<const TensorSpec> inputs, const ForecastOptions& options,
                                           Program::Kernels kernels);

  /// Of a series of calls that make one update.
  struct Part {
    bool first = true;
    bool last = true;
    std::vector<bool> summed = {};  // which parameters have a sum of gradients from the calls before
    bool operator==(const Part&) const = default;
  };
  Part next_part() const;
  void note_sums(const std::vector<bool>& sums);
  Device device_of_model() const;
  const Tensor& sum_of(size_t place, const Parameter& parameter);
  /// Whether the optimiser, the scaler and the average still have the tensors that a graph was made for.
  bool owners_hold(const Compiled& compiled) const;
  void keep(std::unique_ptr<Compiled> made);
  Compiled* find_compiled(std::span<const TensorSpec> inputs, std::span<const Tensor> data);
  std::string reason_to_compile(std::span<const TensorSpec> inputs) const;
  /// `call`: who asks, for errors of other ranks. `data` are inputs of a step that passes can be checked on,
  /// or none.
  Compiled& compiled_for(const char* call, std::span<const TensorSpec> inputs, double learning_rate,
                         std::span<const Tensor> data);
  std::unique_ptr<Compiled> compile(std::span<const TensorSpec> inputs, double learning_rate,
                                    std::span<const Tensor> data, bool all_compile);
  /// The graph of a step with all passes behind it; the rest of what is known of it goes to `compiled`.
  std::unique_ptr<Graph> make_graph(std::span<const TensorSpec> inputs, double learning_rate,
                                    std::span<const Tensor> data, passes::PassContext context,
                                    Compiled& compiled);
  void trace_gradients(Tracer& tracer, const Tensor& loss, double learning_rate, Compiled& compiled);
  void trace_update(Tracer& tracer, double learning_rate) const;
  bool is_apart(const Parameter& parameter) const;
  Tensor over_ranks(const Tensor& gradient) const;
  static void describe_sums(const Graph& graph, Compiled& compiled);
  struct Met {
    bool have_agreed = false;  ///< all have graphs, which sum the same
    bool all_compile = false;  ///< none has one
  };
  Met meet_ranks(const char* call, std::span<const TensorSpec> inputs, const Compiled* found) const;
  void agree_on_sums(const Compiled& compiled) const;
  void make_mixed() const;
  static void warn_of_memory(const Compiled& compiled, size_t limit);
  void trace_forward(Tracer& tracer, std::span<const TensorSpec> inputs, Compiled& compiled) const;

  const ModuleBase model_;
  JobFunction function_;
  Optimizer& optimizer_;
  TrainJobOptions options_;
  std::unique_ptr<GradScaler> own_scaler_;
  std::vector<std::unique_ptr<Compiled>> compiled_;  // the one used last comes last
  JobStream stream_;
  std::vector<Tensor> outputs_;
  struct GradientSum {
    Tensor value = {};  // undefined where never needed
    Layout layout = Layout::kNCHW;
  };
  std::vector<GradientSum> sums_;  // by parameter of the optimiser
  // Of those that the present series has: how often the parameter had been frozen then.
  std::vector<std::optional<int64_t>> summed_;
  int calls_of_series_ = 0;
  int64_t compilations_ = 0;
  std::vector<std::pair<std::vector<TensorSpec>, Part>>
      thrown_out_;      // what graphs were for, for want of room
  int made_again_ = 0;  // such graphs
  ExclusiveUse use_;
};

}  // namespace sinter::nn
