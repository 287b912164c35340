// SINTER_HOST_DEVICE: marks functions that run on the host and on GPUs alike.
#pragma once

#if defined(__CUDACC__)
#define SINTER_HOST_DEVICE __host__ __device__
#else
#define SINTER_HOST_DEVICE
#endif
