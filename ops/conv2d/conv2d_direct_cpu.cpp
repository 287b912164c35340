// Direct convolution: y from x, and dx from dy, which is a convolution too (conv2d_direct_plan.h).
//
// The innermost kernel computes a tile of neighbouring target pixels x one or two vectors of target channels
// in registers. Per filter tap and source channel it loads the channels' weights once, and for each pixel
// multiplies them by one source value, broadcast from memory. Around it, from the outside in:
//   item     one band of rows of one image; threads share the items. Its source rows are packed into vectors
//   of
//            channels with the padding written out, so that every tile reads at constant distances;
//   group    of channels, and in it strips of one or two vectors of target channels;
//   phase    of target rows and columns (several only for gradients of strided convolutions);
//   pass     as many blocks of source channels as let their weights stay in the first-level cache; sums are
//   kept in the
//            target between passes;
//   tile     along a target row.
// Strips go straight to the tensor if its channels are adjacent and fill vectors, else through scratch.
// Every target is summed in an order that depends on the geometry alone. Weights are packed in the order of
// use.
#include <array>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/conv2d/conv2d_direct_weight_cpu.h>
#include <sinter/ops/conv2d/conv2d_kernels_cpu.h>
#include <sinter/ops/conv2d/conv2d_pack_cpu.h>

namespace sinter::ops {
namespace {

constexpr int kStripVectors = 2;          // most vectors of target channels in a strip
constexpr int64_t kPassBytes = 24 << 10;  // weights of a pass: half of a common first-level cache
constexpr int64_t kBandBytes = int64_t{512}
                               << 10;       // source and target of a band: a part of the second-level cache
constexpr std::array<int, 2> kMostPixels =  // in a tile, by vectors; leaves registers for the weights
    kVectorRegisters == 32 ? std::array{16, 12} : std::array{12, 6};

// ---- the tile
// --------------------------------------------------------------------------------------------------

template <class C>
struct Tile {
  const C* source;       // first pixel's first channel
  const int64_t* steps;  // elements from there to each tap of each channel block
  int64_t step_count;
  int64_t channels;  // of a block
  const C* weight;   // [step][channel][vectors * lanes]
  const C* initial;  // [vectors * lanes]; null: go on from the target
  C* target;
  int64_t target_step;  // elements from pixel to pixel
};

template <class C, int vectors, int pixels>
void run_tile(const Tile<C>& tile) {
  constexpr int lanes = kLanes<C>;
  Vector<C> sums[size_t{vectors}][size_t{pixels}];
#pragma GCC unroll 32
  for (int v = 0; v < vectors; ++v) {
#pragma GCC unroll 32
    for (int p = 0; p < pixels; ++p) {
      sums[v][p] = load_vector(tile.initial != nullptr ? tile.initial + v * lanes
                                                       : tile.target + p * tile.target_step + v * lanes);
    }
  }
  const C* weight = tile.weight;
  for (int64_t step = 0; step < tile.step_count; ++step) {
    const C* source = tile.source + tile.steps[step];
    for (int64_t c = 0; c < tile.channels; ++c, weight += vectors * lanes) {
      Vector<C> factors[size_t{vectors}];
#pragma GCC unroll 32
      for (int v = 0; v < vectors; ++v) factors[v] = load_vector(weight + v * lanes);
#pragma GCC unroll 32
      for (int p = 0; p < pixels; ++p) {
#pragma GCC unroll 32
        for (int v = 0; v < vectors; ++v) sums[v][p] += factors[v] * source[p * lanes + c];
      }
    }
  }
#pragma GCC unroll 32
  for (int v = 0; v < vectors; ++v) {
#pragma GCC unroll 32
    for (int p = 0; p < pixels; ++p) store_vector(tile.target + p * tile.target_step + v * lanes, sums[v][p]);
  }
}

template <class C>
using TileFunction = void (*)(const Tile<C>&);

/// Kernels for tiles of 1, 2, ... pixels.
template <class C, int vectors, int... pixel>
constexpr auto tile_functions(std::integer_sequence<int, pixel...>) {
  return std::array<TileFunction<C>, sizeof...(pixel)>{run_tile<C, vectors, pixel + 1>...};
}
template <class C, int vectors>
constexpr auto kTileFunctions =
    tile_functions<C, vectors>(std::make_integer_sequence<int, kMostPixels[vectors - 1]>());

template <class C>
TileFunction<C> tile_function(int64_t vectors, int64_t pixels) {
  const auto index = static_cast<size_t>(pixels - 1);
  return vectors == 1 ? kTileFunctions<C, 1>[index] : kTileFunctions<C, 2>[index];
}

// ---- the plan
// --------------------------------------------------------------------------------------------------

/// Target channels [first, first + count) of a group, in `vectors` vectors.
struct Strip {
  int64_t first, count, vectors;
};

template <class C>
struct Plan {
  DirectAxis rows, columns;
  int64_t batch, groups, source_channels, target_channels;  // channels per group
  int64_t target_padded;                                    // to whole vectors
  int64_t taps, band_rows, bands, slots;
  std::vector<Strip> strips;
  int64_t weight_bytes, initial_bytes, source_bytes, scratch_bytes;

