// Forward normalisation of a tensor that is kept on chip between its statistics and its map.
#include <sinter/ops/norm/cuda/norm_cuda.h>
#include <sinter/ops/norm/cuda/resident/norm_forward_pass_cuda.h>
#include <sinter/ops/norm/cuda/resident/norm_resident_cuda.h>

namespace sinter::ops {

NormResidentPlan plan_resident(const NormProblem& problem) {
  if (!can_be_kept(problem) || !problem.aligned) return {};
  return plan_resident_tensors(problem.view, problem.dtype, problem.device, 1);
}

void norm_resident(const NormCall& call, const NormResidentPlan& plan, const Stream& stream,
                   void* workspace) {
  dispatch_forward(call, [&]<class T, AddendKind kind, bool prelu>() {
    if constexpr (sizeof(T) < sizeof(double)) {
      run_resident(stream, plan, forward_pass_of<T, kind, prelu, cuda::kPackSize<T>>(call), workspace);
    }
  });
}

}  // namespace sinter::ops
