// Staging on a GPU: the kernels that fold and unfold, against the definition, and what a staged plan hands to
// the plan behind it.
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/cuda/cudnn/fold_pixels.h>
#include <sinter/core/cuda/cudnn/staged_conv_plan.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/tensor/tensor.h>

#include "core/cuda/pixel_fold_support.h"

namespace sinter::cuda {
namespace {

class StagedConvPlanCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_available(Device::cuda())) GTEST_SKIP() << "needs a GPU";
  }
};

using Bits = std::vector<uint32_t>;

/// The bits 1, 2, 3, ... of `count` elements.
Bits counted(int64_t count) {
  Bits bits(static_cast<size_t>(count));
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint32_t>(i + 1);
  return bits;
}

/// Elements of 2 or 4 bytes on the GPU, `offset` of them behind an aligned address.
Tensor on_gpu(const Bits& bits, DType dtype, int64_t offset = 0) {
  std::vector<std::byte> bytes(bits.size() * size_of(dtype));
  for (size_t i = 0; i < bits.size(); ++i) std::memcpy(&bytes[i * size_of(dtype)], &bits[i], size_of(dtype));
  const auto count = static_cast<int64_t>(bits.size());
  const Tensor room = Tensor::empty({count + offset}, dtype, Device::cuda());
  const Tensor view = Tensor::over(room.storage(), static_cast<size_t>(offset) * size_of(dtype),
                                   {{count}, dtype, Device::cuda()});
  copy_bytes(view.raw_data(), Device::cuda(), bytes.data(), Device::cpu(), bytes.size());
  return view;
}

Bits bits_of(const Tensor& tensor) {
  const Tensor host = tensor.to(Device::cpu());
  const auto* bytes = static_cast<const std::byte*>(host.raw_data());
  Bits bits(static_cast<size_t>(host.numel()));
  for (size_t i = 0; i < bits.size(); ++i) {
    std::memcpy(&bits[i], bytes + i * size_of(host.dtype()), size_of(host.dtype()));
  }
  return bits;
}

const PixelFold kFolds[] = {
    {.images = 2, .plain = {5, 7}, .staged = {5, 7}, .channels = 3, .staged_channels = 4},
    {.images = 3, .plain = {1, 1}, .staged = {1, 1}, .channels = 1, .staged_channels = 8},
    {.images = 2, .plain = {9, 300}, .staged = {9, 300}, .channels = 33, .staged_channels = 40},
    {.images = 2,
     .plain = {224, 225},
     .staged = {115, 115},
     .channels = 3,
     .staged_channels = 16,
     .step = {2, 2},
     .window = {2, 2},
     .lead = {4, 4}},
    {.images = 64,
     .plain = {7, 7},
     .staged = {4, 1},
     .channels = 3,
     .staged_channels = 48,
     .step = {2, 2},
     .window = {2, 7},
     .lead = {1, 0}},
    // Windows that are not square, and an image whose last rows and columns are not read.
    {.images = 2,
     .plain = {10, 8},
     .staged = {9, 2},
     .channels = 5,
     .staged_channels = 16,
     .step = {1, 3},
     .window = {1, 3},
     .lead = {0, 0}},
};

/// Those of x overlap, and can be folded only.
const PixelFold kOverlappingFolds[] = {
    {.images = 2,
     .plain = {224, 224},
     .staged = {115, 112},
     .channels = 3,
     .staged_channels = 48,
     .step = {2, 2},
     .window = {2, 7},
     .lead = {4, 3}},
    {.images = 3,
     .plain = {9, 11},
     .staged = {9, 11},
     .channels = 3,
     .staged_channels = 32,
     .window = {3, 3},
     .lead = {1, 1}},
};

/// Fold by fold, dtype by dtype, with plain arrays that are aligned and that are not.
template <class Body>
void for_each_case(std::span<const PixelFold> folds, Body body) {
  for (const DType dtype : {DType::kFloat16, DType::kFloat32}) {
    for (const PixelFold& fold : folds) {
      for (const int64_t offset : {0, 1}) {
        SCOPED_TRACE(fmt::format("{} of {} channels to {}, offset {}", dtype, fold.channels,
                                 fold.staged_channels, offset));
        body(fold, dtype, offset, dtype == DType::kFloat16 ? 0xFFFFU : 0xFFFFFFFFU);
      }
    }
  }
}

