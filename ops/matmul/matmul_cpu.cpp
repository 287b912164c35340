// CPU kernels of matmul, linear and its gradients: batches of Eigen's matrix products.
#include <algorithm>
#include <type_traits>
#include <vector>

#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/cpu/matrix_product_cpu.h>
#include <sinter/ops/common/op_support.h>
#include <sinter/ops/gemv/batch.h>
#include <sinter/ops/matmul/matmul.h>
#include <sinter/ops/reduce/reduce_cpu.h>

namespace sinter::ops {
namespace {

constexpr int64_t kGrainProducts = 1 << 16;  // multiplications below which a thread does not pay
constexpr int64_t kTile = 64;                // rows or columns that a thread takes at least

/// c (m, n) = op(a) (m, k) op(b) (k, n) for `batch` triples, all row-major and dense; op transposes if asked
/// to. Matrix i of the batch lies at a[a_index[i]], b[b_index[i]] and c[i], counted in matrices.
struct Products {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  std::vector<int64_t> a_index{0}, b_index{0};

  int64_t batch() const { return static_cast<int64_t>(a_index.size()); }
};

/// Rows and columns of c that one call of Eigen computes. Eigen sums in blocks whose size depends on the
/// extents it is given, so the tiles must not depend on the number of threads.
struct TileGrid {
  int64_t rows, columns;  // of a tile
  int64_t down, across;   // tiles

  explicit TileGrid(const Products& p) : rows(p.m), columns(p.n), down(1), across(1) {
    // Few large tiles keep Eigen's packing cheap; up to 16 of them serve that many threads.
    constexpr int64_t most = 16;
    const int64_t wanted =
        std::clamp<int64_t>(p.m * p.n / (kTile * kTile), 1, std::max<int64_t>(1, most / p.batch()));
    if (p.batch() >= most || p.m * p.n * p.k < 2 * kGrainProducts) return;
    if (p.m >= p.n) {
      down = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(p.m / kTile, 1));
      rows = (p.m + down - 1) / down;
    } else {
      across = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(p.n / kTile, 1));
      columns = (p.n + across - 1) / across;
    }
  }
  int64_t count() const { return down * across; }
};

template <class C>
void multiply_tile(const Products& p, const TileGrid& grid, int64_t tile, const C* a, const C* b,
                   const C* bias, C* c) {
  const int64_t row = tile / grid.across * grid.rows, column = tile % grid.across * grid.columns;
  const int64_t rows = std::min(grid.rows, p.m - row), columns = std::min(grid.columns, p.n - column);
  if (rows <= 0 || columns <= 0) return;
  // The tile's rows of op(a) and columns of op(b), where they lie in a and b.
  const MatrixView<const C> left = p.transpose_a ? MatrixView<const C>{a + row, p.k, rows, p.m}.transposed()
                                                 : MatrixView<const C>{a + row * p.k, rows, p.k, p.k};
  const MatrixView<const C> right =
      p.transpose_b ? MatrixView<const C>{b + column * p.k, columns, p.k, p.k}.transposed()
                    : MatrixView<const C>{b + column, p.k, columns, p.n};
  C* out = c + row * p.n + column;
  multiply_matrices(left, right, MatrixView<C>{out, rows, columns, p.n});
  if (bias == nullptr) return;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) out[i * p.n + j] += bias[column + j];
  }
}

template <class C>
void multiply(const Products& p, const C* a, const C* b, const C* bias, C* c) {
  if (p.m == 0 || p.n == 0 || p.batch() == 0) return;
  const TileGrid grid(p);
  const int64_t products = std::max<int64_t>(grid.rows * grid.columns * p.k, 1);
  parallel_for(p.batch() * grid.count(), std::max<int64_t>(1, kGrainProducts / products),
               [&](int64_t begin, int64_t end) {
                 for (int64_t item = begin; item < end; ++item) {
                   const int64_t i = item / grid.count();
                   multiply_tile(p, grid, item % grid.count(),
                                 a + p.a_index[static_cast<size_t>(i)] * p.m * p.k,
                                 b + p.b_index[static_cast<size_t>(i)] * p.k * p.n, bias, c + i * p.m * p.n);
                 }
               });
}

template <class To, class From>
void convert(const From* from, To* to, int64_t count) {
  parallel_for(count, 16384, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = static_cast<To>(static_cast<compute_type<From>>(from[i]));
  });
}

