// Max pooling on a GPU with gaps between a window's elements, and with windows or images that take 64-bit
// indices: plain loops over the kernel, a thread for each element. The usual ones are in max_pool_cuda.cu.
#include <limits>

#include <sinter/ops/pool/pool_cuda.h>

namespace sinter::ops {
namespace {

/// Row by row through the window; the first of equal elements stays.
template <class T, class Place>
struct AnyMaxPool {
  using C = compute_type<T>;
  using I = int64_t;

  const T* x;
  T* y;
  Place* places;

  AnyMaxPool at(int64_t, int64_t) const { return *this; }
  __device__ void operator()(const PoolImages<int64_t>& images, I n, I oy, I ox, I channel, I out) const {
    const auto rows = images.y.taps(oy), columns = images.x.taps(ox);
    C best = -std::numeric_limits<C>::infinity();
    // Should all be -infinity: the first place inside the image, or one outside if there is none inside.
    I best_place = rows.begin * images.x.kernel + columns.begin;
    for (I down = rows.begin; down < rows.end; ++down) {
      const I row = images.y.start(oy) + down * images.y.dilation;
      for (I across = columns.begin; across < columns.end; ++across) {
        const I column = images.x.start(ox) + across * images.x.dilation;
        const C value = cuda::load_as_compute(x[images.image(n, row, column, channel)]);
        if (!pool_takes(value, best)) continue;
        best = value;
        best_place = down * images.x.kernel + across;
      }
    }
    y[out] = cuda::round_to<T>(best);
    places[out] = static_cast<Place>(best_place);
  }
};

/// Gathers from the windows that have the pixel, so that no two threads write to one place.
template <class T, class Place>
struct AnyMaxPoolGrad {
  using C = compute_type<T>;
  using I = int64_t;

  const T* dy;
  const Place* places;
  T* dx;

  AnyMaxPoolGrad at(int64_t, int64_t) const { return *this; }
  __device__ void operator()(const PoolImages<int64_t>& images, I n, I iy, I ix, I channel, I in) const {
    const auto rows = images.windows_of_row(iy), columns = images.windows_of_column(ix);
    C sum{0};
    for (I oy = rows.begin; oy < rows.end; ++oy) {
      const I down = images.y.tap_at(oy, iy);
      if (down < 0) continue;
      for (I ox = columns.begin; ox < columns.end; ++ox) {
        const I across = images.x.tap_at(ox, ix);
        if (across < 0) continue;
        const I out = images.pooled(n, oy, ox, channel);
        const auto place = static_cast<Place>(down * images.x.kernel + across);
        if (places[out] == place) sum += cuda::load_as_compute(dy[out]);
      }
    }
    dx[in] = cuda::round_to<T>(sum);
  }
};

}  // namespace

void run_any_max_pool_cuda(const KernelContext& context) {
  const auto& options = context.attributes<PoolAttributes>();
  const PoolGeometry geometry = pool_geometry(context.input(0).shape, options, "max_pool2d");
  dispatch_pool(context.input(0).dtype, context.output(1).dtype, "max_pool2d", [&]<class T, class Place> {
    const T* x = context.input(0).as<const T>();
    T* y = context.output(0).as<T>();
    Place* places = context.output(1).as<Place>();
    launch_pool<1, int64_t>(context.stream(), geometry, options.layout, false, false, [=]<int, class> {
      return AnyMaxPool<T, Place>{x, y, places};
    });
  });
}

void run_any_max_pool_grad_cuda(const KernelContext& context) {
  const PoolAttributes& options = context.attributes<PoolGradOptions>().pool;
  const PoolGeometry geometry = pool_geometry(context.output(0).shape, options, "max_pool2d_grad");
  dispatch_pool(context.input(0).dtype, context.input(1).dtype, "max_pool2d_grad", [&]<class T, class Place> {
    const T* dy = context.input(0).as<const T>();
    const Place* places = context.input(1).as<const Place>();
    T* dx = context.output(0).as<T>();
    launch_pool<1, int64_t>(context.stream(), geometry, options.layout, true, false, [=]<int, class> {
      return AnyMaxPoolGrad<T, Place>{dy, places, dx};
    });
  });
}

}  // namespace sinter::ops
