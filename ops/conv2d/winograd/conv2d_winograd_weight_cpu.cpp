// The gradient of the filters of Winograd's convolution F(2x2, 3x3). From the outside in:
//   chunk    of the batch, with a partial sum of its own of the sixteen products; threads share the chunks,
//            which depend on the geometry alone and are added up in order at the end, so that the result does
//            not depend on the threads;
//   image    or band of it: x and dy are packed into vectors of channels with what lies outside written out;
//   block    of rows of tiles: both are transformed, and for each of the sixteen products the outer products
//   of
//            their channels are added to the partial sum.
#include <algorithm>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/conv2d/direct/conv2d_pack_cpu.h>
#include <sinter/ops/conv2d/winograd/conv2d_winograd_transforms_cpu.h>
#include <sinter/ops/conv2d/winograd/conv2d_winograd_weight_cpu.h>

namespace sinter::ops {
namespace {

using namespace winograd;

constexpr int64_t kMostChunks = 16;
constexpr int64_t kChunkTiles = 256;                   // fewer would not repay another partial sum
constexpr int64_t kPartialsBytes = int64_t{64} << 20;  // all partial sums together
constexpr int64_t kBandBytes = int64_t{512} << 10;     // x and dy of a band: a part of the second-level cache
constexpr int64_t kBlockBytes = int64_t{256} << 10;    // both, transformed
constexpr int64_t kLeastBlockTiles = 64;               // fewer would not repay loading and storing the sums
constexpr int64_t kMostBlockTiles = 128;

// ---- the innermost kernel

/// Outer products of x's channels and vectors of dy's, added up over neighbouring tiles.
template <class C>
struct OuterProducts {
  const C* x;   // [tile][lane]
  const C* dy;  // [tile][lane], vectors dy_vector apart
  int64_t dy_vector, tiles;
  C* sums;  // [channel][vector], channels sums_channel apart
  int64_t sums_channel;
  bool first;  // store instead of add

  template <int channels, int vectors>
  void run() const {
    constexpr int lanes = kLanes<C>;
    Vector<C> totals[size_t{channels}][size_t{vectors}] = {};
    for (int64_t tile = 0; tile < tiles; ++tile) {
      Vector<C> gradient[size_t{vectors}];
#pragma GCC unroll 32
      for (int v = 0; v < vectors; ++v) gradient[v] = load_vector(dy + v * dy_vector + tile * lanes);
#pragma GCC unroll 32
      for (int c = 0; c < channels; ++c) {
#pragma GCC unroll 32
        for (int v = 0; v < vectors; ++v)
          totals[c][v] = multiply_add(x[tile * lanes + c], gradient[v], totals[c][v]);
      }
    }
#pragma GCC unroll 32
    for (int c = 0; c < channels; ++c) {
#pragma GCC unroll 32
      for (int v = 0; v < vectors; ++v) {
        C* const to = sums + c * sums_channel + v * lanes;
        store_vector(to, first ? totals[c][v] : load_vector(to) + totals[c][v]);
      }
    }
  }
};

// Channels of x in registers, with one or two vectors of dy's.
template <class C>
constexpr int kTileChannels = std::min(kLanes<C>, kVectorRegisters == 32 ? 8 : 4);
template <class C>
constexpr int kThinChannels = std::min(kLanes<C>, kVectorRegisters == 32 ? 16 : 8);

// ---- the plan

template <class C>
struct Plan {
  DirectAxis x_rows, x_columns, dy_rows, dy_columns;
  int64_t in_padded, out_padded, row_tiles;
  int64_t chunks, slots, band_rows, images, block_rows;
  int64_t partial_bytes, x_bytes, dy_bytes;  // x_bytes and dy_bytes: of one image
  int64_t x_transformed_bytes, dy_transformed_bytes;

