// Host code that reads what a tensor holds: data(), item(), to_vector(), to_string().
#pragma once

namespace sinter {

class Tensor;

/// Sees each such read on its thread, before it happens, and may throw.
using HostReadObserver = void (*)(const Tensor& tensor);

/// Makes `observer` see this thread's reads, nullptr for none.
void set_host_read_observer(HostReadObserver observer);
void note_host_read(const Tensor& tensor);

}  // namespace sinter
