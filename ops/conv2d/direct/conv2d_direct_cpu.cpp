// Direct convolution: y from x, and dx from dy, which is a convolution too (conv2d_direct_plan.h).
//
// The innermost kernel computes a tile (conv2d_direct_tile_cpu.h). Around it, from the outside in:
//   item     one band of rows of one image, or a few small images; threads share the items. Their source
//            rows are packed into vectors of channels with the padding written out, so that every tile reads
//            at constant distances;
//   group    of channels, and in it strips of one or two vectors of target channels;
//   phase    of target rows and columns (several only for gradients of strided convolutions);
//   pass     as many blocks of source channels as let their weights stay in the first-level cache; sums are
//            kept in the target between passes;
//   tile     along a target row; where rows are short, along the same piece of row of several images.
// Strips go straight to the tensor if its channels are adjacent and fill vectors, else through scratch.
// Every target is summed in an order that depends on the geometry alone. Weights are packed in the order of
// use.
#include <array>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/conv2d/conv2d_kernels_cpu.h>
#include <sinter/ops/conv2d/direct/conv2d_direct_tile_cpu.h>
#include <sinter/ops/conv2d/direct/conv2d_direct_weight_cpu.h>
#include <sinter/ops/conv2d/direct/conv2d_pack_cpu.h>

namespace sinter::ops {
namespace {

constexpr int kStripVectors = 2;          // most vectors of target channels in a strip
constexpr int64_t kPassBytes = 24 << 10;  // weights of a pass: half of a common first-level cache
// Source and target of an item: a part of the second-level cache.
constexpr int64_t kItemBytes = int64_t{512} << 10;
constexpr int64_t kItemPixels = 256;  // images are put together up to so many target pixels

// ---- the plan

/// Target channels [first, first + count) of a group, in `vectors` vectors.
struct Strip {
  int64_t first, count, vectors;
};

template <class C>
struct Plan {
  DirectAxis rows, columns;
  int64_t batch, groups, source_channels, target_channels;  // channels per group
  int64_t target_padded;                                    // to whole vectors
  int64_t taps, band_rows, bands, images, items, slots;     // see choose_bands()
  std::vector<Strip> strips;
  int64_t weight_bytes, initial_bytes;
  int64_t source_bytes, scratch_bytes;  // of one image of an item

