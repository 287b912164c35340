// What happens to one rank of a test, and how the others take it.
#pragma once

#include <string>

namespace sinter::testing {

/// Works with the other ranks until something happens to the last one.
///
///   fault.<kind>  sums on the CPU
///   fake.<kind>   a made-up GPU, whose work ends when all ranks have queued theirs
///   gpu.<kind>    GPU `rank`, through NCCL
///
/// The last rank makes `file` when it happens. Throws what the communicator says.
void run_fault(const std::string& what, const std::string& file);

}  // namespace sinter::testing
