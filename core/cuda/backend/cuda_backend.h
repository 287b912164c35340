// The backend of NVIDIA GPUs.
#pragma once

#include <memory>

#include <sinter/core/runtime/backend.h>

namespace sinter {

/// Never fails: without a driver or a GPU the backend has no devices and says why.
std::unique_ptr<Backend> make_cuda_backend();

}  // namespace sinter
