#include <algorithm>
#include <cstring>

#include <sinter/core/op/node.h>
#include <sinter/nn/export/onnx_trace.h>
#include <sinter/nn/job/module_snapshot.h>
#include <sinter/ops/permute/permute.h>
#include <sinter/passes/passes.h>
#include <sinter/passes/pipeline.h>
#include <sinter/passes/value_map.h>

namespace sinter::nn {
namespace {

// What goes with the batch is what differs from the first of these to the others. None is 1, which
// broadcasts, and they are so far apart that neither N / 2 nor min(N, 4) looks like a constant or a multiple.
constexpr int64_t kBatches[] = {8, 13, 2};

using PerBatch = std::map<const GraphValue*, std::vector<int64_t>>;

TensorSpec channels_first(TensorSpec spec) {
  const Shape& s = spec.shape;
  if (s.rank() == 4) spec.shape = {s[0], s[3], s[1], s[2]};
  return spec;
}

/// `function` of NHWC images as one of NCHW images: turning the graph then takes all permutations out.
JobFunction given_channels_first(const JobFunction& function) {
  return [function](std::span<const Tensor> inputs) {
    std::vector<Tensor> turned;
    for (const Tensor& x : inputs) turned.push_back(x.rank() == 4 ? ops::permute(x, {0, 2, 3, 1}) : x);
    std::vector<Tensor> results = function(turned);
    for (Tensor& y : results) {
      if (y.defined() && y.rank() == 4) y = ops::permute(y, {0, 3, 1, 2});
    }
    return results;
  };
}

std::unique_ptr<Graph> trace(const ModuleBase& model, const JobFunction& function,
                             std::span<const TensorSpec> inputs, const OnnxOptions& options) {
  const auto is_mixed = [](const Parameter& parameter) { return parameter.is_mixed(); };
  auto graph = std::make_unique<Graph>();
  const GeneratorScope generator;
  JobRandom random;
  ModuleSnapshot snapshot(model);
  trace_inference(*graph, model, function, inputs, std::ranges::any_of(model.parameters(), is_mixed),
                  snapshot);
  random.finish_trace(*graph, inputs[0].device);
  for (const Parameter& parameter : model.parameters()) {
    if (!parameter.is_mixed()) continue;
    graph->memory(parameter.master(), GraphValue::Kind::kLeaf).name = parameter.name();
  }
  std::vector<passes::Pass> wanted;
  for (const passes::Pass& pass : passes::forward_passes()) {
    const std::string_view name = pass.name;
    if (name == "dead_code" || name == "common_subexpressions" || name == "channels_last" ||
        (name == "fold_normalization" && options.fold_batch_norm)) {
      wanted.push_back(pass);
    }
  }
  passes::PassContext context{.training = false, .layout = Layout::kNCHW};
  passes::Pipeline pipeline({}, "onnx");
  pipeline.run(wanted, *graph, context);
  graph->erase_dead();
  return graph;
}

/// Goes through two traces of one model side by side, the first of kBatches[0].
class Comparison {
 public:
  Comparison(const Graph& a, const Graph& b, int64_t batch) : a_(a), b_(b), batch_(batch) {}

  /// The extents of a's values that go with the batch.
  PerBatch run() {
    for (size_t i = 0; i < a_.inputs().size(); ++i) pair(*a_.inputs()[i], *b_.inputs()[i]);
    const std::vector<GraphNode*> nodes = a_.nodes(), others = b_.nodes();
    for (size_t i = 0; i < std::min(nodes.size(), others.size()); ++i) compare(*nodes[i], *others[i]);
    if (nodes.size() != others.size() || a_.outputs().size() != b_.outputs().size()) {
      fail("the model", "it makes other calls");
    }
    for (size_t i = 0; i < a_.outputs().size(); ++i) {
      check_same("an output", *a_.outputs()[i].value, *b_.outputs()[i].value);
    }
    return std::move(per_batch_);
  }

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& difference) const {
    throw_error<Unsupported>(
        "[export_onnx] {} does not go with the batch as ONNX could follow it: {} at a batch of {} than at "
        "one of "
        "{}; export a batch of fixed size, with dynamic_batch = false",
        what, difference, batch_, kBatches[0]);
  }