  Plan(const Conv2dGeometry& g, int threads)
      : x_rows(x_axis(g.height)),
        x_columns(x_axis(g.width)),
        dy_rows(dy_axis(g.height)),
        dy_columns(dy_axis(g.width)),
        in_padded(padded_channels<C>(g.in_channels)),
        out_padded(padded_channels<C>(g.out_channels)),
        row_tiles(tiles_of(g.width.output)) {
    partial_bytes = bytes_of<C>(kProducts * in_padded * out_padded);
    const int64_t tile_rows = tiles_of(g.height.output);
    const int64_t by_work = g.batch * tile_rows * row_tiles / kChunkTiles;
    chunks =
        std::clamp<int64_t>(std::min({g.batch, by_work, kPartialsBytes / partial_bytes}), 1, kMostChunks);
    slots = std::min<int64_t>(threads, chunks);
    const int64_t row_bytes = bytes_of<C>(kTilePixels * x_columns.target * (in_padded + out_padded));
    const int64_t band_tiles = std::clamp<int64_t>(kBandBytes / row_bytes, 1, tile_rows);
    band_rows = band_tiles * kTilePixels;
    const int64_t tile_bytes = bytes_of<C>(kProducts * (in_padded + out_padded));
    const int64_t tiles = std::clamp(kBlockBytes / tile_bytes, kLeastBlockTiles, kMostBlockTiles);
    images = band_tiles < tile_rows ? 1 : std::max<int64_t>(1, tiles / (tile_rows * row_tiles));
    block_rows = std::clamp<int64_t>(tiles / row_tiles, 1, images * band_tiles);
    x_bytes = bytes_of<C>(PackedBand(x_rows, x_columns, g.in_channels, kLanes<C>).capacity(band_rows));
    dy_bytes = bytes_of<C>(PackedBand(dy_rows, dy_columns, g.out_channels, kLanes<C>).capacity(band_rows));
    const int64_t products = kProducts * product_distance<C>(block_rows * row_tiles) / kLanes<C>;
    x_transformed_bytes = bytes_of<C>(products * in_padded);
    dy_transformed_bytes = bytes_of<C>(products * out_padded);
  }

  int64_t packed_bytes() const { return images * (x_bytes + dy_bytes); }
  int64_t slot_bytes() const { return packed_bytes() + x_transformed_bytes + dy_transformed_bytes; }
  size_t workspace_bytes() const {
    return static_cast<size_t>(chunks * partial_bytes + slots * slot_bytes());
  }

 private:
  /// Targets are the outputs, in whole tiles.
  static DirectAxis x_axis(const Conv2dAxis& axis) {
    DirectPhase phase;
    for (int64_t tap = 0; tap < kFilter; ++tap) phase.taps.push_back({tap, tap - axis.padding});
    return {.source = axis.input,
            .target = tiles_of(axis.output) * kTilePixels,
            .source_step = 1,
            .phases = {phase}};
  }
  static DirectAxis dy_axis(const Conv2dAxis& axis) {
    return {.source = axis.output,
            .target = tiles_of(axis.output) * kTilePixels,
            .source_step = 1,
            .phases = {{.taps = {{0, 0}}}}};
  }
};

// ---- one chunk

/// A band of x or dy of some images, packed.
template <class C>
struct PackedImages {
  const PackedBand& band;
  const C* first;
  int64_t image;  // elements from image to image

  const C* row_of(int64_t image_index, int64_t row, int64_t block) const {
    return first + image_index * image + block * band.block_elements() + row * band.row_elements();
  }
};

/// Adds what some rows of tiles contribute to a partial sum, [product][input channel][output channel].
template <class C>
struct BlockWork {
  const Plan<C>& plan;
  C *x, *dy;  // transformed: [channel block][product][tile][lane]
  int64_t tiles;
  C* partial;
  bool first;

  int64_t product() const { return product_distance<C>(tiles); }

  /// Rows of tiles count on from image to image, each of which has `band_tiles`.
  void transform(const PackedImages<C>& packed_x, const PackedImages<C>& packed_dy, int64_t band_tiles,
                 int64_t row) const {
    for (int64_t offset = 0; offset < tiles; offset += plan.row_tiles, ++row) {
      const int64_t image = row / band_tiles, band_row = row % band_tiles * kTilePixels;
      for (int64_t block = 0; block < packed_x.band.blocks(); ++block) {
        transform_source(packed_x.row_of(image, band_row, block), packed_x.band.row_elements(),
                         plan.row_tiles, x + block * kProducts * product() + offset * kLanes<C>, product());
      }
      for (int64_t block = 0; block < packed_dy.band.blocks(); ++block) {
        transform_gradient(packed_dy.row_of(image, band_row, block), packed_dy.band.row_elements(),
                           plan.row_tiles, dy + block * kProducts * product() + offset * kLanes<C>,
                           product());
      }
    }
  }

