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
// The last layers' gradients are there first, and go first. Norms of gradients that ranks do not share are
// summed on the way too. All ranks make the same buckets and begin them in the same order, whatever else
// their graphs do.
#include <algorithm>
#include <iterator>

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

/// Whether the call sums a gradient, which may be done together with others. Sums that the model asks for are
/// none: it reads them at once.
bool sums_gradient(const GraphNode& node) {
  const bool* const bucketed = node.attributes.find<bool>("bucketed");
  return bucketed != nullptr && *bucketed && node.inputs.size() == 1;
}

/// Whether a value is there where the first sum stood; in memory, from the beginning of the run on.
bool is_there(const Graph& graph, const GraphValue& value, const GraphNode& first) {
  if (value.root().is_memory()) return value.root().version == 0 && graph.holds(value, &first);
  return value.producer == nullptr || graph.precedes(*value.producer, first);
}

/// The calls behind the first sum that compute `value` from what is there, in their order. False if some
/// others take part than such as only compute.
bool find_late_calls(const Graph& graph, const GraphValue& value, const GraphNode& first,
                     std::vector<GraphNode*>& calls) {
  constexpr size_t kMost = 8;
  if (is_there(graph, value, first)) return true;
  GraphNode* const call = value.producer;
  if (call == nullptr || call->changes_any() || call->is_collective() ||
      call->traits().role == Role::kRandomKey || calls.size() == kMost)
    return false;
  for (const GraphUse& use : call->inputs) {
    if (use.value != nullptr && !find_late_calls(graph, *use.value, first, calls)) return false;
  }
  if (std::ranges::find(calls, call) == calls.end()) calls.push_back(call);
  return true;
}

/// Moves a call right behind the last of those that it depends on.
void move_up(Graph& graph, GraphNode& call) {
  const GraphNode* last = nullptr;
  for (const GraphUse& use : call.inputs) {
    const GraphNode* const producer = use.value != nullptr ? use.value->producer : nullptr;
    if (producer != nullptr && (last == nullptr || graph.precedes(*last, *producer))) last = producer;
  }
  if (last == nullptr) return;
  const GraphNode& moved =
      graph.insert(graph.next(*last), *call.op, call.inputs, call.attributes, call.scope);
  for (size_t i = 0; i < call.outputs.size(); ++i) graph.replace_uses(*call.outputs[i], *moved.outputs[i]);
  graph.erase(call);
}

/// What the update sums besides, such as a norm of gradients that are not summed themselves, is computed as
/// soon as these are there.
void move_up_late_sums(Graph& graph) {
  std::vector<GraphNode*> sums = graph.nodes();
  std::erase_if(sums, [](const GraphNode* node) { return !sums_gradient(*node); });
  for (const GraphNode* const sum : sums) {
    std::vector<GraphNode*> calls;
    if (!find_late_calls(graph, *sum->input(0), *sums.front(), calls)) continue;
    for (GraphNode* const call : calls) move_up(graph, *call);
  }
}

/// The calls that sum one gradient over ranks, from the last to the first. That is the order in which
/// gradients are there (train_job puts them so), and the same on all ranks, whose graphs may differ in what
/// each has measured.
std::vector<GraphNode*> sums_from_the_last(const Graph& graph) {
  std::vector<GraphNode*> sums;
  for (GraphNode* const node : graph.nodes()) {
    if (sums_gradient(*node) && is_there(graph, *node->input(0), sums.empty() ? *node : *sums.front()))
      sums.push_back(node);
  }
  std::ranges::reverse(sums);
  return sums;
}

size_t bytes_of(const Bucket& bucket) {
  size_t bytes = 0;
  for (const GraphNode* const sum : bucket) bytes += sum->input(0)->spec.bytes();
  return bytes;
}

/// Whether two gradients can be summed together.
bool go_together(const GraphNode& a, const GraphNode& b) {
  return a.input(0)->spec.dtype == b.input(0)->spec.dtype && a.attributes == b.attributes;
}

