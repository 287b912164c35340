#include <map>
#include <set>
#include <utility>

#include <sinter/core/op/dispatch.h>
#include <sinter/core/runtime/event.h>
#include <sinter/nn/job/job_trace.h>
#include <sinter/nn/job/module_snapshot.h>
#include <sinter/nn/module/variable_reads.h>
#include <sinter/ops/cast/cast.h>
#include <sinter/ops/random_key/random_key.h>
#include <sinter/passes/random_base.h>

namespace sinter::nn {
namespace {

void declare_leaf(Graph& graph, const Variable& variable, const std::string& name) {
  // Counters on the host are no part of the device's job: host effects change them.
  if (variable.options().on_host && !variable.tensor().device().is_cpu()) return;
  // Not tensor(), for which another may stand in.
  graph.memory(variable.is_mixed() ? variable.working() : variable.master(), GraphValue::Kind::kLeaf, name);
  if (variable.is_mixed()) graph.memory(variable.master(), GraphValue::Kind::kLeaf, name + ".master");
}

/// Tells the tracer which module is being called, and the snapshot what the code reads of modules outside of
/// the model.
class ScopeObserver final : public ModuleObserver {
 public:
  ScopeObserver(Tracer& tracer, const ModuleBase& model, const std::string& elsewhere,
                ModuleSnapshot& snapshot, const StandInFor& stand_in)
      : tracer_(tracer),
        snapshot_(snapshot),
        stand_in_(stand_in),
        reads_([this](const Variable& variable) { read_outside(variable); }),
        outer_(tracer.set_scope(elsewhere)),
        previous_(set_module_observer(this)) {
    for (const ModuleInfo& module : model.modules()) paths_.emplace(module.id, module.path);
    for (const Parameter& parameter : model.parameters()) expect(parameter);
    for (const Buffer& buffer : model.buffers()) expect(buffer);
  }
  ~ScopeObserver() override {
    set_module_observer(previous_);
    tracer_.set_scope(outer_);
  }
  ScopeObserver(const ScopeObserver&) = delete;
  ScopeObserver& operator=(const ScopeObserver&) = delete;

  void enter(const void* id) override {
    const auto found = paths_.find(id);
    if (found == paths_.end()) snapshot_.add_outside(id);
    scopes_.push_back(tracer_.set_scope(found != paths_.end() ? found->second : "(borrowed)"));
    if (previous_ != nullptr) previous_->enter(id);
  }
  void leave(const void* id, const Tensor* output) override {
    tracer_.set_scope(std::move(scopes_.back()));
    scopes_.pop_back();
    if (previous_ != nullptr) previous_->leave(id, output);
  }
  void ask_mode(const void* id) override {
    if (!paths_.contains(id)) snapshot_.add_outside(id);
    if (previous_ != nullptr) previous_->ask_mode(id);
  }

 private:
  void expect(const Variable& variable) {
    if (stand_in_ && variable.is_mixed()) {
      reads_.stand_in(variable, stand_in_(variable));
    } else {
      reads_.expect(variable);
    }
  }
  void read_outside(const Variable& variable) {
    snapshot_.add(variable);
    declare_leaf(tracer_.graph(), variable, "(borrowed)." + variable.name());
    expect(variable);
  }

  Tracer& tracer_;
  ModuleSnapshot& snapshot_;
  const StandInFor& stand_in_;
  VariableReads reads_;
  std::string outer_;
  ModuleObserver* previous_;
  std::map<const void*, std::string> paths_;
  std::vector<std::string> scopes_;
};

/// The last of `nodes` that reads the value or a view of it; the end for outputs, -1 if nobody does.
int last_read(const GraphValue& value, const std::map<const GraphNode*, int>& steps) {
  int last = value.output_uses > 0 ? static_cast<int>(steps.size()) : -1;
  for (const GraphNode* user : value.users)
    last = std::max(last, user->is_view() ? last_read(*user->outputs[0], steps) : steps.at(user));
  return last;
}

}  // namespace

LateReads::LateReads(const Graph& traced, std::span<GraphValue* const> seen) {
  std::map<const GraphNode*, int> steps;
  const std::vector<GraphNode*> nodes = traced.nodes();
  for (size_t i = 0; i < nodes.size(); ++i) steps[nodes[i]] = static_cast<int>(i);
  for (size_t input = 0; input < seen.size(); ++input) {
    const int last = last_read(*seen[input], steps);
    for (int step = 0; step < std::min(last, static_cast<int>(nodes.size())); ++step) {
      const GraphNode& node = *nodes[static_cast<size_t>(step)];
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (!node.changes(i) || node.input(i)->storage() == nullptr) continue;
        const GraphValue* value = node.input(i);
        size_t begin = 0;
        for (; value->base != nullptr; value = value->base) begin += value->base_offset;
        begin += value->tensor.offset_bytes();
        reads_.push_back({input, value->tensor.storage(), begin, begin + node.input(i)->spec.bytes()});
      }
    }
  }
}

void LateReads::check(std::span<const Tensor> inputs, const char* job) const {
  for (const LateRead& read : reads_) {
    if (read.input >= inputs.size() || inputs[read.input].storage() != read.changed) continue;
    const size_t begin = inputs[read.input].offset_bytes();
    SINTER_CHECK(begin >= read.end || begin + inputs[read.input].spec().bytes() <= read.begin,
                 "[{}] input {} lies in memory that the code changes before it reads the input for the last "
                 "time: give a clone of it",
                 job, read.input);
  }
}

void declare_leaves(Graph& graph, const ModuleBase& model) {
  for (const Parameter& parameter : model.parameters()) declare_leaf(graph, parameter, parameter.name());
  for (const Buffer& buffer : model.buffers()) declare_leaf(graph, buffer, buffer.name());
}

