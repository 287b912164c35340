#include <algorithm>
#include <mutex>
#include <set>
#include <string>

#include <sinter/core/base/log.h>
#include <sinter/core/executor/lifetimes.h>
#include <sinter/core/executor/program.h>
#include <sinter/core/op/autotune/kernel_tuner.h>
#include <sinter/core/op/call_observer.h>
#include <sinter/core/plan/memory_plan.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/event.h>
#include <sinter/core/runtime/plan_cache.h>
#include <sinter/core/runtime/thread_pool.h>

namespace sinter {
namespace {

constexpr size_t kAlignment = 64;  // of inputs on the CPU, for kernels that were chosen for aligned ones

/// Stands for memory that is not taken yet, while kernels are chosen, which ask how it is aligned.
std::byte* address_like_that_of_memory(Device device) {
  return reinterpret_cast<std::byte*>(device.is_cpu() ? kAlignment : kPlanAlignment);
}

constexpr int64_t kPreparingThreads = 8;
constexpr size_t kMostOutputSets = 16;  // that are watched for being let go of

bool is_aligned(const Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.raw_data()) % kAlignment == 0;
}

/// Programs fail alike: one that cannot be captured is seldom the only one.
void warn_once(const std::string& text) {
  static std::mutex mutex;
  static auto& said = *new std::set<std::string>;
  const std::lock_guard lock(mutex);
  if (said.insert(text).second) log::warning("{}", text);
}

}  // namespace

/// A node with everything that its kernel is given. Never moves: the parts refer to each other.
struct Program::Call {
  Call(const GraphNode& given, std::vector<const TensorSpec*> specs, std::vector<TensorSpec> output_specs,
       std::vector<TensorView> all)
      : node(given),
        input_specs(std::move(specs)),
        outputs(std::move(output_specs)),
        views(std::move(all)),
        infer(given.definition(), input_specs, given.attributes),
        query(infer, outputs, std::span<const TensorView>(views).first(input_specs.size())) {}

  std::span<const TensorView> input_views() const {
    return std::span<const TensorView>(views).first(input_specs.size());
  }
  std::span<const TensorView> output_views() const {
    return std::span<const TensorView>(views).subspan(input_specs.size());
  }

  const GraphNode& node;
  const std::vector<const TensorSpec*> input_specs;
  const std::vector<TensorSpec> outputs;
  std::vector<TensorView> views;  // inputs, then outputs
  const InferContext infer;
  const KernelQuery query;
  KernelChoice choice;
};

/// Where an input of the graph lies in a run, and who must be told.
struct Program::InputPlace {
  struct Reader {
    Call* call = nullptr;
    size_t input = 0;
    size_t offset = 0;
  };
  size_t index = 0;
  std::byte* data = nullptr;
  Tensor own = {};  // a copy, for inputs that cannot be read where they are
  std::vector<Reader> readers = {};
};

// Nothing is taken before all is decided: what is timed on the way has the room for itself.
Program::Program(std::unique_ptr<const Graph> graph, Device device, const ProgramOptions& options,
                 Kernels kernels)
    : graph_(std::move(graph)),
      device_(device),
      arena_base_(address_like_that_of_memory(device)),
      preparation_(preparation_of(*graph_)),
      stream_(current_stream(device)) {
  for (size_t i = 0; i < graph_->inputs().size(); ++i) {
    InputPlace& place = input_places_[graph_->inputs()[i]];
    place.index = i;
    place.data = address_like_that_of_memory(device);
  }
  plan(options);
  make_calls();
  if (kernels == Kernels::kChosen) choose_kernels();
  may_capture_ = options.capture && backend_of(device_).can_capture();
}

Program::Program(std::unique_ptr<const Graph> graph, Device device, const ProgramOptions& options)
    : Program(std::move(graph), device, options, Kernels::kChosen) {
  take_memory();
}

std::unique_ptr<const Program> Program::planned(std::unique_ptr<const Graph> graph, Device device,
                                                const ProgramOptions& options, Kernels kernels) {
  return std::unique_ptr<const Program>(new Program(std::move(graph), device, options, kernels));
}

void Program::take_memory() {
  // On a CPU inputs are mostly read where they are (bind_inputs).
  for (auto& [value, place] : input_places_) {
    if (device_.is_cpu()) continue;
    place.own = Tensor::empty(value->spec);
    place.data = static_cast<std::byte*>(place.own.raw_data());
  }
  arena_ = Storage::allocate(stats_.arena_bytes, device_);
  arena_base_ = static_cast<std::byte*>(arena_->data());
  workspace_ = Storage::allocate(stats_.workspace_bytes, device_);
  for (const auto* calls : {&preparation_calls_, &calls_}) {
    for (const auto& call : *calls) {
      const GraphNode& node = call->node;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.input(i) != nullptr) call->views[i].data = address_of(*node.input(i));
      }
      for (size_t i = 0; i < node.outputs.size(); ++i)
        call->views[node.inputs.size() + i].data = address_of(*node.outputs[i]);
    }
  }
}

