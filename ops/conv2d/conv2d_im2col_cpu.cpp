// Convolution as matrix products on unfolded images ("im2col"), for float32 and float64. Per image, group and
// band of output rows:
//   Columns (K x P)  the K = KH*KW*C/groups inputs that each of the band's P output pixels reads;
//   forward      Y = W Columns;   grad input   Columns = W^T dY, folded back;   grad weight   dW += dY
//   Columns^T.
// Matrices are row-major for NCHW and column-major for NHWC, which makes both the same code over images in
// place. Source: K. Chellapilla, S. Puri, P. Simard, "High performance convolutional neural networks for
// document processing", 2006.
#include <algorithm>
#include <utility>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/cpu/matrix_product_cpu.h>
#include <sinter/ops/conv2d/conv2d_kernels_cpu.h>

namespace sinter::ops {
namespace {

constexpr int64_t kColumnsBytes = int64_t{1} << 20;    // of one band: half of a common second-level cache
constexpr int64_t kPartialsBytes = int64_t{64} << 20;  // of all partial sums of a weight gradient
constexpr int64_t kMostChunks = 16;
constexpr int64_t kAlignment = 64;

int64_t aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// How a call is cut into pieces. Bands and chunks depend on the geometry alone, and so do the results.
struct Plan {
  Conv2dGeometry g;
  int64_t k = 0;          // rows of Columns
  int64_t band_rows = 1;  // output rows in a band
  int64_t chunks = 1;     // of the batch, each with a partial weight gradient
  int64_t slots = 1;      // threads, each with columns of its own
  bool in_place = false;  // the image itself is the matrix of columns
  int64_t columns_bytes = 0, partial_bytes = 0;

  Plan(const Conv2dGeometry& geometry, Conv2dPass pass, size_t element, int threads) : g(geometry) {
    const auto bytes = static_cast<int64_t>(element);
    k = g.group_in() * g.taps();
    in_place = g.is_pointwise();
    const int64_t row_bytes = std::max<int64_t>(1, k * g.width.output * bytes);
    band_rows = std::clamp<int64_t>(kColumnsBytes / row_bytes, 1, g.height.output);
    columns_bytes = in_place ? 0 : aligned(k * g.width.output * band_rows * bytes);
    int64_t items = g.batch;
    if (pass == Conv2dPass::kGradWeight) {
      partial_bytes = aligned(g.weight_count() * bytes);
      chunks = std::clamp<int64_t>(std::min(g.batch, kPartialsBytes / partial_bytes), 1, kMostChunks);
      items = chunks;
    }
    slots = std::clamp<int64_t>(threads, 1, std::max<int64_t>(items, 1));
  }

  size_t workspace_bytes() const {
    return static_cast<size_t>(slots * columns_bytes + chunks * partial_bytes);
  }
  template <class T>
  T* partial(void* workspace, int64_t chunk) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(workspace) + chunk * partial_bytes);
  }
  template <class T>
  T* columns(void* workspace, int64_t slot) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(workspace) + chunks * partial_bytes +
                                slot * columns_bytes);
  }
};

/// Output columns [first, last) whose input column, j * stride - padding + tap * dilation, lies inside the
/// image.
std::pair<int64_t, int64_t> inside(const Conv2dAxis& axis, int64_t tap) {
  const int64_t shift = tap * axis.dilation - axis.padding;
  const int64_t first = shift >= 0 ? 0 : std::min((-shift + axis.stride - 1) / axis.stride, axis.output);
  const int64_t last = axis.input <= shift ? 0 : (axis.input - shift - 1) / axis.stride + 1;
  return {first, std::clamp(last, first, axis.output)};
}

/// Calls run(columns, pixels, first, last, count, stride) for every `count` neighbours in Columns that come
/// from one row of the image: those in [first, last) belong to pixels[i * stride], the others are padding.
/// They lie along output columns when row-major, and along channels when column-major.
template <bool kRows, class Pixel, class T, class Run>
void for_each_run(const Conv2dGeometry& g, Pixel* image, T* columns, int64_t row_begin, int64_t row_end,
                  Run run) {
  const int64_t kernel_width = g.width.kernel;
  const int64_t channels = g.group_in();
  if constexpr (kRows) {
    for (int64_t k = 0; k < channels * g.taps(); ++k) {
      const int64_t c = k / g.taps(), u = k / kernel_width % g.height.kernel, v = k % kernel_width;
      const auto [first, last] = inside(g.width, v);
      const int64_t shift = v * g.width.dilation - g.width.padding;
      for (int64_t i = row_begin; i < row_end; ++i, columns += g.width.output) {
        const int64_t h = i * g.height.stride - g.height.padding + u * g.height.dilation;
        const bool valid = h >= 0 && h < g.height.input;
        Pixel* pixels = image + (c * g.height.input + h) * g.width.input + shift;
        run(columns, pixels, valid ? first : 0, valid ? last : 0, g.width.output, g.width.stride);
      }
    }
  } else {
    for (int64_t i = row_begin; i < row_end; ++i) {
      for (int64_t j = 0; j < g.width.output; ++j) {
        for (int64_t tap = 0; tap < g.taps(); ++tap, columns += channels) {
          const int64_t h = i * g.height.stride - g.height.padding + tap / kernel_width * g.height.dilation;
          const int64_t w = j * g.width.stride - g.width.padding + tap % kernel_width * g.width.dilation;
          const bool valid = h >= 0 && h < g.height.input && w >= 0 && w < g.width.input;
          run(columns, image + (h * g.width.input + w) * g.in_channels, 0, valid ? channels : 0, channels, 1);
        }
      }
    }
  }
}

