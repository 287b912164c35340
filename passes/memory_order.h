// The order of calls, as far as it matters because some of them change memory.
//
// Whoever moves, shares or drops a *read* asks Graph::holds() whether the memory holds the version that is
// read there; Graph::verify(), behind every pass, takes no other. Whoever moves a call that may itself
// *change* memory asks obstacle() here. And a call of whose gradient other inputs are read than of those that
// it replaces asks changed_later().
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

/// An input that `node` reads, and does not change itself, from memory that a call behind it changes, so that
/// no gradient can read it any more; nullptr if there is none.
const GraphValue* changed_later(const Graph& graph, const GraphNode& node);

}  // namespace sinter::passes
