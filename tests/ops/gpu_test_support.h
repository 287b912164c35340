// What tests of kernels on a GPU share.
#pragma once

#include <gtest/gtest.h>

#include <sinter/core/runtime/backend.h>
#include <sinter/core/tensor/tensor.h>
#include <sinter/ops/cast/cast.h>

namespace sinter::ops::testing_gpu {

/// A test that is skipped, and counted, on a machine without a GPU.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!is_available(Device::cuda())) GTEST_SKIP() << "needs a GPU";
  }
};

inline constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64};

/// A copy on the GPU, `offset` elements behind an address that is aligned.
inline Tensor on_gpu(const Tensor& tensor, int64_t offset = 0) {
  const auto skipped = static_cast<size_t>(offset) * size_of(tensor.dtype());
  const Tensor room = Tensor::empty({tensor.numel() + offset}, tensor.dtype(), Device::cuda());
  const Tensor view = Tensor::over(room.storage(), room.offset_bytes() + skipped,
                                   {tensor.shape(), tensor.dtype(), Device::cuda()});
  copy_bytes(view.raw_data(), Device::cuda(), tensor.raw_data(), Device::cpu(), tensor.spec().bytes());
  return view;
}

/// A copy on the CPU in float64.
inline Tensor as_double(const Tensor& tensor) {
  return cast(tensor.to(Device::cpu()), DType::kFloat64);
}

}  // namespace sinter::ops::testing_gpu