/// Runs the products on the context's inputs `left` and `right` (and the bias, if there is an input 2); the
/// 16-bit types are converted to float and back through the workspace.
void run_products(const KernelContext& context, const Products& p) {
  const TensorView& a = context.input(0);
  const TensorView& b = context.input(1);
  const TensorView& c = context.output(0);
  const TensorView bias = context.has_input(2) ? context.input(2) : TensorView{};
  dispatch_float(a.dtype, "matmul", [&]<class T> {
    using C = compute_type<T>;
    if constexpr (std::is_same_v<T, C>) {
      multiply<C>(p, a.as<const C>(), b.as<const C>(), bias.as<const C>(), c.as<C>());
    } else {
      C* a_values = context.workspace<C>();
      C* b_values = a_values + a.numel();
      C* c_values = b_values + b.numel();
      C* bias_values = bias.present ? c_values + c.numel() : nullptr;
      convert(a.as<const T>(), a_values, a.numel());
      convert(b.as<const T>(), b_values, b.numel());
      if (bias.present) convert(bias.as<const T>(), bias_values, bias.numel());
      multiply<C>(p, a_values, b_values, bias_values, c_values);
      convert(c_values, c.as<T>(), c.numel());
    }
  });
}

size_t workspace_bytes(const KernelQuery& query) {
  if (!is_half(query.input(0).dtype)) return 0;
  int64_t count = query.output(0).shape.numel();
  for (size_t i = 0; i < query.input_count(); ++i) {
    if (query.has_input(i)) count += query.input(i).shape.numel();
  }
  return static_cast<size_t>(count) * sizeof(float);
}

std::vector<int64_t> broadcast_indices(const Shape& from, const Shape& to) {
  std::vector<int64_t> indices(static_cast<size_t>(to.numel()));
  for (int64_t i = 0; i < to.numel(); ++i) indices[static_cast<size_t>(i)] = batch_item(from, to, i);
  return indices;
}

void run_matmul(const KernelContext& context) {
  const auto& options = context.attributes<MatmulOptions>();
  const Shape& a = context.input(0).shape;
  const Shape& b = context.input(1).shape;
  const Shape& y = context.output(0).shape;
  Products p{.m = y[-2],
             .n = y[-1],
             .k = a[options.transpose_a ? -2 : -1],
             .transpose_a = options.transpose_a,
             .transpose_b = options.transpose_b};
  if (b.rank() == 2 && !p.transpose_a) {
    p.m = y.count(0, y.rank() - 1);  // one right side for all: the batch is more rows
  } else {
    p.a_index = broadcast_indices(batch_shape(a, 2), batch_shape(y, 2));
    p.b_index = broadcast_indices(batch_shape(b, 2), batch_shape(y, 2));
  }
  run_products(context, p);
}

void run_linear(const KernelContext& context) {
  const Shape& y = context.output(0).shape;
  const Shape& weight = context.input(1).shape;
  run_products(context, {.m = y.count(0, y.rank() - 1), .n = weight[0], .k = weight[1], .transpose_b = true});
}

void run_linear_grad_weight(const KernelContext& context) {
  const Shape& dy = context.input(0).shape;
  const Shape& x = context.input(1).shape;
  run_products(context, {.m = dy[-1], .n = x[-1], .k = dy.count(0, dy.rank() - 1), .transpose_a = true});
}

void run_linear_grad_weight_bias(const KernelContext& context) {
  run_linear_grad_weight(context);
  sum_to_cpu(context.input(0), context.output(1), context.workspace());
}

size_t linear_grad_weight_bias_workspace(const KernelQuery& query) {
  return std::max(workspace_bytes(query), sum_to_workspace_cpu(query.input(0).shape, query.output(1).shape));
}

}  // namespace

void register_matmul_cpu(OpRegistry& registry);
void register_matmul_cpu(OpRegistry& registry) {
  registry.add_kernel("matmul",
                      {.device = DeviceType::kCpu, .workspace_bytes = workspace_bytes, .run = run_matmul});
  registry.add_kernel("linear",
                      {.device = DeviceType::kCpu, .workspace_bytes = workspace_bytes, .run = run_linear});
  registry.add_kernel(
      "linear_grad_weight",
      {.device = DeviceType::kCpu, .workspace_bytes = workspace_bytes, .run = run_linear_grad_weight});
  registry.add_kernel("linear_grad_weight_bias", {.device = DeviceType::kCpu,
                                                  .workspace_bytes = linear_grad_weight_bias_workspace,
                                                  .run = run_linear_grad_weight_bias});
}

}  // namespace sinter::ops
