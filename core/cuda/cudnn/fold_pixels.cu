#include <limits>

#include <sinter/core/cuda/cudnn/fold_pixels.h>
#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/fast_divide.h>
#include <sinter/core/cuda/device/launch.h>

namespace sinter::cuda {
namespace {

constexpr unsigned kThreads = 256;

/// A fold as the kernel counts it.
struct Fold {
  Fold(const PixelFold& fold, int pack)
      : by_packs(static_cast<uint32_t>(fold.staged_channels / pack)),
        by_width(static_cast<uint32_t>(fold.staged[1])),
        by_height(static_cast<uint32_t>(fold.staged[0])),
        by_run(static_cast<uint32_t>(fold.run())),
        height(static_cast<int>(fold.plain[0])),
        line(static_cast<int>(fold.plain[1] * fold.channels)),
        rows(static_cast<int>(fold.window[0])),
        step_down(static_cast<int>(fold.step[0])),
        step_across(static_cast<int>(fold.step[1] * fold.channels)),
        lead_down(static_cast<int>(fold.lead[0])),
        lead_across(static_cast<int>(fold.lead[1] * fold.channels)) {}

  FastDivide by_packs, by_width, by_height;  // of staged pixels, rows and images
  FastDivide by_run;
  int height, line;                                    // plain rows of an image, elements of a row
  int rows;                                            // of a window
  int step_down, step_across, lead_down, lead_across;  // in rows and in elements
};

/// A thread for each pack of staged elements. T has the size of an element.
template <class T, int pack>
__global__ void __launch_bounds__(kThreads)
    fold_kernel(Fold fold, uint32_t packs, const T* __restrict__ plain, T* __restrict__ staged) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= packs) return;
  uint32_t place, across, down, first;
  const uint32_t line = fold.by_width.divide(fold.by_packs.divide(i, place), across);
  const uint32_t image = fold.by_height.divide(line, down);
  int row = static_cast<int>(fold.by_run.divide(place * pack, first));
  const int run = static_cast<int>(fold.by_run.divisor());
  const int top = static_cast<int>(down) * fold.step_down - fold.lead_down;
  const int left = static_cast<int>(across) * fold.step_across - fold.lead_across;
  const T* from = plain + (int64_t{image} * fold.height + top) * fold.line;
  // Few instructions for each element: nothing else limits the kernel but memory.
  const auto is_row = [&] {
    return row < fold.rows && static_cast<unsigned>(top + row) < static_cast<unsigned>(fold.height);
  };
  bool inside = is_row();
  int column = left + static_cast<int>(first), end = left + run, offset = row * fold.line + column;
  Pack<T, pack> values;
#pragma unroll
  for (int j = 0; j < pack; ++j) {
    const bool exists = inside && static_cast<unsigned>(column) < static_cast<unsigned>(fold.line);
    values.values[j] = exists ? from[offset] : T{0};
    ++offset;
    if (++column == end) {
      column = left;
      offset += fold.line - run;
      ++row;
      inside = is_row();
    }
  }
  reinterpret_cast<Pack<T, pack>*>(staged)[i] = values;
}

/// A thread for each plain element, of which no two windows have the same.
template <class T>
__global__ void __launch_bounds__(kThreads)
    unfold_kernel(PixelFold fold, int64_t count, const T* __restrict__ staged, T* __restrict__ plain) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  int64_t rest = i;
  const int64_t channel = rest % fold.channels;
  rest /= fold.channels;
  const int64_t across = rest % fold.plain[1] + fold.lead[1];
  rest /= fold.plain[1];
  const int64_t down = rest % fold.plain[0] + fold.lead[0], image = rest / fold.plain[0];
  // The last window may be larger than a step.
  const int64_t row = min(down / fold.step[0], fold.staged[0] - 1);
  const int64_t column = min(across / fold.step[1], fold.staged[1] - 1);
  const int64_t u = down - row * fold.step[0], v = across - column * fold.step[1];
  const bool inside = u < fold.window[0] && v < fold.window[1];
  const int64_t pixel = (image * fold.staged[0] + row) * fold.staged[1] + column;
  const int64_t place = (u * fold.window[1] + v) * fold.channels + channel;
  plain[i] = inside ? staged[pixel * fold.staged_channels + place] : T{0};
}

template <class T, int pack>
void launch_fold(const Stream& stream, const PixelFold& fold, const void* plain, void* staged) {
  const int64_t packs = fold.staged_count() / pack;
  launch(stream, grid_stride_shape(packs, kThreads, kThreads), fold_kernel<T, pack>, Fold(fold, pack),
         static_cast<uint32_t>(packs), static_cast<const T*>(plain), static_cast<T*>(staged));
}

template <class T>
void launch_fold(const Stream& stream, const PixelFold& fold, const void* plain, void* staged) {
  constexpr int widest = kPackSize<T>;
  if (fold.staged_channels % widest == 0) return launch_fold<T, widest>(stream, fold, plain, staged);
  SINTER_ASSERT(fold.staged_channels % (widest / 2) == 0, "[cudnn] {} channels are not staged",
                fold.staged_channels);
  launch_fold<T, widest / 2>(stream, fold, plain, staged);
}

template <class T>
void launch_unfold(const Stream& stream, const PixelFold& fold, const void* staged, void* plain) {
  const int64_t count = fold.plain_count();
  launch(stream, grid_stride_shape(count, kThreads, kThreads), unfold_kernel<T>, fold, count,
         static_cast<const T*>(staged), static_cast<T*>(plain));
}

}  // namespace

void fold_pixels(const Stream& stream, const PixelFold& fold, DType dtype, const void* plain, void* staged) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  SINTER_ASSERT(fold.staged_count() <= most && fold.plain[1] * fold.channels * fold.window[0] <= most,
                "[cudnn] {} staged elements are too many", fold.staged_count());
  if (size_of(dtype) == 2) return launch_fold<uint16_t>(stream, fold, plain, staged);
  launch_fold<uint32_t>(stream, fold, plain, staged);
}

void unfold_pixels(const Stream& stream, const PixelFold& fold, DType dtype, const void* staged,
                   void* plain) {
  if (size_of(dtype) == 2) return launch_unfold<uint16_t>(stream, fold, staged, plain);
  launch_unfold<uint32_t>(stream, fold, staged, plain);
}

}  // namespace sinter::cuda
