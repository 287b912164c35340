// From when to when the memory of a graph's values is in use.
#pragma once

#include <map>
#include <set>
#include <vector>

#include <sinter/core/graph/graph.h>
#include <sinter/core/plan/memory_plan.h>

namespace sinter {

/// Steps are the places of nodes in program order.
struct GraphLifetimes {
  /// The buffers of all values that need one: results that are no views of inputs, leaves or constants, and
  /// that are not written over another value.
  std::map<const GraphValue*, BufferLifetime> buffers;
  /// Whose buffer a value shares because an elementwise op writes it over an input that nobody needs
  /// afterwards.
  std::map<const GraphValue*, const GraphValue*> over;
};

/// The nodes that a program runs only when a leaf that they read has changed since, whatever its inputs:
/// their results are kept for as long as the program.
std::set<const GraphNode*> preparation_of(const Graph& graph);

/// Results of `preparation` and outputs of the graph are in use to the end. A graph with no more than 2^31
/// nodes.
GraphLifetimes graph_lifetimes(const Graph& graph, bool write_in_place,
                               const std::set<const GraphNode*>& preparation = {});

/// The values that have a buffer, in program order: plan_memory() gives buffers in another order another
/// plan.
std::vector<const GraphValue*> buffers_in_order(const Graph& graph, const GraphLifetimes& lifetimes);

}  // namespace sinter
