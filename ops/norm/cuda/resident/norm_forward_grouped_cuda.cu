// Forward normalisation of a tensor whose channels blocks keep between statistics and map.
#include <sinter/ops/norm/cuda/norm_cuda.h>
#include <sinter/ops/norm/cuda/resident/norm_forward_pass_cuda.h>
#include <sinter/ops/norm/cuda/resident/norm_grouped_cuda.h>

namespace sinter::ops {

NormGroupPlan plan_grouped(const NormProblem& problem) {
  if (!can_be_kept(problem)) return {};
  const bool mask = problem.options.activation != Activation::kNone && problem.has_mask;
  return plan_grouped_tensors(problem.view, problem.dtype, problem.device, 1, problem.aligned, mask);
}

void norm_grouped(const NormCall& call, const NormGroupPlan& plan, const Stream& stream) {
  dispatch_forward(call, [&]<class T, AddendKind kind, bool prelu>() {
    if (plan.pack == 1) {
      run_grouped(stream, plan, forward_pass_of<T, kind, prelu, 1>(call));
    } else {
      run_grouped(stream, plan, forward_pass_of<T, kind, prelu, cuda::kPackSize<T>>(call));
    }
  });
}

}  // namespace sinter::ops