LateReads trace_function(Tracer& tracer, const ModuleBase& model, const JobFunction& function,
                         std::span<const TensorSpec> specs, std::span<const std::string> names,
                         const std::string& elsewhere, ModuleSnapshot& snapshot, const StandInFor& stand_in) {
  Graph& graph = tracer.graph();
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < specs.size(); ++i) {
    inputs.push_back(
        tracer.tensor(graph.add_input(specs[i], i < names.size() ? names[i] : fmt::format("input{}", i))));
  }
  std::vector<Tensor> results;
  std::vector<GraphValue*> seen;
  {
    const ScopeObserver observer(tracer, model, elsewhere, snapshot, stand_in);
    for (Tensor& input : inputs) {
      if (stand_in && is_half(input.dtype())) input = ops::cast(input, DType::kFloat32);
      seen.push_back(tracer.use_of(input).value);
    }
    results = function(inputs);
  }
  for (const Tensor& result : results) {
    SINTER_CHECK(result.defined(), "[trace] the job gave an undefined tensor");
    graph.add_output(tracer.use_of(result));
  }
  results.clear();
  tracer.check_changed_are_held();
  return {graph, seen};
}

TracedInference trace_inference(Graph& graph, const ModuleBase& model, const JobFunction& function,
                                std::span<const TensorSpec> specs, bool in_float32,
                                ModuleSnapshot& snapshot) {
  declare_leaves(graph, model);
  Tracer tracer(graph);
  const std::string name = "x";
  LateReads late_reads = trace_function(
      tracer, model, function, specs,
      specs.size() == 1 ? std::span<const std::string>(&name, 1) : std::span<const std::string>(),
      "(outside)", snapshot,
      in_float32 ? [](const Parameter& parameter) { return parameter.master(); } : StandInFor());
  SINTER_CHECK(tracer.host_effects().empty(), "[trace] the model counts something although it is evaluated");
  tracer.check_nothing_is_kept();
  return {.constants = TracedConstants(tracer), .late_reads = std::move(late_reads)};
}

void check_not_traced(const char* job) {
  SINTER_CHECK(call_tracer() == nullptr,
               "[{}] a job cannot run while another job is traced: call the model itself there", job);
}

void JobStream::follow(Device device) {
  const Stream stream = current_stream(device);
  if (stream.device == last_.device && stream.id != last_.id) Event(last_).make_wait(stream);
  last_ = stream;
}

void JobRandom::finish_trace(Graph& graph, Device device, bool is_divided) {
  is_divided_ = is_divided;
  blocks_ = default_generator().key().offset - start_.offset;
  SINTER_CHECK(
      default_generator().host_draws() == host_draws_,
      "[trace] the traced code drew random numbers on the host, which would be the same in every run; "
      "draw them with ops, such as dropout, or outside of the job and give them to it as an input");
  const Untraced untraced;
  const Tensor base = ops::update::random_key(start_, device);
  if (passes::rebase_random_keys(graph, base, start_, blocks_) > 0) base_ = base;
}

void JobRandom::begin_run() {
  const RandomKey key = default_generator().key();
  run_start_ = key;
  if (base_.defined()) {
    // The op that makes keys, into the tensor that is there.
    static const Op& op = OpRegistry::instance().get("random_key");
    const Attributes attributes(
        ops::RandomKeyAttributes{.seed = key.seed, .offset = key.offset, .device = base_.device()});
    const TensorSpec* const no_base = nullptr;
    const InferContext infer(op.definition, {&no_base, 1}, attributes);
    const TensorView absent;
    const TensorView view{base_.raw_data(), base_.shape(), base_.dtype(), true};
    dispatch(op, base_.device(), infer, {&base_.spec(), 1}, {&absent, 1}, {&view, 1});
    base_.storage()->bump_version();
  }
  if (blocks_ > 0) default_generator() = Generator(RandomKey{key.seed, key.offset + blocks_});
}

void JobRandom::end_failed_run(const Program& program) {
  if (!base_.defined() || is_divided_) return;
  const ProgramProgress progress = program.progress();
  std::set<const GraphNode*> reached(progress.done.begin(), progress.done.end());
  reached.insert(progress.next);
  const auto is_of_base = [this](const GraphNode& node) {
    const GraphValue* const base = node.traits().role == Role::kRandomKey ? node.input(0) : nullptr;
    return base != nullptr && base->is_memory() && base->tensor.storage() == base_.storage();
  };
  // The traced code drew each key right before the call that reads it. Keys themselves may be computed ahead.
  uint64_t drawn = blocks_;
  for (const GraphNode* node : program.graph().nodes()) {
    if (!is_of_base(*node)) continue;
    const bool is_read = std::ranges::any_of(
        node->outputs[0]->users, [&](const GraphNode* reader) { return reached.contains(reader); });
    const uint64_t* const offset = node->attributes.find<uint64_t>("offset");
    if (!is_read && offset != nullptr) drawn = std::min(drawn, *offset);
  }
  default_generator() = Generator(RandomKey{run_start_.seed, run_start_.offset + drawn});
}

void run_effects_of_failed_run(std::span<const HostEffect> effects, const Program& program) {
  std::map<const Storage*, int64_t> changes;  // that the run has made
  for (const GraphNode* node : program.progress().done) {
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      if (node->changes(i)) ++changes[node->input(i)->storage()];
    }
  }
  for (const HostEffect& effect : effects) {
    if (changes[effect.changed.get()]-- > 0) effect.run();
  }
}

}  // namespace sinter::nn
