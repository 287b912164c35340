// The sums of conv2d_sums where cuDNN does not take them while it convolves: the pass that batch norms make
// over what they normalise.
#include <sinter/core/cuda/cuda_check.h>
#include <sinter/ops/conv2d/conv2d_kernels_cuda.h>
#include <sinter/ops/norm/cuda/norm_scratch_cuda.h>
#include <sinter/ops/norm/cuda/norm_statistics_cuda.h>

namespace sinter::ops {
namespace {

ChannelView result_view(const Conv2dGeometry& geometry) {
  const int64_t pixels = geometry.out_pixels();
  if (geometry.layout == Layout::kNHWC) return {geometry.batch * pixels, geometry.out_channels, 1};
  return {geometry.batch, geometry.out_channels, pixels};
}

}  // namespace

size_t channel_sums_workspace_cuda(const Conv2dGeometry& geometry, DType dtype, Device device) {
  const ChannelView view = result_view(geometry);
  if (view.numel() == 0) return 0;
  return NormScratch::bytes(norm_table_bytes(view, dtype, device.index, kStatisticsBlocks, 2));
}

void run_channel_sums_cuda(const Stream& stream, const Conv2dGeometry& geometry, DType dtype, const void* y,
                           void* sums, void* workspace) {
  const ChannelView view = result_view(geometry);
  if (view.numel() == 0) {
    const size_t bytes = 2 * static_cast<size_t>(view.channels) * size_of(accumulate_dtype(dtype));
    SINTER_CUDA_CHECK(cudaMemsetAsync(sums, 0, bytes, static_cast<cudaStream_t>(stream.native)));
    return;
  }
  sum_channels_and_squares(view, dtype, y, stream, sums, workspace);
}

}  // namespace sinter::ops