Program::~Program() = default;

void Program::plan(const ProgramOptions& options) {
  const GraphLifetimes lifetimes = graph_lifetimes(*graph_, options.write_in_place, preparation_);
  const int end = static_cast<int>(graph_->node_count());
  const std::vector<const GraphValue*> roots = buffers_in_order(*graph_, lifetimes);
  std::vector<BufferLifetime> buffers;
  for (const GraphValue* value : roots) {
    const BufferLifetime& lifetime = lifetimes.buffers.at(value);
    buffers.push_back(options.reuse_memory ? lifetime : BufferLifetime{lifetime.bytes, 0, end});
  }
  const MemoryPlan plan = plan_memory(buffers);
  for (size_t i = 0; i < roots.size(); ++i) {
    offsets_[roots[i]] = plan.offsets[i];
    buffers_.push_back({roots[i], plan.offsets[i], buffers[i].bytes, buffers[i].first, buffers[i].last});
  }
  for (const auto& [value, buffer] : lifetimes.over) offsets_[value] = offsets_.at(buffer);
  stats_.arena_bytes = plan.bytes;
  stats_.least_arena_bytes = plan.lower_bound;
}

std::byte* Program::address_of(const GraphValue& value) const {
  size_t offset = 0;
  const GraphValue* root = &value;
  for (; root->base != nullptr; root = root->base) offset += root->base_offset;
  if (root->kind == GraphValue::Kind::kInput) return input_places_.at(root).data + offset;
  if (root->is_memory()) return static_cast<std::byte*>(root->tensor.raw_data()) + offset;
  return arena_base_ + offsets_.at(root) + offset;
}

void Program::make_calls() {
  std::set<const Storage*> mutated;
  for (const GraphNode* node : graph_->nodes()) {
    if (node->is_view()) continue;
    is_collective_ = is_collective_ || node->is_collective();
    std::vector<const TensorSpec*> specs;
    std::vector<TensorSpec> outputs;
    std::vector<TensorView> views;
    for (const GraphUse& use : node->inputs) {
      specs.push_back(use.value != nullptr ? &use.value->spec : nullptr);
      views.push_back(use.value != nullptr ? TensorView{address_of(*use.value), use.value->spec.shape,
                                                        use.value->spec.dtype, true}
                                           : TensorView{});
    }
    for (const GraphValue* value : node->outputs) {
      outputs.push_back(value->spec);
      views.push_back({address_of(*value), value->spec.shape, value->spec.dtype, true});
    }
    if (!preparation_.contains(node)) {
      for (const TensorSpec* spec : specs) stats_.moved_bytes += spec != nullptr ? spec->bytes() : 0;
      for (const TensorSpec& spec : outputs) stats_.moved_bytes += spec.bytes();
    }
    auto& calls = preparation_.contains(node) ? preparation_calls_ : calls_;
    calls.push_back(std::make_unique<Call>(*node, std::move(specs), std::move(outputs), std::move(views)));
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      const GraphValue* const value = node->input(i);
      if (value == nullptr) continue;
      const GraphValue& root = value->root();
      if (preparation_.contains(node) && root.is_memory()) {
        prepared_versions_[root.tensor.storage()] = 0;
      }
      if (root.kind == GraphValue::Kind::kInput) {
        InputPlace& place = input_places_.at(&root);
        place.readers.push_back(
            {calls.back().get(), i, static_cast<size_t>(address_of(*value) - place.data)});
      }
      if (node->changes(i) && mutated.insert(root.tensor.storage().get()).second) {
        mutated_.push_back(root.tensor.storage());
      }
    }
  }
  stats_.calls = calls_.size();
  stats_.preparation_calls = preparation_calls_.size();
}

// What a device's libraries make ready for a call, the compiled code of a plan above all, they can make ready
// on several threads; each needs handles of its own, which cost more than they bring beyond some.
void Program::prepare_known_plans() const {
  Backend& backend = backend_of(device_);
  const auto count = static_cast<int64_t>(calls_.size());
  parallel_for(count, (count + kPreparingThreads - 1) / kPreparingThreads, [&](int64_t begin, int64_t end) {
    backend.make_current(device_.index);
    const OnlyKnownPlans known;
    for (int64_t i = begin; i < end; ++i) {
      const Call& call = *calls_[static_cast<size_t>(i)];
      try {
        choose_kernel(*call.node.op, device_, call.query);
      } catch (const Error&) {  // which whoever chooses in earnest will see
      }
    }
  });
}

