// Small tables of numbers on their way to a device.
#pragma once

#include <algorithm>
#include <vector>

#include <sinter/core/runtime/backend.h>
#include <sinter/core/tensor/transfer.h>

namespace sinter::nn {

/// `values` on `device`, in the order of its current stream; the host does not wait.
template <class T>
Tensor device_table(const std::vector<T>& values, const Shape& shape, Device device) {
  if (device.is_cpu()) return Tensor::from_values(values, shape);
  const Tensor host = Tensor::empty_pinned(shape, dtype_of<T>, device);
  std::ranges::copy(values, static_cast<T*>(host.raw_data()));
  return to_async(host, device);
}

}  // namespace sinter::nn
