// The arena of a program over a step, drawn.
#pragma once

#include <string>

#include <sinter/core/executor/program.h>

namespace sinter::nn::html {

/// When most bytes of the arena are in use.
struct ArenaPeak {
  size_t bytes = 0;                         ///< ProgramStats::least_arena_bytes
  size_t step = 0;                          ///< the first call with so many, as a place in Graph::nodes()
  std::vector<const ProgramBuffer*> alive;  ///< what is in use then, the largest first
};
ArenaPeak peak_of(const Program& program);

/// Every buffer as a rectangle: calls from left to right, addresses from bottom to top; how much is in use;
/// and what makes the peak, as a table.
std::string draw_memory(const Program& program);

}  // namespace sinter::nn::html
