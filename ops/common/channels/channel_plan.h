// Chooses a ChannelCut. Pure arithmetic, without CUDA.
#pragma once

#include <sinter/ops/common/channels/channel_cut.h>

namespace sinter::ops {

namespace detail {

/// Threads that a processor holds at once: kernels keep to 64 registers.
inline constexpr int64_t kProcessorThreads = 1024;

inline int64_t blocks_at_once(const cuda::DeviceTraits& traits, int64_t threads) {
  return traits.processors * std::min<int64_t>(kProcessorThreads / threads, 32);
}

struct ChannelParts {
  int64_t parts = 1;
  double cost = 0;  ///< in steps of all threads of a GPU
};

/// Into how many parts the `steps` of each of `tiles` tiles are cut, at least `least`, if `at_once` blocks
/// run at once: as many as take the least time. A block costs some steps of its own, and so does a second
/// kernel, which is not needed if `finishes` and there is one part. A last wave that is not full goes faster,
/// since its blocks share the memory, but for one so small that it leaves memory idle.
inline ChannelParts plan_channel_parts(int64_t tiles, int64_t steps, int64_t at_once, int64_t least,
                                       bool finishes) {
  constexpr double kBlockSteps = 2.0, kLeastWave = 0.75, kSecondKernel = 1.0;
  constexpr int64_t kMostWaves = 6, kMostParts = 65535;  // the latter a limit of grids
  const auto cost_of = [&](int64_t parts) {
    const auto waves = static_cast<double>(tiles * parts / at_once);
    const auto share = static_cast<double>(tiles * parts % at_once) / static_cast<double>(at_once);
    const auto length = static_cast<double>((steps + parts - 1) / parts);
    return length * (waves + (share > 0 ? std::max(share, kLeastWave) : 0.0)) +
           kBlockSteps * (waves + (share > 0 ? 1.0 : 0.0)) + (finishes && parts == 1 ? 0.0 : kSecondKernel);
  };
  const int64_t most = std::min(steps, kMostParts);
  ChannelParts best{std::clamp<int64_t>(least, 1, most), 0};
  best.cost = cost_of(best.parts);
  const int64_t first_wave = (tiles + at_once - 1) / at_once;
  for (int64_t wave = first_wave; wave < first_wave + kMostWaves; ++wave) {
    const int64_t parts = std::min(at_once * wave / tiles, most);
    if (parts <= best.parts) continue;
    const double cost = cost_of(parts);
    if (cost < best.cost) best = {parts, cost};
  }
  return best;
}

/// Cuts `all` steps of a channel into parts: whole steps of the `lanes` threads where a part has many, else
/// multiples of `unit`.
inline void set_parts(ChannelCut& cut, int64_t all, int64_t parts, int64_t lanes, int64_t unit) {
  constexpr int64_t kManySteps = 8;
  const int64_t of = all >= kManySteps * parts * lanes ? lanes : unit;
  const int64_t part_steps = ((all + parts - 1) / parts + of - 1) / of * of;
  cut.part_steps = static_cast<uint32_t>(part_steps);
  cut.parts = static_cast<uint32_t>((all + part_steps - 1) / part_steps);
}

/// The rows of fixed columns, of which a tensor may have none that is whole: then its one row is all of it.
inline ChannelCut cut_rows(const ChannelGroups& shape, ChannelWalk walk, int64_t pack) {
  const auto u32 = [](int64_t number) { return static_cast<uint32_t>(number); };
  const ChannelView& view = shape.view;
  ChannelCut cut{.walk = walk, .pack = static_cast<int>(pack)};
  cut.groups = u32(shape.groups), cut.outer = u32(view.outer);
  cut.channels = u32(view.channels), cut.inner = u32(view.inner);
  const int64_t period = view.channels * view.inner;
  const int64_t row = std::min(std::lcm(period, pack), view.numel());
  cut.rows = u32(row % pack == 0 ? view.numel() / row : 0);
  cut.row = u32(row), cut.rest = u32(view.numel() - cut.rows * row);
  cut.columns = u32((row + pack - 1) / pack);
  cut.copies = u32(row / period);
  return cut;
}

/// The packs of a tile of elements: of those that leave the fewest of the last tile's threads without a
/// column, the most. Tiles are narrow, so that their sums meet in the block and few parts are left for the
/// table, unless there are few rows. They end where channels do, and begin at multiples of 128 bytes, or as
/// much of that as the rows do.
inline int64_t plan_element_width(const ChannelCut& cut) {
  constexpr int64_t kThreads = ChannelCut::kElementThreads, kPacksOfLine = 8;
  const int64_t usual = cut.pack > 1 ? 16 : 64, columns = cut.columns;
  const int64_t whole = std::lcm<int64_t>(cut.inner, cut.pack) / cut.pack;
  const int64_t most =
      std::max(std::clamp(kThreads / cut.all_rows(), usual, std::max(usual, kThreads / cut.pack)), whole);
  if (columns <= most) return columns;
  const int64_t unit = whole > 1 ? whole : std::gcd(columns, kPacksOfLine);
  int64_t best = most / unit * unit, fewest = INT64_MAX;
  for (int64_t width = best; width >= unit && 2 * width >= most; width -= unit) {
    const int64_t covered = (columns + width - 1) / width * width;
    if (covered < fewest) best = width, fewest = covered;
    if (fewest - columns <= columns / 8) break;
  }
  return best;
}

/// The same where channels lie side by side in rows that are no whole lines of 128 bytes, in place of
/// `narrow` ones: those would share sectors and lines with the tiles beside them in most rows, which are then
/// written in part. So a tile is a row, or the largest even share of one that a block has threads to add up
/// and whose sums are little beside the tensor.
inline int64_t plan_long_tiles(const ChannelCut& cut, int64_t narrow, const cuda::DeviceTraits& traits) {
  constexpr int64_t kThreads = ChannelCut::kElementThreads, kPacksOfLine = 8, kPackBytes = 16;
  constexpr int64_t kShare = 16;  // of what three tensors move, the most that goes to the table and back
  const int64_t pack = cut.pack, columns = cut.columns;
  if (pack == 1 || cut.inner != 1 || columns % kPacksOfLine == 0) return narrow;
  const int64_t most = kThreads / pack, sum_bytes = std::max<int64_t>(kPackBytes / pack, 4);
  for (int64_t tiles = (columns + most - 1) / most;; ++tiles) {
    const int64_t width = (columns + tiles - 1) / tiles;
    if (width <= narrow || (tiles > 1 && width < 2 * narrow)) return narrow;
    const int64_t sums = traits.processors * kProcessorThreads / (kThreads / width) * pack;
    if (2 * sums * sum_bytes <= 3 * cut.rows * columns * kPackBytes / kShare) return width;
  }
}

inline ChannelCut plan_elements(const ChannelGroups& shape, int64_t pack, const cuda::DeviceTraits& traits) {
  constexpr int64_t kThreads = ChannelCut::kElementThreads;
  constexpr int64_t kLongSum = 512;  // rows of a thread that would cost accuracy
  ChannelCut cut = cut_rows(shape, ChannelWalk::kElements, pack);
  const int64_t width = plan_long_tiles(cut, plan_element_width(cut), traits);
  cut.width = static_cast<uint32_t>(width);
  cut.tiles = static_cast<uint32_t>((cut.columns + width - 1) / width);
  cut.tile_runs =
      cut.tiles == 1 ? cut.copies * cut.channels : cut.width * static_cast<uint32_t>(pack) / cut.inner;
  int64_t lanes = std::clamp<int64_t>(cut.all_rows(), 1, kThreads / width);
  // Where tiles are whole rows, those that the threads take at once end at multiples of 128 bytes, or of 32.
  const int64_t even = 8 / std::gcd<int64_t>(cut.columns, 8);
  if (cut.tiles == 1 && lanes >= 4 * even) lanes -= lanes % even;
  if (cut.tiles == 1 && lanes > 2 && lanes * cut.columns % 2 != 0) --lanes;
  cut.lanes = static_cast<uint32_t>(lanes);
  cut.threads =
      static_cast<int>(cut.lanes > ChannelCut::kFewLanes ? kThreads : (lanes * width + 31) / 32 * 32);
  const int64_t steps = (cut.all_rows() + lanes - 1) / lanes;
  const int64_t parts =
      plan_channel_parts(shape.groups * cut.tiles, steps, blocks_at_once(traits, cut.threads),
                         (steps + kLongSum - 1) / kLongSum, cut.copies == 1)
          .parts;
  set_parts(cut, cut.all_rows(), parts, lanes, even);
  return cut;
}

/// Packs of a tile of `runs` runs, wherever it begins.
inline int64_t width_of_runs(const ChannelCut& cut, int64_t runs) {
  const int64_t elements = runs * cut.inner, pack = cut.pack;
  return (elements + pack - std::gcd(elements, pack) + pack - 1) / pack;
}

/// Of one or two blocks to a processor, once or twice: the cheapest. Smaller ones where a thread has all of
/// its packs in flight at once: some begin while others end.
inline ChannelCut plan_runs(const ChannelGroups& shape, int64_t pack, const cuda::DeviceTraits& traits) {
  constexpr int64_t kLongSum = 512;  // rows of a thread that would cost accuracy
  constexpr int64_t kPacksOfLine = 8, kFewRows = 4;
  ChannelCut cut = cut_rows(shape, ChannelWalk::kRuns, pack);
  const int64_t all = int64_t{cut.copies} * cut.channels, rows = cut.all_rows();
  ChannelParts best{0, 0};
  const int64_t most = rows <= kFewRows ? ChannelCut::kMostThreads / 4 : ChannelCut::kMostThreads;
  for (const int64_t threads : {most, most / 2}) {
    for (const int64_t waves : {1, 2}) {
      const int64_t blocks = waves * blocks_at_once(traits, threads);
      int64_t runs = std::min((all + blocks - 1) / blocks, (threads - 1) * pack / cut.inner);
      runs = std::clamp<int64_t>(runs, std::min(all, (kPacksOfLine * pack + cut.inner - 1) / cut.inner), all);
      const int64_t width = width_of_runs(cut, runs), lanes = std::min(threads / width, rows);
      const int64_t used = (lanes * width + 31) / 32 * 32, steps = (rows + lanes - 1) / lanes;
      const ChannelParts parts =
          plan_channel_parts((all + runs - 1) / runs, steps, blocks_at_once(traits, used),
                             (steps + kLongSum - 1) / kLongSum, cut.copies == 1);
      if (best.parts > 0 && parts.cost >= best.cost) continue;
      best = parts;
      cut.threads = static_cast<int>(used);
      cut.tile_runs = static_cast<uint32_t>(runs);
      cut.width = static_cast<uint32_t>(width);
      cut.lanes = static_cast<uint32_t>(lanes);
    }
  }
  cut.tiles = static_cast<uint32_t>((all + cut.tile_runs - 1) / cut.tile_runs);
  set_parts(cut, rows, best.parts, cut.lanes, 1);
  const int64_t wide = (cut.inner + pack - 1) / pack + 1;  // columns of a run, at most
  cut.log_members = 5;
  while (cut.log_members > 0 && int64_t{cut.tile_runs} << cut.log_members > cut.threads) --cut.log_members;
  cut.log_across = cut.log_members;
  while (cut.log_across > 0 && int64_t{1} << (cut.log_across - 1) >= wide) --cut.log_across;
  return cut;
}

inline ChannelCut plan_planes(const ChannelGroups& shape, int64_t pack, int64_t element_bytes,
                              const cuda::DeviceTraits& traits) {
  constexpr int64_t kLongSum = 2048;     // packs of a thread that would cost accuracy
  constexpr int64_t kPacksOfThread = 4;  // that it has in flight
  constexpr int64_t kSpare = 16;  // the share of a plane's packs that may lie in front of it for whole lines
  const ChannelView& view = shape.view;
  ChannelCut cut = cut_rows(shape, ChannelWalk::kPlanes, pack);
  cut.copies = 1;
  cut.tiles = cut.channels;
  const auto span_of = [&](int64_t line) {
    const int64_t farthest = line - std::gcd(view.inner, line);  // where in a line a plane may begin
    return (view.inner + farthest + line - 1) / line * (line / pack);
  };
  const int64_t line = 128 / element_bytes, least = span_of(pack);
  cut.line = static_cast<uint32_t>(span_of(line) - least > least / kSpare ? pack : line);
  cut.span = static_cast<uint32_t>(span_of(cut.line));
  const int64_t items = view.outer * cut.span;
  const bool many = view.channels > 2 * traits.processors;
  const int64_t busy = (many ? (items + kPacksOfThread - 1) / kPacksOfThread : items) + 31;
  ChannelParts best{0, 0};
  for (const int64_t most : {ChannelCut::kMostThreads / 2, ChannelCut::kMostThreads}) {
    const int64_t threads = std::min<int64_t>(most, busy / 32 * 32), steps = (items + threads - 1) / threads;
    const ChannelParts parts = plan_channel_parts(view.channels, steps, blocks_at_once(traits, threads),
                                                  (steps + kLongSum - 1) / kLongSum, true);
    if (best.parts > 0 && parts.cost >= best.cost) continue;
    best = parts;
    cut.threads = static_cast<int>(threads);
  }
  set_parts(cut, items, best.parts, cut.threads, 32);
  return cut;
}

}  // namespace detail

/// Whether a tensor can be walked so; all that are not empty can be by planes or, of several groups, by
/// elements.
inline bool can_walk(ChannelWalk walk, const ChannelGroups& shape, int64_t pack) {
  const ChannelView& view = shape.view;
  if (shape.groups > 1 && (view.inner > 1 || view.numel() % pack != 0)) return false;
  if (walk == ChannelWalk::kPlanes) return shape.groups == 1;
  if (walk == ChannelWalk::kRuns) return pack > 1 && view.inner >= pack && view.inner <= 64 * pack;
  return std::lcm(view.inner, pack) <= ChannelCut::kElementThreads;
}

/// The walk of a tensor that is simplified().
inline ChannelWalk choose_walk(const ChannelGroups& shape, int64_t pack, int64_t element_bytes) {
  constexpr int64_t kFewElements = 8, kLongPlane = 512;  // the latter in bytes
  const int64_t inner = shape.view.inner;
  if (inner < (pack > 1 ? pack : kFewElements)) return ChannelWalk::kElements;
  return pack == 1 || inner * element_bytes >= kLongPlane ? ChannelWalk::kPlanes : ChannelWalk::kRuns;
}

/// The cut for packs of `pack` elements (a power of two) of a tensor that can be walked so.
inline ChannelCut plan_channels(const ChannelGroups& shape, ChannelWalk walk, int64_t pack,
                                int64_t element_bytes, const cuda::DeviceTraits& traits) {
  if (shape.numel() == 0) return {.walk = walk};
  ChannelCut cut = walk == ChannelWalk::kElements ? detail::plan_elements(shape, pack, traits)
                   : walk == ChannelWalk::kRuns   ? detail::plan_runs(shape, pack, traits)
                                                  : detail::plan_planes(shape, pack, element_bytes, traits);
  cut.by_inner = cuda::FastDivide(cut.inner);
  cut.by_channels = cuda::FastDivide(cut.channels);
  cut.by_tiles = cuda::FastDivide(cut.tiles);
  cut.by_width = cuda::FastDivide(cut.width);
  cut.by_tile = cuda::FastDivide(cut.width * static_cast<uint32_t>(pack));
  cut.by_span = cuda::FastDivide(std::max<uint32_t>(cut.span, 1));
  return cut;
}

}  // namespace sinter::ops
