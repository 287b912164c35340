// Sums over ranks in buckets: gradients that are ready one after the other are summed together, as soon as
// the last of them is there and beside what the step computes meanwhile.
//
//   %7 = conv2d_grad_weight(…)                     %7 = conv2d_grad_weight(…)
//   %8 = conv2d_grad_weight(…)                     %8 = conv2d_grad_weight(…)
//   …                                              %b = begin_all_reduce(%7, %8)
//   %20 = all_reduce(%7)                     →     …
//   %21 = all_reduce(%8)                           %s = end_all_reduce(%b, %7, %8)
//   sgd_step(conv1.weight.master, %20, …)          %20 = reshape(slice(%s, …))
//
// The last layers' gradients are there first, and go first. Every rank has the same calls in the same order,
// so that all make the same buckets.
#include <algorithm>
#include <map>

#include <sinter/core/graph/tracer.h>
#include <sinter/core/op/node.h>
#include <sinter/ops/all_reduce/all_reduce.h>
#include <sinter/ops/reshape/reshape.h>
#include <sinter/ops/slice/slice.h>
#include <sinter/passes/passes.h>

namespace sinter::passes {
namespace {

/// Bytes that a bucket is filled up to. The time of a sum hardly depends on its size below a few MB, and the
/// last bucket, which nothing hides, should not be larger than that takes.
constexpr size_t kBucketBytes = 16u << 20;

using Bucket = std::vector<GraphNode*>;

/// The calls that sum one gradient over ranks, those first whose gradient is there first.
std::vector<GraphNode*> sums_by_place(const Graph& graph) {
  std::map<const GraphNode*, size_t> place;
  std::vector<GraphNode*> sums;
  for (GraphNode* const node : graph.nodes()) {
    place.emplace(node, place.size() + 1);
    if (node->op->name() == "all_reduce") sums.push_back(node);
  }
  const auto ready = [&](const GraphNode* sum) {
    const GraphNode* const producer = sum->input(0)->root().producer;
    return producer == nullptr ? size_t{0} : place.at(producer);
  };
  std::ranges::stable_sort(sums, {}, ready);
  return sums;
}

std::vector<Bucket> fill_buckets(const std::vector<GraphNode*>& sums) {
  std::vector<Bucket> buckets;
  size_t bytes = 0;
  for (GraphNode* const sum : sums) {
    const TensorSpec& spec = sum->input(0)->spec;
    const bool fits = !buckets.empty() && bytes + spec.bytes() <= kBucketBytes &&
                      buckets.back().front()->input(0)->spec.dtype == spec.dtype &&
                      buckets.back().front()->attributes == sum->attributes;
    if (!fits) {
      buckets.emplace_back();
      bytes = 0;
    }
    bytes += spec.bytes();
    buckets.back().push_back(sum);
  }
  return buckets;
}

/// Where the call that begins a bucket belongs: behind the last of its gradients.
GraphNode* place_of(const Graph& graph, const Bucket& bucket) {
  const GraphNode* last = nullptr;
  for (const GraphNode* const sum : bucket) {
    // The gradient itself may be a view behind the call that computes it.
    const GraphNode* const producer = sum->input(0)->producer;
    if (producer != nullptr && (last == nullptr || graph.precedes(*last, *producer))) last = producer;
  }
  return last != nullptr ? graph.next(*last) : graph.nodes().front();
}

void make_bucket(Graph& graph, const Bucket& bucket, GraphNode& first_sum) {
  const Communicator& ranks =
      Communicator::of(bucket.front()->attributes.as<ops::AllReduceAttributes>().communicator);
  Tracer tracer(graph, place_of(graph, bucket));
  tracer.set_scope("(ranks)");
  const NoGrad no_grad;
  std::vector<Tensor> gradients;
  std::vector<int64_t> counts;
  for (const GraphNode* const sum : bucket) {
    gradients.push_back(tracer.tensor(*sum->input(0)));
    counts.push_back(sum->input(0)->spec.shape.numel());
  }
  const Tensor begun = ops::begin_all_reduce(gradients, ranks);
  tracer.set_place(&first_sum);
  const Tensor sums = ops::end_all_reduce(begun, gradients, ranks);
  const std::vector<int64_t> places = ops::bucket_places(counts);
  for (size_t i = 0; i < bucket.size(); ++i) {
    const Shape& shape = bucket[i]->outputs[0]->spec.shape;
    const Tensor part = ops::reshape(ops::slice(sums, 0, places[i], places[i] + counts[i]),
                                     std::vector<int64_t>(shape.begin(), shape.end()));
    graph.replace_uses(*bucket[i]->outputs[0], *tracer.use_of(part).value);
  }
}

}  // namespace

void bucket_gradients(Graph& graph, PassContext& context) {
  const std::vector<GraphNode*> sums = sums_by_place(graph);
  if (sums.size() < 2) return;
  GraphNode* first = sums.front();
  for (GraphNode* const sum : sums) {
    if (graph.precedes(*sum, *first)) first = sum;
  }
  for (const Bucket& bucket : fill_buckets(sums)) {
    size_t bytes = 0;
    for (const GraphNode* const sum : bucket) bytes += sum->input(0)->spec.bytes();
    make_bucket(graph, bucket, *first);
    context.done(fmt::format("{} gradients, {} bytes", bucket.size(), bytes));
  }
  for (GraphNode* const sum : sums) graph.erase(*sum);
}

}  // namespace sinter::passes
