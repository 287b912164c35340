// Graph: the ops of a job in program order, and the values between them.
//
// A graph is in single-assignment form: every value is an input of the job, memory that outlives it (a leaf
// or a constant), or an output of one node. Nodes stand in the order in which they run.
//
// A leaf may be changed in place, so what it holds has versions, each of them a value of its own: `mean` is
// what it holds when a run begins, `mean@1` what the first call that changes it leaves there. Whoever reads
// mean reads it before that call, and whoever reads mean@1 behind it; so says verify(). A rewrite may move,
// share or drop a read only to where the memory still holds that version, which it asks of holds().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sinter/core/op/registry.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter {

class Graph;
struct GraphNode;

/// A value. Edited through Graph only.
struct GraphValue final : TracedValue, std::enable_shared_from_this<GraphValue> {
  enum class Kind : uint8_t {
    kInput,     ///< given at every run
    kLeaf,      ///< a tensor that outlives the job and may change between runs or in them: a parameter
    kConstant,  ///< a tensor whose contents never change
    kResult,    ///< an output of a node
  };

  Kind kind = Kind::kResult;
  TensorSpec spec;
  const Graph* graph = nullptr;   ///< null: it is gone, or the value was taken out
  std::string name;               ///< of inputs, leaves and constants
  Tensor tensor;                  ///< of leaves and constants: the memory itself
  int version = 0;                ///< of leaves: how many calls of a run have changed the memory before
  GraphNode* producer = nullptr;  ///< of results
  size_t output = 0;              ///< which of the producer's outputs
  /// Results of views share the memory of another value, beginning at a byte of it.
  GraphValue* base = nullptr;
  size_t base_offset = 0;
  std::vector<GraphNode*> users;  ///< one entry for every input that reads this value
  int output_uses = 0;            ///< how often it is among the outputs of the graph

  bool is_memory() const { return kind == Kind::kLeaf || kind == Kind::kConstant; }
  bool is_used() const { return !users.empty() || output_uses > 0; }
  /// The value whose memory this one lies in: itself, but for views.
  GraphValue& root();
  const GraphValue& root() const { return const_cast<GraphValue*>(this)->root(); }
  /// The memory that outlives the job and that it lies in; null for what the job computes or is given.
  const Storage* storage() const;
  std::string description() const override;
};

/// A value as an input of a node, or as an output of the graph.
struct GraphUse {
  GraphValue* value = nullptr;  ///< null: an optional input that is not there
  /// A gradient flows through this use. Not through that of a detached tensor, of one that was computed while
  /// a NoGrad was alive, or of a frozen parameter.
  bool differentiable = false;

  bool operator==(const GraphUse&) const = default;
};

/// A call of an op. Edited through Graph only.
struct GraphNode {
  const Op* op = nullptr;
  Attributes attributes;
  std::vector<GraphUse> inputs;
  std::vector<GraphValue*> outputs;
  /// Where in the user's model the call stands: "layer1.0.conv1", "(loss)".
  std::string scope;

  const OpDef& definition() const { return op->definition; }
  const OpTraits& traits() const { return op->definition.traits; }
  /// The value of input i; null if it is not there.
  GraphValue* input(size_t i) const { return i < inputs.size() ? inputs[i].value : nullptr; }
  bool is_view() const { return outputs.size() == 1 && outputs[0]->base != nullptr; }
  /// Whether the call changes input i in place.
  bool changes(size_t i) const;
  bool changes_any() const;
  /// Whether several processes take part in the call, in the same order: it has a field `communicator`.
  bool is_collective() const { return attributes.find<uint64_t>("communicator") != nullptr; }

 private:
  friend class Graph;
  std::list<std::unique_ptr<GraphNode>>::iterator place;
  int64_t order = 0;
};

class Graph {
 public:
  Graph() = default;
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  GraphValue& add_input(const TensorSpec& spec, std::string name);
  /// The value that stands for what a tensor's memory holds when a run begins; the same for the same memory
  /// and spec. A leaf stays a leaf, and a constant that is asked for as a leaf becomes one.
  GraphValue& memory(const Tensor& tensor, GraphValue::Kind kind, std::string_view name = {});
  /// The one question of whoever moves, shares or drops a read of memory: whether, where a call before
  /// `before` would run (nullptr: behind all), the memory that `value` lies in holds the version that `value`
  /// is of. Always true for what lies in no leaf, and in none that a call changes. A value that holds at the
  /// end does so wherever it is there.
  bool holds(const GraphValue& value, const GraphNode* before) const;
  /// The call that changes that memory next; nullptr if the value holds at the end.
  const GraphNode* change_of(const GraphValue& value) const;
  /// What code that runs there finds in the memory of `value`: itself if it holds(), else the version that
  /// does, or a view of that like this one, for which nodes are inserted.
  GraphValue& current(GraphValue& value, GraphNode* before);
  /// Whether some leaf lies in the storage of `tensor`.
  bool is_leaf(const Tensor& tensor) const;

