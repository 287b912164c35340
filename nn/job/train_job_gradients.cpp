// What a step of TrainJob has behind the forward pass: gradients, their sums over calls and ranks, and the
// update.
#include <algorithm>
#include <functional>
#include <map>

#include <sinter/autograd/differentiate.h>
#include <sinter/core/op/node.h>
#include <sinter/nn/job/train_job_compiled.h>
#include <sinter/nn/parallel/data_parallel.h>
#include <sinter/ops/all_reduce/all_reduce.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/unary/unary.h>

namespace sinter::nn {
namespace {

/// Lends gradients to parameters while the optimiser's step is traced.
class LentGradients {
 public:
  explicit LentGradients(const std::vector<Parameter>& parameters) : parameters_(parameters) {
    for (const Parameter& parameter : parameters) {
      before_.push_back(parameter.grad());
      parameter.tensor().set_grad({});
    }
  }
  ~LentGradients() {
    for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].tensor().set_grad(before_[i]);
  }
  LentGradients(const LentGradients&) = delete;
  LentGradients& operator=(const LentGradients&) = delete;

 private:
  const std::vector<Parameter>& parameters_;
  std::vector<Tensor> before_;
};

/// The places of gradients, those first that are computed last: the order in which gradient_buckets wants
/// sums over ranks, which takes them from behind. The order of an optimiser's parameters says little of it,
/// for groups tear layers apart. Found before any pass that measures, so that it is the same on all ranks.
std::vector<size_t> last_ready_first(Tracer& tracer, const std::vector<Tensor>& gradients) {
  std::map<const GraphNode*, size_t> places;
  for (const GraphNode* const node : tracer.graph().nodes()) places.emplace(node, places.size());
  std::vector<size_t> order(gradients.size()), ready(gradients.size());
  for (size_t i = 0; i < gradients.size(); ++i) {
    order[i] = i;
    const GraphNode* const producer =
        gradients[i].defined() ? tracer.use_of(gradients[i]).value->producer : nullptr;
    if (producer != nullptr) ready[i] = places.at(producer) + 1;
  }
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return ready[i]; });
  return order;
}

}  // namespace

void TrainJob::trace_gradients(Tracer& tracer, const Tensor& loss, double learning_rate, Compiled& compiled) {
  Graph& graph = tracer.graph();
  const Part& part = compiled.part;
  const std::string outer = tracer.set_scope("(loss)");
  const int parts =
      options_.accumulate * (options_.communicator != nullptr ? options_.communicator->size() : 1);
  Tensor scaled = parts > 1 ? ops::affine(loss, 1.0 / parts, 0.0) : loss;
  if (options_.scaler != nullptr) scaled = options_.scaler->scale(scaled);
  const std::vector<Parameter> parameters = optimizer_.parameters();
  const auto has_sum = [&part](size_t i) { return !part.first && part.summed[i]; };
  // Gradients are added to the sums of the calls before one by one, as backward() does.
  std::map<const GraphValue*, Tensor> sums;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!has_sum(i)) continue;
    const Tensor& tensor = parameters[i].tensor();
    const Tensor& sum = sum_of(i, parameters[i]);
    graph.memory(sum, GraphValue::Kind::kLeaf, "sum." + parameters[i].name());
    sums[&graph.memory(tensor, GraphValue::Kind::kLeaf, parameters[i].name())] = sum;
  }
  const std::vector<LeafGradient> gradients = differentiate(tracer, scaled, {}, std::move(sums));
  const auto belongs_here = [&](const LeafGradient& gradient) {
    return std::ranges::any_of(parameters, [&](const Parameter& parameter) {
      return parameter.tensor().storage() == gradient.leaf->tensor.storage();
    });
  };
  SINTER_CHECK(
      std::ranges::any_of(gradients, belongs_here),
      "[train_job] the loss depends on none of the optimiser's parameters: a step would train nothing");
  const NoGrad no_grad;
  if (options_.communicator != nullptr && options_.communicator->size() > 1) {
    const Communicator& ranks = *options_.communicator;
    const Tensor mean = ops::bucketed_all_reduce(scale_loss(loss, ranks), ranks);
    graph.set_output(0, tracer.use_of(mean));
  }
  tracer.set_scope("(update)");
  const LentGradients lent(parameters);
  compiled.sums.assign(parameters.size(), false);
  std::vector<Tensor> arrived(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const GraphValue& leaf =
        graph.memory(parameters[i].tensor(), GraphValue::Kind::kLeaf, parameters[i].name());
    const auto found = std::ranges::find(gradients, &leaf, [](const LeafGradient& g) { return g.leaf; });
    if (found != gradients.end()) arrived[i] = found->gradient;
  }
  for (const size_t i : last_ready_first(tracer, arrived)) {
    if (!arrived[i].defined() && !has_sum(i)) continue;
    compiled.sums[i] = !part.last;
    if (part.last) {
      const Tensor gradient = arrived[i].defined() ? arrived[i] : sum_of(i, parameters[i]);
      if (is_apart(parameters[i])) {
        parameters[i].tensor().set_grad(gradient);
      } else {
        compiled.sums_over_ranks +=
            fmt::format("{} {} {};", parameters[i].name(), gradient.dtype(), gradient.shape());
        parameters[i].tensor().set_grad(over_ranks(gradient));
      }
    } else if (arrived[i].defined()) {
      const Tensor& sum = sum_of(i, parameters[i]);
      graph.memory(sum, GraphValue::Kind::kLeaf, "sum." + parameters[i].name());
      ops::copy_(sum, arrived[i]);
    }
  }
  if (part.last) trace_update(tracer, learning_rate);
  // Results that lie in memory, such as a parameter, are what it holds when the step is over.
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const GraphUse use = graph.outputs()[i];
    graph.set_output(i, {&graph.current(*use.value, nullptr), use.differentiable});
  }
  tracer.set_scope(outer);
}

bool TrainJob::is_apart(const Parameter& parameter) const {
  return std::ranges::any_of(options_.sharded,
                             [&](const Parameter& sharded) { return sharded.is_same(parameter); });
}

Tensor TrainJob::over_ranks(const Tensor& gradient) const {
  const bool alone = options_.communicator == nullptr || options_.communicator->size() == 1;
  return alone ? gradient : ops::bucketed_all_reduce(gradient, *options_.communicator);
}

void TrainJob::trace_update(Tracer& tracer, double learning_rate) const {
  if (options_.scaler != nullptr) {
    options_.scaler->step(optimizer_, learning_rate,
                          {.max_grad_norm = options_.max_grad_norm,
                           .sharded = options_.sharded,
                           .communicator = options_.communicator});
  } else if (options_.max_grad_norm > 0.0) {
    optimizer_.step(learning_rate, clip_grad_norm(optimizer_.parameters(), options_.max_grad_norm).factor);
  } else {
    optimizer_.step(learning_rate);
  }
  if (options_.ema != nullptr) {
    tracer.set_scope("(average)");
    options_.ema->update();
  }
}

}  // namespace sinter::nn
