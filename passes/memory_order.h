// Which calls of a graph may change places, as far as memory is concerned that some of them change.
#pragma once

#include <span>

#include <sinter/core/graph/graph.h>

namespace sinter::passes {

/// Whether the order of two calls matters: one changes memory that the other reads or changes.
bool share_changed_memory(const GraphNode& a, const GraphNode& b);

/// The first call whose order with `node` matters among those that it would pass if it ran directly behind
/// `last`, which may stand before or behind it; nullptr if there is none. `apart` are not looked at.
const GraphNode* obstacle(const Graph& graph, const GraphNode& node, const GraphNode& last,
                          std::span<const GraphNode* const> apart = {});

}  // namespace sinter::passes
