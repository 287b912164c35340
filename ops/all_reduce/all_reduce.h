// Sums over the processes of a job, as ops, so that jobs trace them.
#pragma once

#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include <sinter/core/comm/communicator.h>
#include <sinter/core/op/attributes.h>
#include <sinter/core/tensor/tensor.h>

namespace sinter::ops {

struct AllReduceAttributes {
  uint64_t communicator = 0;  ///< Communicator::id(); 0: this process alone
  bool bucketed = false;      ///< of all_reduce: a job may take it together with others
  bool operator==(const AllReduceAttributes&) const = default;
  template <class Self = AllReduceAttributes>
  static constexpr auto fields() {
    return std::tuple(field("communicator", &Self::communicator), field("bucketed", &Self::bucketed));
  }
};

/// The sum of x over all ranks, which all call it in the same order. Not differentiable. Float dtypes; 16-bit
/// sums are rounded at every addition. The communicator must outlive whatever runs the call.
Tensor all_reduce(const Tensor& x, const Communicator& communicator);
/// The same for what nobody reads before the update, such as gradients: a job may take such sums together,
/// beside what it computes meanwhile (passes/ranks/gradient_buckets.cpp).
Tensor bucketed_all_reduce(const Tensor& x, const Communicator& communicator);

/// Elements between the beginnings of tensors that share a bucket: their vectors stay aligned.
constexpr int64_t kBucketAlignment = 64;

namespace update {
/// Throws CommunicationError on all ranks unless all call `op` on tensors of this dtype and shape. Only of
/// tensors on CPUs, and where the call is not traced: a TrainJob compares what it sums when it makes a graph.
void check_on_ranks(const char* op, const TensorSpec& spec, const Communicator& communicator);

/// Where each of so many elements begins in a bucket; the bucket's own size is the last.
std::vector<int64_t> bucket_places(std::span<const int64_t> counts);

/// The same for several tensors of one dtype at once: their sums lie in one array of rank 1, at
/// bucket_places(). On a GPU it is summed beside what the current stream does meanwhile; nobody may read it
/// before end_all_reduce() with the same tensors, which must live until then.
Tensor begin_all_reduce(std::span<const Tensor> tensors, const Communicator& communicator);
Tensor end_all_reduce(const Tensor& sums, std::span<const Tensor> tensors, const Communicator& communicator);
}  // namespace update

}  // namespace sinter::ops
