// Tensors of all ranks, one behind the other, and their sums in parts, as ops with gradients.
#pragma once

#include <cstdint>
#include <tuple>

#include <sinter/core/comm/communicator.h>
#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct AllGatherAttributes {
  uint64_t communicator = 0;  ///< Communicator::id(); 0: this process alone
  int64_t rank = 0, ranks = 1;
  bool operator==(const AllGatherAttributes&) const = default;
  template <class Self = AllGatherAttributes>
  static constexpr auto fields() {
    return std::tuple(field("communicator", &Self::communicator), field("rank", &Self::rank),
                      field("ranks", &Self::ranks));
  }
};
AllGatherAttributes all_gather_attributes(const Communicator& communicator);

/// The x (n, ...) of all ranks, in their order: (ranks * n, ...). Floating-point dtypes. All ranks make the
/// call in the same order, with the same shapes, and go back through it so; the communicator must outlive
/// whatever runs it. The gradient of x is the sum of what comes back on all ranks, as of one loss that is the
/// sum of the ranks' losses. Throws InvalidArgument for a scalar.
Tensor all_gather(const Tensor& x, const Communicator& communicator);

/// The other way round: of the sum of all ranks' x (ranks * n, ...), rank r gets the r-th part (n, ...).
/// Throws InvalidArgument for a first extent that the number of ranks does not divide.
Tensor reduce_scatter(const Tensor& x, const Communicator& communicator);

}  // namespace sinter::ops
