// Convolution by plain sums, a thread for each result: for calls that cuDNN cannot take.
#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/conv2d/conv2d_kernels_cuda.h>

namespace sinter::ops {
namespace {

using cuda::load_as_compute;

constexpr int kThreads = 128;

/// Steps in elements along (image or filter, channel, row, column).
struct Steps {
  int64_t n, c, h, w;
};

Steps steps_of(Layout layout, int64_t channels, int64_t height, int64_t width) {
  if (layout == Layout::kNCHW) return {channels * height * width, height * width, width, 1};
  return {height * width * channels, 1, width * channels, channels};
}

/// Where an element of a dense array stands.
struct Place {
  int64_t n, c, h, w;
};

__device__ Place place_of(int64_t i, bool channels_last, int64_t channels, int64_t height, int64_t width) {
  Place at;
  if (channels_last) {
    at.c = i % channels, i /= channels;
    at.w = i % width, i /= width;
    at.h = i % height, at.n = i / height;
  } else {
    at.w = i % width, i /= width;
    at.h = i % height, i /= height;
    at.c = i % channels, at.n = i / channels;
  }
  return at;
}

struct Problem {
  explicit Problem(const Conv2dGeometry& geometry)
      : g(geometry),
        channels_last(geometry.layout == Layout::kNHWC),
        x(steps_of(g.layout, g.in_channels, g.height.input, g.width.input)),
        weight(steps_of(g.layout, g.group_in(), g.height.kernel, g.width.kernel)),
        y(steps_of(g.layout, g.out_channels, g.height.output, g.width.output)),
        group_in(g.group_in()),
        group_out(g.group_out()) {}

  Conv2dGeometry g;
  bool channels_last;
  Steps x, weight, y;
  int64_t group_in, group_out;
};

/// One thread for each element of y.
template <class T>
__global__ void forward_kernel(Problem p, int64_t count, const T* x, const T* weight, const T* bias, T* y) {
  const Conv2dAxis height = p.g.height, width = p.g.width;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    const Place at = place_of(i, p.channels_last, p.g.out_channels, height.output, width.output);
    const T* image = x + at.n * p.x.n + at.c / p.group_out * p.group_in * p.x.c;
    const T* filter = weight + at.c * p.weight.n;
    compute_type<T> sum = 0;
    for (int64_t u = 0; u < height.kernel; ++u) {
      const int64_t row = at.h * height.stride - height.padding + u * height.dilation;
      if (row < 0 || row >= height.input) continue;
      for (int64_t v = 0; v < width.kernel; ++v) {
        const int64_t column = at.w * width.stride - width.padding + v * width.dilation;
        if (column < 0 || column >= width.input) continue;
        const T* pixel = image + row * p.x.h + column * p.x.w;
        const T* tap = filter + u * p.weight.h + v * p.weight.w;
        for (int64_t c = 0; c < p.group_in; ++c) {
          sum += load_as_compute(pixel[c * p.x.c]) * load_as_compute(tap[c * p.weight.c]);
        }
      }
    }
    if (bias != nullptr) sum += load_as_compute(bias[at.c]);
    y[i] = cuda::round_to<T>(sum);
  }
}

/// The output row or column that tap `u` joins with input position `at`, or -1.
__device__ int64_t output_of(const Conv2dAxis& axis, int64_t at, int64_t u) {
  const int64_t shifted = at + axis.padding - u * axis.dilation;
  if (shifted < 0 || shifted % axis.stride != 0) return -1;
  const int64_t output = shifted / axis.stride;
  return output < axis.output ? output : -1;
}

/// One thread for each element of dx.
template <class T>
__global__ void grad_input_kernel(Problem p, int64_t count, const T* dy, const T* weight, T* dx) {
  const Conv2dAxis height = p.g.height, width = p.g.width;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    const Place at = place_of(i, p.channels_last, p.g.in_channels, height.input, width.input);
    const int64_t first_out = at.c / p.group_in * p.group_out;
    const T* image = dy + at.n * p.y.n + first_out * p.y.c;
    const T* filters = weight + first_out * p.weight.n + at.c % p.group_in * p.weight.c;
    compute_type<T> sum = 0;
    for (int64_t u = 0; u < height.kernel; ++u) {
      const int64_t row = output_of(height, at.h, u);
      if (row < 0) continue;
      for (int64_t v = 0; v < width.kernel; ++v) {
        const int64_t column = output_of(width, at.w, v);
        if (column < 0) continue;
        const T* pixel = image + row * p.y.h + column * p.y.w;
        const T* tap = filters + u * p.weight.h + v * p.weight.w;
        for (int64_t o = 0; o < p.group_out; ++o) {
          sum += load_as_compute(pixel[o * p.y.c]) * load_as_compute(tap[o * p.weight.n]);
        }
      }
    }
    dx[i] = cuda::round_to<T>(sum);
  }
}