  /// Meanwhile memory that is needed next comes closer.
  void multiply(const Prefetch& next_x, const Prefetch& next_dy) const {
    constexpr int64_t lanes = kLanes<C>;
    const int64_t dy_vector = kProducts * product();
    for (int64_t p = 0; p < kProducts; ++p) {
      next_x.run(p, kProducts);
      next_dy.run(p, kProducts);
      for (int64_t c = 0; c < plan.in_padded; c += lanes) {
        const C* const from = x + c / lanes * dy_vector + p * product();
        C* const sums = partial + (p * plan.in_padded + c) * plan.out_padded;
        int64_t o = 0;
        for (; o + 2 * lanes <= plan.out_padded; o += 2 * lanes)
          run<kTileChannels<C>, 2>(from, p, o, sums + o);
        if (o < plan.out_padded) run<kThinChannels<C>, 1>(from, p, o, sums + o);
      }
    }
  }

 private:
  template <int channels, int vectors>
  void run(const C* from, int64_t p, int64_t o, C* sums) const {
    const int64_t dy_vector = kProducts * product();
    for (int c = 0; c < kLanes<C>; c += channels) {
      OuterProducts<C>{.x = from + c,
                       .dy = dy + o / kLanes<C> * dy_vector + p * product(),
                       .dy_vector = dy_vector,
                       .tiles = tiles,
                       .sums = sums + c * plan.out_padded,
                       .sums_channel = plan.out_padded,
                       .first = first}
          .template run<channels, vectors>();
    }
  }
};

/// Adds the images [begin, end) to a partial sum. `scratch`: of Plan::slot_bytes().
template <class T, class C = compute_type<T>>
void add_images(const Plan<C>& plan, const Conv2dGeometry& g, const T* x, const T* dy, int64_t begin,
                int64_t end, C* partial, std::byte* scratch) {
  const ImageStrides x_strides(g.layout, g.in_channels, g.in_pixels());
  const ImageStrides dy_strides(g.layout, g.out_channels, g.out_pixels());
  PackedBand x_band(plan.x_rows, plan.x_columns, g.in_channels, kLanes<C>);
  PackedBand dy_band(plan.dy_rows, plan.dy_columns, g.out_channels, kLanes<C>);
  const auto place = [=](int64_t bytes) { return reinterpret_cast<C*>(scratch + bytes); };
  const int64_t x_image = plan.x_bytes / static_cast<int64_t>(sizeof(C));
  const int64_t dy_image = plan.dy_bytes / static_cast<int64_t>(sizeof(C));
  C *const packed_x = place(0), *const packed_dy = place(plan.images * plan.x_bytes);
  C* const transformed_x = place(plan.packed_bytes());
  C* const transformed_dy = place(plan.packed_bytes() + plan.x_transformed_bytes);
  bool first = true;
  for (int64_t image = begin; image < end; image += plan.images) {
    const int64_t images = std::min(plan.images, end - image), next = image + images;
    const int64_t next_images = plan.band_rows < plan.dy_rows.target ? 0 : std::min(images, end - next);
    const Prefetch next_x = prefetch_of(x + next * x_strides.image, next_images * x_strides.image);
    const Prefetch next_dy = prefetch_of(dy + next * dy_strides.image, next_images * dy_strides.image);
    for (int64_t row = 0; row < plan.dy_rows.target; row += plan.band_rows) {
      const int64_t row_end = std::min(row + plan.band_rows, plan.dy_rows.target);
      x_band.set_targets(row, row_end);
      dy_band.set_targets(row, row_end);
      for (int64_t i = 0; i < images; ++i) {
        pack_band(x_band, x + (image + i) * x_strides.image, 0, x_strides, packed_x + i * x_image);
        pack_band(dy_band, dy + (image + i) * dy_strides.image, 0, dy_strides, packed_dy + i * dy_image);
      }
      const int64_t band_tiles = (row_end - row) / kTilePixels, tile_rows = images * band_tiles;
      for (int64_t tile_row = 0; tile_row < tile_rows; tile_row += plan.block_rows) {
        const int64_t rows = std::min(plan.block_rows, tile_rows - tile_row);
        const BlockWork<C> work{plan, transformed_x, transformed_dy, rows * plan.row_tiles, partial, first};
        work.transform({x_band, packed_x, x_image}, {dy_band, packed_dy, dy_image}, band_tiles, tile_row);
        work.multiply(next_x.range(tile_row, tile_row + rows, tile_rows),
                      next_dy.range(tile_row, tile_row + rows, tile_rows));
        first = false;
      }
    }
  }
}

/// Adds the partial sums up, transforms them and moves them to their places in the filters.
template <class T, class C = compute_type<T>>
void store_filters(const Plan<C>& plan, const Conv2dGeometry& g, const std::byte* partials, T* dweight) {
  const int64_t out_stride = g.in_channels * g.taps();
  const int64_t in_stride = g.layout == Layout::kNCHW ? g.taps() : 1;
  const int64_t tap_stride = g.layout == Layout::kNCHW ? 1 : g.in_channels;
  constexpr int64_t kChannelsPerTask = 8;
  parallel_for(g.in_channels, kChannelsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      for (int64_t first = 0; first < g.out_channels; first += kLanes<C>) {
        Vector<C> sums[16] = {}, filter[9];
        for (int64_t chunk = 0; chunk < plan.chunks; ++chunk) {
          const C* const from = reinterpret_cast<const C*>(partials + chunk * plan.partial_bytes) + first;
          for (int64_t p = 0; p < kProducts; ++p)
            sums[p] += load_vector(from + (p * plan.in_padded + c) * plan.out_padded);
        }
        transform_filter_gradient<C>(sums, filter);
        const int64_t count = std::min<int64_t>(kLanes<C>, g.out_channels - first);
        for (int64_t tap = 0; tap < g.taps(); ++tap) {
          alignas(kVectorBytes) C values[kLanes<C>];
          store_vector(values, filter[tap]);
          T* const to = dweight + first * out_stride + c * in_stride + tap * tap_stride;
          for (int64_t o = 0; o < count; ++o) to[o * out_stride] = static_cast<T>(values[o]);
        }
      }
    }
  });
}

}  // namespace

