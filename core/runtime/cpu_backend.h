// The backend of the CPU: synchronous, with one device and one stream.
#pragma once

#include <memory>

#include <sinter/core/runtime/backend.h>

namespace sinter {

std::unique_ptr<Backend> make_cpu_backend();

}  // namespace sinter
