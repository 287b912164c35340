// Padding on the CPU works on rows: the last padded axis together with all axes behind it.
#include <algorithm>
#include <cstring>

#include <sinter/core/op/kernel.h>
#include <sinter/core/op/registry.h>
#include <sinter/core/runtime/thread_pool.h>
#include <sinter/ops/common/cpu/copy_rows_cpu.h>
#include <sinter/ops/common/element_bits.h>
#include <sinter/ops/pad/pad_math.h>

namespace sinter::ops {
namespace {

constexpr int64_t kGrainElements = 16384;

/// A padded tensor and the plain one inside of it, in rows.
struct PadRows {
  PadRows(const Shape& plain_shape, const PadAttributes& pad) : mode(pad.mode) {
    const auto last = std::find_if(pad.padding.rbegin(), pad.padding.rend(),
                                   [](const auto& pair) { return pair[0] != 0 || pair[1] != 0; });
    const int row_axis = std::max(0, static_cast<int>(pad.padding.rend() - last) - 1);
    leading = row_axis;
    for (int axis = 0; axis < leading; ++axis) {
      const auto i = static_cast<size_t>(axis);
      plain[i] = plain_shape[axis];
      before[i] = pad.padding[i][0];
      padded[i] = plain[i] + before[i] + pad.padding[i][1];
      rows *= padded[i];
      if (rows_are_independent && before[i] == 0 && pad.padding[i][1] == 0) {
        independent *= plain[i];
      } else {
        rows_are_independent = false;
      }
    }
    if (plain_shape.rank() == 0) return;
    const auto i = static_cast<size_t>(row_axis);
    extent = plain_shape[row_axis];
    inner = plain_shape.stride(row_axis);
    row_before = pad.padding[i][0];
    row_after = pad.padding[i][1];
  }

  int64_t plain_length() const { return extent * inner; }
  int64_t padded_length() const { return (row_before + extent + row_after) * inner; }
  int64_t plain_rows() const {
    int64_t product = 1;
    for (size_t i = 0; i < static_cast<size_t>(leading); ++i) product *= plain[i];
    return product;
  }
  /// The plain row that the padded row `row` repeats, or -1.
  int64_t source(int64_t row) const {
    if (independent == rows) return row;
    int64_t from = 0, scale = 1;
    for (int axis = leading - 1; axis >= 0; --axis) {
      const auto i = static_cast<size_t>(axis);
      const int64_t at = pad_source(row % padded[i], before[i], plain[i], mode);
      if (at < 0) return -1;
      from += at * scale;
      scale *= plain[i];
      row /= padded[i];
    }
    return from;
  }
  /// The padded row in which the plain row `row` lies.
  int64_t target(int64_t row) const {
    if (independent == rows) return row;
    int64_t to = 0, scale = 1;
    for (int axis = leading - 1; axis >= 0; --axis) {
      const auto i = static_cast<size_t>(axis);
      to += (row % plain[i] + before[i]) * scale;
      scale *= padded[i];
      row /= plain[i];
    }
    return to;
  }

  PadMode mode;
  int leading = 0;  // axes before the row's
  std::array<int64_t, kMaxRank> plain{}, padded{}, before{};
  int64_t rows = 1;         // of the padded tensor
  int64_t independent = 1;  // product of the leading extents that no padding mixes
  int64_t extent = 1, inner = 1, row_before = 0, row_after = 0;

 private:
  bool rows_are_independent = true;
};

template <class T>
void fill_row(const PadRows& rows, const T* from, T* to, T value) {
  const int64_t begin = rows.row_before * rows.inner;
  const int64_t end = begin + rows.plain_length();
  if (rows.mode == PadMode::kConstant) {
    std::fill(to, to + begin, value);
    std::fill(to + end, to + rows.padded_length(), value);
  } else {
    const auto copy_unit = [&](int64_t unit) {
      const T* source = from + pad_source(unit, rows.row_before, rows.extent, rows.mode) * rows.inner;
      std::copy_n(source, rows.inner, to + unit * rows.inner);
    };
    for (int64_t unit = 0; unit < rows.row_before; ++unit) copy_unit(unit);
    for (int64_t unit = 0; unit < rows.row_after; ++unit) copy_unit(rows.row_before + rows.extent + unit);
  }
  copy_bytes(to + begin, from, rows.plain_length() * static_cast<int64_t>(sizeof(T)));
}

/// The element `value` of `dtype`, in the first bytes.
std::array<std::byte, 8> bits_of(double value, DType dtype) {
  std::array<std::byte, 8> bits{};
  dispatch_all(dtype, "pad", [&]<class T> {
    const T rounded = static_cast<T>(value);
    std::memcpy(bits.data(), &rounded, sizeof(T));
  });
  return bits;
}

void run_pad(const KernelContext& context) {
  const TensorView& x = context.input(0);
  const TensorView& y = context.output(0);
  if (y.numel() == 0) return;
  const auto& pad = context.attributes<PadAttributes>();
  const PadRows rows(x.shape, pad);
  const std::array<std::byte, 8> value_bits = bits_of(pad.value, x.dtype);
  dispatch_bits(x.dtype, [&]<class T> {
    T value;
    std::memcpy(&value, &value_bits, sizeof(T));
    const int64_t length = rows.padded_length();
    parallel_for(rows.rows, std::max<int64_t>(1, kGrainElements / length), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t source = rows.source(row);
        T* to = y.as<T>() + row * length;
        if (source < 0) {
          std::fill_n(to, length, value);
        } else {
          fill_row(rows, x.as<const T>() + source * rows.plain_length(), to, value);
        }
      }
    });
  });
}

