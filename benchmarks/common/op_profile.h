// Where the GPU time of a piece of work goes, by op: an event pair around every kernel that call() runs.
#pragma once

#include <functional>
#include <string>

namespace sinter::bench {

/// Runs `work` once unobserved and once observed, and gives a table of the GPU time by op and kernel, and one
/// of the `most` most expensive combinations of op and shapes. "of copy" compares with a copy of the bytes of
/// all inputs and outputs. While the host queues the observed work the GPU is kept busy, so that the times
/// are the GPU's alone.
std::string profile_ops(const std::function<void()>& work, size_t most = 40);

}  // namespace sinter::bench