  Plan(const Conv2dGeometry& g, Conv2dPass pass) {
    const bool forward = pass == Conv2dPass::kForward;
    rows = forward ? forward_axis(g.height) : grad_input_axis(g.height);
    columns = forward ? forward_axis(g.width) : grad_input_axis(g.width);
    batch = g.batch;
    groups = g.groups;
    source_channels = forward ? g.group_in() : g.group_out();
    target_channels = forward ? g.group_out() : g.group_in();
    taps = g.taps();
    const int64_t lanes = kLanes<C>;
    target_padded = (target_channels + lanes - 1) / lanes * lanes;
    for (int64_t first = 0; first < target_channels; first += kStripVectors * lanes) {
      const int64_t count = std::min(kStripVectors * lanes, target_channels - first);
      strips.push_back({first, count, (count + lanes - 1) / lanes});
    }
    choose_bands();
    const PackedBand band(rows, columns, source_channels, lanes);
    weight_bytes = bytes_of(groups * group_weights());
    initial_bytes = bytes_of(groups * target_padded);
    source_bytes = bytes_of(band.capacity(band_rows));
    scratch_bytes = bytes_of(band_rows * columns.target * kStripVectors * lanes);
  }

  static int64_t bytes_of(int64_t elements) {
    constexpr int64_t alignment = 64;
    return (elements * static_cast<int64_t>(sizeof(C)) + alignment - 1) / alignment * alignment;
  }

  void choose_bands() {
    const int64_t target_rows = std::max<int64_t>(rows.target, 1);
    const int64_t row_bytes = bytes_of(columns.target * kStripVectors * kLanes<C>) +
                              bytes_of(columns.source * source_channels) * rows.source / target_rows;
    band_rows = std::clamp<int64_t>(kBandBytes / std::max<int64_t>(row_bytes, 1), 1, target_rows);
    // A small batch is spread over the threads by bands; the results are the same.
    const int64_t wanted = 2 * num_threads();
    if (batch < wanted) {
      const int64_t parts = (wanted + std::max<int64_t>(batch, 1) - 1) / std::max<int64_t>(batch, 1);
      band_rows = std::min(band_rows, (target_rows + parts - 1) / parts);
    }
    bands = (target_rows + band_rows - 1) / band_rows;
    slots = std::clamp<int64_t>(num_threads(), 1, std::max<int64_t>(batch * bands, 1));
  }

  /// Room for one group's packed weights.
  int64_t group_weights() const { return target_padded * source_channels * taps; }
  size_t workspace_bytes() const {
    return static_cast<size_t>(weight_bytes + initial_bytes + slots * (source_bytes + scratch_bytes));
  }
};

// ---- weights
// ---------------------------------------------------------------------------------------------------

/// Distances in the weight tensor between target channels, source channels and taps.
struct WeightStrides {
  int64_t target, source, tap, group;

