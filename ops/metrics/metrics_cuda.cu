// A row is counted by the threads that hold it in registers, or by a warp if it is too long. Atomic additions
// of integers give the same result in any order.
#include <limits>

#include <sinter/core/cuda/device/device_types.h>
#include <sinter/core/cuda/device/launch.h>
#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/ops/common/rows/resident_rows_cuda.h>
#include <sinter/ops/metrics/metrics_math.h>

namespace sinter::ops {
namespace {

constexpr unsigned kThreads = 256;
constexpr int kWarp = 32;
constexpr int64_t kRowsPerBlock = kThreads / kWarp;

template <class T>
__global__ void count_ranks_kernel(int64_t rows, int64_t classes, int64_t last, const T* logits,
                                   const int64_t* targets, unsigned long long* counts) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int64_t row = blockIdx.x * kRowsPerBlock + threadIdx.x / kWarp; row < rows;
       row += gridDim.x * kRowsPerBlock) {
    const int64_t target = targets[row];
    if (target < 0 || target >= classes) continue;  // the whole warp agrees
    const T* x = logits + row * classes;
    const auto own = cuda::load_as_compute(x[target]);
    int64_t place = 0;
    for (int64_t c = lane; c < classes; c += kWarp) {
      place += comes_before(cuda::load_as_compute(x[c]), c, own, target) ? 1 : 0;
    }
    for (int step = kWarp / 2; step > 0; step /= 2) place += __shfl_xor_sync(0xffffffffu, place, step);
    if (lane == 0) atomicAdd(counts + min(place, last), 1ull);
  }
}

/// count_ranks_kernel for rows in registers.
template <class T>
struct ResidentRanks {
  static constexpr int kArrays = 1;
  using C = compute_type<T>;

  template <class Row, class Reduce>
  __device__ void run(const Row& row, int64_t number, int64_t first, Reduce reduce) const {
    typename Row::Values values;
    row.load(logits + first, -std::numeric_limits<C>::infinity(), values);
    const int64_t target = targets[number];
    if (target < 0 || target >= classes) return;  // all threads of the row agree
    const C own = cuda::load_as_compute(logits[first + target]);
    const auto own_column = static_cast<unsigned>(target);
    int place = 0;
    if (own == own) {
      // NaN comes first and compares false. Elements outside of the row come last: those in front of it have
      // negative columns, the largest ones here.
      row.each(
          [&](int column, C value) {
            const bool is_before = value == own && static_cast<unsigned>(column) < own_column;
            place += !(value <= own) || is_before ? 1 : 0;
          },
          values);
    } else {
      row.each(
          [&](int column, C value) {
            place += value != value && static_cast<unsigned>(column) < own_column ? 1 : 0;
          },
          values);
    }
    place = reduce(place, SumOf{});
    if (row.leads()) atomicAdd(counts + min(int64_t{place}, last), 1ull);
  }

  int64_t classes, last;
  const T* logits;
  const int64_t* targets;
  unsigned long long* counts;
};

void run_count_ranks(const KernelContext& context) {
  const TensorView& logits = context.input(1);
  const int64_t rows = logits.shape[0];
  if (rows == 0) return;
  dispatch_float(logits.dtype, "count_ranks_", [&]<class T> {
    const int64_t classes = logits.shape[1], last = context.input(0).numel() - 1;
    const T* x = logits.as<const T>();
    const auto* targets = context.input(2).as<const int64_t>();
    auto* counts = context.input(0).as<unsigned long long>();
    const ResidentRanks<T> resident{classes, last, x, targets, counts};
    if (launch_resident_rows<T>(context.stream(), rows, classes, resident, {x})) return;
    cuda::launch(context.stream(), cuda::grid_stride_shape(rows, kRowsPerBlock, kThreads),
                 count_ranks_kernel<T>, rows, classes, last, x, targets, counts);
  });
}

template <class T>
__global__ void add_to_mean_kernel(double* totals, const T* value, double weight) {
  add_to_totals(totals, static_cast<double>(cuda::load_as_compute(*value)), weight);
}

void run_add_to_mean(const KernelContext& context) {
  dispatch_float(context.input(1).dtype, "add_to_mean_", [&]<class T> {
    cuda::launch(context.stream(), {dim3(1), dim3(1)}, add_to_mean_kernel<T>, context.input(0).as<double>(),
                 context.input(1).as<const T>(), context.attributes<AddToMeanAttributes>().weight);
  });
}

}  // namespace

void register_metrics_cuda(OpRegistry& registry);
void register_metrics_cuda(OpRegistry& registry) {
  registry.add_kernel("count_ranks_", {.device = DeviceType::kCuda, .run = run_count_ranks});
  registry.add_kernel("add_to_mean_", {.device = DeviceType::kCuda, .run = run_add_to_mean});
}

}  // namespace sinter::ops
