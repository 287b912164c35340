// Max pooling on a GPU, for the windows that have no strips (max_pool_strips_cuda.h).
#include <limits>

#include <sinter/ops/pool/max_pool_strips_cuda.h>
#include <sinter/ops/pool/pool_cuda.h>

namespace sinter::ops {
namespace {

/// Row by row through the window; the first of equal elements stays.
template <class T, class Place, int pack, class Index>
struct MaxPool {
  using C = compute_type<T>;
  using I = std::make_signed_t<Index>;

  const T* x;
  T* y;
  Place* places;

  MaxPool at(int64_t images, int64_t pooled) const { return {x + images, y + pooled, places + pooled}; }
  __device__ void operator()(const PoolImages<Index>& images, I n, I oy, I ox, I channel, I out) const {
    const auto rows = images.y.inside(oy), columns = images.x.inside(ox);
    // Should all be -infinity: the first place inside the image.
    I place = (rows.begin - images.y.start(oy)) * images.x.kernel + columns.begin - images.x.start(ox);
    C best[pack];
    I best_place[pack];
#pragma unroll
    for (int lane = 0; lane < pack; ++lane) {
      best[lane] = -std::numeric_limits<C>::infinity();
      best_place[lane] = place;
    }
    const I skip =
        images.x.kernel - (columns.end - columns.begin);  // places from one row's end to the next row
    for (I row = rows.begin; row < rows.end; ++row, place += skip) {
      I in = images.image(n, row, columns.begin, channel);
      for (I column = columns.begin; column < columns.end; ++column, ++place, in += images.depth) {
        const auto elements = *reinterpret_cast<const cuda::Pack<T, pack>*>(x + in);
#pragma unroll
        for (int lane = 0; lane < pack; ++lane) {
          const C value = cuda::load_as_compute(elements.values[lane]);
          const bool takes = pool_takes(value, best[lane]);
          best[lane] = takes ? value : best[lane];
          best_place[lane] = takes ? place : best_place[lane];
        }
      }
    }
    cuda::Pack<T, pack> result;
    cuda::Pack<Place, pack> result_places;
#pragma unroll
    for (int lane = 0; lane < pack; ++lane) {
      result.values[lane] = cuda::round_to<T>(best[lane]);
      result_places.values[lane] = static_cast<Place>(best_place[lane]);
    }
    *reinterpret_cast<cuda::Pack<T, pack>*>(y + out) = result;
    *reinterpret_cast<cuda::Pack<Place, pack>*>(places + out) = result_places;
  }
};

/// Gathers from the windows that contain the pixel, so that no two threads write to one place.
template <class T, class Place, int pack, class Index>
struct MaxPoolGrad {
  using C = compute_type<T>;
  using I = std::make_signed_t<Index>;

  const T* dy;
  const Place* places;
  T* dx;

  MaxPoolGrad at(int64_t images, int64_t pooled) const { return {dy + pooled, places + pooled, dx + images}; }
  __device__ void operator()(const PoolImages<Index>& images, I n, I iy, I ix, I channel, I in) const {
    const auto rows = images.windows_of_row(iy), columns = images.windows_of_column(ix);
    C sums[pack];
#pragma unroll
    for (int lane = 0; lane < pack; ++lane) sums[lane] = C{0};
    for (I oy = rows.begin; oy < rows.end; ++oy) {
      const I row_place = (iy - images.y.start(oy)) * images.x.kernel;
      for (I ox = columns.begin; ox < columns.end; ++ox) {
        const I out = images.pooled(n, oy, ox, channel);
        const auto place = static_cast<Place>(row_place + ix - images.x.start(ox));
        const auto slopes = *reinterpret_cast<const cuda::Pack<T, pack>*>(dy + out);
        const auto chosen = *reinterpret_cast<const cuda::Pack<Place, pack>*>(places + out);
#pragma unroll
        for (int lane = 0; lane < pack; ++lane) {
          sums[lane] += chosen.values[lane] == place ? cuda::load_as_compute(slopes.values[lane]) : C{0};
        }
      }
    }
    cuda::Pack<T, pack> result;
#pragma unroll
    for (int lane = 0; lane < pack; ++lane) result.values[lane] = cuda::round_to<T>(sums[lane]);
    *reinterpret_cast<cuda::Pack<T, pack>*>(dx + in) = result;
  }
};

template <class T, class Place>
bool allow_packs(const void* a, const void* b, const void* places) {
  return cuda::is_aligned(a, 16) && cuda::is_aligned(b, 16) &&
         cuda::is_aligned(places, sizeof(cuda::Pack<Place, cuda::kPackSize<T>>));
}

/// Others are left to kernels that take any window and image.
bool suits_packs(const PoolGeometry& geometry, Layout layout) {
  return !geometry.is_dilated() && fits_32_bits(geometry, layout);
}

}  // namespace

void run_max_pool_cuda(const KernelContext& context) {
  const auto& options = context.attributes<PoolAttributes>();
  const PoolGeometry geometry = pool_geometry(context.input(0).shape, options, "max_pool2d");
  if (!suits_packs(geometry, options.layout)) return run_any_max_pool_cuda(context);
  dispatch_pool(context.input(0).dtype, context.output(1).dtype, "max_pool2d", [&]<class T, class Place> {
    const T* x = context.input(0).as<const T>();
    T* y = context.output(0).as<T>();
    Place* places = context.output(1).as<Place>();
    if constexpr (std::is_same_v<Place, uint8_t>) {
      if (options.layout == Layout::kNCHW && try_max_pool_strips(context.stream(), geometry, x, y, places))
        return;
    }
    launch_pool<cuda::kPackSize<T>>(context.stream(), geometry, options.layout, false,
                                    allow_packs<T, Place>(x, y, places), [=]<int pack, class Index> {
                                      return MaxPool<T, Place, pack, Index>{x, y, places};
                                    });
  });
}

void run_max_pool_grad_cuda(const KernelContext& context) {
  const PoolAttributes& options = context.attributes<PoolGradOptions>().pool;
  const PoolGeometry geometry = pool_geometry(context.output(0).shape, options, "max_pool2d_grad");
  if (!suits_packs(geometry, options.layout)) return run_any_max_pool_grad_cuda(context);
  dispatch_pool(context.input(0).dtype, context.input(1).dtype, "max_pool2d_grad", [&]<class T, class Place> {
    const T* dy = context.input(0).as<const T>();
    const Place* places = context.input(1).as<const Place>();
    T* dx = context.output(0).as<T>();
    constexpr int widest = cuda::kPackSize<T>;
    const bool wide = allow_packs<T, Place>(dy, dx, places);
    if constexpr (std::is_same_v<Place, uint8_t>) {
      const auto run = [&]<int pack>() {
        return try_max_pool_grad_strips<pack>(context.stream(), geometry, options.layout, dy, places, dx);
      };
      const bool packs = options.layout == Layout::kNHWC && wide && geometry.channels % widest == 0;
      if (packs ? run.template operator()<widest>() : run.template operator()<1>()) return;
    }
    launch_pool<widest>(context.stream(), geometry, options.layout, true, wide, [=]<int pack, class Index> {
      return MaxPoolGrad<T, Place, pack, Index>{dy, places, dx};
    });
  });
}

}  // namespace sinter::ops
