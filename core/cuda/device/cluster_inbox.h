// How the blocks of a cluster (launch_cluster.h) hand values to its first block without waiting for it or for
// each other: they write into its shared memory, and a barrier there counts the bytes that have arrived. For
// .cu files; compute capability 9.0 on, elsewhere there are no clusters and nothing here may be called.
#pragma once

#include <cstdint>

namespace sinter::cuda {

/// In shared memory of every block of the cluster, at the same place.
class ClusterInbox {
 public:
  /// Called by all threads of all blocks, once, before anything else here. The first block, `is_first`,
  /// expects `bytes` in all; it must not end before wait() has returned.
  __device__ __forceinline__ void open(bool is_first, uint32_t bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (is_first && threadIdx.x == 0) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(here(&barrier_)) : "memory");
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
      asm volatile("{.reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;}" ::"r"(
                       here(&barrier_)),
                   "r"(bytes)
                   : "memory");
    }
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
  }

  /// Waits until every block of the cluster has opened its inbox. Called by all threads, once, before send();
  /// the work between open() and here hides the wait.
  __device__ __forceinline__ void all_open() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
  }

  /// Writes `value` to `slot`, a place in shared memory, of the first block.
  template <class C>
  __device__ __forceinline__ void send(C* slot, C value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    const uint32_t to = in_first(here(slot)), barrier = in_first(here(&barrier_));
    if constexpr (sizeof(C) == 8) {
      asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(to),
                   "l"(__double_as_longlong(value)), "r"(barrier)
                   : "memory");
    } else {
      asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
                   "r"(__float_as_uint(value)), "r"(barrier)
                   : "memory");
    }
#endif
  }

  /// For threads of the first block: waits until all bytes have arrived; they can be read then.
  __device__ __forceinline__ void wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    uint32_t done = 0;
    while (done == 0) {
      asm volatile(
          "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}"
          : "=r"(done)
          : "r"(here(&barrier_))
          : "memory");
    }
#endif
  }

 private:
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  static __device__ __forceinline__ uint32_t here(const void* place) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(place));
  }
  static __device__ __forceinline__ uint32_t in_first(uint32_t place) {
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(there) : "r"(place));
    return there;
  }
#endif

  uint64_t barrier_;
};

}  // namespace sinter::cuda
