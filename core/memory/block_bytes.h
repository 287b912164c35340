// How many bytes a pool counts for a block.
#pragma once

#include <cstddef>

namespace sinter {

/// The PoolStats::live_bytes of a block of so many bytes: in the pools of this process, which treat blocks as
/// pool_mode_from_environment() says.
size_t pool_block_bytes(size_t bytes);

}  // namespace sinter
