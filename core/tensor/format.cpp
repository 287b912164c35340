#include <algorithm>
#include <cmath>
#include <ostream>

#include <sinter/core/runtime/backend.h>
#include <sinter/core/tensor/format.h>
#include <sinter/core/tensor/host_read.h>

namespace sinter {
namespace {

/// One element in words.
template <class T>
std::string element_text(T value, int precision) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_integral_v<T>) {
    return fmt::format("{}", static_cast<int64_t>(value));
  } else {
    return fmt::format("{:.{}g}", static_cast<double>(value), precision);
  }
}

/// Writes the values of one tensor: first the texts of all shown elements, then the brackets around them, so
/// that columns can be aligned.
class ValueWriter {
 public:
  ValueWriter(const Tensor& tensor, const TensorFormat& format)
      : tensor_(tensor), format_(format), abridged_(tensor.numel() > format.threshold) {}

  std::string write() {
    if (abridged_) {
      read_axis(0, 0);
    } else {
      read(0, tensor_.numel());
    }
    for (const std::string& text : texts_) width_ = std::max(width_, text.size());
    std::string text;
    write_axis(0, text);
    return text;
  }

 private:
  int64_t extent(int axis) const { return tensor_.shape()[axis]; }
  /// Whether the middle of an axis is left out.
  bool is_cut(int axis) const { return abridged_ && extent(axis) > 2 * format_.edge; }

  /// Copies elements from the device and turns them into texts.
  void read(int64_t first, int64_t count) {
    note_host_read(tensor_);
    dispatch_all(tensor_.dtype(), "to_string", [&]<class T> {
      const auto values = std::make_unique<T[]>(static_cast<size_t>(std::max<int64_t>(count, 1)));
      copy_bytes(values.get(), Device::cpu(), static_cast<const T*>(tensor_.raw_data()) + first,
                 tensor_.device(), static_cast<size_t>(count) * sizeof(T));
      synchronize(tensor_.device());
      for (int64_t i = 0; i < count; ++i)
        texts_.push_back(element_text(values[static_cast<size_t>(i)], format_.precision));
    });
  }

  /// Reads what is shown of the part that begins at element `first` and has the axes from `axis` on.
  void read_axis(int axis, int64_t first) {
    const int64_t shown = is_cut(axis) ? format_.edge : extent(axis);
    const int64_t stride = tensor_.shape().stride(axis);
    const auto read_part = [&](int64_t begin, int64_t count) {
      if (axis == tensor_.rank() - 1) return read(first + begin, count);
      for (int64_t i = begin; i < begin + count; ++i) read_axis(axis + 1, first + i * stride);
    };
    read_part(0, shown);
    if (is_cut(axis)) read_part(extent(axis) - shown, shown);
  }

  void write_axis(int axis, std::string& text) {
    if (axis == tensor_.rank()) {
      const std::string& own = texts_[next_++];
      if (tensor_.rank() > 0) text.append(width_ - own.size(), ' ');
      text += own;
      return;
    }
    const bool is_last = axis == tensor_.rank() - 1;
    const std::string separator =
        is_last ? ", "
                : "," + std::string(static_cast<size_t>(tensor_.rank() - axis - 1), '\n') +
                      std::string(static_cast<size_t>(axis) + 1, ' ');
    const int64_t shown = is_cut(axis) ? 2 * format_.edge : extent(axis);
    text += "[";
    for (int64_t i = 0; i < shown; ++i) {
      if (i > 0) text += separator;
      if (is_cut(axis) && i == format_.edge) text += "..." + separator;
      write_axis(axis + 1, text);
    }
    text += "]";
  }

  const Tensor& tensor_;
  const TensorFormat& format_;
  const bool abridged_;
  std::vector<std::string> texts_;
  size_t width_ = 0;
  size_t next_ = 0;
};

}  // namespace

std::string to_string(const Tensor& tensor, const TensorFormat& format) {
  if (!tensor.defined()) return "undefined tensor";
  SINTER_CHECK(format.precision > 0 && format.edge > 0,
               "[tensor] expected a precision and an edge above 0 but got {} and {}", format.precision,
               format.edge);
  return to_string(tensor.spec()) + "\n" + ValueWriter(tensor, format).write();
}

std::ostream& operator<<(std::ostream& stream, const Tensor& tensor) {
  return stream << to_string(tensor);
}

}  // namespace sinter
