// What TrainJob and InferJob share: tracing a model, and keys of random numbers that follow the thread's
// generator.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <sinter/core/executor/program.h>
#include <sinter/core/graph/tracer.h>
#include <sinter/core/runtime/random.h>
#include <sinter/nn/module/module.h>

namespace sinter::nn {

class ModuleSnapshot;

/// What a job computes: tensors from tensors.
using JobFunction = std::function<std::vector<Tensor>(std::span<const Tensor>)>;

namespace detail {

/// How many tensors F takes, from as many as are given to 8; 0 if it takes none of these numbers.
template <class F, class... Tensors>
consteval size_t tensors_taken() {
  if constexpr (std::is_invocable_v<F&, Tensors...>) {
    return sizeof...(Tensors);
  } else if constexpr (sizeof...(Tensors) < 8) {
    return tensors_taken<F, Tensors..., const Tensor&>();
  } else {
    return 0;
  }
}

template <class F>
inline constexpr size_t kTensorsTaken = tensors_taken<F, const Tensor&>();
template <class F>
inline constexpr bool kTakesSpan = std::is_invocable_v<F&, std::span<const Tensor>>;
template <class F>
inline constexpr bool kTakesTensors = kTensorsTaken<F> != 0;

inline std::vector<Tensor> listed(std::vector<Tensor> results) {
  return results;
}
inline std::vector<Tensor> listed(const Tensor& result) {
  return {result};
}

}  // namespace detail

/// What jobs are made of: a function of 1 to 8 tensors, or of a span of them, that gives a tensor or several.
template <class F>
concept StepFunction = detail::kTakesSpan<F> || detail::kTakesTensors<F>;

/// `tag` names the job in errors.
template <StepFunction F>
JobFunction as_job_function(F function, const char* tag) {
  if constexpr (std::is_convertible_v<F, JobFunction>) {
    return function;
  } else if constexpr (detail::kTakesSpan<F>) {
    return [function = std::move(function)](std::span<const Tensor> inputs) mutable {
      return detail::listed(function(inputs));
    };
  } else {
    return [function = std::move(function), tag](std::span<const Tensor> inputs) mutable {
      constexpr size_t kCount = detail::kTensorsTaken<F>;
      SINTER_CHECK(inputs.size() == kCount, "[{}] expected {} inputs but got {}", tag, kCount, inputs.size());
      const auto apply = [&]<size_t... i>(std::index_sequence<i...>) {
        return detail::listed(function(inputs[i]...));
      };
      return apply(std::make_index_sequence<kCount>());
    };
  }
}

/// Makes the variables of `model` leaves of the graph, under their names.
void declare_leaves(Graph& graph, const ModuleBase& model);

/// What the code of a job sees in place of a mixed parameter's working copy; none: the copy itself.
using StandInFor = std::function<Tensor(const Parameter& parameter)>;

/// Which memory the code of a trace changes before it reads an input for the last time. A job sees an input
/// as it is when the run begins; eager code would see the change in one that lies there.
class LateReads {
 public:
  LateReads() = default;
  /// `seen`: what the code saw of each input. Before any pass, which may move reads.
  LateReads(const Graph& traced, std::span<GraphValue* const> seen);
  /// Throws InvalidArgument, which names `job`, for an input that lies in such memory.
  void check(std::span<const Tensor> inputs, const char* job) const;

