#include <sinter/core/cuda/device_types.h>
#include <sinter/core/cuda/fast_divide.h>
#include <sinter/core/cuda/fold_blocks.h>
#include <sinter/core/cuda/launch.h>

namespace sinter::cuda {
namespace {

constexpr unsigned kThreads = 256;

/// A fold with its channels and blocks as the kernels count them.
struct Fold {
  explicit Fold(const BlockFold& fold)
      : by_width(fold.staged[1]),
        by_height(fold.staged[0]),
        height(fold.plain[0]),
        line(fold.plain[1] * fold.channels),
        block(static_cast<int>(fold.block[0])),
        run(static_cast<int>(fold.block[1] * fold.channels)),
        staged_channels(static_cast<int>(fold.staged_channels)),
        lead_down(fold.lead[0]),
        lead_across(fold.lead[1] * fold.channels) {}

  WideDivide by_width, by_height;  // of staged pixels
  int64_t height, line;            // plain rows of an image, elements of a row
  int block, run;                  // rows of a block, elements of one of them
  int staged_channels;
  int64_t lead_down, lead_across;  // in rows and in elements
};

/// A thread for each staged pixel. T has the size of an element.
template <class T, int pack>
__global__ void __launch_bounds__(kThreads)
    fold_kernel(Fold fold, int64_t pixels, const T* __restrict__ plain, T* __restrict__ staged) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < pixels; i += step) {
    int64_t across, down;
    const int64_t image = fold.by_height.divide(fold.by_width.divide(i, across), down);
    const int64_t top = down * fold.block - fold.lead_down, left = across * fold.run - fold.lead_across;
    const T* from = plain + (image * fold.height + top) * fold.line + left;
    auto* to = reinterpret_cast<Pack<T, pack>*>(staged + i * fold.staged_channels);
    int row = 0, element = 0;
    for (int channel = 0; channel < fold.staged_channels; channel += pack) {
      Pack<T, pack> values;
#pragma unroll
      for (int j = 0; j < pack; ++j) {
        const bool inside = row < fold.block && top + row >= 0 && top + row < fold.height &&
                            left + element >= 0 && left + element < fold.line;
        values.values[j] = inside ? from[row * fold.line + element] : T{0};
        if (++element == fold.run) element = 0, ++row;
      }
      *to++ = values;
    }
  }
}

/// A thread for each plain element.
template <class T>
__global__ void __launch_bounds__(kThreads)
    unfold_kernel(BlockFold fold, int64_t count, const T* __restrict__ staged, T* __restrict__ plain) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    int64_t rest = i;
    const int64_t channel = rest % fold.channels;
    rest /= fold.channels;
    const int64_t across = rest % fold.plain[1] + fold.lead[1];
    rest /= fold.plain[1];
    const int64_t down = rest % fold.plain[0] + fold.lead[0], image = rest / fold.plain[0];
    const int64_t row = down / fold.block[0], column = across / fold.block[1];
    const int64_t place = (down % fold.block[0] * fold.block[1] + across % fold.block[1]) * fold.channels;
    const bool inside = row < fold.staged[0] && column < fold.staged[1];
    const int64_t pixel = (image * fold.staged[0] + row) * fold.staged[1] + column;
    plain[i] = inside ? staged[pixel * fold.staged_channels + place + channel] : T{0};
  }
}

template <class T>
void launch_fold(const Stream& stream, const BlockFold& fold, const void* plain, void* staged) {
  constexpr int widest = kPackSize<T>;
  const auto* from = static_cast<const T*>(plain);
  auto* to = static_cast<T*>(staged);
  const int64_t pixels = fold.staged_pixels();
  const LaunchShape shape = grid_stride_shape(pixels, kThreads, kThreads);
  if (fold.staged_channels % widest == 0) {
    launch(stream, shape, fold_kernel<T, widest>, Fold(fold), pixels, from, to);
  } else {
    SINTER_ASSERT(fold.staged_channels % (widest / 2) == 0, "[cudnn] {} channels are not staged",
                  fold.staged_channels);
    launch(stream, shape, fold_kernel<T, widest / 2>, Fold(fold), pixels, from, to);
  }
}

template <class T>
void launch_unfold(const Stream& stream, const BlockFold& fold, const void* staged, void* plain) {
  const int64_t count = fold.plain_count();
  launch(stream, grid_stride_shape(count, kThreads, kThreads), unfold_kernel<T>, fold, count,
         static_cast<const T*>(staged), static_cast<T*>(plain));
}

}  // namespace

void fold_blocks(const Stream& stream, const BlockFold& fold, DType dtype, const void* plain, void* staged) {
  if (size_of(dtype) == 2) return launch_fold<uint16_t>(stream, fold, plain, staged);
  launch_fold<uint32_t>(stream, fold, plain, staged);
}

void unfold_blocks(const Stream& stream, const BlockFold& fold, DType dtype, const void* staged,
                   void* plain) {
  if (size_of(dtype) == 2) return launch_unfold<uint16_t>(stream, fold, staged, plain);
  launch_unfold<uint32_t>(stream, fold, staged, plain);
}

}  // namespace sinter::cuda
