// Tracer: turns the calls of ops that a thread makes into nodes of a graph.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <sinter/core/graph/graph.h>
#include <sinter/core/graph/host_effect.h>
#include <sinter/core/op/call_tracer.h>

namespace sinter {

/// As long as it lives, calls of ops on this thread become nodes of `graph` where they depend on what a run
/// of the job decides: where an input is traced, or is or lies in a leaf, where the op changes an input, and
/// where it has none. All other calls run at once, and their results are constants of the job: masks that a
/// model makes from nothing but its options.
///
/// Whatever changes on the host (core/graph/host_effect.h) is collected.
///
/// Rewrites use it too: replacements are written with the op functions that users call.
class Tracer final : public CallTracer, public HostEffectRecorder {
 public:
  /// For code as users write it: new nodes stand at the end, and read of memory what it holds there, also
  /// through views that were made before it was changed.
  explicit Tracer(Graph& graph);
  /// For rewrites: new nodes stand before `before`, or at the end for nullptr, and read the very values that
  /// they are given (Graph::holds() says whether they can).
  Tracer(Graph& graph, GraphNode* before);
  ~Tracer() override;
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  /// A traced tensor for a value of the graph.
  Tensor tensor(const GraphUse& use) const;
  Tensor tensor(GraphValue& value) const { return tensor({&value, false}); }
  /// What stands for a tensor in the graph: undefined tensors stand for none. A tensor that has an array
  /// becomes a constant of the job unless it is known as a leaf.
  GraphUse use_of(const Tensor& tensor);

  /// Where new nodes are said to come from; the one before.
  std::string set_scope(std::string scope) { return std::exchange(scope_, std::move(scope)); }
  void set_place(GraphNode* before) { before_ = before; }
  Graph& graph() const { return graph_; }
  /// What the traced code wanted to do on the host, in order.
  const std::vector<HostEffect>& host_effects() const { return effects_; }

  /// To be called when the traced code has returned. Throws InvalidArgument if it changed a tensor in place
  /// that nobody holds any more: one that it had made itself, anew in every call. The job would go on with
  /// what its last run left there.
  void check_changed_are_held() const;
  /// Likewise. Throws InvalidArgument if somebody still holds a tensor that the job computes: a member that
  /// the traced code assigned, which no run will assign again.
  void check_nothing_is_kept() const;
  /// What calls that ran at once, and host code, have read, with the version of its contents: the job takes
  /// it for constant. Views read nothing.
  const std::vector<std::pair<std::shared_ptr<Storage>, uint64_t>>& constants() const { return constants_; }

  std::optional<std::vector<Tensor>> take(const Op& op, std::span<const Tensor> inputs,
                                          const Attributes& attributes,
                                          std::span<const TensorSpec> specs) override;
  void keep(const Tensor& tensor, const std::string& name) override {
    graph_.memory(tensor, GraphValue::Kind::kLeaf, name);
  }
  /// Throws InvalidArgument for a leaf: the job would take what it holds now for ever. Others are constants.
  void host_reads(const Tensor& tensor) override;
  void record(HostEffect effect) override { effects_.push_back(std::move(effect)); }

 private:
  bool belongs(const Op& op, std::span<const Tensor> inputs, const Attributes& attributes) const;
  void check_mutated(const Op& op, size_t i, const Tensor& input) const;
  void note_constant(const Tensor& tensor, bool reads_contents);
  void note_read(const Op& op, std::span<const Tensor> inputs, const Attributes& attributes);

  Graph& graph_;
  GraphNode* before_;
  bool reads_what_is_there_;
  std::string scope_;
  std::vector<HostEffect> effects_;
  // Read by calls that ran at once, views included; held, so that none of their addresses is used again.
  std::set<std::shared_ptr<Storage>> folded_;
  std::vector<std::pair<std::shared_ptr<Storage>, uint64_t>> constants_;
  CallTracer* previous_;
  HostEffectRecorder* previous_recorder_;
};

}  // namespace sinter