  Plan(const Conv2dGeometry& g, Conv2dPass pass, int threads) {
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
    choose_bands(threads);
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

  void choose_bands(int threads) {
    const int64_t target_rows = std::max<int64_t>(rows.target, 1);
    const int64_t row_bytes = bytes_of(columns.target * kStripVectors * kLanes<C>) +
                              bytes_of(columns.source * source_channels) * rows.source / target_rows;
    band_rows = std::clamp<int64_t>(kItemBytes / std::max<int64_t>(row_bytes, 1), 1, target_rows);
    // Few images are spread over the threads by bands, many small ones are put together; the results are the
    // same.
    const int64_t wanted = int64_t{2} * threads;
    if (batch < wanted) {
      const int64_t parts = (wanted + std::max<int64_t>(batch, 1) - 1) / std::max<int64_t>(batch, 1);
      band_rows = std::min(band_rows, (target_rows + parts - 1) / parts);
    }
    bands = (target_rows + band_rows - 1) / band_rows;
    const int64_t pixels = std::max<int64_t>(1, rows.target * columns.target);
    const int64_t together =
        std::min(kItemPixels / pixels, kItemBytes / std::max<int64_t>(1, target_rows * row_bytes));
    images = bands > 1 ? 1 : std::max<int64_t>(1, std::min(together, batch / wanted));
    items = (batch + images - 1) / images * bands;
    slots = std::clamp<int64_t>(threads, 1, std::max<int64_t>(items, 1));
  }

  /// Room for one group's packed weights.
  int64_t group_weights() const { return target_padded * source_channels * taps; }
  int64_t strip_weights(const Strip& strip) const { return strip.first * source_channels * taps; }
  int64_t slot_bytes() const { return images * (source_bytes + scratch_bytes); }
  size_t workspace_bytes() const {
    return static_cast<size_t>(weight_bytes + initial_bytes + slots * slot_bytes());
  }
};

// ---- weights

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

/// Packs the weights of a strip as [row phase][column phase][source block][row tap][column
/// tap][channel][lane].
template <class C, class T>
void pack_strip(const Plan<C>& plan, const Conv2dGeometry& g, const WeightStrides& strides,
                const Strip& strip, const T* weight, C* packed) {
  const int64_t width = strip.vectors * kLanes<C>;
  for (const DirectPhase& row_phase : plan.rows.phases) {
    for (const DirectPhase& column_phase : plan.columns.phases) {
      for (int64_t block = 0; block < plan.source_channels; block += kLanes<C>) {
        const int64_t channels = std::min<int64_t>(kLanes<C>, plan.source_channels - block);
        for (const DirectTap& u : row_phase.taps) {
          for (const DirectTap& v : column_phase.taps) {
            const int64_t tap = u.index * g.width.kernel + v.index;
            for (int64_t c = block; c < block + channels; ++c, packed += width) {
              const T* from = weight + tap * strides.tap + c * strides.source + strip.first * strides.target;
              for (int64_t o = 0; o < strip.count; ++o) packed[o] = static_cast<C>(from[o * strides.target]);
              std::fill(packed + strip.count, packed + width, C{0});
            }
          }
        }
      }
    }
  }
}

// ---- one item

/// Where a strip of an item is summed up: in the tensor itself, or in scratch.
template <class C>
struct Destination {
  C* first;  // first image, the band's first row, column 0
  int64_t pixel, image;
};

/// One strip of an item.
template <class C>
struct StripWork {
  const Plan<C>& plan;
  const PackedBand& band;
  const C* packed;  // plan.source_bytes apart for each image
  int64_t images, row_begin, row_end;
  const Strip& strip;
  const C* weight;
  const C* initial;
  Destination<C> destination;

  void run() {
    for (const DirectPhase& rows : plan.rows.phases) {
      for (const DirectPhase& columns : plan.columns.phases) {
        run_phases(rows, columns);
        weight +=
            static_cast<int64_t>(rows.taps.size() * columns.taps.size()) * plan.source_channels * width();
      }
    }
  }

 private:
  int64_t width() const { return strip.vectors * kLanes<C>; }

  /// The least of the row taps' offsets: the packed row that steps count from.
  static int64_t row_offset(const DirectPhase& rows) {
    int64_t offset = rows.taps.empty() ? 0 : rows.taps[0].offset;
    for (const DirectTap& tap : rows.taps) offset = std::min(offset, tap.offset);
    return offset;
  }

  /// Elements from there to each tap of each channel block.
  std::vector<int64_t> steps_of(const DirectPhase& rows, const DirectPhase& columns) const {
    std::vector<int64_t> steps;
    for (int64_t block = 0; block < band.blocks(); ++block) {
      for (const DirectTap& u : rows.taps) {
        for (const DirectTap& v : columns.taps) {
          steps.push_back(block * band.block_elements() +
                          (u.offset - row_offset(rows)) * band.row_elements() + band.tap_element(v.offset));
        }
      }
    }
    return steps;
  }

  void run_phases(const DirectPhase& rows, const DirectPhase& columns) const {
    if (columns.count_before(plan.columns.target) == 0) return;
    if (rows.count_before(row_begin) == rows.count_before(row_end)) return;
    const int64_t lanes = kLanes<C>;
    const auto taps = static_cast<int64_t>(rows.taps.size() * columns.taps.size());
    const std::vector<int64_t> steps = steps_of(rows, columns);
    const int64_t block_weights = taps * lanes * width();
    const int64_t block_bytes = std::max<int64_t>(1, block_weights * static_cast<int64_t>(sizeof(C)));
    const int64_t pass_blocks = std::max<int64_t>(1, kPassBytes / block_bytes);
    const int64_t full_blocks = plan.source_channels / lanes;
    // Without taps one pass writes the initial values.
    const int64_t blocks = taps == 0 ? 1 : band.blocks();
    for (int64_t block = 0; block < blocks;) {
      const bool partial = block >= full_blocks;
      const int64_t end = partial ? block + 1 : std::min(block + pass_blocks, full_blocks);
      run_pass(rows, columns,
               {.source = nullptr,
                .source_image = plan.source_bytes / static_cast<int64_t>(sizeof(C)),
                .steps = steps.data() + block * taps,
                .step_count = (end - block) * taps,
                .channels = partial ? plan.source_channels - block * lanes : lanes,
                .weight = weight + block * block_weights,
                .initial = block == 0 ? initial : nullptr,
                .target = nullptr,
                .target_pixel = columns.step * destination.pixel,
                .target_image = destination.image});
      block = end;
    }
  }