  /// Adds a call before `before`, or at the end for nullptr. Infers the specs of the outputs, and throws what
  /// the op's inference throws.
  GraphNode& insert(GraphNode* before, const Op& op, std::vector<GraphUse> inputs,
                    const Attributes& attributes, std::string scope = {});
  /// Exchanges one input of a node. The specs of its outputs must not depend on the difference; infer_again()
  /// where they do.
  void set_input(GraphNode& node, size_t i, GraphUse use);
  void set_attributes(GraphNode& node, const Attributes& attributes);
  /// Infers the specs of the node's outputs anew; gives whether they changed. The number of outputs must not.
  bool infer_again(GraphNode& node);
  /// Lets everybody who reads `old` read `replacement`, graph outputs included.
  void replace_uses(GraphValue& old, GraphValue& replacement);
  /// Takes a node out; InternalError if one of its outputs is used.
  void erase(GraphNode& node);
  /// Takes out all nodes that change nothing and whose outputs nobody uses; gives their number.
  size_t erase_dead();

  void add_output(GraphUse use);
  void set_output(size_t i, GraphUse use);
  const std::vector<GraphUse>& outputs() const { return outputs_; }
  const std::vector<GraphValue*>& inputs() const { return inputs_; }
  /// Leaves, each version of them, and constants that some node uses, or that were declared, in the order in
  /// which they came.
  const std::vector<GraphValue*>& memories() const { return memories_; }
  /// All nodes in program order. A copy: the graph may be edited while it is walked.
  std::vector<GraphNode*> nodes() const;
  size_t node_count() const { return nodes_.size(); }
  GraphNode* last() const { return nodes_.empty() ? nullptr : nodes_.back().get(); }
  /// The node behind `node` in program order, or nullptr: the place to insert behind a node.
  GraphNode* next(const GraphNode& node) const;
  bool precedes(const GraphNode& a, const GraphNode& b) const;

  /// Throws InternalError, naming the node, unless every value is computed before it is used, memory holds
  /// the version that is read, the specs are what inference gives, users are listed rightly, and what is
  /// changed in place is a leaf.
  void verify() const;
  /// A graph of its own on the same leaves and constants, or on what `memory_of` gives for their tensors:
  /// others of their specs, which must share memory as those do.
  std::unique_ptr<Graph> clone(const std::function<Tensor(const Tensor&)>& memory_of = {}) const;

  /// One line for each input, leaf, constant and node:
  /// `%12: f16(256,56,56,64) = relu(%11) {…}  # layer1.0`.
  std::string to_string() const;
  /// The same as a drawing for Graphviz's dot.
  std::string to_dot() const;

 private:
  GraphValue& add_value(GraphValue::Kind kind, const TensorSpec& spec, std::string name);
  std::vector<TensorSpec> infer(const GraphNode& node) const;
  void set_view(GraphNode& node);
  void drop_user(GraphValue* value, GraphNode& node);
  void note_changes(GraphNode& node);
  void forget_changes(const GraphNode& node);
  int version_at(const Storage* storage, const GraphNode* before) const;
  GraphValue& add_memory(GraphValue::Kind kind, const Tensor& tensor, std::string name, int version);
  GraphValue& version_of(const GraphValue& leaf, int version);
  void verify_versions() const;
  void number() const;

  std::list<std::unique_ptr<GraphNode>> nodes_;
  std::vector<std::shared_ptr<GraphValue>> values_;  // inputs and memories
  std::map<const GraphValue*, std::shared_ptr<GraphValue>> results_;
  std::vector<GraphValue*> inputs_;
  std::vector<GraphValue*> memories_;
  std::multimap<const Storage*, GraphValue*> by_storage_;
  std::map<const Storage*, std::vector<GraphNode*>> changes_;  // the calls that change it, in any order
  std::vector<GraphUse> outputs_;
  mutable bool numbered_ = true;
};

}  // namespace sinter
