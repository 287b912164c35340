// What kernels that multiply on tensor cores are made of: copies to shared memory that run beside them,
// fragments of matrices there, and products of 16x8 by 16. For .cu files; compute capability 8.0 on.
//
// Source: NVIDIA, "Parallel Thread Execution ISA", sections on cp.async, ldmatrix and mma.m16n8k16.
#pragma once

#include <cstdint>
#include <type_traits>

#include <sinter/core/cuda/device/device_types.h>

namespace sinter::cuda {

/// Begins to copy 16 bytes to shared memory; zeros where `there` is false, and then `from` is not read.
__device__ __forceinline__ void copy_to_shared(void* to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "l"(from), "r"(there ? 16 : 0)
               : "memory");
}
/// Lets the line of an address come into L2.
__device__ __forceinline__ void prefetch(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from) : "memory");
}
/// Ends a group of the thread's copies.
__device__ __forceinline__ void end_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits for all of the thread's groups but the last `n`.
template <int n>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
}

/// Four matrices of 8x8 elements of 16 bits. Lane l gives the address of row l % 8 of matrix l / 8, 16 bytes,
/// and gets of each matrix elements l % 4 * 2 and the next of row l / 4.
__device__ __forceinline__ void load_matrices(uint32_t (&parts)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(parts[0]), "=r"(parts[1]), "=r"(parts[2]), "=r"(parts[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}

/// c += a b of a warp: a (16, 16) as the matrices of rows 0-7 and 8-15 of columns 0-7, then of columns 8-15;
/// b (16, 8), transposed, as those of columns 0-7 and 8-15; of c (16, 8) lane l has elements l % 4 * 2 and
/// the next of rows l / 4 and l / 4 + 8.
template <class T>
__device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
  if constexpr (std::is_same_v<T, float16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    static_assert(std::is_same_v<T, bfloat16>);
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

}  // namespace sinter::cuda
