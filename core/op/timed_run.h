// The way from call() into a running OpProfile.
#pragma once

#include <atomic>

#include <sinter/core/op/registry.h>

namespace sinter::detail {

/// True while an OpProfile is running.
inline std::atomic<bool> profile_is_running = false;

/// Runs the kernel and adds its time to the profile that is running.
void run_timed(const Op& op, const Kernel& kernel, const KernelContext& context);

}  // namespace sinter::detail
