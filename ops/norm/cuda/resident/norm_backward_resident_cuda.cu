// The gradient of normalisation of a tensor that is kept on chip between the sums and the map.
#include <sinter/ops/norm/cuda/norm_cuda.h>
#include <sinter/ops/norm/cuda/resident/norm_backward_pass_cuda.h>
#include <sinter/ops/norm/cuda/resident/norm_resident_cuda.h>

namespace sinter::ops {

NormResidentPlan plan_resident(const NormGradProblem& problem) {
  if (!can_be_kept(problem) || !problem.aligned) return {};
  return plan_resident_tensors(problem.view, problem.dtype, problem.device, 2);
}

void norm_resident(const NormGradCall& call, const NormResidentPlan& plan, const Stream& stream,
                   void* workspace) {
  dispatch_backward(call, [&]<class T, bool two>() {
    if constexpr (sizeof(T) < sizeof(double)) {
      run_resident(stream, plan, backward_pass_of<T, two, cuda::kPackSize<T>>(call), workspace);
    }
  });
}

}  // namespace sinter::ops
