// GraphHistory: what a job's graph looked like after each pass, for reports.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <sinter/core/graph/graph.h>

namespace sinter::passes {

/// A call as it was at some time. Tensors and graph may be gone since.
struct HistoryNode {
  struct Input {
    int64_t producer = -1;  ///< HistoryNode::id; -1: none
    size_t output = 0;      ///< which of the producer's
    std::string name = {};  ///< of what no call computes: "conv1.weight", "mean@1"; empty: an input left out
    bool operator==(const Input&) const = default;
  };

  int64_t id = 0;  ///< the same call has the same at every time, and no other call of the graph has it
  const Op* op = nullptr;
  Attributes attributes;
  std::string scope;
  std::vector<Input> inputs;
  std::vector<TensorSpec> outputs;

  bool operator==(const HistoryNode&) const = default;
};

/// The graph at one time, in program order. A call that did not change since the stage before is the same
/// object there.
struct GraphStage {
  std::string name;  ///< "traced", "differentiated", or the pass that left it so
  std::vector<std::shared_ptr<const HistoryNode>> nodes;
};

class GraphHistory {
 public:
  /// Notes what `graph` is now. All of a history are of one graph.
  void add(std::string name, const Graph& graph);
  const std::vector<GraphStage>& stages() const { return stages_; }

 private:
  struct Known {
    std::weak_ptr<const GraphValue> output;  // the first, whose life tells calls of one address apart
    std::shared_ptr<const HistoryNode> node;
  };
  int64_t id_of(const GraphNode& node) const;

  std::vector<GraphStage> stages_;
  std::map<const GraphNode*, Known> known_;  // of the last stage
  int64_t next_ = 0;
};

}  // namespace sinter::passes
