// The descriptors of a problem are made anew for each of its calls.
#include <cudnn.h>

#include <sinter/core/cuda/cudnn/cudnn_batch_norm.h>
#include <sinter/core/cuda/cudnn/cudnn_handles.h>

// cuDNN 9 calls this interface deprecated in favour of its graphs, whose engines for fused batch
// normalisation support the same cases only.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace sinter::cuda {
namespace {

constexpr cudnnBatchNormMode_t kMode = CUDNN_BATCHNORM_SPATIAL_PERSISTENT;
constexpr float kOne = 1.0F, kZero = 0.0F;

template <auto destroy, class Handle>
UniqueHandle<Handle, destroy> make(cudnnStatus_t (*create)(Handle*)) {
  Handle descriptor = nullptr;
  SINTER_CUDNN_CHECK(create(&descriptor));
  return UniqueHandle<Handle, destroy>(descriptor);
}

/// What cuDNN calls of a problem take.
struct Descriptors {
  cudnnHandle_t handle;
  cudnnBatchNormOps_t ops;
  UniqueHandle<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor> image, parameter;
  UniqueHandle<cudnnActivationDescriptor_t, cudnnDestroyActivationDescriptor> relu;

  Descriptors(const CudnnNormProblem& problem, const Stream& stream)
      : handle(cudnn_handle(stream)),
        ops(problem.adds ? CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION : CUDNN_BATCHNORM_OPS_BN_ACTIVATION),
        image(make<cudnnDestroyTensorDescriptor>(cudnnCreateTensorDescriptor)),
        parameter(make<cudnnDestroyTensorDescriptor>(cudnnCreateTensorDescriptor)),
        relu(make<cudnnDestroyActivationDescriptor>(cudnnCreateActivationDescriptor)) {
    SINTER_CUDNN_CHECK(
        cudnnSetTensor4dDescriptor(image.get(), CUDNN_TENSOR_NHWC, CUDNN_DATA_HALF,
                                   static_cast<int>(problem.images), static_cast<int>(problem.channels),
                                   static_cast<int>(problem.height), static_cast<int>(problem.width)));
    SINTER_CUDNN_CHECK(cudnnDeriveBNTensorDescriptor(parameter.get(), image.get(), kMode));
    SINTER_CUDNN_CHECK(
        cudnnSetActivationDescriptor(relu.get(), CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0.0));
  }
  cudnnTensorDescriptor_t addend() const {
    return ops == CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION ? image.get() : nullptr;
  }
  size_t reserve_bytes() const {
    size_t bytes = 0;
    SINTER_CUDNN_CHECK(cudnnGetBatchNormalizationTrainingExReserveSpaceSize(handle, kMode, ops, relu.get(),
                                                                            image.get(), &bytes));
    return bytes;
  }
  void expect_reserve(size_t bytes) const {
    const size_t needed = reserve_bytes();
    SINTER_CHECK(bytes >= needed,
                 "[cudnn] expected a reserve space of {} bytes for batch normalisation but got {}", needed,
                 bytes);
  }
};

}  // namespace

int64_t cudnn_library_version() {
  return static_cast<int64_t>(cudnnGetVersion());
}

CudnnNormBytes cudnn_norm_bytes(const CudnnNormProblem& problem, const Stream& stream) {
  const Descriptors of(problem, stream);
  CudnnNormBytes bytes{.reserve = of.reserve_bytes()};
  SINTER_CUDNN_CHECK(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
      of.handle, kMode, of.ops, of.image.get(), of.addend(), of.image.get(), of.parameter.get(),
      of.relu.get(), &bytes.forward));
  SINTER_CUDNN_CHECK(cudnnGetBatchNormalizationBackwardExWorkspaceSize(
      of.handle, kMode, of.ops, of.image.get(), of.image.get(), of.image.get(), of.addend(), of.image.get(),
      of.parameter.get(), of.relu.get(), &bytes.backward));
  return bytes;
}

void cudnn_norm_forward(const CudnnNormProblem& problem, const CudnnNormTensors& tensors,
                        const Stream& stream, void* workspace, size_t workspace_bytes) {
  const Descriptors of(problem, stream);
  of.expect_reserve(tensors.reserve_bytes);
  SINTER_CUDNN_CHECK(cudnnBatchNormalizationForwardTrainingEx(
      of.handle, kMode, of.ops, &kOne, &kZero, of.image.get(), tensors.x, of.addend(), tensors.addend,
      of.image.get(), tensors.y, of.parameter.get(), tensors.weight, tensors.bias, problem.momentum,
      tensors.running_mean, tensors.running_var, problem.epsilon, tensors.mean, tensors.inv_std,
      of.relu.get(), workspace, workspace_bytes, tensors.reserve, tensors.reserve_bytes));
}

void cudnn_norm_backward(const CudnnNormProblem& problem, const CudnnNormTensors& tensors,
                         const Stream& stream, void* workspace, size_t workspace_bytes) {
  const Descriptors of(problem, stream);
  of.expect_reserve(tensors.reserve_bytes);
  // The signs of y are in the reserve space: y itself need not be kept.
  SINTER_CUDNN_CHECK(cudnnBatchNormalizationBackwardEx(
      of.handle, kMode, of.ops, &kOne, &kZero, &kOne, &kZero, of.image.get(), tensors.x, of.image.get(),
      nullptr, of.image.get(), tensors.dy, of.addend(), tensors.daddend, of.image.get(), tensors.dx,
      of.parameter.get(), tensors.weight, tensors.bias, tensors.dweight, tensors.dbias, problem.epsilon,
      tensors.mean, tensors.inv_std, of.relu.get(), workspace, workspace_bytes, tensors.reserve,
      tensors.reserve_bytes));
}

}  // namespace sinter::cuda
