// The names of the CUDA kernels in a captured graph, vendors' kernels too.
#pragma once

#include <string>

struct CUgraph_st;

namespace sinter::bench {

/// "transpose_tiles<float, 4> 512x256; memset": each kernel with its blocks and the threads of a block, in
/// the order of the graph's nodes, without namespaces and parameters. Empty where the driver cannot tell.
std::string kernels_in(CUgraph_st* graph);

/// "void sinter::ops::(anonymous namespace)::add<float, 4>(float*)" as "add<float, 4>".
std::string short_kernel_name(std::string demangled);

}  // namespace sinter::bench
