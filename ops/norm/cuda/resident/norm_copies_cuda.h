// Copies into shared memory, which run on while the thread does (before compute capability 8.0 it waits).
// Only the thread that sends for one sees it when it has waited. For .cu files.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace sinter::ops::detail {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
__device__ __forceinline__ void copy_to_shared(uint4* to, const void* from) {
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
      "l"(from)
      : "memory");
}
__device__ __forceinline__ void end_copy_batch() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until all but the last `pending` batches of this thread's copies are there.
__device__ __forceinline__ void wait_for_copies(int pending) {
#define SINTER_WAIT(n)                                           \
  case n:                                                        \
    asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory"); \
    break;
  switch (pending) {
    SINTER_WAIT(7)
    SINTER_WAIT(6)
    SINTER_WAIT(5)
    SINTER_WAIT(4)
    SINTER_WAIT(3)
    SINTER_WAIT(2)
    SINTER_WAIT(1)
    default:
      asm volatile("cp.async.wait_all;" ::: "memory");
  }
#undef SINTER_WAIT
}
#else
__device__ __forceinline__ void copy_to_shared(uint4* to, const void* from) {
  *to = *static_cast<const uint4*>(from);
}
__device__ __forceinline__ void end_copy_batch() {}
__device__ __forceinline__ void wait_for_copies(int) {}
#endif

}  // namespace sinter::ops::detail
