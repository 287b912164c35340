// Where the GPU time of a piece of work goes, by op and by shape, beside the time of copies of the same
// bytes.
#pragma once

#include <functional>
#include <string>

namespace sinter::bench {

/// Runs `work` once to warm up and once under an OpProfile, and gives a table of the GPU time by op and
/// kernel, and one of the `most` most expensive combinations of op and shapes. "of copy" compares with a copy
/// of the bytes of all inputs and outputs; ops that count their arithmetic (OpDef::flops) get its rate. While
/// the host queues the work the GPU is kept busy, so that the times are the GPU's alone.
std::string profile_ops(const std::function<void()>& work, size_t most = 40);

}  // namespace sinter::bench
