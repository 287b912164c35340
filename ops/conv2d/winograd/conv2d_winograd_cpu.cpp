// Winograd's convolution F(2x2, 3x3): y from x, and dx from dy, which is a convolution with the filters
// turned round. From the outside in:
//   item     one band of rows of one image, or several small images; threads share the items. Their source
//            rows are packed into vectors of channels with the padding written out, as for the direct kernel;
//   block    of rows of tiles, whose sources are transformed once for all target channels;
//   strip    of one or two vectors of target channels: sixteen matrix products, one per product of a tile, by
//            the direct kernel's innermost kernel, and the targets' transform.
// Strips go straight to the tensor if its channels are adjacent and fill vectors, else through scratch. Every
// target is summed in an order that depends on the channels alone.
#include <algorithm>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/conv2d/conv2d_kernels_cpu.h>
#include <sinter/ops/conv2d/direct/conv2d_direct_tile_cpu.h>
#include <sinter/ops/conv2d/direct/conv2d_pack_cpu.h>
#include <sinter/ops/conv2d/winograd/conv2d_winograd_transforms_cpu.h>
#include <sinter/ops/conv2d/winograd/conv2d_winograd_weight_cpu.h>

namespace sinter::ops {
namespace {

using namespace winograd;

constexpr int64_t kStripVectors = 2;                // most vectors of target channels in a strip
constexpr int64_t kItemBytes = int64_t{512} << 10;  // packed source of an item
constexpr int64_t kItemTiles = 64;                  // images are put together up to so many tiles

// ---- the plan

template <class C>
struct Plan {
  bool forward;
  DirectAxis rows, columns;
  int64_t batch, source_channels, target_channels, target_rows, target_columns;
  int64_t source_padded, target_padded;  // channels in whole vectors
  int64_t row_tiles;                     // tiles in a row
  int64_t band_rows, bands, images, items, slots, block_rows;
  int64_t weight_bytes, initial_bytes;
  int64_t source_bytes, scratch_bytes;  // of one image of an item
  int64_t transformed_bytes, products_bytes;

  Plan(const Conv2dGeometry& g, Conv2dPass pass, int threads)
      : forward(pass == Conv2dPass::kForward),
        rows(axis_of(g.height)),
        columns(axis_of(g.width)),
        batch(g.batch),
        source_channels(forward ? g.in_channels : g.out_channels),
        target_channels(forward ? g.out_channels : g.in_channels),
        target_rows(forward ? g.height.output : g.height.input),
        target_columns(forward ? g.width.output : g.width.input),
        source_padded(padded_channels<C>(source_channels)),
        target_padded(padded_channels<C>(target_channels)),
        row_tiles(tiles_of(target_columns)) {
    choose_items(threads);
    const int64_t tiles = block_rows * row_tiles;
    weight_bytes = bytes_of<C>(kProducts * source_padded * target_padded);
    initial_bytes = bytes_of<C>(target_padded);
    source_bytes = bytes_of<C>(band().capacity(band_rows));
    scratch_bytes = bytes_of<C>(band_rows * target_columns * target_padded);
    transformed_bytes = bytes_of<C>(kProducts * product_distance<C>(tiles) * source_padded / kLanes<C>);
    products_bytes = bytes_of<C>(kProducts * product_distance<C>(tiles * kStripVectors));
  }

  PackedBand band() const { return {rows, columns, source_channels, kLanes<C>}; }
  int64_t slot_bytes() const {
    return images * (source_bytes + scratch_bytes) + transformed_bytes + products_bytes;
  }
  size_t workspace_bytes() const {
    return static_cast<size_t>(weight_bytes + initial_bytes + slots * slot_bytes());
  }
  /// Vectors of the strip that begins at a target channel.
  int64_t vectors_at(int64_t channel) const {
    return std::min(kStripVectors, (target_padded - channel) / kLanes<C>);
  }
  int64_t strip_weights(int64_t channel) const { return channel * source_padded * kProducts; }