template <bool kRows, class T>
void unfold(const Conv2dGeometry& g, const T* image, T* columns, int64_t row_begin, int64_t row_end) {
  for_each_run<kRows>(g, image, columns, row_begin, row_end,
                      [](T* to, const T* from, int64_t first, int64_t last, int64_t count, int64_t stride) {
                        std::fill(to, to + first, T{0});
                        for (int64_t i = first; i < last; ++i) to[i] = from[i * stride];
                        std::fill(to + last, to + count, T{0});
                      });
}

/// Adds the columns to the pixels they came from.
template <bool kRows, class T>
void fold(const Conv2dGeometry& g, T* image, const T* columns, int64_t row_begin, int64_t row_end) {
  for_each_run<kRows>(g, image, columns, row_begin, row_end,
                      [](const T* from, T* to, int64_t first, int64_t last, int64_t, int64_t stride) {
                        for (int64_t i = first; i < last; ++i) to[i * stride] += from[i];
                      });
}

/// One group of one image, and a band of its output rows.
template <bool kRows>
struct Band {
  const Plan& plan;
  int64_t image, group, row_begin, row_end;

  int64_t pixels() const { return (row_end - row_begin) * plan.g.width.output; }
  /// First element of this group in x; channels are in_pixels() apart for NCHW and adjacent for NHWC.
  int64_t x_offset() const {
    const Conv2dGeometry& g = plan.g;
    return image * g.in_channels * g.in_pixels() + group * g.group_in() * (kRows ? g.in_pixels() : 1);
  }
  /// The band of y, (channels x pixels).
  template <class T>
  MatrixView<T> y_matrix(T* y) const {
    const Conv2dGeometry& g = plan.g;
    y += image * g.out_channels * g.out_pixels() + group * g.group_out() * (kRows ? g.out_pixels() : 1) +
         row_begin * g.width.output * (kRows ? 1 : g.out_channels);
    return {y, g.group_out(), pixels(), kRows ? g.out_pixels() : g.out_channels, kRows};
  }
  /// The filters of this group, (channels x K).
  template <class T>
  MatrixView<T> weight_matrix(T* weight) const {
    const int64_t rows = plan.g.group_out();
    return {weight + group * rows * plan.k, rows, plan.k, plan.k};
  }
  /// Columns in scratch, or for pointwise filters the band of x itself.
  template <class T>
  MatrixView<T> columns_matrix(T* x, T* scratch) const {
    const Conv2dGeometry& g = plan.g;
    if (!plan.in_place) return {scratch, plan.k, pixels(), kRows ? pixels() : plan.k, kRows};
    x += x_offset() + row_begin * g.width.output * (kRows ? 1 : g.in_channels);
    return {x, plan.k, pixels(), kRows ? g.in_pixels() : g.in_channels, kRows};
  }
};

/// Calls body(band) for all bands of the images [image_begin, image_end).
template <bool kRows, class Body>
void for_each_band(const Plan& plan, int64_t image_begin, int64_t image_end, Body body) {
  for (int64_t image = image_begin; image < image_end; ++image) {
    for (int64_t group = 0; group < plan.g.groups; ++group) {
      for (int64_t row = 0; row < plan.g.height.output; row += plan.band_rows) {
        body(Band<kRows>{plan, image, group, row, std::min(row + plan.band_rows, plan.g.height.output)});
      }
    }
  }
}

/// Calls body(slot, begin, end) on every thread with its share of `count` items.
template <class Body>
void for_each_slot(const Plan& plan, int64_t count, Body body) {
  parallel_for(plan.slots, 1, [&](int64_t first, int64_t last) {
    for (int64_t slot = first; slot < last; ++slot) {
      body(slot, count * slot / plan.slots, count * (slot + 1) / plan.slots);
    }
  });
}

/// Adds bias[i] to row i.
template <bool kRows, class T>
void add_bias(const T* bias, const MatrixView<T>& out) {
  const int64_t count = kRows ? out.rows : out.columns, length = kRows ? out.columns : out.rows;
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j < length; ++j) out.data[i * out.stride + j] += bias[kRows ? i : j];
  }
}

