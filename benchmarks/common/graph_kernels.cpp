#include "graph_kernels.h"

#include <cstdlib>
#include <memory>
#include <vector>

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cxxabi.h>
#include <fmt/format.h>

namespace sinter::bench {
namespace {

/// The driver's function of that name; through the runtime, so that nothing is linked with the driver.
template <class Function>
Function driver_function(const char* name, unsigned version) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result);
  if (status != cudaSuccess) cudaGetLastError();
  return status == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<Function>(found)
                                                                        : nullptr;
}

/// Names of kernels that the driver knows. The runtime knows those of its own library only.
struct Driver {
  using NodeParams = CUresult (*)(CUgraphNode, CUDA_KERNEL_NODE_PARAMS_v2*);
  using FunctionName = CUresult (*)(const char**, CUfunction);
  using KernelName = CUresult (*)(const char**, CUkernel);

  NodeParams node_params = driver_function<NodeParams>("cuGraphKernelNodeGetParams", 12000);
  FunctionName function_name = driver_function<FunctionName>("cuFuncGetName", 12030);
  KernelName kernel_name = driver_function<KernelName>("cuKernelGetName", 12030);
};

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 ? text.get() : name;
}

std::string kernel_text(const Driver& driver, cudaGraphNode_t node) {
  CUDA_KERNEL_NODE_PARAMS_v2 params{};
  if (driver.node_params == nullptr || driver.node_params(node, &params) != CUDA_SUCCESS) return "kernel";
  const char* name = nullptr;
  if (params.func != nullptr && driver.function_name != nullptr) {
    if (driver.function_name(&name, params.func) != CUDA_SUCCESS) name = nullptr;
  } else if (params.kern != nullptr && driver.kernel_name != nullptr) {
    if (driver.kernel_name(&name, params.kern) != CUDA_SUCCESS) name = nullptr;
  }
  const auto blocks = uint64_t{params.gridDimX} * params.gridDimY * params.gridDimZ;
  const auto threads = uint64_t{params.blockDimX} * params.blockDimY * params.blockDimZ;
  return fmt::format("{} {}x{}", name != nullptr ? short_kernel_name(demangled(name)) : "kernel", blocks,
                     threads);
}

std::string node_text(const Driver& driver, cudaGraphNode_t node) {
  cudaGraphNodeType type{};
  if (cudaGraphNodeGetType(node, &type) != cudaSuccess) return {};
  switch (type) {
    case cudaGraphNodeTypeKernel:
      return kernel_text(driver, node);
    case cudaGraphNodeTypeMemcpy:
      return "memcpy";
    case cudaGraphNodeTypeMemset:
      return "memset";
    default:
      return {};
  }
}

void remove_all(std::string& text, std::string_view part) {
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at))
    text.erase(at, part.size());
}

}  // namespace

std::string short_kernel_name(std::string name) {
  for (const char* part : {"(anonymous namespace)::", "sinter::", "ops::", "cuda::"}) remove_all(name, part);
  if (name.starts_with("void ")) name.erase(0, 5);
  int depth = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    depth += (name[i] == '<') - (name[i] == '>');
    if (name[i] == '(' && depth == 0) return name.substr(0, i);
  }
  return name;
}

std::string kernels_in(CUgraph_st* graph) {
  static const Driver driver;
  size_t count = 0;
  if (cudaGraphGetNodes(graph, nullptr, &count) != cudaSuccess) return {};
  std::vector<cudaGraphNode_t> nodes(count);
  if (cudaGraphGetNodes(graph, nodes.data(), &count) != cudaSuccess) return {};
  std::vector<std::string> texts;
  for (cudaGraphNode_t node : nodes) {
    if (std::string text = node_text(driver, node); !text.empty()) texts.push_back(std::move(text));
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

}  // namespace sinter::bench
