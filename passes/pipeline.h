// The passes in their order, and how they are run: timed, verified, dumped, switched off by name.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <sinter/passes/history/graph_history.h>
#include <sinter/passes/pass.h>

namespace sinter::passes {

/// Rewrites of the forward graph, before it is differentiated.
std::span<const Pass> forward_passes();
/// Rewrites of the whole step, gradients and update included.
std::span<const Pass> step_passes();

struct PipelineOptions {
  /// Passes that are left out, by name. The environment variable SINTER_PASSES adds to them:
  /// "-fuse_normalization -channels_last"; "-all" leaves all out.
  std::vector<std::string> without = {};
  /// A folder that gets the graph after every pass, as text and for Graphviz: "train1/02_channels_last.txt"
  /// and
  /// ".dot", "train2/..." for the next graph of a TrainJob in this process, "infer1/..." for those of
  /// InferJobs. The environment variable SINTER_DUMP names one too.
  std::string dump_folder = {};
  /// Every pass is checked on the data of the first step that a graph is made for (passes/verify.h): slow,
  /// for whoever suspects a pass. The environment variable SINTER_VERIFY=1 asks for it too.
  bool verify = false;
  /// Beside that, each call of a graph's first step is compared with the same call in float64 on the same
  /// values (passes/calls/call_verifier.h): slower still. SINTER_VERIFY=deep asks for both.
  bool verify_calls = false;
};

class Verifier;

/// Runs passes on the graphs of one job.
class Pipeline {
 public:
  /// `kind`: of the jobs whose graphs these are, for dumps. Throws InvalidArgument for a name that no pass
  /// has.
  explicit Pipeline(const PipelineOptions& options = {}, std::string kind = "graph");
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// Whether passes are to be checked on data, as the options or the environment ask.
  bool verifies() const { return verifies_; }
  bool verifies_calls() const { return verifies_calls_; }
  /// Gives the inputs that passes are checked on, if the options ask for checks. They and the leaves of the
  /// graph are on `device`.
  void verify_on(std::span<const Tensor> inputs, Device device);
  /// Runs each of `passes` that is not switched off; the graph is verified behind each. An error says which
  /// pass it was: InternalError where it left a graph that is wrong.
  void run(std::span<const Pass> passes, Graph& graph, PassContext& context);
  /// Notes the graph in history() and, if dumps are wanted, writes one under the next number.
  void dump(const Graph& graph, const std::string& name);
  bool is_on(const Pass& pass) const;
  const std::vector<PassReport>& reports() const { return reports_; }
  /// What dump() was given, the graph behind each pass among it.
  const GraphHistory& history() const { return history_; }

 private:
  std::vector<std::string> without_;
  std::string dump_folder_;
  std::string kind_;
  int dumps_ = 0;
  bool verifies_ = false, verifies_calls_ = false;
  std::unique_ptr<Verifier> verifier_;
  std::vector<PassReport> reports_;
  GraphHistory history_;
};

}  // namespace sinter::passes