template <class T, bool kRows>
void forward(const KernelContext& context, const Plan& plan) {
  const T* x = context.input(0).as<const T>();
  const T* weight = context.input(1).as<const T>();
  const T* bias = context.has_input(2) ? context.input(2).as<const T>() : nullptr;
  T* y = context.output(0).as<T>();
  for_each_slot(plan, plan.g.batch, [&](int64_t slot, int64_t begin, int64_t end) {
    T* columns = plan.columns<T>(context.workspace(), slot);
    for_each_band<kRows>(plan, begin, end, [&](const Band<kRows>& band) {
      if (!plan.in_place) unfold<kRows>(plan.g, x + band.x_offset(), columns, band.row_begin, band.row_end);
      const MatrixView<T> out = band.y_matrix(y);
      multiply_matrices(band.weight_matrix(weight), band.columns_matrix(x, static_cast<const T*>(columns)),
                        out);
      if (bias != nullptr) add_bias<kRows>(bias + band.group * plan.g.group_out(), out);
    });
  });
}

template <class T, bool kRows>
void grad_input(const KernelContext& context, const Plan& plan) {
  const T* dy = context.input(0).as<const T>();
  const T* weight = context.input(1).as<const T>();
  T* dx = context.output(0).as<T>();
  const int64_t image_count = plan.g.in_channels * plan.g.in_pixels();
  for_each_slot(plan, plan.g.batch, [&](int64_t slot, int64_t begin, int64_t end) {
    T* columns = plan.columns<T>(context.workspace(), slot);
    if (!plan.in_place) std::fill(dx + begin * image_count, dx + end * image_count, T{0});
    for_each_band<kRows>(plan, begin, end, [&](const Band<kRows>& band) {
      multiply_matrices(band.weight_matrix(weight).transposed(), band.y_matrix(dy),
                        band.columns_matrix(dx, columns));
      if (!plan.in_place) fold<kRows>(plan.g, dx + band.x_offset(), columns, band.row_begin, band.row_end);
    });
  });
}

template <class T, bool kRows>
void grad_weight(const KernelContext& context, const Plan& plan) {
  const T* x = context.input(0).as<const T>();
  const T* dy = context.input(1).as<const T>();
  T* dweight = context.output(0).as<T>();
  const int64_t count = plan.g.weight_count();
  const int64_t batch = plan.g.batch;
  for_each_slot(plan, plan.chunks, [&](int64_t slot, int64_t chunk_begin, int64_t chunk_end) {
    T* columns = plan.columns<T>(context.workspace(), slot);
    for (int64_t chunk = chunk_begin; chunk < chunk_end; ++chunk) {
      T* partial = plan.partial<T>(context.workspace(), chunk);
      std::fill_n(partial, count, T{0});
      const int64_t begin = batch * chunk / plan.chunks, end = batch * (chunk + 1) / plan.chunks;
      for_each_band<kRows>(plan, begin, end, [&](const Band<kRows>& band) {
        if (!plan.in_place) unfold<kRows>(plan.g, x + band.x_offset(), columns, band.row_begin, band.row_end);
        const auto unfolded = band.columns_matrix(x, static_cast<const T*>(columns));
        multiply_matrices(band.y_matrix(dy), unfolded.transposed(), band.weight_matrix(partial), true);
      });
    }
  });
  parallel_for(count, 16384, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) dweight[i] = plan.partial<T>(context.workspace(), 0)[i];
    for (int64_t chunk = 1; chunk < plan.chunks; ++chunk) {
      const T* partial = plan.partial<T>(context.workspace(), chunk);
      for (int64_t i = begin; i < end; ++i) dweight[i] += partial[i];
    }
  });
}

template <class T, bool kRows>
void run_typed(const KernelContext& context, const Conv2dGeometry& geometry, Conv2dPass pass) {
  const Plan plan(geometry, pass, sizeof(T), context.threads());
  switch (pass) {
    case Conv2dPass::kForward:
      return forward<T, kRows>(context, plan);
    case Conv2dPass::kGradInput:
      return grad_input<T, kRows>(context, plan);
    case Conv2dPass::kGradWeight:
      return grad_weight<T, kRows>(context, plan);
  }
}

template <class T>
void run_ordered(const KernelContext& context, const Conv2dGeometry& geometry, Conv2dPass pass) {
  if (geometry.layout == Layout::kNCHW) {
    run_typed<T, true>(context, geometry, pass);
  } else {
    run_typed<T, false>(context, geometry, pass);
  }
}

}  // namespace

bool conv2d_im2col_can_run(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64;
}

size_t conv2d_im2col_workspace(const Conv2dGeometry& geometry, Conv2dPass pass, DType dtype, int threads) {
  return Plan(geometry, pass, size_of(dtype), threads).workspace_bytes();
}

void run_conv2d_im2col(const KernelContext& context, const Conv2dGeometry& geometry, Conv2dPass pass) {
  if (context.input(0).dtype == DType::kFloat32) {
    run_ordered<float>(context, geometry, pass);
  } else {
    run_ordered<double>(context, geometry, pass);
  }
}

}  // namespace sinter::ops
