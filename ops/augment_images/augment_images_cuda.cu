// A block has a part of one image. Steps that map values one by one are a table in shared memory, which each
// block fills from the statistics of the whole image: reading it again costs less than another launch. Sums
// and counts are whole numbers, so that the order of threads does not matter.
#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/augment_images/augment_images.h>
#include <sinter/ops/augment_images/augment_images_math.h>
#include <sinter/ops/common/op_support.h>

namespace sinter::ops {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxChannels = 3;
constexpr int kLaneValues = kByteValues / 32;
constexpr int64_t kPartPixels = 8192;  // a multiple of 4, so that parts keep the alignment of words

/// What the threads of a block share.
struct BlockState {
  unsigned counts[kMaxChannels][kByteValues];
  uint8_t table[kMaxChannels][kByteValues];
  unsigned long long grey_sum;
};

/// How often each value occurs in each channel.
__device__ void count_values(const ImageView& image, BlockState& state) {
  for (int i = static_cast<int>(threadIdx.x); i < kMaxChannels * kByteValues; i += kThreads) {
    state.counts[i / kByteValues][i % kByteValues] = 0;
  }
  __syncthreads();
  const int64_t bytes = int64_t{image.height} * image.width * image.channels;
  for (int64_t i = threadIdx.x; i < bytes; i += kThreads) {
    const unsigned c = image.channels == 3 ? static_cast<uint32_t>(i) % 3u : 0u;
    atomicAdd(&state.counts[c][image.bytes[i]], 1u);
  }
  __syncthreads();
}

__device__ void sum_grey(const ImageView& image, BlockState& state) {
  if (threadIdx.x == 0) state.grey_sum = 0;
  __syncthreads();
  const int64_t pixels = int64_t{image.height} * image.width;
  unsigned long long sum = 0;
  for (int64_t i = threadIdx.x; i < pixels; i += kThreads) {
    const uint8_t* pixel = image.bytes + i * image.channels;
    sum += static_cast<unsigned long long>(image.channels == 3 ? grey_of(pixel) : int64_t{pixel[0]});
  }
  atomicAdd(&state.grey_sum, sum);
  __syncthreads();
}

/// The table of one channel by one warp, from its counts: each lane has some neighbouring values.
__device__ void table_from_counts(const ImageView& image, ImageStep step, BlockState& state, int c) {
  const int lane = static_cast<int>(threadIdx.x % 32), begin = lane * kLaneValues;
  const unsigned* counts = state.counts[c];
  int least = kByteValues, largest = -1;
  unsigned own = 0;
  for (int value = begin; value < begin + kLaneValues; ++value) {
    own += counts[value];
    if (counts[value] == 0) continue;
    if (least == kByteValues) least = value;
    largest = value;
  }
  unsigned up_to = own;  // of this lane and those before it
  for (int distance = 1; distance < 32; distance *= 2) {
    const unsigned before = __shfl_up_sync(0xffffffffu, up_to, distance);
    if (lane >= distance) up_to += before;
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    least = min(least, __shfl_xor_sync(0xffffffffu, least, distance));
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
  }
  ChannelStatistics channel;
  channel.least = least;
  channel.largest = largest;
  // A part of an image is never empty, so that some value occurs.
  channel.step = equalize_step(int64_t{image.height} * image.width, counts[largest]);
  int64_t below = int64_t{up_to} - own;
  for (int value = begin; value < begin + kLaneValues; ++value) {
    state.table[c][value] = table_value(step, 0, value, ImageStatistics{}, channel, below);
    below += counts[value];
  }
}

__device__ void fill_table(const ImageView& image, ImageStep step, int32_t p0, BlockState& state) {
  if (needs_histogram(step)) {
    count_values(image, state);
    const int warp = static_cast<int>(threadIdx.x / 32);
    if (warp < image.channels) table_from_counts(image, step, state, warp);
  } else {
    ImageStatistics whole;
    if (step == ImageStep::kContrast) {
      sum_grey(image, state);
      whole.grey_mean =
          static_cast<int64_t>(state.grey_sum) * kStepOne / (int64_t{image.height} * image.width);
    }
    for (int i = static_cast<int>(threadIdx.x); i < image.channels * kByteValues; i += kThreads) {
      state.table[i / kByteValues][i % kByteValues] =
          table_value(step, p0, i % kByteValues, whole, ChannelStatistics{}, 0);
    }
  }
  __syncthreads();
}

/// The bytes [begin, end) of an image through the table. `words`: both begin at a multiple of four bytes in
/// memory.
template <int kChannels>
__device__ void look_up(const ImageView& image, const BlockState& state, bool words, int64_t begin,
                        int64_t end, uint8_t* to) {
  const auto mapped = [&](int64_t i, unsigned value) -> unsigned {
    // An image has less than 2^31 bytes.
    return state.table[kChannels == 1 ? 0u : static_cast<uint32_t>(i) % kChannels][value];
  };
  int64_t done = begin;
  if (words) {
    const int64_t count = (end - begin) / 4;
    const auto* from_words = reinterpret_cast<const uint32_t*>(image.bytes + begin);
    auto* to_words = reinterpret_cast<uint32_t*>(to + begin);
    for (int64_t w = threadIdx.x; w < count; w += kThreads) {
      const uint32_t word = from_words[w];
      const int64_t i = begin + 4 * w;
      to_words[w] = mapped(i, word & 0xffu) | mapped(i + 1, word >> 8 & 0xffu) << 8 |
                    mapped(i + 2, word >> 16 & 0xffu) << 16 | mapped(i + 3, word >> 24) << 24;
    }
    done = begin + 4 * count;
  }
  for (int64_t i = done + threadIdx.x; i < end; i += kThreads) {
    to[i] = static_cast<uint8_t>(mapped(i, image.bytes[i]));
  }
}

__global__ void __launch_bounds__(kThreads)
    augment_kernel(int64_t parts, int height, int width, int channels, bool words,
                   const uint8_t* __restrict__ images, const int32_t* __restrict__ steps,
                   uint8_t* __restrict__ augmented) {
  __shared__ BlockState state;
  const int64_t n = blockIdx.x / parts, part = blockIdx.x % parts;
  const int64_t pixels = int64_t{height} * width;
  const ImageView image{images + n * pixels * channels, height, width, channels};
  uint8_t* to = augmented + n * pixels * channels;
  const int32_t* row = steps + n * kStepFields;
  const auto step = static_cast<ImageStep>(row[0]);
  const int64_t begin = part * kPartPixels;
  const int64_t end = begin + kPartPixels < pixels ? begin + kPartPixels : pixels;
  if (has_table(step)) {
    fill_table(image, step, row[1], state);
    if (channels == 3) {
      look_up<3>(image, state, words, 3 * begin, 3 * end, to);
    } else {
      look_up<1>(image, state, words, begin, end, to);
    }
    return;
  }
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const auto at = static_cast<uint32_t>(i), y = at / static_cast<uint32_t>(width);
    augment_pixel(image, step, row + 1, y, at - y * static_cast<uint32_t>(width), to + i * channels);
  }
}