 private:
  /// Whole tiles of targets, each reading three neighbours.
  DirectAxis axis_of(const Conv2dAxis& axis) const {
    const int64_t padding = forward ? axis.padding : axis.reach() - axis.padding;
    DirectPhase phase;
    for (int64_t tap = 0; tap < kFilter; ++tap) phase.taps.push_back({tap, tap - padding});
    const int64_t target = forward ? axis.output : axis.input;
    return {.source = forward ? axis.input : axis.output,
            .target = tiles_of(target) * kTilePixels,
            .source_step = 1,
            .phases = {phase}};
  }

  void choose_items(int threads) {
    const int64_t row_bytes = bytes_of<C>(columns.target * source_padded);
    const int64_t tile_rows = rows.target / kTilePixels;
    const int64_t wanted = int64_t{2} * threads;
    int64_t band_tiles = std::clamp<int64_t>(kItemBytes / (kTilePixels * row_bytes), 1, tile_rows);
    if (batch < wanted) {  // few images are spread over the threads by bands
      const int64_t parts = (wanted + std::max<int64_t>(batch, 1) - 1) / std::max<int64_t>(batch, 1);
      band_tiles = std::min(band_tiles, (tile_rows + parts - 1) / parts);
    }
    band_rows = band_tiles * kTilePixels;
    bands = (tile_rows + band_tiles - 1) / band_tiles;
    const int64_t together = std::min(kItemTiles / (tile_rows * row_tiles), batch / wanted);
    images = bands > 1 ? 1 : std::max<int64_t>(1, together);
    items = (batch + images - 1) / images * bands;
    slots = std::clamp<int64_t>(threads, 1, std::max<int64_t>(items, 1));
    block_rows = std::clamp<int64_t>(kBlockTiles / row_tiles, 1, images * band_tiles);
  }
};

// ---- filters

/// Transforms the filters of the source channels [begin, end) to
/// [strip][product][source channel][target channel of the strip].
template <class C, class T>
void pack_filters(const Plan<C>& plan, const Conv2dGeometry& g, int64_t begin, int64_t end, const T* filters,
                  C* packed) {
  const int64_t out = g.in_channels * g.taps(), in = g.layout == Layout::kNCHW ? g.taps() : 1;
  const int64_t tap_stride = g.layout == Layout::kNCHW ? 1 : g.in_channels;
  const int64_t source_stride = plan.forward ? in : out, target_stride = plan.forward ? out : in;
  for (int64_t c = begin; c < end; ++c) {
    for (int64_t first = 0; first < plan.target_padded; first += kLanes<C>) {
      const int64_t strip = first / (kStripVectors * kLanes<C>)*kStripVectors * kLanes<C>;
      const int64_t width = plan.vectors_at(strip) * kLanes<C>;
      const int64_t count =
          c < plan.source_channels ? std::min<int64_t>(kLanes<C>, plan.target_channels - first) : 0;
      alignas(kVectorBytes) C taps[9][kLanes<C>] = {};
      for (int64_t o = 0; o < count; ++o) {
        const T* from = filters + c * source_stride + (first + o) * target_stride;
        for (int64_t tap = 0; tap < g.taps(); ++tap) {
          const int64_t read = plan.forward ? tap : g.taps() - 1 - tap;
          taps[tap][o] = static_cast<C>(from[read * tap_stride]);
        }
      }
      Vector<C> filter[9], transformed[16];
      for (size_t tap = 0; tap < 9; ++tap) filter[tap] = load_vector(taps[tap]);
      transform_filter<C>(filter, transformed);
      C* to = packed + plan.strip_weights(strip) + c * width + (first - strip);
      for (const Vector<C>& vector : transformed) {
        store_vector(to, vector);
        to += plan.source_padded * width;
      }
    }
  }
}

// ---- one item

/// Where the targets of an item go: in the tensor itself, or in scratch.
template <class C>
struct Destination {
  C* first;  // first image, the band's first row, column 0
  int64_t pixel, image;
};

/// Scratch of one slot, and what all items read.
template <class C>
struct Buffers {
  C *packed, *scratch, *transformed, *products;
  const C *weight, *initial;
};

/// Some rows of tiles of an item: [first, last), counted on from image to image.
template <class C>
struct BlockWork {
  const Plan<C>& plan;
  const PackedBand& band;
  const Buffers<C>& buffers;
  int64_t band_tiles;  // rows of tiles in the band of one image
  int64_t row_end;     // targets in the band
  int64_t first, last;
  Prefetch next, targets;  // the block's parts

