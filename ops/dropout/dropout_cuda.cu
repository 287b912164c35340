#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/dropout/dropout.h>
#include <sinter/ops/dropout/dropout_math.h>

namespace sinter::ops {
namespace {

constexpr unsigned kThreads = 256;

/// Elements of a thread: whole Philox blocks, and at least 16 bytes.
template <class T>
constexpr int kDropoutPack = std::max(4, cuda::kPackSize<T>);

/// `wide`: x and y allow accesses of a whole pack.
template <bool wide, class T>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(int64_t count, const int64_t* key, float p, compute_type<T> scale, const T* x, T* y) {
  constexpr int pack = kDropoutPack<T>;
  using Elements = cuda::Pack<T, pack>;
  const auto seed = static_cast<uint64_t>(key[0]), offset = static_cast<uint64_t>(key[1]);
  const int64_t stride = int64_t{gridDim.x} * kThreads * pack;
  for (int64_t begin = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * pack; begin < count;
       begin += stride) {
    const bool whole = begin + pack <= count;
    Elements values;
    if (wide && whole) {
      values = *reinterpret_cast<const Elements*>(x + begin);
    } else {
#pragma unroll
      for (int i = 0; i < pack; ++i) {
        if (begin + i < count) values.values[i] = x[begin + i];
      }
    }
#pragma unroll
    for (int i = 0; i < pack; i += 4) {
      const PhiloxBlock drawn = philox(seed, offset + static_cast<uint64_t>((begin + i) / 4));
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        T& value = values.values[i + word];
        value = cuda::round_to<T>(dropped_out(cuda::load_as_compute(value), drawn.words[word], p, scale));
      }
    }
    if (wide && whole) {
      *reinterpret_cast<Elements*>(y + begin) = values;
    } else {
#pragma unroll
      for (int i = 0; i < pack; ++i) {
        if (begin + i < count) y[begin + i] = values.values[i];
      }
    }
  }
}

template <class T>
void drop(const KernelContext& context) {
  using C = compute_type<T>;
  const double p = context.attributes<DropoutAttributes>().p;
  const int64_t count = context.output(0).numel();
  const T* x = context.input(0).as<const T>();
  T* y = context.output(0).as<T>();
  if (count == 0) return;
  constexpr size_t bytes = sizeof(cuda::Pack<T, kDropoutPack<T>>);
  const bool wide = cuda::is_aligned(x, bytes) && cuda::is_aligned(y, bytes);
  cuda::launch(
      context.stream(), cuda::grid_stride_shape(count, int64_t{kDropoutPack<T>} * kThreads, kThreads),
      wide ? dropout_kernel<true, T> : dropout_kernel<false, T>, count, context.input(1).as<const int64_t>(),
      static_cast<float>(p), static_cast<C>(1.0 / (1.0 - p)), x, y);
}

void run_dropout(const KernelContext& context) {
  dispatch_float(context.input(0).dtype, "dropout", [&]<class T> { drop<T>(context); });
}

}  // namespace

void register_dropout_cuda(OpRegistry& registry);
void register_dropout_cuda(OpRegistry& registry) {
  registry.add_kernel("dropout", {.device = DeviceType::kCuda, .run = run_dropout});
}

}  // namespace sinter::ops