void run_augment_images(const KernelContext& context) {
  const Shape& images = context.input(0).shape;
  if (images.numel() == 0) return;
  const int64_t pixels = images[1] * images[2], parts = cuda::blocks_for(pixels, kPartPixels);
  const int64_t blocks = images[0] * parts;
  SINTER_CHECK(blocks <= INT32_MAX, "[augment_images] expected at most {} parts of {} pixels but got {}",
               INT32_MAX, kPartPixels, blocks);
  const auto* bytes = context.input(0).as<const uint8_t>();
  auto* augmented = context.output(0).as<uint8_t>();
  const bool words =
      pixels * images[3] % 4 == 0 && cuda::is_aligned(bytes, 4) && cuda::is_aligned(augmented, 4);
  const cuda::LaunchShape shape{dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0};
  cuda::launch(context.stream(), shape, augment_kernel, parts, static_cast<int>(images[1]),
               static_cast<int>(images[2]), static_cast<int>(images[3]), words, bytes,
               context.input(1).as<const int32_t>(), augmented);
}

}  // namespace

void register_augment_images_cuda(OpRegistry& registry);
void register_augment_images_cuda(OpRegistry& registry) {
  registry.add_kernel("augment_images", {.device = DeviceType::kCuda, .run = run_augment_images});
}

}  // namespace sinter::ops
