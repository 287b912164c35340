// broadcast_to on a CPU: a copy of elements, whatever their dtype.
#include <sinter/ops/common/broadcast_plan.h>
#include <sinter/ops/common/cpu/copy_rows_cpu.h>
#include <sinter/ops/common/cpu/elementwise_cpu.h>
#include <sinter/ops/reduce/reduce_cpu.h>

namespace sinter::ops {
namespace {

/// The elements [begin, end) of `count` elements over and over: one round, then copies of what is there.
template <class Word>
void repeat_row(const Word* from, int64_t count, Word* to, int64_t begin, int64_t end) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(Word));
  constexpr int64_t kMostElements = 4096;  // that are read again: they stay in the first-level cache
  const int64_t phase = begin % count, total = end - begin;
  to += begin;
  int64_t done = std::min(count - phase, total);
  copy_bytes(to, from + phase, done * kSize);
  const int64_t rest = std::min(phase, total - done);
  copy_bytes(to + done, from, rest * kSize);
  for (done += rest; done < total;) {
    const int64_t n =
        std::min(std::min(done, std::max(kMostElements / count, int64_t{1}) * count), total - done);
    copy_bytes(to + done, to, n * kSize);
    done += n;
  }
}

/// Moves elements by their size alone.
template <class Word>
void broadcast_words(const TensorView& x, const TensorView& y) {
  const auto plan = plan_broadcast<1>(y.shape, {x.shape});
  const bool steps = plan.steps(0);
  const bool repeats_row = plan.rank == 2 && steps && plan.strides[0][0] == 0;
  parallel_for(y.numel(), kElementwiseGrain, [&](int64_t begin, int64_t end) {
    if (repeats_row) return repeat_row(x.as<const Word>(), plan.inner(), y.as<Word>(), begin, end);
    for_each_run(plan, begin, end, [&](int64_t first, int64_t count, const auto& offsets) {
      const Word* from = x.as<const Word>() + offsets[0];
      Word* to = y.as<Word>() + first;
      if (steps) {
        copy_bytes(to, from, count * static_cast<int64_t>(sizeof(Word)));
      } else {
        std::fill_n(to, count, *from);
      }
    });
  });
}

}  // namespace

void run_broadcast_to_cpu(const KernelContext& context) {
  const TensorView &x = context.input(0), &y = context.output(0);
  if (y.numel() == 0) return;
  switch (size_of(x.dtype)) {
    case 8:
      return broadcast_words<uint64_t>(x, y);
    case 4:
      return broadcast_words<uint32_t>(x, y);
    case 2:
      return broadcast_words<uint16_t>(x, y);
    default:
      return broadcast_words<uint8_t>(x, y);
  }
}

}  // namespace sinter::ops