/// One block for each element of dweight: its threads share the positions of the output, always in the same
/// way.
template <class T>
__global__ void grad_weight_kernel(Problem p, int64_t count, const T* x, const T* dy, T* dweight) {
  using C = compute_type<T>;
  __shared__ C sums[kThreads];
  const Conv2dAxis height = p.g.height, width = p.g.width;
  const int64_t positions = p.g.batch * height.output * width.output;
  for (int64_t i = blockIdx.x; i < count; i += gridDim.x) {
    const Place at =
        place_of(i, p.channels_last, p.group_in, height.kernel, width.kernel);  // n is the filter
    const T* image = x + (at.n / p.group_out * p.group_in + at.c) * p.x.c;
    const T* gradient = dy + at.n * p.y.c;
    C sum = 0;
    for (int64_t position = threadIdx.x; position < positions; position += kThreads) {
      const int64_t out_column = position % width.output;
      const int64_t rest = position / width.output;
      const int64_t out_row = rest % height.output;
      const int64_t n = rest / height.output;
      const int64_t row = out_row * height.stride - height.padding + at.h * height.dilation;
      const int64_t column = out_column * width.stride - width.padding + at.w * width.dilation;
      if (row < 0 || row >= height.input || column < 0 || column >= width.input) continue;
      sum += load_as_compute(image[n * p.x.n + row * p.x.h + column * p.x.w]) *
             load_as_compute(gradient[n * p.y.n + out_row * p.y.h + out_column * p.y.w]);
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
      if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
      __syncthreads();
    }
    if (threadIdx.x == 0) dweight[i] = cuda::round_to<T>(sums[0]);
    __syncthreads();  // before the next element's sums are written
  }
}

}  // namespace

void run_conv2d_direct_cuda(const Stream& stream, const Conv2dGeometry& geometry, DType dtype, const void* x,
                            const void* weight, const void* bias, void* y) {
  const int64_t count = geometry.batch * geometry.out_channels * geometry.out_pixels();
  if (count == 0) return;
  dispatch_float(dtype, "conv2d", [&]<class T> {
    cuda::launch(stream, cuda::grid_stride_shape(count, kThreads, kThreads), forward_kernel<T>,
                 Problem(geometry), count, static_cast<const T*>(x), static_cast<const T*>(weight),
                 static_cast<const T*>(bias), static_cast<T*>(y));
  });
}

void run_conv2d_grad_input_direct_cuda(const Stream& stream, const Conv2dGeometry& geometry, DType dtype,
                                       const void* dy, const void* weight, void* dx) {
  const int64_t count = geometry.batch * geometry.in_channels * geometry.in_pixels();
  if (count == 0) return;
  dispatch_float(dtype, "conv2d_grad_input", [&]<class T> {
    cuda::launch(stream, cuda::grid_stride_shape(count, kThreads, kThreads), grad_input_kernel<T>,
                 Problem(geometry), count, static_cast<const T*>(dy), static_cast<const T*>(weight),
                 static_cast<T*>(dx));
  });
}

void run_conv2d_grad_weight_direct_cuda(const Stream& stream, const Conv2dGeometry& geometry, DType dtype,
                                        const void* x, const void* dy, void* dweight) {
  const int64_t count = geometry.weight_count();
  dispatch_float(dtype, "conv2d_grad_weight", [&]<class T> {
    cuda::launch(stream, cuda::grid_stride_shape(count, 1, kThreads), grad_weight_kernel<T>,
                 Problem(geometry), count, static_cast<const T*>(x), static_cast<const T*>(dy),
                 static_cast<T*>(dweight));
  });
}

}  // namespace sinter::ops