template <class C>
size_t conv2d_winograd_weight_workspace(const Conv2dGeometry& geometry, int threads) {
  return Plan<C>(geometry, threads).workspace_bytes();
}
template size_t conv2d_winograd_weight_workspace<float>(const Conv2dGeometry&, int);
template size_t conv2d_winograd_weight_workspace<double>(const Conv2dGeometry&, int);

template <class T>
void run_conv2d_winograd_weight(const KernelContext& context, const Conv2dGeometry& geometry) {
  using C = compute_type<T>;
  const Plan<C> plan(geometry, context.threads());
  auto* const partials = context.workspace<std::byte>();
  std::byte* const scratch = partials + plan.chunks * plan.partial_bytes;
  parallel_for(plan.slots, 1, [&](int64_t first, int64_t last) {
    for (int64_t slot = first; slot < last; ++slot) {
      for (int64_t chunk = plan.chunks * slot / plan.slots; chunk < plan.chunks * (slot + 1) / plan.slots;
           ++chunk) {
        add_images(plan, geometry, context.input(0).as<const T>(), context.input(1).as<const T>(),
                   geometry.batch * chunk / plan.chunks, geometry.batch * (chunk + 1) / plan.chunks,
                   reinterpret_cast<C*>(partials + chunk * plan.partial_bytes),
                   scratch + slot * plan.slot_bytes());
      }
    }
  });
  store_filters(plan, geometry, partials, context.output(0).as<T>());
}
template void run_conv2d_winograd_weight<float>(const KernelContext&, const Conv2dGeometry&);
template void run_conv2d_winograd_weight<double>(const KernelContext&, const Conv2dGeometry&);
template void run_conv2d_winograd_weight<float16>(const KernelContext&, const Conv2dGeometry&);
template void run_conv2d_winograd_weight<bfloat16>(const KernelContext&, const Conv2dGeometry&);

}  // namespace sinter::ops