void check_fold(const PixelFold& fold, DType dtype, int64_t offset, uint32_t mask) {
  const Bits plain = counted(fold.plain_count());
  Bits want(static_cast<size_t>(fold.staged_count()));
  for_each_element(fold,
                   [&](size_t in_plain, size_t in_staged) { want[in_staged] = plain[in_plain] & mask; });
  const Tensor got = on_gpu(counted(fold.staged_count()), dtype);
  fold_pixels(current_stream(Device::cuda()), fold, dtype, on_gpu(plain, dtype, offset).raw_data(),
              got.raw_data());
  ASSERT_EQ(bits_of(got), want);
}

TEST_F(StagedConvPlanCuda, Folds) {
  for_each_case(kFolds, check_fold);
  for_each_case(kOverlappingFolds, check_fold);
}

TEST_F(StagedConvPlanCuda, Unfolds) {
  for_each_case(kFolds, [](const PixelFold& fold, DType dtype, int64_t offset, uint32_t mask) {
    const Bits staged = counted(fold.staged_count());
    Bits want(static_cast<size_t>(fold.plain_count()));
    for_each_element(fold,
                     [&](size_t in_plain, size_t in_staged) { want[in_plain] = staged[in_staged] & mask; });
    const Tensor got = on_gpu(counted(fold.plain_count()), dtype, offset);
    unfold_pixels(current_stream(Device::cuda()), fold, dtype, on_gpu(staged, dtype).raw_data(),
                  got.raw_data());
    ASSERT_EQ(bits_of(got), want);
  });
}

/// Where a plan was told to find its tensors.
struct Call : ConvArrays {
  void* workspace = nullptr;
};

class RecordingPlan final : public ConvPlan {
 public:
  explicit RecordingPlan(Call& call) : call_(call) {}
  size_t workspace_bytes() const override { return 1000; }
  const std::string& name() const override { return name_; }
  void run(const Stream&, const ConvArrays& arrays, void* workspace) const override {
    call_ = {arrays, workspace};
  }

 private:
  Call& call_;
  std::string name_ = "recorder";
};

TEST_F(StagedConvPlanCuda, HandsAlignedCopiesToItsPlan) {
  const ConvStaging staging{.channels = 8};
  for (const ConvPass pass : {ConvPass::kForward, ConvPass::kGradInput, ConvPass::kGradWeight}) {
    const ConvProblem problem{.pass = pass,
                              .dtype = DType::kFloat16,
                              .layout = Layout::kNHWC,
                              .x = {1, 3, 5, 5},
                              .weight = {2, 3, 3, 3},
                              .y = {1, 2, 3, 3}};
    Call call;
    const StagedConvPlan plan(problem, staging, std::make_unique<RecordingPlan>(call));
    EXPECT_EQ(plan.name(), "staged plain,plain,8: recorder");
    EXPECT_EQ(plan.workspace_bytes(), StagedConvPlan::copies_bytes(problem, staging) + 1000);
    const Tensor workspace =
        Tensor::full({static_cast<int64_t>(plan.workspace_bytes())}, 0, DType::kUInt8).to(Device::cuda());
    const Bits x_bits = counted(75), weight_bits = counted(54);
    const Tensor x = on_gpu(x_bits, DType::kFloat16), weight = on_gpu(weight_bits, DType::kFloat16),
                 y = on_gpu(counted(18), DType::kFloat16);
    float sums = 0;
    plan.run(current_stream(Device::cuda()), {x.raw_data(), weight.raw_data(), y.raw_data(), &sums},
             workspace.raw_data());
    EXPECT_EQ(call.y, y.raw_data());
    EXPECT_EQ(call.sums, &sums);
    const auto* begin = static_cast<const std::byte*>(workspace.raw_data());
    for (const void* inside : {call.x, call.weight, call.workspace}) {
      EXPECT_GE(inside, begin);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(inside) % kConvAlignment, 0u);
    }
    EXPECT_LE(static_cast<std::byte*>(call.workspace) + 1000, begin + workspace.numel());
    // What the pass reads is as it was, and only what it computes was written.
    EXPECT_EQ(bits_of(x) == x_bits, pass != ConvPass::kGradInput);
    EXPECT_EQ(bits_of(weight) == weight_bits, pass != ConvPass::kGradWeight);
  }
}

}  // namespace
}  // namespace sinter::cuda