/// Under kConstant every element of dx has one element of dy.
template <class T>
void crop(const PadRows& rows, const T* dy, T* dx) {
  const int64_t length = rows.plain_length();
  parallel_for(
      rows.plain_rows(), std::max<int64_t>(1, kGrainElements / length), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const T* from = dy + rows.target(row) * rows.padded_length() + rows.row_before * rows.inner;
          copy_bytes(dx + row * length, from, length * static_cast<int64_t>(sizeof(T)));
        }
      });
}

/// Adds the rows of dy to zeros in `sums` in their order; the leading axes that no padding mixes run in
/// parallel.
template <class T>
void accumulate(const PadRows& rows, const T* dy, compute_type<T>* sums) {
  using C = compute_type<T>;
  const int64_t rows_each = rows.rows / rows.independent;
  const int64_t plain_each = rows.plain_rows() / rows.independent * rows.plain_length();
  const int64_t work = rows_each * rows.padded_length();
  const int64_t units = rows.row_before + rows.extent + rows.row_after;
  parallel_for(rows.independent, std::max<int64_t>(1, kGrainElements / work),
               [&](int64_t begin, int64_t end) {
                 std::fill(sums + begin * plain_each, sums + end * plain_each, C{0});
                 for (int64_t row = begin * rows_each; row < end * rows_each; ++row) {
                   const T* from = dy + row * rows.padded_length();
                   C* to = sums + rows.source(row) * rows.plain_length();
                   for (int64_t unit = 0; unit < units; ++unit) {
                     C* target = to + pad_source(unit, rows.row_before, rows.extent, rows.mode) * rows.inner;
                     for (int64_t i = 0; i < rows.inner; ++i)
                       target[i] += static_cast<C>(from[unit * rows.inner + i]);
                   }
                 }
               });
}

size_t pad_grad_workspace(const KernelQuery& query) {
  const TensorSpec& dx = query.output(0);
  if (query.attributes<PadAttributes>().mode == PadMode::kConstant || !is_half(dx.dtype)) return 0;
  return static_cast<size_t>(dx.shape.numel()) * sizeof(float);
}

void run_pad_grad(const KernelContext& context) {
  const TensorView& dy = context.input(0);
  const TensorView& dx = context.output(0);
  if (dx.numel() == 0) return;
  const PadRows rows(dx.shape, context.attributes<PadAttributes>());
  if (rows.mode == PadMode::kConstant) {
    dispatch_bits(dx.dtype, [&]<class T> { crop(rows, dy.as<const T>(), dx.as<T>()); });
    return;
  }
  dispatch_float(dx.dtype, "pad_grad", [&]<class T> {
    if constexpr (std::is_same_v<T, compute_type<T>>) {
      accumulate(rows, dy.as<const T>(), dx.as<T>());
    } else {
      auto* sums = context.workspace<float>();
      accumulate(rows, dy.as<const T>(), sums);
      parallel_for(dx.numel(), kGrainElements, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) dx.as<T>()[i] = static_cast<T>(sums[i]);
      });
    }
  });
}

}  // namespace

void register_pad_cpu(OpRegistry& registry);
void register_pad_cpu(OpRegistry& registry) {
  registry.add_kernel("pad", {.device = DeviceType::kCpu, .run = run_pad});
  registry.add_kernel(
      "pad_grad", {.device = DeviceType::kCpu, .workspace_bytes = pad_grad_workspace, .run = run_pad_grad});
}

}  // namespace sinter::ops
