// Dead code: calls that change nothing and whose results nobody uses.
//
//   %3 = exp(%1)          (nobody reads %3)          gone
#include <sinter/passes/passes.h>

namespace sinter::passes {

void remove_dead_code(Graph& graph, PassContext& context) {
  if (const size_t erased = graph.erase_dead(); erased > 0) context.done(fmt::format("{} calls", erased));
}

}  // namespace sinter::passes