  /// Notes that a and b are one value, and which of its extents are multiples of the batch.
  void pair(const GraphValue& a, const GraphValue& b) {
    const Shape &one = a.spec.shape, &other = b.spec.shape;
    std::vector<int64_t> per_batch;
    bool any = false;
    for (int axis = 0; axis < one.rank() && one.rank() == other.rank(); ++axis) {
      const int64_t times = one[axis] / kBatches[0];
      if (one[axis] == other[axis]) {
        per_batch.push_back(0);
      } else if (one[axis] == times * kBatches[0] && other[axis] == times * batch_) {
        per_batch.push_back(times);
        any = true;
      }
    }
    if (a.spec.dtype != b.spec.dtype || one.rank() != other.rank() ||
        per_batch.size() != static_cast<size_t>(one.rank())) {
      fail(a.description(), fmt::format("it is {} rather than {}", b.spec, a.spec));
    }
    if (any) per_batch_.emplace(&a, per_batch);
    partner_.emplace(&a, &b);
  }

  void check_same(const std::string& where, const GraphValue& a, const GraphValue& b) {
    if (a.is_memory() && b.is_memory()) {
      if (!a.tensor.is_same(b.tensor) && !have_equal_bytes(a.tensor, b.tensor)) {
        fail(where, fmt::format("it reads another constant, {} rather than {},", b.spec, a.spec));
      }
      return;
    }
    const auto found = partner_.find(&a);
    if (found == partner_.end() || found->second != &b) fail(where, "it reads another value");
  }

  static bool have_equal_bytes(const Tensor& a, const Tensor& b) {
    if (a.spec() != b.spec()) return false;
    if (a.storage() == b.storage() && a.offset_bytes() == b.offset_bytes()) return true;
    const Tensor x = a.to(Device::cpu()), y = b.to(Device::cpu());
    return std::memcmp(x.raw_data(), y.raw_data(), a.spec().bytes()) == 0;
  }

  /// b's attributes, but for extents of the outputs, which pair() compares.
  static Attributes without_extents(const GraphNode& a, const GraphNode& b) {
    Attributes attributes = b.attributes;
    for (const char* const name : {"extents", "shape"}) {
      const auto* const list = a.attributes.find<std::vector<int64_t>>(name);
      if (list != nullptr && attributes.find<std::vector<int64_t>>(name) != nullptr) {
        attributes = attributes.with(name, *list);
      }
      const auto* const shape = a.attributes.find<Shape>(name);
      if (shape != nullptr && attributes.find<Shape>(name) != nullptr)
        attributes = attributes.with(name, *shape);
    }
    // A slice up to the end of an axis.
    const auto *const axis = a.attributes.find<int64_t>("axis"), *const end =
                                                                     a.attributes.find<int64_t>("end");
    const auto* const other_end = attributes.find<int64_t>("end");
    if (axis == nullptr || end == nullptr || other_end == nullptr) return attributes;
    const bool reaches = *end == a.input(0)->spec.shape[static_cast<int>(*axis)] &&
                         *other_end == b.input(0)->spec.shape[static_cast<int>(*axis)];
    return reaches ? attributes.with("end", *end) : attributes;
  }

  void compare(const GraphNode& a, const GraphNode& b) {
    const std::string where = passes::name_of(a);
    if (a.op != b.op || a.inputs.size() != b.inputs.size() || a.outputs.size() != b.outputs.size()) {
      fail(where, "there is " + b.op->name());
    }
    for (size_t i = 0; i < a.inputs.size(); ++i) {
      if ((a.input(i) == nullptr) != (b.input(i) == nullptr)) fail(where, "it has other inputs");
      if (a.input(i) != nullptr) check_same(where, *a.input(i), *b.input(i));
    }
    if (const Attributes attributes = without_extents(a, b); !(a.attributes == attributes)) {
      fail(where, fmt::format("its attributes are ({}) rather than ({})", to_string(b.attributes),
                              to_string(a.attributes)));
    }
    for (size_t i = 0; i < a.outputs.size(); ++i) pair(*a.outputs[i], *b.outputs[i]);
  }

