// Convolutions with few results for many processors, as of one image: launches conv2d_split_kernel.
#include <limits>

#include <sinter/core/cuda/device/most_shared_memory.h>
#include <sinter/core/cuda/device_traits.h>
#include <sinter/ops/conv2d/conv2d_kernels_cuda.h>
#include <sinter/ops/conv2d/split/conv2d_split_kernel.h>
#include <sinter/ops/prelu/prelu_dispatch.h>

namespace sinter::ops {
namespace {

constexpr int64_t kMostCount =
    std::numeric_limits<int32_t>::max() / 2;  // of what the kernel counts in 32 bits
constexpr int64_t kMostTilesAcross = 65535;

cuda::FastDivide divide_by(int64_t divisor) {
  return cuda::FastDivide(static_cast<uint32_t>(divisor));
}

detail::SplitConv split_conv_of(const Conv2dGeometry& g) {
  const auto number = [](int64_t value) { return static_cast<int>(value); };
  return {.height = number(g.height.input),
          .width = number(g.width.input),
          .channels = number(g.in_channels),
          .outputs = number(g.out_channels),
          .pixels = number(g.batch * g.out_pixels()),
          .depth = number(g.taps() * g.in_channels),
          .down = number(g.height.stride),
          .right = number(g.width.stride),
          .up_padding = number(g.height.padding),
          .left_padding = number(g.width.padding),
          .down_step = number(g.height.dilation),
          .right_step = number(g.width.dilation),
          .image_pixels = divide_by(g.out_pixels()),
          .row_pixels = divide_by(g.width.output),
          .channels_of = divide_by(g.in_channels),
          .taps_across = divide_by(g.width.kernel)};
}

/// Whether what is captured last on the stream is kernels: only behind those may a kernel be launched early.
bool is_behind_kernels(const Stream& stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaGraphNode_t* nodes = nullptr;
  size_t count = 0;
  const auto native = static_cast<cudaStream_t>(stream.native);
#if CUDART_VERSION >= 13000
  const cudaGraphEdgeData* edges = nullptr;
  SINTER_CUDA_CHECK(cudaStreamGetCaptureInfo(native, &status, nullptr, nullptr, &nodes, &edges, &count));
#else
  SINTER_CUDA_CHECK(cudaStreamGetCaptureInfo_v2(native, &status, nullptr, nullptr, &nodes, &count));
#endif
  if (status != cudaStreamCaptureStatusActive || count != 1) return false;
  cudaGraphNodeType type{};
  SINTER_CUDA_CHECK(cudaGraphNodeGetType(nodes[0], &type));
  return type == cudaGraphNodeTypeKernel;
}

template <class T, class S, int columns>
void launch_split(const Stream& stream, const Conv2dGeometry& geometry, const void* x, const void* weight,
                  const BiasAct& what, void* y) {
  using Tile = detail::SplitTile<columns>;
  const cuda::DeviceTraits& traits = cuda::device_traits(stream.device.index);
  const auto blocks = static_cast<unsigned>(conv2d_split_of(geometry, columns, traits.processors).blocks);
  const detail::SplitConv conv = split_conv_of(geometry);
  const int64_t addends =
      (what.one_addend ? 1 : geometry.batch) * geometry.out_pixels() * geometry.out_channels;
  const TypedBiasAct<T, S> typed{static_cast<const T*>(what.bias), static_cast<const T*>(what.addend),
                                 cuda::WideDivide(addends / 8), static_cast<const S*>(what.slope),
                                 what.activation};
  const auto down = static_cast<unsigned>(cuda::blocks_for(conv.pixels, Tile::kRows));
  const auto across = static_cast<unsigned>(cuda::blocks_for(conv.outputs, columns));
  constexpr auto kernel = detail::conv2d_split_kernel<T, S, columns>;
  static cuda::MostSharedMemory memory;
  memory.allow(kernel, stream.device.index);
  cuda::launch_clusters(stream, {dim3(down * blocks, across), dim3(Tile::kThreads), Tile::kSharedBytes},
                        blocks, is_behind_kernels(stream), kernel, conv, static_cast<int>(blocks),
                        static_cast<const T*>(x), static_cast<const T*>(weight), typed, static_cast<T*>(y));
}

}  // namespace

Conv2dSplit conv2d_split_of(const Conv2dGeometry& geometry, int columns, int processors) {
  constexpr int kMostBlocks = 8;
  const int64_t depth =
      cuda::blocks_for(geometry.taps() * geometry.in_channels, detail::SplitTile<64>::kDepth);
  Conv2dSplit split{
      .tiles = cuda::blocks_for(geometry.batch * geometry.out_pixels(), detail::SplitTile<64>::kRows) *
               cuda::blocks_for(geometry.out_channels, columns)};
  while (split.blocks < kMostBlocks && split.tiles * split.blocks <= processors && depth >= 4 * split.blocks)
    split.blocks *= 2;
  return split;
}

bool conv2d_split_can_run(const Conv2dGeometry& g, DType dtype, Device device) {
  if (!is_half(dtype) || g.layout != Layout::kNHWC || g.groups != 1 || g.in_channels % 8 != 0 ||
      g.out_channels % 8 != 0 ||
      !cuda::device_traits(device.index).early_launch)  // as clusters: 9.0 and its code
    return false;
  const int64_t reach = std::max(g.height.reach() + g.height.input + g.height.padding,
                                 g.width.reach() + g.width.input + g.width.padding);
  for (const int64_t count :
       {g.batch * g.in_pixels(), g.batch * g.out_pixels(), g.taps() * g.in_channels, g.out_channels, reach,
        g.height.stride * g.height.output, g.width.stride * g.width.output}) {
    if (count < 1 || count > kMostCount / 8) return false;
  }
  return cuda::blocks_for(g.out_channels, 32) <= kMostTilesAcross;
}

void run_conv2d_split_cuda(const Stream& stream, const Conv2dGeometry& geometry, DType dtype, int columns,
                           const void* x, const void* weight, const BiasAct& what, void* y) {
  const bool has_slope = what.activation == fused::Activation::kPRelu;
  dispatch_prelu(dtype, has_slope ? what.slope_dtype : dtype, "conv2d_bias_act", [&]<class T, class S> {
    if constexpr (sizeof(T) == 2) {
      columns == 64 ? launch_split<T, S, 64>(stream, geometry, x, weight, what, y)
                    : launch_split<T, S, 32>(stream, geometry, x, weight, what, y);
    }
  });
}

}  // namespace sinter::ops