 private:
  struct LateRead {
    size_t input = 0;
    std::shared_ptr<Storage> changed;
    size_t begin = 0, end = 0;  // bytes of it
  };
  std::vector<LateRead> reads_;
};

/// Calls `function` on traced inputs of `specs`, called `names`, and makes its results the outputs of the
/// graph. Nodes are said to come from the module in whose call they were made, "layer1.0.conv1", or from
/// `elsewhere` outside of modules. Modules that are called but are not the model's go to `snapshot`, and
/// their variables become leaves. With `stand_in` the code sees float32 throughout: mixed parameters of all
/// modules that are called as that gives them, and 16-bit inputs cast. Throws InvalidArgument, beside what
/// the code throws, for tensors that are changed in place although they are made anew in every call.
LateReads trace_function(Tracer& tracer, const ModuleBase& model, const JobFunction& function,
                         std::span<const TensorSpec> specs, std::span<const std::string> names,
                         const std::string& elsewhere, ModuleSnapshot& snapshot,
                         const StandInFor& stand_in = {});

/// Throws InvalidArgument, which names `job`, while this thread traces another job.
void check_not_traced(const char* job);

/// What calls of a trace read that ran at once, and whether it is still what they read.
class TracedConstants {
 public:
  TracedConstants() = default;
  explicit TracedConstants(const Tracer& tracer) : read_(tracer.constants()) {}
  bool hold() const {
    return std::ranges::all_of(read_,
                               [](const auto& entry) { return entry.first->version() == entry.second; });
  }

 private:
  std::vector<std::pair<std::shared_ptr<Storage>, uint64_t>> read_;
};

/// What a job that has traced its code must know of it later.
struct TracedInference {
  TracedConstants constants;
  LateReads late_reads;
};

/// Traces `function` for inference on inputs of `specs`, in the mode in which the model is. With
/// `in_float32`, mixed parameters are read as their float32 masters, and 16-bit inputs as float32. Throws
/// InvalidArgument, beside what trace_function throws, for code that counts something or keeps a tensor that
/// it computed.
TracedInference trace_inference(Graph& graph, const ModuleBase& model, const JobFunction& function,
                                std::span<const TensorSpec> specs, bool in_float32, ModuleSnapshot& snapshot);

/// Where a job ran last: what a step writes beforehand (a learning rate, keys) and other programs of the job
/// come behind that, on whichever stream they are.
class JobStream {
 public:
  /// Lets the current stream of `device` wait for the one before.
  void follow(Device device);

 private:
  Stream last_;
};

/// Sets the thread's generator back to where it stands now, at its end: a trace is no run, and one that fails
/// leaves nothing behind.
class GeneratorScope {
 public:
  GeneratorScope() = default;
  ~GeneratorScope() { default_generator() = Generator(key_); }
  GeneratorScope(const GeneratorScope&) = delete;
  GeneratorScope& operator=(const GeneratorScope&) = delete;

 private:
  const RandomKey key_ = default_generator().key();
};

/// The keys of a job's random numbers, which the thread's generator gives anew at every run.
class JobRandom {
 public:
  /// Notes where the thread's generator stands.
  JobRandom() : start_(default_generator().key()) {}

  /// Lets the keys in `graph` follow a tensor of this object. Throws InvalidArgument for numbers that no run
  /// could draw anew: those that host code drew, and those of another generator. `is_divided`: the
  /// code was traced in a RandomPartScope.
  void finish_trace(Graph& graph, Device device, bool is_divided = false);
  /// Whether a run draws random numbers.
  bool draws() const { return base_.defined(); }
  /// Writes the generator's key for one run and moves the generator on as eager code would have done.
  void begin_run();
  /// Of a run of `program`, behind begin_run(), that threw: moves the generator back to where eager code
  /// would have left it, behind what the calls that ran or failed draw; where draws are divided, it stays
  /// behind the whole run, so that it stands alike on all ranks wherever each has failed.
  void end_failed_run(const Program& program);

 private:
  RandomKey start_;
  RandomKey run_start_;
  uint64_t host_draws_ = default_generator().host_draws();
  uint64_t blocks_ = 0;  // that a run uses up
  bool is_divided_ = false;
  Tensor base_;  // undefined: nothing is drawn
};

/// Of a run of `program` that threw: has the effects of the calls that ran.
void run_effects_of_failed_run(std::span<const HostEffect> effects, const Program& program);

}  // namespace sinter::nn