  const Graph &a_, &b_;
  int64_t batch_;
  PerBatch per_batch_;
  std::map<const GraphValue*, const GraphValue*> partner_;
};

/// An extent that differs from one pair of batches to another, but not always by the same factor.
void check_same_extents(const PerBatch& a, const PerBatch& b) {
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    for (const auto& [value, times] : *one) {
      const auto found = other->find(value);
      if (found != other->end() && found->second == times) continue;
      throw_error<Unsupported>(
          "[export_onnx] the shape of {} neither stays as it is nor goes with the batch; export a batch of "
          "fixed "
          "size, with dynamic_batch = false",
          value->description());
    }
  }
}

std::vector<TensorSpec> with_batch(std::vector<TensorSpec> specs, int64_t batch) {
  const int64_t given = specs[0].shape[0];
  for (TensorSpec& spec : specs) {
    if (spec.shape.rank() > 0 && spec.shape[0] == given) spec.shape = spec.shape.with(0, batch);
  }
  return specs;
}

void check_dtypes(const Graph& graph) {
  const auto check = [](const GraphValue& value) {
    if (value.spec.dtype == DType::kFloat64) {
      throw_error<Unsupported>("[export_onnx] expected a model of float32 or 16-bit values but got {}, {}",
                               value.description(), value.spec);
    }
  };
  for (const GraphNode* const node : graph.nodes()) {
    for (const GraphUse& use : node->inputs) {
      if (use.value != nullptr) check(*use.value);
    }
    for (const GraphValue* const output : node->outputs) check(*output);
  }
}

}  // namespace

OnnxTrace trace_for_onnx(const ModuleBase& model, const JobFunction& function,
                         std::span<const TensorSpec> inputs, const OnnxOptions& options) {
  check_not_traced("export_onnx");
  SINTER_CHECK(!inputs.empty(), "[export_onnx] expected at least one input");
  const NoGrad no_grad;
  const EvalMode eval(model);
  std::vector<TensorSpec> specs(inputs.begin(), inputs.end());
  const std::vector<Parameter> parameters = model.parameters();
  for (TensorSpec& spec : specs) {
    if (!parameters.empty()) spec.device = parameters[0].tensor().device();
  }
  const bool is_last = options.layout ? *options.layout == Layout::kNHWC : model.layout() == Layout::kNHWC;
  const JobFunction of_nchw = is_last ? given_channels_first(function) : function;
  if (is_last) std::ranges::transform(specs, specs.begin(), channels_first);

  OnnxTrace trace_of_batch;
  if (options.dynamic_batch && specs[0].shape.rank() > 0) {
    const auto trace_with = [&](int64_t batch) {
      try {
        return trace(model, of_nchw, with_batch(specs, batch), options);
      } catch (const InvalidArgument&) {
        trace(model, of_nchw, specs, options);  // a message had better tell the shapes that were given
        throw;
      }
    };
    trace_of_batch.batch_input = 0;
    trace_of_batch.graph = trace_with(kBatches[0]);
    const Graph& graph = *trace_of_batch.graph;
    for (const int64_t batch : {kBatches[1], kBatches[2]}) {
      const std::unique_ptr<Graph> other = trace_with(batch);
      PerBatch found = Comparison(graph, *other, batch).run();
      if (batch == kBatches[1]) {
        trace_of_batch.per_batch = std::move(found);
      } else {
        check_same_extents(trace_of_batch.per_batch, found);
      }
    }
  } else {
    trace_of_batch.graph = trace(model, of_nchw, specs, options);
  }
  SINTER_CHECK(!trace_of_batch.graph->outputs().empty(), "[export_onnx] expected at least one output");
  check_dtypes(*trace_of_batch.graph);
  return trace_of_batch;
}

}  // namespace sinter::nn
