// The radix sort of CUB, which is part of the CUDA toolkit.
#include <cub/device/device_radix_sort.cuh>

#include <sinter/core/cuda/cuda_check.h>
#include <sinter/ops/common/sort/sort_pairs_cuda.h>

namespace sinter::ops {
namespace {

cudaError_t sort(void* scratch, size_t& bytes, const uint32_t* keys, uint32_t* sorted_keys,
                 const uint32_t* values, uint32_t* sorted_values, int64_t count, int bits,
                 cudaStream_t stream) {
  // Counts of 32 bits are quicker, and keep to kernels of their own.
  return cub::DeviceRadixSort::SortPairs(scratch, bytes, keys, sorted_keys, values, sorted_values,
                                         static_cast<uint32_t>(count), 0, bits, stream);
}

}  // namespace

size_t sort_pairs_bytes(int64_t count, int bits) {
  size_t bytes = 0;
  SINTER_CUDA_CHECK(sort(nullptr, bytes, nullptr, nullptr, nullptr, nullptr, count, bits, nullptr));
  return bytes;
}

void sort_pairs(const Stream& stream, void* scratch, size_t scratch_bytes, const uint32_t* keys,
                uint32_t* sorted_keys, const uint32_t* values, uint32_t* sorted_values, int64_t count,
                int bits) {
  SINTER_CUDA_CHECK(sort(scratch, scratch_bytes, keys, sorted_keys, values, sorted_values, count, bits,
                         static_cast<cudaStream_t>(stream.native)));
}

}  // namespace sinter::ops