  int64_t tiles() const { return (last - first) * plan.row_tiles; }
  /// Elements from product to product: of sources, and of targets.
  int64_t source_product() const { return product_distance<C>(tiles()); }
  int64_t target_product(int64_t vectors) const { return product_distance<C>(tiles() * vectors); }

  void transform_sources() const {
    for (int64_t row = first; row < last; ++row) {
      const C* image =
          buffers.packed + row / band_tiles * (plan.source_bytes / static_cast<int64_t>(sizeof(C)));
      const C* from = image + row % band_tiles * kTilePixels * band.row_elements();
      C* to = buffers.transformed + (row - first) * plan.row_tiles * kLanes<C>;
      for (int64_t block = 0; block < band.blocks(); ++block) {
        transform_source(from + block * band.block_elements(), band.row_elements(), plan.row_tiles,
                         to + block * kProducts * source_product(), source_product());
      }
    }
  }

  /// The sixteen matrix products of a strip, to [product][tile][width]; meanwhile memory that is needed next
  /// comes closer.
  void multiply(int64_t channel, const int64_t* steps) const {
    const int64_t vectors = plan.vectors_at(channel), width = vectors * kLanes<C>;
    constexpr int64_t strip = kStripVectors * kLanes<C>;
    const int64_t strips = (plan.target_padded + strip - 1) / strip;
    static constexpr C kZeros[kStripVectors * kLanes<C>] = {};
    const int64_t most = kMostTilePixels[static_cast<size_t>(vectors - 1)];
    const int64_t parts = (tiles() + most - 1) / most;
    DirectTile<C> tile{.source = nullptr,
                       .source_image = 0,
                       .steps = steps,
                       .step_count = band.blocks(),
                       .channels = kLanes<C>,
                       .weight = buffers.weight + plan.strip_weights(channel),
                       .initial = kZeros,
                       .target = nullptr,
                       .target_pixel = width,
                       .target_image = 0};
    for (int64_t product = 0; product < kProducts; ++product, tile.weight += plan.source_padded * width) {
      next.run(channel / strip * kProducts + product, strips * kProducts);
      if (channel == 0) targets.run<true>(product, kProducts);
      for (int64_t part = 0; part < parts; ++part) {
        const int64_t begin = tiles() * part / parts, end = tiles() * (part + 1) / parts;
        tile.source = buffers.transformed + product * source_product() + begin * kLanes<C>;
        tile.target = buffers.products + product * target_product(vectors) + begin * width;
        run_direct_tile(tile, vectors, end - begin);
      }
    }
  }