  WeightStrides(const Conv2dGeometry& g, Conv2dPass pass) {
    const int64_t out = g.group_in() * g.taps();
    const int64_t in = g.layout == Layout::kNCHW ? g.taps() : 1;
    target = pass == Conv2dPass::kForward ? out : in;
    source = pass == Conv2dPass::kForward ? in : out;
    tap = g.layout == Layout::kNCHW ? 1 : g.group_in();
    group = g.group_out() * out;
  }
};

/// Packs the weights of one group as [strip][row phase][column phase][source block][row tap][column
/// tap][channel][lane].
template <class C, class T>
void pack_weight(const Plan<C>& plan, const Conv2dGeometry& g, const WeightStrides& strides, const T* weight,
                 C* packed) {
  for (const Strip& strip : plan.strips) {
    for (const DirectPhase& row_phase : plan.rows.phases) {
      for (const DirectPhase& column_phase : plan.columns.phases) {
        for (int64_t block = 0; block < plan.source_channels; block += kLanes<C>) {
          const int64_t channels = std::min<int64_t>(kLanes<C>, plan.source_channels - block);
          for (const DirectTap& u : row_phase.taps) {
            for (const DirectTap& v : column_phase.taps) {
              const int64_t tap = u.index * g.width.kernel + v.index;
              for (int64_t c = block; c < block + channels; ++c, packed += strip.vectors * kLanes<C>) {
                const T* from =
                    weight + tap * strides.tap + c * strides.source + strip.first * strides.target;
                for (int64_t o = 0; o < strip.count; ++o)
                  packed[o] = static_cast<C>(from[o * strides.target]);
                std::fill(packed + strip.count, packed + strip.vectors * kLanes<C>, C{0});
              }
            }
          }
        }
      }
    }
  }
}

// ---- one item
// --------------------------------------------------------------------------------------------------

/// Where a strip of a band is summed up: in the tensor itself, or in scratch.
template <class C>
struct Destination {
  C* first;            // row band_begin, column 0
  int64_t pixel_step;  // elements
};

/// All tiles of one pair of phases of a strip; `weight` advances past the phases' weights.
template <class C>
void run_phases(const Plan<C>& plan, const PackedBand& band, const C* packed, const Strip& strip,
                const DirectPhase& row_phase, const DirectPhase& column_phase, int64_t row_begin,
                int64_t row_end, const C*& weight, const C* initial, const Destination<C>& destination) {
  const int64_t lanes = kLanes<C>, width = strip.vectors * lanes;
  const int64_t first = row_phase.count_before(row_begin), last = row_phase.count_before(row_end);
  const int64_t columns = column_phase.count_before(plan.columns.target);
  const auto tap_count = static_cast<int64_t>(row_phase.taps.size() * column_phase.taps.size());
  const int64_t weight_count = tap_count * plan.source_channels * width;
  const C* phase_weight = weight;
  weight += weight_count;
  if (first >= last || columns == 0) return;

  // Elements from the packed row that the phase's first tap reads, to each tap of each channel block.
  int64_t row_offset = 0;
  for (const DirectTap& u : row_phase.taps)
    row_offset = std::min(row_offset, u.offset - row_phase.taps[0].offset);
  row_offset += row_phase.taps.empty() ? 0 : row_phase.taps[0].offset;
  std::vector<int64_t> steps;
  for (int64_t block = 0; block < band.blocks(); ++block) {
    for (const DirectTap& u : row_phase.taps) {
      for (const DirectTap& v : column_phase.taps) {
        steps.push_back(block * band.block_elements() + (u.offset - row_offset) * band.row_elements() +
                        band.tap_element(v.offset));
      }
    }
  }

  const int64_t most_pixels = kMostPixels[static_cast<size_t>(strip.vectors - 1)];
  const int64_t tiles = (columns + most_pixels - 1) / most_pixels;
  const int64_t block_bytes =
      std::max<int64_t>(1, tap_count * lanes * width * static_cast<int64_t>(sizeof(C)));
  const int64_t pass_blocks = std::max<int64_t>(1, kPassBytes / block_bytes);
  const int64_t full_blocks = plan.source_channels / lanes;
  const int64_t blocks =
      tap_count == 0 ? 1 : band.blocks();  // without taps one pass writes the initial values
  for (int64_t block = 0; block < blocks;) {
    const bool partial = block >= full_blocks;
    const int64_t end = partial ? block + 1 : std::min(block + pass_blocks, full_blocks);
    const int64_t channels = partial ? plan.source_channels - block * lanes : lanes;
    Tile<C> tile{.source = nullptr,
                 .steps = steps.data() + block * tap_count,
                 .step_count = (end - block) * tap_count,
                 .channels = channels,
                 .weight = phase_weight + block * lanes * tap_count * width,
                 .initial = block == 0 ? initial : nullptr,
                 .target = nullptr,
                 .target_step = column_phase.step * destination.pixel_step};
    for (int64_t j = first; j < last; ++j) {
      const C* row_source =
          tap_count == 0
              ? packed
              : packed + (j * plan.rows.source_step + row_offset - band.first_row()) * band.row_elements();
      const int64_t row = row_phase.start + j * row_phase.step - row_begin;
      C* row_target =
          destination.first + (row * plan.columns.target + column_phase.start) * destination.pixel_step;
      for (int64_t t = 0; t < tiles; ++t) {
        const int64_t begin = columns * t / tiles, count = columns * (t + 1) / tiles - begin;
        tile.source = row_source + begin * lanes;
        tile.target = row_target + begin * tile.target_step;
        tile_function<C>(strip.vectors, count)(tile);
      }
    }
    block = end;
  }
}

template <class T>
struct Call {
  using C = compute_type<T>;
  const Plan<C>& plan;
  ImageStrides source_strides, target_strides;
  const T* source;
  T* target;
  const C* weight;   // packed, all groups
  const C* initial;  // [group][target_padded]

