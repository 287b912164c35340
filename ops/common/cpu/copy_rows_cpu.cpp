#include <algorithm>
#include <cstring>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/cpu/copy_rows_cpu.h>

namespace sinter::ops {
namespace {

constexpr int64_t kGrainBytes = 1 << 17;  // below it, a second thread costs more than it saves

/// A size known to the compiler turns memcpy into one move.
template <int64_t kBytes>
void copy_fixed(std::byte* to, int64_t to_stride, const std::byte* from, int64_t from_stride, int64_t rows) {
  for (int64_t i = 0; i < rows; ++i) std::memcpy(to + i * to_stride, from + i * from_stride, kBytes);
}

void copy_range(std::byte* to, int64_t to_stride, const std::byte* from, int64_t from_stride, int64_t bytes,
                int64_t rows) {
  switch (bytes) {
    case 1:
      return copy_fixed<1>(to, to_stride, from, from_stride, rows);
    case 2:
      return copy_fixed<2>(to, to_stride, from, from_stride, rows);
    case 4:
      return copy_fixed<4>(to, to_stride, from, from_stride, rows);
    case 8:
      return copy_fixed<8>(to, to_stride, from, from_stride, rows);
    case 16:
      return copy_fixed<16>(to, to_stride, from, from_stride, rows);
    default:
      for (int64_t i = 0; i < rows; ++i) {
        copy_bytes(to + i * to_stride, from + i * from_stride, bytes);
      }
  }
}

}  // namespace

void copy_rows(void* to, int64_t to_stride, const void* from, int64_t from_stride, int64_t bytes,
               int64_t rows) {
  if (rows == 0 || bytes == 0) return;
  auto* target = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
  if (rows == 1 || (to_stride == bytes && from_stride == bytes)) {
    parallel_for(rows * bytes, kGrainBytes, [=](int64_t begin, int64_t end) {
      std::memcpy(target + begin, source + begin, static_cast<size_t>(end - begin));
    });
    return;
  }
  parallel_for(rows, std::max<int64_t>(1, kGrainBytes / bytes), [=](int64_t begin, int64_t end) {
    copy_range(target + begin * to_stride, to_stride, source + begin * from_stride, from_stride, bytes,
               end - begin);
  });
}

}  // namespace sinter::ops
