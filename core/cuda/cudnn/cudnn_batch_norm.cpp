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

using TensorDescriptor = UniqueHandle<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor>;
using ActivationDescriptor = UniqueHandle<cudnnActivationDescriptor_t, cudnnDestroyActivationDescriptor>;

TensorDescriptor make_tensor() {
  cudnnTensorDescriptor_t descriptor = nullptr;
  SINTER_CUDNN_CHECK(cudnnCreateTensorDescriptor(&descriptor));
  return TensorDescriptor(descriptor);
}

/// The descriptors of a problem.
struct Descriptors {
  TensorDescriptor image = make_tensor(), parameter = make_tensor();
  ActivationDescriptor activation;
  cudnnBatchNormOps_t ops = CUDNN_BATCHNORM_OPS_BN;

  explicit Descriptors(const CudnnNormProblem& problem) {
    SINTER_CUDNN_CHECK(
        cudnnSetTensor4dDescriptor(image.get(), CUDNN_TENSOR_NHWC, CUDNN_DATA_HALF,
                                   static_cast<int>(problem.images), static_cast<int>(problem.channels),
                                   static_cast<int>(problem.height), static_cast<int>(problem.width)));
    SINTER_CUDNN_CHECK(cudnnDeriveBNTensorDescriptor(parameter.get(), image.get(), kMode));
    if (!problem.relu) return;
    ops = problem.adds ? CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION : CUDNN_BATCHNORM_OPS_BN_ACTIVATION;
    cudnnActivationDescriptor_t descriptor = nullptr;
    SINTER_CUDNN_CHECK(cudnnCreateActivationDescriptor(&descriptor));
    activation = ActivationDescriptor(descriptor);
    SINTER_CUDNN_CHECK(
        cudnnSetActivationDescriptor(descriptor, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0.0));
  }
  cudnnTensorDescriptor_t addend() const {
    return ops == CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION ? image.get() : nullptr;
  }
};

size_t reserve_bytes_of(const Descriptors& of, cudnnHandle_t handle) {
  size_t bytes = 0;
  SINTER_CUDNN_CHECK(cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
      handle, kMode, of.ops, of.activation.get(), of.image.get(), &bytes));
  return bytes;
}

void expect_reserve(const Descriptors& of, cudnnHandle_t handle, size_t bytes) {
  const size_t needed = reserve_bytes_of(of, handle);
  SINTER_CHECK(bytes >= needed,
               "[cudnn] expected a reserve space of {} bytes for batch normalisation but got {}", needed,
               bytes);
}

}  // namespace

int64_t cudnn_library_version() {
  return static_cast<int64_t>(cudnnGetVersion());
}

size_t cudnn_norm_reserve_bytes(const CudnnNormProblem& problem, const Stream& stream) {
  return reserve_bytes_of(Descriptors(problem), cudnn_handle(stream));
}

size_t cudnn_norm_forward_bytes(const CudnnNormProblem& problem, const Stream& stream) {
  const Descriptors of(problem);
  size_t bytes = 0;
  SINTER_CUDNN_CHECK(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
      cudnn_handle(stream), kMode, of.ops, of.image.get(), of.addend(), of.image.get(), of.parameter.get(),
      of.activation.get(), &bytes));
  return bytes;
}

size_t cudnn_norm_backward_bytes(const CudnnNormProblem& problem, const Stream& stream) {
  const Descriptors of(problem);
  size_t bytes = 0;
  SINTER_CUDNN_CHECK(cudnnGetBatchNormalizationBackwardExWorkspaceSize(
      cudnn_handle(stream), kMode, of.ops, of.image.get(), of.image.get(), of.image.get(), of.addend(),
      of.image.get(), of.parameter.get(), of.activation.get(), &bytes));
  return bytes;
}

void cudnn_norm_forward(const CudnnNormProblem& problem, const CudnnNormForward& tensors,
                        const Stream& stream, void* workspace, size_t workspace_bytes) {
  const Descriptors of(problem);
  const cudnnHandle_t handle = cudnn_handle(stream);
  expect_reserve(of, handle, tensors.reserve_bytes);
  SINTER_CUDNN_CHECK(cudnnBatchNormalizationForwardTrainingEx(
      handle, kMode, of.ops, &kOne, &kZero, of.image.get(), tensors.x, of.addend(), tensors.addend,
      of.image.get(), tensors.y, of.parameter.get(), tensors.weight, tensors.bias, tensors.momentum,
      tensors.running_mean, tensors.running_var, problem.epsilon, tensors.mean, tensors.inv_std,
      of.activation.get(), workspace, workspace_bytes, tensors.reserve, tensors.reserve_bytes));
}

void cudnn_norm_backward(const CudnnNormProblem& problem, const CudnnNormBackward& tensors,
                         const Stream& stream, void* workspace, size_t workspace_bytes) {
  const Descriptors of(problem);
  const cudnnHandle_t handle = cudnn_handle(stream);
  expect_reserve(of, handle, tensors.reserve_bytes);
  // The signs of y are in the reserve space: y itself need not be kept.
  SINTER_CUDNN_CHECK(cudnnBatchNormalizationBackwardEx(
      handle, kMode, of.ops, &kOne, &kZero, &kOne, &kZero, of.image.get(), tensors.x, of.image.get(), nullptr,
      of.image.get(), tensors.dy, of.addend(), tensors.daddend, of.image.get(), tensors.dx,
      of.parameter.get(), tensors.weight, tensors.bias, tensors.dweight, tensors.dbias, problem.epsilon,
      tensors.mean, tensors.inv_std, of.activation.get(), workspace, workspace_bytes, tensors.reserve,
      tensors.reserve_bytes));
}

}  // namespace sinter::cuda