/// Fills a bucket of each dtype at a time (weights of convolutions and of norms take turns, in mixed
/// precision in two dtypes), and gives them in the order in which they are full.
std::vector<Bucket> fill_buckets(const std::vector<GraphNode*>& sums) {
  std::vector<Bucket> full, open;
  for (GraphNode* const sum : sums) {
    const size_t bytes = sum->input(0)->spec.bytes();
    auto own = std::ranges::find_if(open, [&](const Bucket& b) { return go_together(*b.front(), *sum); });
    if (own != open.end() && bytes_of(*own) + bytes > kBucketBytes) {
      full.push_back(std::move(*own));
      open.erase(own);
      own = open.end();
    }
    if (own == open.end()) own = open.insert(own, Bucket{});
    own->push_back(sum);
  }
  // Those that are left are there when their last gradients are.
  const auto last_place = [&](const Bucket& b) { return std::ranges::find(sums, b.back()) - sums.begin(); };
  std::ranges::stable_sort(open, {}, last_place);
  std::ranges::move(open, std::back_inserter(full));
  return full;
}

/// Where the call that begins a bucket belongs: behind the last of its gradients, and behind `before`, the
/// call that began the bucket before it.
GraphNode* place_of(const Graph& graph, const Bucket& bucket, const GraphNode* before) {
  const GraphNode* last = before;
  for (const GraphNode* const sum : bucket) {
    // The gradient itself may be a view behind the call that computes it.
    const GraphNode* const producer = sum->input(0)->producer;
    if (producer != nullptr && (last == nullptr || graph.precedes(*last, *producer))) last = producer;
  }
  return last != nullptr ? graph.next(*last) : graph.nodes().front();
}

/// Gives the call that begins the bucket's sum.
const GraphNode* make_bucket(Graph& graph, const Bucket& bucket, GraphNode& first_sum,
                             const GraphNode* before) {
  const Communicator& ranks =
      Communicator::of(bucket.front()->attributes.as<ops::AllReduceAttributes>().communicator);
  Tracer tracer(graph, place_of(graph, bucket, before));
  tracer.set_scope("(ranks)");
  const NoGrad no_grad;
  std::vector<Tensor> gradients;
  std::vector<int64_t> counts;
  for (const GraphNode* const sum : bucket) {
    gradients.push_back(tracer.tensor(*sum->input(0)));
    counts.push_back(sum->input(0)->spec.shape.numel());
  }
  const Tensor begun = ops::update::begin_all_reduce(gradients, ranks);
  const GraphNode* const begins = tracer.use_of(begun).value->producer;
  tracer.set_place(&first_sum);
  const Tensor sums = ops::update::end_all_reduce(begun, gradients, ranks);
  const std::vector<int64_t> places = ops::update::bucket_places(counts);
  for (size_t i = 0; i < bucket.size(); ++i) {
    const Shape& shape = bucket[i]->outputs[0]->spec.shape;
    const Tensor part = ops::reshape(ops::slice(sums, 0, places[i], places[i] + counts[i]),
                                     std::vector<int64_t>(shape.begin(), shape.end()));
    graph.replace_uses(*bucket[i]->outputs[0], *tracer.use_of(part).value);
  }
  return begins;
}

}  // namespace

void bucket_gradients(Graph& graph, PassContext& context) {
  move_up_late_sums(graph);
  const std::vector<GraphNode*> sums = sums_from_the_last(graph);
  if (sums.size() < 2) return;
  GraphNode* const first = sums.back();
  const GraphNode* begun = nullptr;
  for (const Bucket& bucket : fill_buckets(sums)) {
    begun = make_bucket(graph, bucket, *first, begun);
    context.done(fmt::format("{} gradients, {} bytes", bucket.size(), bytes_of(bucket)));
  }
  for (GraphNode* const sum : sums) graph.erase(*sum);
}

}  // namespace sinter::passes
