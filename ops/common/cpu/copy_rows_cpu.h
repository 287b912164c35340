// Copies of equally long pieces of memory, for ops that move whole blocks.
#pragma once

#include <cstdint>

namespace sinter::ops {

/// Copies `rows` pieces of `bytes` bytes, whose starts lie `to_stride` and `from_stride` bytes apart, in
/// parallel.
void copy_rows(void* to, int64_t to_stride, const void* from, int64_t from_stride, int64_t bytes,
               int64_t rows);

}  // namespace sinter::ops
