// The gradient of normalisation of a tensor whose channels blocks keep between sums and map.
#include <sinter/ops/norm/cuda/norm_cuda.h>
#include <sinter/ops/norm/cuda/resident/norm_backward_pass_cuda.h>
#include <sinter/ops/norm/cuda/resident/norm_grouped_cuda.h>

namespace sinter::ops {

NormGroupPlan plan_grouped(const NormGradProblem& problem) {
  if (!can_be_kept(problem)) return {};
  return plan_grouped_tensors(problem.view, problem.dtype, problem.device, 2, problem.aligned, false);
}

void norm_grouped(const NormGradCall& call, const NormGroupPlan& plan, const Stream& stream) {
  dispatch_backward(call, [&]<class T, bool two>() {
    if (plan.pack == 1) {
      run_grouped(stream, plan, backward_pass_of<T, two, 1>(call));
    } else {
      run_grouped(stream, plan, backward_pass_of<T, two, cuda::kPackSize<T>>(call));
    }
  });
}

}  // namespace sinter::ops