  void transform_targets(int64_t channel, const Destination<C>& destination) const {
    const int64_t vectors = plan.vectors_at(channel), width = vectors * kLanes<C>;
    for (int64_t row = first; row < last; ++row) {
      const int64_t target_row = row % band_tiles * kTilePixels;
      const bool two_rows = target_row + 1 < row_end;
      const C* from = buffers.products + (row - first) * plan.row_tiles * width;
      C* to = destination.first + row / band_tiles * destination.image +
              target_row * plan.target_columns * destination.pixel;
      const int64_t below = plan.target_columns * destination.pixel;
      for (int64_t t = 0; t < plan.row_tiles; ++t, from += width, to += kTilePixels * destination.pixel) {
        const bool two_columns = t * kTilePixels + 1 < plan.target_columns;
        for (int64_t v = 0; v < width; v += kLanes<C>) {
          Vector<C> pixels[2][2];
          transform_target(from + v, target_product(vectors), load_vector(buffers.initial + channel + v),
                           pixels);
          store_vector(to + v, pixels[0][0]);
          if (two_columns) store_vector(to + v + destination.pixel, pixels[0][1]);
          if (two_rows) store_vector(to + v + below, pixels[1][0]);
          if (two_rows && two_columns) store_vector(to + v + below + destination.pixel, pixels[1][1]);
        }
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

  /// True if whole strips can be stored where they belong.
  bool in_place() const {
    return std::is_same_v<T, C> && target_strides.channel == 1 && plan.target_channels == plan.target_padded;
  }

  void run_item(int64_t item, PackedBand& band, const Buffers<C>& buffers) const {
    const int64_t image = item / plan.bands * plan.images;
    const int64_t images = std::min(plan.images, plan.batch - image);
    const int64_t row_begin = item % plan.bands * plan.band_rows;
    const int64_t row_end = std::min(row_begin + plan.band_rows, plan.rows.target);
    const int64_t target_rows = std::min(row_end, plan.target_rows) - row_begin;
    band.set_targets(row_begin, row_end);
    for (int64_t i = 0; i < images; ++i) {
      pack_band(band, source + (image + i) * source_strides.image, 0, source_strides,
                buffers.packed + i * (plan.source_bytes / static_cast<int64_t>(sizeof(C))));
    }
    T* to = target + image * target_strides.image + row_begin * plan.target_columns * target_strides.pixel;
    const int64_t band_tiles = (row_end - row_begin) / kTilePixels;
    const Prefetch next = next_source(image, images), targets = targets_of(to, images, target_rows);
    for (int64_t first = 0; first < images * band_tiles; first += plan.block_rows) {
      const int64_t last = std::min(first + plan.block_rows, images * band_tiles);
      const int64_t rows = images * band_tiles;
      run_block({plan, band, buffers, band_tiles, target_rows, first, last, next.range(first, last, rows),
                 targets.range(first, last, rows)},
                to);
    }
    if (in_place()) return;
    const int64_t pixels = target_rows * plan.target_columns;
    for (int64_t i = 0; i < images; ++i) {
      unpack_pixels(buffers.scratch + i * scratch_image(), plan.target_padded, pixels, plan.target_channels,
                    to + i * target_strides.image, target_strides);
    }
  }

 private:
  int64_t scratch_image() const { return plan.scratch_bytes / static_cast<int64_t>(sizeof(C)); }

  /// The source of the images behind an item.
  Prefetch next_source(int64_t image, int64_t images) const {
    const int64_t next = image + images, count = plan.bands > 1 ? 0 : std::min(images, plan.batch - next);
    return prefetch_of(source + next * source_strides.image, count * source_strides.image);
  }

  /// Where an item's targets go; nothing if they are not adjacent. `to`: its first target.
  Prefetch targets_of(const T* to, int64_t images, int64_t target_rows) const {
    if (plan.bands == 1) return prefetch_of(to, images * target_strides.image);
    const bool adjacent = target_strides.channel == 1;
    return prefetch_of(to, adjacent ? target_rows * plan.target_columns * target_strides.pixel : 0);
  }

  void run_block(const BlockWork<C>& work, T* to) const {
    work.transform_sources();
    std::vector<int64_t> steps;
    for (int64_t block = 0; block < work.band.blocks(); ++block)
      steps.push_back(block * kProducts * work.source_product());
    constexpr int64_t width = kStripVectors * kLanes<C>;
    for (int64_t channel = 0; channel < plan.target_padded; channel += width) {
      work.multiply(channel, steps.data());
      Destination<C> destination{work.buffers.scratch + channel, plan.target_padded, scratch_image()};
      if constexpr (std::is_same_v<T, C>) {
        if (in_place()) destination = {to + channel, target_strides.pixel, target_strides.image};
      }
      work.transform_targets(channel, destination);
    }
  }
};

template <class T>
void run_winograd(const KernelContext& context, const Conv2dGeometry& g, Conv2dPass pass) {
  using C = compute_type<T>;
  const Plan<C> plan(g, pass, context.threads());
  const auto place = [](std::byte* at) { return reinterpret_cast<C*>(at); };
  auto* const workspace = context.workspace<std::byte>();
  C* const weight = place(workspace);
  C* const initial = place(workspace + plan.weight_bytes);
  std::byte* const scratch = workspace + plan.weight_bytes + plan.initial_bytes;
  const T* filters = context.input(1).as<const T>();
  constexpr int64_t kChannelsPerTask = 8;
  parallel_for(plan.source_padded, kChannelsPerTask,
               [&](int64_t begin, int64_t end) { pack_filters(plan, g, begin, end, filters, weight); });
  const bool has_bias = plan.forward && context.has_input(2);
  for (int64_t o = 0; o < plan.target_padded; ++o) {
    initial[o] =
        has_bias && o < plan.target_channels ? static_cast<C>(context.input(2).as<const T>()[o]) : C{0};
  }
  const ImageStrides x(g.layout, g.in_channels, g.in_pixels()), y(g.layout, g.out_channels, g.out_pixels());
  const Call<T> call{plan, plan.forward ? x : y, plan.forward ? y : x, context.input(0).as<const T>(),
                     context.output(0).as<T>()};
  parallel_for(plan.slots, 1, [&](int64_t first, int64_t last) {
    for (int64_t slot = first; slot < last; ++slot) {
      PackedBand band = plan.band();
      std::byte* own = scratch + slot * plan.slot_bytes();
      std::byte* const transformed = own + plan.images * (plan.source_bytes + plan.scratch_bytes);
      const Buffers<C> buffers{place(own),
                               place(own + plan.images * plan.source_bytes),
                               place(transformed),
                               place(transformed + plan.transformed_bytes),
                               weight,
                               initial};
      for (int64_t item = plan.items * slot / plan.slots; item < plan.items * (slot + 1) / plan.slots; ++item)
        call.run_item(item, band, buffers);
    }
  });
}

}  // namespace

bool conv2d_winograd_can_run(const Conv2dGeometry& g) {
  const auto fits = [](const Conv2dAxis& axis) {
    return axis.kernel == kFilter && axis.stride == 1 && axis.dilation == 1 && axis.padding <= axis.reach();
  };
  return g.groups == 1 && g.batch > 0 && fits(g.height) && fits(g.width);
}

int64_t conv2d_winograd_tiles(const Conv2dGeometry& g) {
  return g.batch * tiles_of(g.height.output) * tiles_of(g.width.output);
}

bool conv2d_winograd_pays(const Conv2dGeometry& g, Conv2dPass pass, DType dtype) {
  constexpr int64_t kLeastChannels = 16, kLeastTiles = 128;
  // Every block of tiles reads all transformed filters: fewer tiles would not repay making them.
  constexpr int64_t kFiltersPerTile = 256;
  // Beyond it the partial sums of the filters' gradient would take too much memory to occupy many threads.
  constexpr int64_t kMostFilters = int64_t{1} << 17;
  const int64_t lanes = dtype == DType::kFloat64 ? kLanes<double> : kLanes<float>;
  const int64_t filters = g.in_channels * g.out_channels;
  if (pass == Conv2dPass::kGradWeight && filters > kMostFilters) return false;
  return std::min(g.in_channels, g.out_channels) >= std::max(kLeastChannels, lanes) &&
         conv2d_winograd_tiles(g) >= std::max(kLeastTiles, filters / kFiltersPerTile);
}

size_t conv2d_winograd_workspace(const Conv2dGeometry& geometry, Conv2dPass pass, DType dtype, int threads) {
  return dispatch_float(dtype, "conv2d", [&]<class T> {
    using C = compute_type<T>;
    return pass == Conv2dPass::kGradWeight ? conv2d_winograd_weight_workspace<C>(geometry, threads)
                                           : Plan<C>(geometry, pass, threads).workspace_bytes();
  });
}

void run_conv2d_winograd(const KernelContext& context, const Conv2dGeometry& geometry, Conv2dPass pass) {
  dispatch_float(context.input(0).dtype, "conv2d", [&]<class T> {
    if (pass == Conv2dPass::kGradWeight) {
      run_conv2d_winograd_weight<T>(context, geometry);
    } else {
      run_winograd<T>(context, geometry, pass);
    }
  });
}

}  // namespace sinter::ops
