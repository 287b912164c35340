// Process-wide switches between speed, precision and repeatability. All are safe to call from several
// threads; a change holds for the ops that are called after it.
#pragma once

#include <cstddef>

namespace sinter::settings {

/// Whether float32 convolutions and matrix products on a GPU may round their inputs to TF32 (10 bits of
/// mantissa), which tensor cores multiply several times faster. Starts from the environment variable
/// SINTER_ALLOW_TF32, else false.
bool allow_tf32();
void set_allow_tf32(bool value);

/// Whether every op must give the same bits whenever it is called with the same bits on the same device.
/// Sinter's own kernels always do; on a GPU this leaves out those of cuDNN that do not, and among several
/// kernels of an op none is chosen by measured time. Starts from SINTER_DETERMINISTIC, else false.
bool deterministic();
void set_deterministic(bool value);

/// Whether the plans of a vendor library, and the kernels of an op that has several, are timed when a problem
/// is first met, and the fastest is kept, also on disk; otherwise the library's own first choice, or the
/// kernel of the least estimate, is taken, unless the disk knows better. Starts from SINTER_AUTOTUNE, else
/// true.
bool autotune();
void set_autotune(bool value);

/// How many convolution plans, plans of matrix products and choices of kernels are kept in memory, each on
/// all devices together; when there are more, the one goes that was not used for longest, and is made again
/// when it is needed. A large convolution plan takes half a megabyte of the host's memory. Programs whose
/// shapes change all the time may lower it; a network needs some three for each of its layers and shapes of
/// input. Starts from SINTER_PLAN_LIMIT, else 1024. Throws InvalidArgument for 0.
size_t plan_limit();
void set_plan_limit(size_t value);

}  // namespace sinter::settings