void Program::choose_kernels() {
  Backend& backend = backend_of(device_);
  if (!device_.is_cpu()) prepare_known_plans();
  backend.make_current(device_.index);
  for (const auto* calls : {&preparation_calls_, &calls_}) {
    for (const auto& call : *calls) {
      call->choice = choose_kernel(*call->node.op, device_, call->query);
      stats_.workspace_bytes = std::max(stats_.workspace_bytes, call->choice.workspace_bytes);
    }
  }
}

ProgramCall Program::told_of(const Call& call) {
  return {&call.node, call.choice.kernel != nullptr ? call.choice.kernel->name : std::string(),
          call.choice.prepared != nullptr ? call.choice.prepared->detail() : std::string()};
}

std::vector<ProgramCall> Program::calls() const {
  std::vector<ProgramCall> all;
  for (const auto& call : calls_) all.push_back(told_of(*call));
  return all;
}

std::vector<KernelRivals> Program::rivals() const {
  std::vector<KernelRivals> all;
  for (const auto& call : calls_) {
    const Op& op = *call->node.op;
    KernelRivals rivals;
    if (op.definition.choose != nullptr) {
      if (auto tuned = KernelTuner::instance().measured(op, device_, call->query)) {
        rivals = {std::move(tuned->name), tuned->microseconds, std::move(tuned->others), {}};
      }
    }
    const auto is_timed = [&](const std::string& name) {
      return name == rivals.measured || std::ranges::find(rivals.timed, name, [](const auto& entry) {
                                          return entry.first;
                                        }) != rivals.timed.end();
    };
    for (const Kernel& kernel : op.kernels) {
      if (kernel.device != device_.type || &kernel == call->choice.kernel || is_timed(kernel.name)) continue;
      if (kernel.can_run == nullptr || kernel.can_run(call->query)) rivals.untimed.push_back(kernel.name);
    }
    all.push_back(std::move(rivals));
  }
  return all;
}

void Program::bind_inputs(std::span<const Tensor> inputs) {
  SINTER_CHECK(inputs.size() == input_places_.size(), "[job] expected {} inputs but got {}",
               input_places_.size(), inputs.size());
  for (auto& [value, place] : input_places_) {
    const Tensor& input = inputs[place.index];
    SINTER_CHECK(input.defined() && input.spec() == value->spec, "[job] expected input '{}' of {} but got {}",
                 value->name, value->spec, input.defined() ? sinter::to_string(input.spec()) : "none");
    // An input stays what it is when the run begins, also where it lies in memory that the run changes.
    const bool changes = std::ranges::find(mutated_, input.storage()) != mutated_.end();
    const bool in_place = device_.is_cpu() && is_aligned(input) && !changes;
    if (!in_place) {
      if (!place.own.defined()) place.own = Tensor::empty(value->spec);
      copy_bytes(place.own.raw_data(), device_, input.raw_data(), device_, value->spec.bytes());
    }
    auto* const data = static_cast<std::byte*>(in_place ? input.raw_data() : place.own.raw_data());
    if (data == place.data) continue;
    place.data = data;
    for (const auto& [call, i, offset] : place.readers) call->views[i].data = data + offset;
  }
}

void Program::run_call(const Call& call, const Stream& stream) const {
  const NamedRange range(backend_of(device_), call.node.op->name().c_str());
  const CallScope scope(call.node.scope);
  run_kernel(*call.node.op, call.choice, call.query,
             KernelContext(call.input_views(), call.output_views(), call.node.attributes, stream,
                           workspace_->data(), call.choice));
}

/// False: all was ready.
bool Program::prepare_leaves() {
  const auto is_current = [](const auto& entry) { return entry.first->version() == entry.second; };
  if (runs_ > 0 && std::ranges::all_of(prepared_versions_, is_current)) return false;
  const Stream stream = current_stream(device_);
  for (const auto& call : preparation_calls_) run_call(*call, stream);
  for (auto& [storage, version] : prepared_versions_) version = storage->version();
  return true;
}

void Program::run_calls(size_t first, size_t end) {
  const Stream stream = current_stream(device_);
  for (done_ = first; done_ < end; ++done_) {
    const Call& call = *calls_[done_];
    if (watch_ != nullptr) watch_->before(told_of(call), call.input_views());
    run_call(call, stream);
    if (watch_ != nullptr) watch_->after(told_of(call), call.input_views(), call.output_views());
  }
}

void Program::launch_parts() {
  const Stream stream = current_stream(device_);
  done_ = 0;
  for (const Part& part : parts_) {
    part.captured != nullptr ? part.captured->launch(stream) : run_call(*calls_[done_], stream);
    done_ = part.end;
  }
}

ProgramProgress Program::progress() const {
  ProgramProgress progress;
  for (size_t i = 0; i < done_; ++i) progress.done.push_back(&calls_[i]->node);
  if (done_ < calls_.size()) progress.next = &calls_[done_]->node;
  return progress;
}

