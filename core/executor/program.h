// Program: a graph made ready to run any number of times. Kernels, their plans, scratch and the place of
// every intermediate tensor are decided when it is made; a run allocates nothing and looks nothing up.
//
// Calls that depend on nothing but leaves which no call changes, such as weights folded for inference, are
// the *preparation*: they run when such a leaf has changed since (Storage::version), not at every run. Calls
// in which other ranks take part are none of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sinter/core/graph/graph.h>
#include <sinter/core/op/dispatch.h>
#include <sinter/core/runtime/exclusive_use.h>

namespace sinter {

struct ProgramOptions {
  /// Intermediate tensors that do not live at once share memory.
  bool reuse_memory = true;
  /// Outputs of elementwise ops are written over inputs that nobody needs afterwards.
  bool write_in_place = true;
  /// On devices that can, the second run captures the calls, and from then on a run is one launch, or one for
  /// each stretch of calls between those that are not captured (OpTraits::captured); but for runs in which a
  /// CallObserver is installed, which wants to see each call.
  bool capture = true;
};

/// What a program needs.
struct ProgramStats {
  size_t preparation_calls = 0;  ///< calls that run only when leaves have changed
  size_t calls = 0;              ///< kernels that a run starts, at least
  size_t arena_bytes = 0;        ///< for intermediate tensors
  size_t least_arena_bytes = 0;  ///< the largest sum of intermediate tensors that live at once
  size_t workspace_bytes = 0;    ///< scratch, shared by all calls; 0 where no kernels were chosen
  size_t moved_bytes = 0;        ///< that the calls of a run read and write, caches aside
  size_t launches = 0;           ///< of what was captured, in a run; 0: it makes one call after the other
};

/// One call of a program, for reports.
struct ProgramCall {
  const GraphNode* node = nullptr;
  std::string kernel;  ///< its name
  std::string detail;  ///< what it prepared, in a few words
};

/// What a call's kernel was chosen over.
struct KernelRivals {
  std::string measured;     ///< who won when kernels were timed, mostly the one that runs; empty: none were
  double microseconds = 0;  ///< of it
  std::vector<std::pair<std::string, double>> timed = {};  ///< the others that were, with microseconds
  std::vector<std::string> untimed = {};  ///< that could have run as well, and were taken to be slower
};

/// Sees every call of a run, the preparation left out, with the memory that it reads and writes; an output
/// may lie over an input. On the thread that runs, on the program's stream.
class ProgramWatch {
 public:
  virtual ~ProgramWatch() = default;
  virtual void before(const ProgramCall& call, std::span<const TensorView> inputs) = 0;
  virtual void after(const ProgramCall& call, std::span<const TensorView> inputs,
                     std::span<const TensorView> outputs) = 0;
};

/// A piece of the arena, and the calls during which it holds something: places in Graph::nodes().
struct ProgramBuffer {
  const GraphValue* value = nullptr;  ///< what is written there first
  size_t offset = 0, bytes = 0;
  int first = 0, last = 0;
};

/// How far a run came: of the calls of a program in their order, views and preparation left out.
struct ProgramProgress {
  std::vector<const GraphNode*> done;  ///< have run
  const GraphNode* next = nullptr;     ///< the one behind them, which failed if the run did; null: none
};

class Program {
 public:
  /// How far Program::planned goes: whether it chooses kernels, which may time them, or leaves that.
  enum class Kernels : uint8_t { kChosen, kLeft };

  /// What a program of `graph` would be: all of it but memory of its own, for whoever asks what it would
  /// take. Cannot run.
  static std::unique_ptr<const Program> planned(std::unique_ptr<const Graph> graph, Device device,
                                                const ProgramOptions& options, Kernels kernels);

  /// Prepares `graph`, whose tensors are all on `device`, for the calling thread's current stream. Throws
  /// Unsupported where an op has no kernel, and OutOfMemory.
  Program(std::unique_ptr<const Graph> graph, Device device, const ProgramOptions& options = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// Runs on inputs of the specs that the graph says, in its order, and gives its outputs, whose memory is
  /// reused by a later run once nobody else holds them. Does not wait for the device. Throws InvalidArgument
  /// for other inputs, and for a call while another runs.
  std::vector<Tensor> run(std::span<const Tensor> inputs);

  /// Whether a run is launched as a whole, changes nothing but its results and asks nothing of other ranks,
  /// so that one that was not asked for does no harm.
  bool is_launched_alone() const { return !parts_.empty() && mutated_.empty() && !is_collective_; }

  /// From now on `watch` sees the runs, which are made call by call; nullptr: nobody does. Not owned.
  void watch(ProgramWatch* watch) { watch_ = watch; }

  /// Of the last run, or of the one that threw. Captured calls have been made together, or none of them.
  ProgramProgress progress() const;

  const Graph& graph() const { return *graph_; }
  Device device() const { return device_; }
  const ProgramStats& stats() const { return stats_; }
  /// All calls in the order in which they run, views left out.
  std::vector<ProgramCall> calls() const;
  /// Of each of calls(). Asks kernels whether they could run, and the tuner's record.
  std::vector<KernelRivals> rivals() const;
  /// What lies where in the arena, in program order.
  const std::vector<ProgramBuffer>& buffers() const { return buffers_; }

 private:
  struct Call;
  struct InputPlace;
  /// Calls up to `end`: captured, or one that is not.
  struct Part {
    size_t end = 0;
    std::shared_ptr<CapturedWork> captured = nullptr;
  };

  Program(std::unique_ptr<const Graph> graph, Device device, const ProgramOptions& options, Kernels kernels);
  void take_memory();
  void plan(const ProgramOptions& options);
  void make_calls();
  void choose_kernels();
  std::byte* address_of(const GraphValue& value) const;
  void follow_stream();
  void bind_inputs(std::span<const Tensor> inputs);
  void prepare_known_plans() const;
  bool prepare_leaves();
  void run_calls(size_t first, size_t end);
  void launch_parts();
  void run_call(const Call& call, const Stream& stream) const;
  static ProgramCall told_of(const Call& call);
  void try_capture();
  std::vector<Tensor>& free_outputs();
  std::vector<Tensor> copy_outputs(const std::vector<Tensor>& set) const;

  std::unique_ptr<const Graph> graph_;
  Device device_;
  ProgramStats stats_;
  std::byte* arena_base_;  // where the arena begins; before there is one, an address as well aligned
  std::shared_ptr<Storage> arena_;
  std::shared_ptr<Storage> workspace_;
  std::map<const GraphValue*, size_t> offsets_;  // in the arena, of roots
  std::vector<ProgramBuffer> buffers_;
  std::map<const GraphValue*, InputPlace> input_places_;
  std::vector<std::unique_ptr<Call>> calls_;
  const std::set<const GraphNode*> preparation_;
  std::vector<std::unique_ptr<Call>> preparation_calls_;
  std::map<std::shared_ptr<Storage>, uint64_t> prepared_versions_;  // of the leaves that it reads
  std::vector<std::shared_ptr<Storage>> mutated_;                   // leaves that a run changes
  bool is_collective_ = false;                                      // other ranks take part in a call
  bool may_capture_ = false;
  int capture_attempts_ = 0;
  int64_t runs_ = 0;
  size_t done_ = 0;  // calls of the last run
  ProgramWatch* watch_ = nullptr;
  ExclusiveUse use_;
  Stream stream_;                                 // of the last run, or on which the memory was allocated
  std::vector<Part> parts_;                       // of a run, one after the other; none: nothing is captured
  std::vector<std::vector<Tensor>> output_sets_;  // of earlier runs, to be used again
};

}  // namespace sinter
