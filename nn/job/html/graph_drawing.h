// A pass drawn: the graph before and after it, side by side.
#pragma once

#include <string>

#include <sinter/nn/job/html/graph_diff.h>

namespace sinter::nn::html {

/// Calls from top to bottom in program order, one below the other, as SVG, with lines from who computes to
/// who reads nearby. Of blocks that changed in the same way the first is open; the others, and calls that
/// stayed as they were, are there but folded. `name` is the pass's.
std::string draw_change(const passes::GraphStage& before, const passes::GraphStage& after,
                        const std::string& name);

}  // namespace sinter::nn::html