void Program::try_capture() {
  constexpr int kMostAttempts = 3;
  may_capture_ = ++capture_attempts_ < kMostAttempts;
  const auto is_captured = [](const std::unique_ptr<Call>& call) {
    return call->node.definition().traits.captured;
  };
  std::vector<Part> parts;
  size_t launches = 0;
  try {
    for (size_t first = 0; first < calls_.size(); first = parts.back().end) {
      const auto begin = calls_.begin() + static_cast<std::ptrdiff_t>(first);
      const auto end =
          static_cast<size_t>(std::find_if_not(begin, calls_.end(), is_captured) - calls_.begin());
      if (end == first) {
        parts.push_back({first + 1});
        continue;
      }
      Capture capture(device_);
      run_calls(first, end);
      parts.push_back({end, capture.end()});
      for (size_t i = first; i < end; ++i) parts.back().captured->keep(calls_[i]->choice.prepared);
      ++launches;
    }
  } catch (const Error& error) {
    // For once perhaps: for want of memory, or because somebody began to watch calls meanwhile.
    warn_once(fmt::format("[job] the step cannot be captured and runs call by call{}: {}",
                          may_capture_ ? " for now" : "", error.what()));
    return;
  }
  may_capture_ = false;
  parts_ = std::move(parts);
  stats_.launches = launches;
}

std::vector<Tensor>& Program::free_outputs() {
  // Tensors that were given out and let go of since are given out again.
  const auto is_free = [](const std::vector<Tensor>& set) {
    return std::ranges::all_of(set, [](const Tensor& tensor) { return tensor.storage().use_count() == 1; });
  };
  // What other streams were told of goes back by way of the pool, which waits for them.
  std::erase_if(output_sets_, [&](const std::vector<Tensor>& given) {
    return is_free(given) && std::ranges::any_of(given, [](const Tensor& tensor) {
             return tensor.storage()->is_used_elsewhere();
           });
  });
  auto set = std::ranges::find_if(output_sets_, is_free);
  if (set == output_sets_.end()) {
    if (output_sets_.size() == kMostOutputSets)
      output_sets_.erase(output_sets_.begin());  // its holders keep it
    std::vector<Tensor> made;
    for (const GraphUse& use : graph_->outputs()) made.push_back(Tensor::empty(use.value->spec));
    set = output_sets_.insert(output_sets_.end(), std::move(made));
  }
  return *set;
}

std::vector<Tensor> Program::copy_outputs(const std::vector<Tensor>& set) const {
  std::vector<Tensor> given;
  for (size_t i = 0; i < set.size(); ++i) {
    const GraphValue& value = *graph_->outputs()[i].value;
    copy_bytes(set[i].raw_data(), device_, address_of(value), device_, value.spec.bytes());
    given.push_back(set[i].detach());  // a handle of its own, so that the set's can be told apart
  }
  return given;
}

void Program::follow_stream() {
  const Stream stream = current_stream(device_);
  if (stream.id != stream_.id) {
    Event(stream_).make_wait(stream);
    arena_->record_stream(stream);
    workspace_->record_stream(stream);
    for (const auto& [value, place] : input_places_) {
      if (place.own.defined()) place.own.storage()->record_stream(stream);
    }
    output_sets_.clear();  // they belong to the stream on which they were made
  }
  stream_ = stream;
}

std::vector<Tensor> Program::run(std::span<const Tensor> inputs) {
  const ExclusiveUse::Scope scope(use_, "job", "give each thread a program of its own");
  SINTER_ASSERT(arena_ != nullptr, "[job] a program that is only planned cannot run");
  Backend& backend = backend_of(device_);
  backend.make_current(device_.index);
  done_ = 0;
  follow_stream();
  bind_inputs(inputs);
  const std::vector<Tensor>& outputs = free_outputs();  // now: behind the calls it is too late to fail
  const bool observed = call_observer() != nullptr || watch_ != nullptr;
  // There may be hundreds of leaves: while they are looked at the device works already, mostly on what they
  // hold.
  const bool looks_later = is_launched_alone() && !observed;
  if (!looks_later) prepare_leaves();
  // Also where a call fails: those before it have changed what they change.
  struct Changes {
    const std::vector<std::shared_ptr<Storage>>& storages;
    ~Changes() {
      for (const auto& storage : storages) storage->bump_version();
    }
  } const changes{mutated_};
  // The first run loads the code of all kernels, which a capture had better not do.
  if (may_capture_ && runs_ > 0 && !observed) try_capture();
  if (!parts_.empty() && !observed) {
    launch_parts();
  } else {
    run_calls(0, calls_.size());
  }
  if (looks_later && prepare_leaves()) launch_parts();
  ++runs_;
  return copy_outputs(outputs);
}

}  // namespace sinter
