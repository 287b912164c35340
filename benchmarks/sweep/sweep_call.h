// One case of a sweep on Sinter: its tensors, whose values the PyTorch peer makes too, and its call.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <sinter/core/tensor/tensor.h>

#include "sweep_case.h"

namespace sinter::bench {

/// Tensors whose element i in memory order is a function of i and of the tensor's number, the same as
/// `hashed` in peers/torch_sweep.py gives. Values are repeated after kHashPeriod elements, a prime, so that
/// no shape lies in step with them.
class HashedTensors {
 public:
  static constexpr int64_t kPeriod = 1'000'003;

  explicit HashedTensors(Device device) : device_(device) {}

  /// Odd multiples of 1/128 between -2 and 2, which every floating-point dtype holds exactly.
  Tensor numbers(const Shape& shape, DType dtype, uint64_t which);
  /// Random bits, of any dtype.
  Tensor bits(const Shape& shape, DType dtype, uint64_t which);
  /// Random integers below `count`, or if that is 0 `values` over and over.
  Tensor listed(const Shape& shape, DType dtype, uint64_t which, int64_t count,
                const std::vector<double>& values);

 private:
  Tensor repeated(const Tensor& block, const Shape& shape, DType dtype) const;

  Device device_;
};

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

struct SweepCall {
  std::function<NamedTensors()> run;  ///< what it gives is compared with PyTorch's
  double minimum_bytes = 0;           ///< read and written at least, as the benchmarks of the families count
  double flops = 0;                   ///< of the ops of the table that count them
};

SweepCall make_call(const SweepCase& c, Device device);

/// The kernels that `work` runs on, as an OpProfile names them: "prelu_grad: default", with what the kernel
/// chose behind it if it tells.
std::string kernels_of(const std::function<void()>& work);

}  // namespace sinter::bench
