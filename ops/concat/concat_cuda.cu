// Joins up to kParts tensors in one launch: on small tensors launches cost more than the copying.
#include <algorithm>

#include <sinter/core/cuda/device/launch.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/axis_split.h>
#include <sinter/ops/common/cuda/copy_units_cuda.h>
#include <sinter/ops/common/cuda/index_divide_cuda.h>
#include <sinter/ops/common/cuda/unaligned_pack_cuda.h>
#include <sinter/ops/common/rows/row_cut.h>
#include <sinter/ops/concat/concat.h>

namespace sinter::ops {
namespace {

constexpr unsigned kThreads = 256;
constexpr int kParts = 32;

/// One input and where its rows go. An item is a unit that is copied in one access, or, of units below 16
/// bytes, a chunk of a row that fills 16 bytes of the output; `units` are those of a row.
template <class Index>
struct Part {
  const void* from = nullptr;
  void* to = nullptr;
  Index count = 0;
  IndexDivide<Index> row_items;
  int64_t units = 0;
};

template <class Index>
struct PartTable {
  Part<Index> parts[kParts];
};

/// blockIdx.y picks the part; rows of the output lie `stride` units apart.
template <class Index, class T>
__global__ void concat_kernel(const __grid_constant__ PartTable<Index> table, int64_t stride) {
  const Part<Index>& part = table.parts[blockIdx.y];
  const auto* const from = static_cast<const T*>(part.from);
  auto* const to = static_cast<T*>(part.to);
  const Index step = static_cast<Index>(gridDim.x) * blockDim.x;
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < part.count; i += step) {
    Index column = 0;
    const auto row = static_cast<int64_t>(part.row_items.divide(i, column));
    to[row * stride + static_cast<int64_t>(column)] = from[i];
  }
}

/// The same for chunks.
template <class Index, class T>
__global__ void __launch_bounds__(kThreads)
    concat_chunks_kernel(const __grid_constant__ PartTable<Index> table, int64_t stride) {
  constexpr int pack = 16 / sizeof(T);
  const Part<Index>& part = table.parts[blockIdx.y];
  const auto place = static_cast<int64_t>(reinterpret_cast<uintptr_t>(part.to) / sizeof(T));
  const Index step = static_cast<Index>(gridDim.x) * kThreads;
  for (Index i = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x; i < part.count; i += step) {
    Index chunk = 0;
    const auto row = static_cast<int64_t>(part.row_items.divide(i, chunk));
    const RowCut<pack, int64_t> cut(place + row * stride, part.units);
    const int64_t first = cut.first(static_cast<int64_t>(chunk));
    const T* const from = static_cast<const T*>(part.from) + row * part.units;
    T* const to = static_cast<T*>(part.to) + row * stride;
    if (cut.is_whole(first)) {
      *reinterpret_cast<cuda::Pack<T, pack>*>(to + first) = load_unaligned<pack>(from + first);
    } else {
#pragma unroll
      for (int j = 0; j < pack; ++j) {
        if (cut.is_inside(first + j)) to[first + j] = from[first + j];
      }
    }
  }
}

/// The inputs that are not empty: where they lie, where their first row goes, and the bytes of a row.
struct Source {
  const void* from;
  std::byte* to;
  int64_t row_bytes;
};

template <class Index, class T>
void launch_parts(const Stream& stream, std::span<const Source> sources, int64_t rows, int64_t stride) {
  constexpr auto unit = static_cast<int64_t>(sizeof(T));
  constexpr bool chunks = unit < 16;
  for (size_t first = 0; first < sources.size(); first += kParts) {
    const auto some = sources.subspan(first, std::min(sources.size() - first, size_t{kParts}));
    PartTable<Index> table;
    int64_t most = 0;
    for (size_t i = 0; i < some.size(); ++i) {
      const int64_t units = some[i].row_bytes / unit;
      const int64_t items = chunks ? RowCut<16 / unit, int64_t>::most_chunks(units) : units;
      table.parts[i] = {some[i].from, some[i].to, static_cast<Index>(items * rows), IndexDivide<Index>(items),
                        units};
      most = std::max(most, items * rows);
    }
    cuda::LaunchShape shape = cuda::grid_stride_shape(most, kThreads, kThreads);
    shape.grid.y = static_cast<unsigned>(some.size());
    cuda::launch(stream, shape, chunks ? concat_chunks_kernel<Index, T> : concat_kernel<Index, T>, table,
                 stride / unit);
  }
}

void run_concat(const KernelContext& context) {
  const TensorView& y = context.output(0);
  const int axis = normalize_axis(context.attributes<ConcatAttributes>().axis, y.shape.rank(), "concat");
  const AxisSplit split = split_at(y.shape, axis);
  if (y.numel() == 0) return;
  const int64_t step = split.inner * static_cast<int64_t>(size_of(y.dtype));
  const int64_t stride = split.extent * step;
  std::vector<Source> sources;
  sources.reserve(context.input_count());
  int64_t unit = widest_unit({stride}), most = 0;
  auto* to = y.as<std::byte>();
  for (size_t i = 0; i < context.input_count(); ++i) {
    const int64_t row_bytes = context.input(i).shape[axis] * step;
    if (row_bytes == 0) continue;
    sources.push_back({context.input(i).data, to, row_bytes});
    unit = widest_unit({unit, address_of(context.input(i).data), address_of(to), row_bytes});
    most = std::max(most, row_bytes * split.outer);
    to += row_bytes;
  }
  dispatch_unit(unit, [&]<class T> {
    dispatch_index(most / unit, [&]<class Index> {
      launch_parts<Index, T>(context.stream(), sources, split.outer, stride);
    });
  });
}

}  // namespace

void register_concat_cuda(OpRegistry& registry);
void register_concat_cuda(OpRegistry& registry) {
  registry.add_kernel("concat", {.device = DeviceType::kCuda, .run = run_concat});
}

}  // namespace sinter::ops