  /// All tiles of the phases; `tile` lacks its pointers to pixels.
  void run_pass(const DirectPhase& rows, const DirectPhase& columns, DirectTile<C> tile) const {
    const int64_t count = columns.count_before(plan.columns.target);
    const int64_t most_pixels = kMostTilePixels[static_cast<size_t>(strip.vectors - 1)];
    const int64_t tiles = (count + most_pixels - 1) / most_pixels;
    for (int64_t j = rows.count_before(row_begin); j < rows.count_before(row_end); ++j) {
      const int64_t source_row = j * plan.rows.source_step + row_offset(rows) - band.first_row();
      const int64_t target_row = rows.start + j * rows.step - row_begin;
      const C* source = tile.step_count == 0 ? packed : packed + source_row * band.row_elements();
      C* target = destination.first + (target_row * plan.columns.target + columns.start) * destination.pixel;
      for (int64_t t = 0; t < tiles; ++t) {
        const int64_t begin = count * t / tiles, end = count * (t + 1) / tiles;
        tile.source = source + begin * kLanes<C>;
        tile.target = target + begin * tile.target_pixel;
        run_direct_tiles(tile, strip.vectors, end - begin, images);
      }
    }
  }
};

template <class T>
struct Call {
  using C = compute_type<T>;
  const Plan<C>& plan;
  ImageStrides source_strides, target_strides;
  const T* source;
  T* target;
  const C* weight;   // packed, all groups
  const C* initial;  // [group][target_padded]

  void run_item(int64_t item, PackedBand& band, C* packed, C* scratch) const {
    const int64_t image = item / plan.bands * plan.images;
    const int64_t images = std::min(plan.images, plan.batch - image);
    const int64_t row_begin = item % plan.bands * plan.band_rows;
    const int64_t row_end = std::min(row_begin + plan.band_rows, plan.rows.target);
    const int64_t pixels = (row_end - row_begin) * plan.columns.target;
    const int64_t packed_image = plan.source_bytes / static_cast<int64_t>(sizeof(C));
    const int64_t scratch_image = plan.scratch_bytes / static_cast<int64_t>(sizeof(C));
    band.set_targets(row_begin, row_end);
    for (int64_t group = 0; group < plan.groups; ++group) {
      for (int64_t i = 0; i < images; ++i) {
        pack_band(band, source + (image + i) * source_strides.image, group * plan.source_channels,
                  source_strides, packed + i * packed_image);
      }
      for (const Strip& strip : plan.strips) {
        const int64_t channel = group * plan.target_channels + strip.first;
        T* to = target + image * target_strides.image + channel * target_strides.channel +
                row_begin * plan.columns.target * target_strides.pixel;
        const int64_t width = strip.vectors * kLanes<C>;
        Destination<C> destination{scratch, width, scratch_image};
        const bool in_place = std::is_same_v<T, C> && target_strides.channel == 1 && strip.count == width;
        if constexpr (std::is_same_v<T, C>) {
          if (in_place) destination = {to, target_strides.pixel, target_strides.image};
        }
        StripWork<C>{plan,
                     band,
                     packed,
                     images,
                     row_begin,
                     row_end,
                     strip,
                     weight + group * plan.group_weights() + plan.strip_weights(strip),
                     initial + group * plan.target_padded + strip.first,
                     destination}
            .run();
        for (int64_t i = 0; i < images && !in_place; ++i) {
          unpack_pixels(scratch + i * scratch_image, width, pixels, strip.count,
                        to + i * target_strides.image, target_strides);
        }
      }
    }
  }
};

template <class T>
void run_direct(const KernelContext& context, const Conv2dGeometry& g, Conv2dPass pass) {
  using C = compute_type<T>;
  const Plan<C> plan(g, pass, context.threads());
  auto* workspace = context.workspace<std::byte>();
  C* weight = reinterpret_cast<C*>(workspace);
  C* initial = reinterpret_cast<C*>(workspace + plan.weight_bytes);
  std::byte* scratch = workspace + plan.weight_bytes + plan.initial_bytes;

  const WeightStrides strides(g, pass);
  const T* filters = context.input(1).as<const T>();
  const T* bias =
      pass == Conv2dPass::kForward && context.has_input(2) ? context.input(2).as<const T>() : nullptr;
  const auto strips = static_cast<int64_t>(plan.strips.size());
  parallel_for(plan.groups * strips, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t group = i / strips;
      const Strip& strip = plan.strips[static_cast<size_t>(i % strips)];
      pack_strip(plan, g, strides, strip, filters + group * strides.group,
                 weight + group * plan.group_weights() + plan.strip_weights(strip));
    }
  });
  for (int64_t i = 0; i < plan.groups * plan.target_padded; ++i) {
    const int64_t group = i / plan.target_padded, o = i % plan.target_padded;
    const bool given = bias != nullptr && o < plan.target_channels;
    initial[i] = given ? static_cast<C>(bias[group * plan.target_channels + o]) : C{0};
  }

