#include <algorithm>
#include <tuple>
#include <utility>

#include <sinter/core/op/call_observer.h>
#include <sinter/core/op/dispatch.h>
#include <sinter/core/runtime/backend.h>

namespace sinter {
namespace {

constexpr size_t kLeastPart = size_t{64} << 10;  // scratch is not cut into smaller parts: none, then

std::atomic<CallObserver*> observer_of_calls = nullptr;

thread_local std::string_view scope_of_calls;

thread_local ForcedKernel* innermost_forced = nullptr;
std::atomic<int> forced_kernels = 0;  // of all threads: mostly none, which is cheaper to see

[[noreturn]] void fail_without_kernel(const Op& op, Device device, const KernelQuery& query,
                                      const std::string& forced) {
  std::string inputs;
  for (size_t i = 0; i < query.input_count(); ++i) {
    inputs += i > 0 ? ", " : "";
    inputs += query.has_input(i) ? fmt::format("{} {}", query.input(i).dtype, query.input(i).shape) : "none";
  }
  const std::string attributes = to_string(query.attributes());
  throw_error<Unsupported>("[{}] no kernel{} on {} for inputs ({}){}{}", op.name(),
                           forced.empty() ? "" : " '" + forced + "', which is forced,", device, inputs,
                           attributes.empty() ? "" : " with " + attributes,
                           query.workspace_limit() == KernelQuery::kNoLimit
                               ? ""
                               : fmt::format(" within {} bytes of scratch", query.workspace_limit()));
}

/// The scratch of a choice. If memory is too short for it, the search goes on for a kernel that needs a
/// quarter, a sixteenth, ..., and in the end none.
std::pair<KernelChoice, Workspace::Lease> lease_scratch(const Op& op, Device device, const KernelQuery& query,
                                                        KernelChoice choice, Workspace& workspace) {
  try {
    Workspace::Lease lease = workspace.lease(choice.workspace_bytes);
    return {std::move(choice), std::move(lease)};
  } catch (const OutOfMemory& shortage) {
    for (size_t limit = choice.workspace_bytes; limit > 0;) {
      limit = limit / 4 >= kLeastPart ? limit / 4 : 0;
      try {
        KernelChoice smaller = choose_kernel(op, device, query.within(limit));
        Workspace::Lease lease = workspace.lease(smaller.workspace_bytes);
        return {std::move(smaller), std::move(lease)};
      } catch (const OutOfMemory&) {  // with less, perhaps
      } catch (const Unsupported&) {  // no kernel needs so little; one that needs nothing there may be
      }
    }
    throw;
  }
}

/// Makes `choice` ready to run within the query's limit; false if the kernel cannot.
[[gnu::always_inline]] inline bool prepare_kernel(const Kernel& kernel, const KernelQuery& query,
                                                  KernelChoice& choice) {
  if (kernel.can_run != nullptr && !kernel.can_run(query)) return false;
  choice.kernel = &kernel;
  choice.threads = query.threads();
  if (kernel.prepare != nullptr) {
    choice.prepared = kernel.prepare(query);
    if (choice.prepared == nullptr) return false;
    choice.workspace_bytes = choice.prepared->workspace_bytes();
  } else if (kernel.workspace_bytes != nullptr) {
    choice.workspace_bytes = kernel.workspace_bytes(query);
  }
  return choice.workspace_bytes <= query.workspace_limit();
}

double estimated_time(const Kernel& kernel, const KernelQuery& query, const KernelChoice& choice) {
  return kernel.microseconds == nullptr ? kUnknownTime : kernel.microseconds(query, choice.prepared.get());
}

}  // namespace

KernelChoice choose_kernel(const Op& op, Device device, const KernelQuery& query) {
  const ForcedKernel* const forced = ForcedKernel::of(op);
  const OpDef::Choose choose = op.definition.choose;
  if (choose != nullptr && forced == nullptr && query.workspace_limit() == KernelQuery::kNoLimit &&
      op.kernels_of_device[static_cast<size_t>(device.type)] > 1)
    return choose(op, device, query);
  if (op.estimates && forced == nullptr) return choose_by_estimate(op, device, query);
  for (const Kernel& kernel : op.kernels) {
    if (kernel.device != device.type) continue;
    if (forced != nullptr && kernel.name != forced->kernel_) [[unlikely]]
      continue;
    KernelChoice choice;
    if (prepare_kernel(kernel, query, choice)) return choice;
  }
  fail_without_kernel(op, device, query, forced != nullptr ? forced->kernel_ : std::string());
}

KernelChoice choose_by_estimate(const Op& op, Device device, const KernelQuery& query) {
  KernelChoice best;
  double least = std::numeric_limits<double>::infinity();
  for (const Kernel& kernel : op.kernels) {
    if (kernel.device != device.type) continue;
    if (best.kernel != nullptr && kernel.microseconds == nullptr) continue;
    KernelChoice choice;
    if (!prepare_kernel(kernel, query, choice)) continue;
    const double time = estimated_time(kernel, query, choice);
    if (!(time < least)) continue;
    if (time <= 0.0) return choice;
    best = std::move(choice);
    least = time;
  }
  if (best.kernel == nullptr) fail_without_kernel(op, device, query, {});
  return best;
}

std::vector<KernelCandidate> kernel_candidates(const Op& op, Device device, const KernelQuery& query) {
  std::vector<KernelCandidate> candidates;
  for (const Kernel& kernel : op.kernels) {
    if (kernel.device != device.type) continue;
    KernelChoice choice;
    if (!prepare_kernel(kernel, query, choice)) continue;
    const double time = estimated_time(kernel, query, choice);
    if (time < std::numeric_limits<double>::infinity()) candidates.push_back({std::move(choice), time});
  }
  if (candidates.empty()) fail_without_kernel(op, device, query, {});
  std::ranges::stable_sort(candidates, {}, &KernelCandidate::microseconds);
  return candidates;
}

void run_kernel(const Op& op, const KernelChoice& choice, const KernelQuery& query,
                const KernelContext& context) {
  CallObserver* const observer = observer_of_calls.load(std::memory_order_acquire);
  if (observer != nullptr) [[unlikely]]
    observer->before(op, *choice.kernel, query, context.stream());
  try {
    choice.kernel->run(context);
  } catch (const OutOfMemory&) {
    // Not the pool's but the vendor's own, for code that is loaded late: leave it room for the next attempt.
    const Device device = context.stream().device;
    backend_of(device).memory_pool(device.index).trim();
    throw;
  }
  if (observer != nullptr) [[unlikely]]
    observer->after(context.stream());
  if (ForcedKernel* const forced = ForcedKernel::of(op)) [[unlikely]]
    ++forced->runs_;
}

void dispatch(const Op& op, Device device, const InferContext& call, std::span<const TensorSpec> specs,
              std::span<const TensorView> inputs, std::span<const TensorView> outputs) {
  Backend& backend = backend_of(device);
  backend.make_current(device.index);
  const NamedRange range(backend, op.name().c_str());
  const Stream stream = current_stream(device);
  const KernelQuery query(call, specs, inputs);
  KernelChoice choice = choose_kernel(op, device, query);
  Workspace::Lease lease;
  if (choice.workspace_bytes > 0) {
    std::tie(choice, lease) = lease_scratch(op, device, query, std::move(choice), backend.workspace(stream));
  }
  run_kernel(op, choice, query,
             KernelContext(inputs, outputs, call.attributes(), stream, lease.data(), choice));
}

CallObserver* set_call_observer(CallObserver* observer) {
  return observer_of_calls.exchange(observer, std::memory_order_acq_rel);
}

CallObserver* call_observer() {
  return observer_of_calls.load(std::memory_order_acquire);
}

CallScope::CallScope(std::string_view scope) : outer_(std::exchange(scope_of_calls, scope)) {}

CallScope::~CallScope() {
  scope_of_calls = outer_;
}

std::string_view call_scope() {
  return scope_of_calls;
}

ForcedKernel::ForcedKernel(std::string_view op, std::string_view kernel)
    : op_(&OpRegistry::instance().get(op)), kernel_(kernel), outer_(innermost_forced) {
  std::string names;
  bool known = false;
  for (const Kernel& each : op_->kernels) {
    known = known || each.name == kernel;
    names += fmt::format("{}'{}' on {}", names.empty() ? "" : ", ", each.name, to_string(each.device));
  }
  SINTER_CHECK(known, "[{}] there is no kernel '{}' to force; there are {}", op, kernel,
               names.empty() ? "none" : names);
  innermost_forced = this;
  ++forced_kernels;
}

ForcedKernel::~ForcedKernel() {
  innermost_forced = outer_;
  --forced_kernels;
}

ForcedKernel* ForcedKernel::of(const Op& op) {
  if (forced_kernels.load(std::memory_order_relaxed) == 0) [[likely]]
    return nullptr;
  for (ForcedKernel* forced = innermost_forced; forced != nullptr; forced = forced->outer_) {
    if (forced->op_ == &op) return forced;
  }
  return nullptr;
}

}  // namespace sinter