  void run_item(int64_t image, int64_t band_index, PackedBand& band, C* packed, C* scratch) const {
    const int64_t row_begin = band_index * plan.band_rows;
    const int64_t row_end = std::min(row_begin + plan.band_rows, plan.rows.target);
    const int64_t pixels = (row_end - row_begin) * plan.columns.target;
    band.set_targets(row_begin, row_end);
    for (int64_t group = 0; group < plan.groups; ++group) {
      const C* strip_weight = weight + group * plan.group_weights();
      pack_band(band, source + image * source_strides.image, group * plan.source_channels, source_strides,
                packed);
      for (const Strip& strip : plan.strips) {
        const int64_t channel = group * plan.target_channels + strip.first;
        T* to = target + image * target_strides.image + channel * target_strides.channel +
                row_begin * plan.columns.target * target_strides.pixel;
        const int64_t width = strip.vectors * kLanes<C>;
        Destination<C> destination{scratch, width};
        const bool in_place = std::is_same_v<T, C> && target_strides.channel == 1 && strip.count == width;
        if constexpr (std::is_same_v<T, C>) {
          if (in_place) destination = {to, target_strides.pixel};
        }
        for (const DirectPhase& row_phase : plan.rows.phases) {
          for (const DirectPhase& column_phase : plan.columns.phases) {
            run_phases(plan, band, packed, strip, row_phase, column_phase, row_begin, row_end, strip_weight,
                       initial + group * plan.target_padded + strip.first, destination);
          }
        }
        if (!in_place) unpack_pixels(scratch, width, pixels, strip.count, to, target_strides);
      }
    }
  }
};

template <class T>
void run_direct(const KernelContext& context, const Conv2dGeometry& g, Conv2dPass pass) {
  using C = compute_type<T>;
  const Plan<C> plan(g, pass);
  auto* workspace = context.workspace<std::byte>();
  C* weight = reinterpret_cast<C*>(workspace);
  C* initial = reinterpret_cast<C*>(workspace + plan.weight_bytes);
  std::byte* scratch = workspace + plan.weight_bytes + plan.initial_bytes;

  const WeightStrides strides(g, pass);
  const T* filters = context.input(1).as<const T>();
  const T* bias =
      pass == Conv2dPass::kForward && context.has_input(2) ? context.input(2).as<const T>() : nullptr;
  parallel_for(plan.groups, 1, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      pack_weight(plan, g, strides, filters + group * strides.group, weight + group * plan.group_weights());
      C* padded = initial + group * plan.target_padded;
      for (int64_t o = 0; o < plan.target_padded; ++o) {
        padded[o] = bias != nullptr && o < plan.target_channels
                        ? static_cast<C>(bias[group * plan.target_channels + o])
                        : C{0};
      }
    }
  });

  const bool forward = pass == Conv2dPass::kForward;
  const ImageStrides x(g.layout, g.in_channels, g.in_pixels()), y(g.layout, g.out_channels, g.out_pixels());
  const Call<T> call{
      plan,   forward ? x : y, forward ? y : x, context.input(0).as<const T>(), context.output(0).as<T>(),
      weight, initial};
  const int64_t items = plan.batch * plan.bands;
  parallel_for(plan.slots, 1, [&](int64_t first, int64_t last) {
    for (int64_t slot = first; slot < last; ++slot) {
      PackedBand band(plan.rows, plan.columns, plan.source_channels, kLanes<C>);
      std::byte* own = scratch + slot * (plan.source_bytes + plan.scratch_bytes);
      for (int64_t item = items * slot / plan.slots; item < items * (slot + 1) / plan.slots; ++item) {
        call.run_item(item / plan.bands, item % plan.bands, band, reinterpret_cast<C*>(own),
                      reinterpret_cast<C*>(own + plan.source_bytes));
      }
    }
  });
}

}  // namespace

bool conv2d_direct_can_run(const Conv2dGeometry& geometry, Conv2dPass pass, DType dtype) {
  if (is_half(dtype)) return true;
  // Unfolding NHWC images costs more than idle lanes; groups multiply the idle lanes.
  if (geometry.layout == Layout::kNHWC && geometry.groups == 1) return true;
  const int64_t lanes = dtype == DType::kFloat32 ? kLanes<float> : kLanes<double>;
  const int64_t channels = pass == Conv2dPass::kGradInput ? geometry.group_in() : geometry.group_out();
  return 2 * channels >= lanes;
}

size_t conv2d_direct_workspace(const Conv2dGeometry& geometry, Conv2dPass pass, DType dtype) {
  return dispatch_float(dtype, "conv2d", [&]<class T> {
    using C = compute_type<T>;
    return pass == Conv2dPass::kGradWeight ? conv2d_direct_weight_workspace<C>(geometry)
                                           : Plan<C>(geometry, pass).workspace_bytes();
  });
}

void run_conv2d_direct(const KernelContext& context, const Conv2dGeometry& geometry, Conv2dPass pass) {
  dispatch_float(context.input(0).dtype, "conv2d", [&]<class T> {
    if (pass == Conv2dPass::kGradWeight) {
      run_conv2d_direct_weight<T>(context, geometry);
    } else {
      run_direct<T>(context, geometry, pass);
    }
  });
}

}  // namespace sinter::ops