  const bool forward = pass == Conv2dPass::kForward;
  const ImageStrides x(g.layout, g.in_channels, g.in_pixels()), y(g.layout, g.out_channels, g.out_pixels());
  const Call<T> call{
      plan,   forward ? x : y, forward ? y : x, context.input(0).as<const T>(), context.output(0).as<T>(),
      weight, initial};
  parallel_for(plan.slots, 1, [&](int64_t first, int64_t last) {
    for (int64_t slot = first; slot < last; ++slot) {
      PackedBand band(plan.rows, plan.columns, plan.source_channels, kLanes<C>);
      std::byte* own = scratch + slot * plan.slot_bytes();
      for (int64_t item = plan.items * slot / plan.slots; item < plan.items * (slot + 1) / plan.slots;
           ++item) {
        call.run_item(item, band, reinterpret_cast<C*>(own),
                      reinterpret_cast<C*>(own + plan.images * plan.source_bytes));
      }
    }
  });
}

}  // namespace

bool conv2d_direct_can_run(const Conv2dGeometry& geometry) {
  // Packed rows hold their padding, and an odd call can ask for more of it than there is memory.
  constexpr int64_t kMostPadding = int64_t{1} << 20;
  return std::max(geometry.height.padding, geometry.width.padding) <= kMostPadding;
}

bool conv2d_direct_pays(const Conv2dGeometry& geometry, Conv2dPass pass, DType dtype) {
  if (is_half(dtype)) return true;
  // Unfolding NHWC images costs more than idle lanes; groups multiply the idle lanes.
  if (geometry.layout == Layout::kNHWC && geometry.groups == 1) return true;
  const int64_t lanes = dtype == DType::kFloat32 ? kLanes<float> : kLanes<double>;
  const int64_t channels = pass == Conv2dPass::kGradInput ? geometry.group_in() : geometry.group_out();
  return 2 * channels >= lanes;
}

size_t conv2d_direct_workspace(const Conv2dGeometry& geometry, Conv2dPass pass, DType dtype, int threads) {
  return dispatch_float(dtype, "conv2d", [&]<class T> {
    using C = compute_type<T>;
    return pass == Conv2dPass::kGradWeight ? conv2d_direct_weight_workspace<C>(geometry, threads)
                                           : Plan<C>(geometry, pass, threads).workspace_bytes();
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
