// Pass: one rewrite of a job's graph, and what it tells of itself.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <sinter/core/graph/graph.h>

namespace sinter::passes {

/// What one pass did to one graph.
struct PassReport {
  std::string name;
  double milliseconds = 0.0;
  size_t nodes_before = 0;
  size_t nodes_after = 0;
  bool verified = false;            ///< what the graph computes was compared on real data
  std::vector<std::string> done;    ///< "batch_norm + relu in layer1.0"
  std::vector<std::string> missed;  ///< what was almost rewritten, and why it was not
};

/// What a pass may know besides the graph, and where it reports.
struct PassContext {
  bool training = true;                     ///< the graph will be differentiated
  bool differentiated = false;              ///< it has been: gradients and update are there
  std::optional<DType> precision = {};      ///< compute in this 16-bit type where ops allow it
  std::optional<Layout> layout = {};        ///< turn images to this layout
  std::optional<size_t> memory_limit = {};  ///< most bytes for what lies between calls, as it is laid out
  /// The 16-bit copy of a float32 leaf that an optimiser keeps up to date; an undefined tensor if there is
  /// none.
  std::function<Tensor(const Tensor& leaf, DType dtype)> working_copy = {};
  PassReport report = {};

  void done(std::string text) { report.done.push_back(std::move(text)); }
  void missed(std::string text) { report.missed.push_back(std::move(text)); }
};

/// A rewrite keeps what the graph computes: values, gradients, what is changed in place and in which order.
/// Before it moves, shares or drops a read it asks Graph::holds() (passes/memory_order.h).
struct Pass {
  const char* name;     ///< for switches, dumps and reports: "fuse_normalization"
  const char* summary;  ///< one line
  bool keeps_bits;      ///< else results agree within tolerance only
  void (*run)(Graph& graph, PassContext& context);
};

}  // namespace sinter::passes
