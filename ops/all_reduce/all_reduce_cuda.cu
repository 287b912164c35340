// On GPUs the tensors of a bucket are copied side by side and summed as one array: NCCL takes five times as
// long for a hundred tensors in a group as for their bytes in one piece.
#include <algorithm>
#include <vector>

#include <sinter/core/cuda/device/launch.h>
#include <sinter/ops/all_reduce/all_reduce.h>
#include <sinter/ops/all_reduce/all_reduce_kernels.h>
#include <sinter/ops/common/cuda/copy_units_cuda.h>
#include <sinter/ops/common/cuda/unaligned_pack_cuda.h>

namespace sinter::ops {
namespace {

constexpr unsigned kThreads = 256;
constexpr int64_t kChunkBytes = 32 << 10;  // that a block copies
constexpr size_t kParts = 96;              // of a launch

/// Elements of one tensor, and the room up to the next one's place, which is filled with zeros.
template <class T>
struct PackedPart {
  const T* from = nullptr;
  T* to = nullptr;
  int64_t count = 0, room = 0;
};

template <class T>
struct PackedParts {
  PackedPart<T> parts[kParts];
};

/// blockIdx.y picks the part. Places and rooms are multiples of 16 bytes.
template <class T>
__global__ void __launch_bounds__(kThreads) pack_parts_kernel(const __grid_constant__ PackedParts<T> table) {
  constexpr int pack = 16 / sizeof(T);
  constexpr int64_t chunk = kChunkBytes / sizeof(T);
  const PackedPart<T>& part = table.parts[blockIdx.y];
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * chunk;
  const int64_t end = min(begin + chunk, part.room);
#pragma unroll 4
  for (int64_t i = begin + pack * static_cast<int64_t>(threadIdx.x); i < end; i += pack * kThreads) {
    cuda::Pack<T, pack> values;
    if (i + pack <= part.count) {
      values = load_unaligned<pack>(part.from + i);
    } else {
#pragma unroll
      for (int j = 0; j < pack; ++j) values.values[j] = i + j < part.count ? part.from[i + j] : T{0};
    }
    *reinterpret_cast<cuda::Pack<T, pack>*>(part.to + i) = values;
  }
}

template <class T>
void pack_parts(const Communicator::Bucket& bucket, const Stream& stream) {
  static_assert(kBucketAlignment * sizeof(T) % 16 == 0);
  const std::span<const Communicator::Part> parts = bucket.parts;
  for (size_t first = 0; first < parts.size(); first += kParts) {
    const size_t count = std::min(parts.size() - first, kParts);
    PackedParts<T> table;
    int64_t most = 0;
    for (size_t i = 0; i < count; ++i) {
      const Communicator::Part& part = parts[first + i];
      const int64_t next = first + i + 1 < parts.size() ? parts[first + i + 1].place : bucket.count;
      table.parts[i] = {static_cast<const T*>(part.from), static_cast<T*>(bucket.sums) + part.place,
                        part.count, next - part.place};
      most = std::max(most, next - part.place);
    }
    if (most == 0) continue;
    const int64_t chunk = kChunkBytes / static_cast<int64_t>(sizeof(T));
    cuda::LaunchShape shape;
    shape.grid = dim3(static_cast<unsigned>((most + chunk - 1) / chunk), static_cast<unsigned>(count));
    shape.block = dim3(kThreads);
    cuda::launch(stream, shape, pack_parts_kernel<T>, table);
  }
}

void pack_bucket(const Communicator::Bucket& bucket, const Stream& stream) {
  dispatch_unit(static_cast<int64_t>(size_of(bucket.dtype)), [&]<class T> {
    if constexpr (sizeof(T) <= 8) pack_parts<T>(bucket, stream);
  });
}

void run_begin(const KernelContext& context) {
  begin_bucket(context, pack_bucket);
}

}  // namespace

void register_all_reduce_cuda(OpRegistry& registry);
void register_all_reduce_cuda(OpRegistry& registry) {
  add_all_reduce_kernels(registry, DeviceType::kCuda, run_begin);
}

}  // namespace sinter::ops
