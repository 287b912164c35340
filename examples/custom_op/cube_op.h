// An op outside Sinter's tree: y = x^3.
#pragma once

#include <string>

#include <sinter/core/op/registry.h>

/// Adds the op under this name, with its kernel for the CPU and, where it is compiled with CUDA, for GPUs.
void add_cube(sinter::OpRegistry& registry, const std::string& name);

/// Adds the kernel for GPUs alone; in cube_op_cuda.cu.
void add_cube_cuda(sinter::OpRegistry& registry, const std::string& name);
