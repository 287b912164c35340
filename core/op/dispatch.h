// Dispatch: from the views of a call to a kernel that runs. call() stands on it, and so can whatever runs ops
// without tensors: jobs, tests.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>

namespace sinter {

/// Picks the kernel for a call and prepares it: of the kernels on `device` that can run the call within the
/// query's workspace limit, the one that OpDef::choose or else choose_by_estimate() takes. Throws Unsupported
/// with op, device, dtypes and attributes if there is none.
KernelChoice choose_kernel(const Op& op, Device device, const KernelQuery& query);

/// The one of the least estimate (Kernel::microseconds). Only those that might be it are prepared.
KernelChoice choose_by_estimate(const Op& op, Device device, const KernelQuery& query);

struct KernelCandidate {
  KernelChoice choice;
  double microseconds = 0;  ///< the estimate, or kUnknownTime
};
inline constexpr double kUnknownTime = std::numeric_limits<double>::max();

/// All of them, prepared, the best first: what choose_by_estimate() takes. Throws Unsupported if there is
/// none.
std::vector<KernelCandidate> kernel_candidates(const Op& op, Device device, const KernelQuery& query);

/// Runs a chosen kernel on views of the specs that it was chosen for, and tells the observer
/// (core/op/call_observer.h). The stream's device must be the current one.
void run_kernel(const Op& op, const KernelChoice& choice, const KernelQuery& query,
                const KernelContext& context);

/// Chooses, leases scratch from the workspace of the current stream of `device`, and runs. Where memory is
/// short a kernel that needs less scratch may be chosen. Throws Unsupported, OutOfMemory and whatever the
/// kernel does.
void dispatch(const Op& op, Device device, const InferContext& call, std::span<const TensorSpec> specs,
              std::span<const TensorView> inputs, std::span<const TensorView> outputs);

/// As long as it lives, calls of `op` on this thread run on kernels called `kernel` and on no others, whether
/// they pay or not; where such a kernel cannot run they throw Unsupported. For tests and benchmarks, which
/// should check runs(): a forced kernel that never ran has shown nothing. The innermost guard of an op
/// counts.
class ForcedKernel {
 public:
  /// Throws InvalidArgument if the op has no kernel of that name on any device, naming those that it has.
  ForcedKernel(std::string_view op, std::string_view kernel);
  ~ForcedKernel();
  ForcedKernel(const ForcedKernel&) = delete;
  ForcedKernel& operator=(const ForcedKernel&) = delete;

  /// How often the kernel ran since then.
  int64_t runs() const { return runs_; }

 private:
  friend KernelChoice choose_kernel(const Op&, Device, const KernelQuery&);
  friend void run_kernel(const Op&, const KernelChoice&, const KernelQuery&, const KernelContext&);

  static ForcedKernel* of(const Op& op);

  const Op* op_;
  std::string kernel_;
  int64_t runs_ = 0;
  ForcedKernel* outer_;
};

}  // namespace sinter
