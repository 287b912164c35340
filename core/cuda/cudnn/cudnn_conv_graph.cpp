#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <set>
#include <utility>

#include <sinter/core/base/log.h>
#include <sinter/core/cuda/cuda_check.h>
#include <sinter/core/cuda/cudnn/cudnn_conv_graph.h>

namespace sinter::cuda {
namespace {

cudnnDataType_t data_type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return CUDNN_DATA_FLOAT;
    case DType::kFloat16:
      return CUDNN_DATA_HALF;
    case DType::kBFloat16:
      return CUDNN_DATA_BFLOAT16;
    default:
      throw_error<Unsupported>("[cudnn] convolutions of {} are not asked of cuDNN", dtype);
  }
}

/// cuDNN always takes extents as (N, C, H, W); the order in memory is in the strides.
std::array<int64_t, 4> strides_of(const std::array<int64_t, 4>& extents, Layout layout) {
  const auto& [n, c, h, w] = extents;
  if (layout == Layout::kNCHW) return {c * h * w, h * w, w, 1};
  return {h * w * c, 1, w * c, c};
}

/// Not yet finalized. A virtual one is what an operation gives to the next, and lies nowhere.
CudnnDescriptor make_tensor(int64_t id, const std::array<int64_t, 4>& extents, const ConvProblem& problem,
                            DType dtype, bool is_virtual = false) {
  CudnnDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, data_type_of(dtype));
  tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, static_cast<int64_t>(kConvAlignment));
  tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, extents);
  tensor.set(CUDNN_ATTR_TENSOR_STRIDES, strides_of(extents, problem.layout));
  if (is_virtual) tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  return tensor;
}

CudnnDescriptor make_convolution(const ConvProblem& problem) {
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  CudnnDescriptor convolution(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  convolution.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  convolution.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  convolution.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{2});
  convolution.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, problem.padding);
  convolution.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, problem.padding);
  convolution.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, problem.stride);
  convolution.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, problem.dilation);
  return convolution;
}

/// An operation's descriptor type and what it calls its attributes.
struct OperationNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t convolution, x, weight, y, alpha, beta;
};

OperationNames names_of(ConvPass pass) {
  switch (pass) {
    case ConvPass::kForward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case ConvPass::kGradInput:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case ConvPass::kGradWeight:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  }
  throw_error<InternalError>("[cudnn] no such pass: {}", static_cast<int>(pass));
}

/// Operations on tensors, in the order in which they compute. What cuDNN refuses throws a DeviceError.
class GraphBuilder {
 public:
  using Part = cudnnBackendDescriptor_t;

  explicit GraphBuilder(const ConvProblem& problem) : problem_(problem) {}

  Part tensor(int64_t id, const std::array<int64_t, 4>& extents, DType dtype) {
    return keep(make_tensor(id, extents, problem_, dtype));
  }
  Part per_channel(int64_t id, DType dtype) { return tensor(id, {1, problem_.y[1], 1, 1}, dtype); }
  /// y before it is ready, in float32.
  Part unready() { return keep(make_tensor(++unready_, problem_.y, problem_, DType::kFloat32, true)); }

  void convolve(Part x, Part weight, Part y) {
    const OperationNames names = names_of(problem_.pass);
    const Part convolution = keep(make_convolution(problem_));
    CudnnDescriptor operation(names.type);
    set(operation, {{names.x, x}, {names.weight, weight}, {names.y, y}, {names.convolution, convolution}});
    operation.set(names.alpha, 1.0f);
    operation.set(names.beta, 0.0f);
    operations_.push_back(keep(std::move(operation)));
  }

  /// The sums of y, which are computed while it is written.
  void sum(Part y, Part sums, Part squares) {
    const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
    CudnnDescriptor statistics(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
    statistics.set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode);
    statistics.set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT);
    set(statistics, {{CUDNN_ATTR_OPERATION_GENSTATS_XDESC, y},
                     {CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sums},
                     {CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, squares}});
    operations_.push_back(keep(std::move(statistics)));
  }

  /// to = mode(from), or mode(from, other), element by element.
  Part map(cudnnPointwiseMode_t mode, Part from, Part to, Part other = nullptr) {
    CudnnDescriptor function(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    function.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    function.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
    CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set(operation, {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(std::move(function))},
                    {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, from},
                    {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to}});
    if (other != nullptr) set(operation, {{CUDNN_ATTR_OPERATION_POINTWISE_BDESC, other}});
    operations_.push_back(keep(std::move(operation)));
    return to;
  }

  std::shared_ptr<const ConvGraph> finish(cudnnHandle_t handle) {
    auto made = std::make_shared<ConvGraph>();
    made->graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::ssize(operations_),
                    operations_.data());
    made->graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
    made->graph.finalize();
    made->parts = std::move(parts_);
    return made;
  }

 private:
  /// A part must be finalized before it is referred to.
  Part keep(CudnnDescriptor part) {
    part.finalize();
    return parts_.emplace_back(std::move(part)).get();
  }

  static void set(CudnnDescriptor& descriptor,
                  std::initializer_list<std::pair<cudnnBackendAttributeName_t, Part>> attributes) {
    for (const auto& [name, part] : attributes) descriptor.set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part);
  }

  const ConvProblem& problem_;
  std::vector<CudnnDescriptor> parts_;
  std::vector<Part> operations_;
  int64_t unready_ = 0;  // names of those tensors; the others' are letters
};

/// The convolution and what follows it. The addend comes before the bias: so cuDNN's ready-made kernels for a
/// convolution with bias and activation have it.
void add_with_epilogue(GraphBuilder& builder, const ConvProblem& problem, GraphBuilder::Part x,
                       GraphBuilder::Part weight, GraphBuilder::Part y) {
  const ConvEpilogue& epilogue = problem.epilogue;
  int left = int{epilogue.addend} + int{epilogue.bias} + int{epilogue.activation != ConvActivation::kNone};
  const auto next = [&] { return --left == 0 ? y : builder.unready(); };
  GraphBuilder::Part value = builder.unready();
  builder.convolve(x, weight, value);
  if (epilogue.addend) {
    const auto addend = builder.tensor('a', problem.y, problem.dtype);
    value = builder.map(CUDNN_POINTWISE_ADD, value, next(), addend);
  }
  if (epilogue.bias) {
    const auto bias = builder.per_channel('b', problem.dtype);
    value = builder.map(CUDNN_POINTWISE_ADD, value, next(), bias);
  }
  if (epilogue.activation == ConvActivation::kRelu) {
    builder.map(CUDNN_POINTWISE_RELU_FWD, value, y);
  } else if (epilogue.activation == ConvActivation::kPRelu) {
    // relu(v) - slope * relu(-v), which has no difference of infinities
    const auto slope = builder.per_channel('p', epilogue.slope_dtype);
    const auto above = builder.map(CUDNN_POINTWISE_RELU_FWD, value, builder.unready());
    const auto opposite = builder.map(CUDNN_POINTWISE_NEG, value, builder.unready());
    const auto below = builder.map(CUDNN_POINTWISE_RELU_FWD, opposite, builder.unready());
    const auto scaled = builder.map(CUDNN_POINTWISE_MUL, below, builder.unready(), slope);
    builder.map(CUDNN_POINTWISE_SUB, above, y, scaled);
  }
}

// ---- what a heuristic proposes

int64_t result_count(const CudnnDescriptor& heuristic) {
  int64_t count = 0;
  SINTER_CUDNN_CHECK(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                              CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr));
  return count;
}

/// The descriptors that an attribute holds, `count` at most.
std::vector<CudnnDescriptor> get_descriptors(const CudnnDescriptor& descriptor,
                                             cudnnBackendAttributeName_t name,
                                             cudnnBackendDescriptorType_t type, int64_t count) {
  std::vector<CudnnDescriptor> owners;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (int64_t i = 0; i < count; ++i) handles.push_back(owners.emplace_back(type).get());
  int64_t found = 0;
  if (count > 0) {
    SINTER_CUDNN_CHECK(cudnnBackendGetAttribute(descriptor.get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, count,
                                                &found, handles.data()));
  }
  owners.erase(owners.begin() + std::clamp<int64_t>(found, 0, count), owners.end());
  return owners;
}

template <class T>
T get_value(const CudnnDescriptor& descriptor, cudnnBackendAttributeName_t name,
            cudnnBackendAttributeType_t type) {
  T value{};
  int64_t found = 0;
  SINTER_CUDNN_CHECK(cudnnBackendGetAttribute(descriptor.get(), name, type, 1, &found, &value));
  return value;
}

std::vector<cudnnBackendNumericalNote_t> notes_of(const CudnnDescriptor& engine) {
  std::vector<cudnnBackendNumericalNote_t> notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  int64_t found = 0;
  SINTER_CUDNN_CHECK(cudnnBackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                              CUDNN_TYPE_NUMERICAL_NOTE, static_cast<int64_t>(notes.size()),
                                              &found, notes.data()));
  notes.resize(static_cast<size_t>(std::clamp<int64_t>(found, 0, CUDNN_NUMERICAL_NOTE_TYPE_COUNT)));
  return notes;
}

/// Promised by the op are products of the inputs as they are, summed in float32 (in TF32 if that is allowed).
bool obeys(const std::vector<cudnnBackendNumericalNote_t>& notes, DType dtype, const ConvRules& rules) {
  const bool is_exact = !rules.allow_tf32 || dtype != DType::kFloat32;
  return std::none_of(notes.begin(), notes.end(), [&](cudnnBackendNumericalNote_t note) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
        return rules.deterministic;
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
        return dtype == DType::kFloat32 && !rules.allow_tf32;
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
        return is_exact;
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
        return true;
      case CUDNN_NUMERICAL_NOTE_WINOGRAD:  // rounds transformed inputs to the dtype
        return is_half(dtype);
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
      case CUDNN_NUMERICAL_NOTE_FFT:  // lose digits to cancellation
        return is_exact;
      default:
        return false;
    }
  });
}

std::string name_of(const CudnnDescriptor& config, const CudnnDescriptor& engine) {
  std::string name =
      fmt::format("engine {}:", get_value<int64_t>(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64));
  std::set<std::pair<int, int64_t>> knobs;  // sorted: the order in which cuDNN lists them is its own business
  for (const CudnnDescriptor& knob :
       get_descriptors(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
                       CUDNN_KNOB_TYPE_COUNTS)) {
    const auto type =
        get_value<cudnnBackendKnobType_t>(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE);
    knobs.emplace(static_cast<int>(type),
                  get_value<int64_t>(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64));
  }
  for (const auto& [type, value] : knobs) name += fmt::format(" {}={}", type, value);
  return name;
}

/// The configurations of one heuristic that obey the rules.
std::vector<ConvConfig> ask(const ConvGraph& graph, cudnnBackendHeurMode_t mode, DType dtype,
                            const ConvRules& rules) {
  CudnnDescriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.graph);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  std::vector<ConvConfig> configs;
  if (!heuristic.try_finalize()) return configs;
  for (CudnnDescriptor& config :
       get_descriptors(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                       result_count(heuristic))) {
    try {
      const auto engines =
          get_descriptors(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
      if (engines.empty() || !obeys(notes_of(engines[0]), dtype, rules)) continue;
      std::string name = name_of(config, engines[0]);
      configs.push_back({std::move(config), std::move(name)});
    } catch (const DeviceError& error) {  // an engine that cannot even be described is not one to use
      log::debug("{}", error.what());
    }
  }
  return configs;
}

}  // namespace

std::vector<ConvTensor> conv_tensors(const ConvProblem& problem) {
  using Problem = const ConvProblem&;
  using Arrays = const ConvArrays&;
  std::vector<ConvTensor> tensors = {{'x', [](Problem, Arrays arrays) { return arrays.x; }},
                                     {'w', [](Problem, Arrays arrays) { return arrays.weight; }},
                                     {'y', [](Problem, Arrays arrays) { return arrays.y; }}};
  const auto add = [&](bool is_there, int64_t id, auto array) {
    if (is_there) tensors.push_back({id, array});
  };
  add(problem.sums, 's', [](Problem, Arrays arrays) -> void* { return arrays.sums; });
  add(problem.sums, 'q', [](Problem p, Arrays arrays) -> void* { return arrays.sums + p.y[1]; });
  add(problem.epilogue.addend, 'a', [](Problem, Arrays arrays) { return const_cast<void*>(arrays.addend); });
  add(problem.epilogue.bias, 'b', [](Problem, Arrays arrays) { return const_cast<void*>(arrays.bias); });
  add(problem.epilogue.activation == ConvActivation::kPRelu, 'p',
      [](Problem, Arrays arrays) { return const_cast<void*>(arrays.slope); });
  return tensors;
}

std::shared_ptr<const ConvGraph> make_conv_graph(cudnnHandle_t handle, const ConvProblem& problem) try {
  GraphBuilder builder(problem);
  const auto x = builder.tensor('x', problem.x, problem.dtype);
  const auto weight = builder.tensor('w', problem.weight, problem.dtype);
  const auto y = builder.tensor('y', problem.y, problem.dtype);
  if (problem.epilogue.is_there()) {
    add_with_epilogue(builder, problem, x, weight, y);
  } else {
    builder.convolve(x, weight, y);
  }
  if (problem.sums) {
    const auto sums = builder.per_channel('s', DType::kFloat32);
    builder.sum(y, sums, builder.per_channel('q', DType::kFloat32));
  }
  return builder.finish(handle);
} catch (const DeviceError& error) {  // cuDNN says in many ways that it lacks something
  if (device_lost(problem.device)) throw;
  log::debug("{}", error.what());
  return nullptr;
}

std::vector<ConvConfig> propose_conv_configs(const ConvGraph& graph, DType dtype, const ConvRules& rules,
                                             bool with_fallbacks) {
  std::vector<ConvConfig> quick = ask(graph, CUDNN_HEUR_MODE_A, dtype, rules);
  std::vector<ConvConfig> careful = ask(graph, CUDNN_HEUR_MODE_B, dtype, rules);
  std::vector<ConvConfig> fallback;
  if (with_fallbacks) fallback = ask(graph, CUDNN_HEUR_MODE_FALLBACK, dtype, rules);

  std::vector<ConvConfig> all;
  std::set<std::string> seen;
  const auto add = [&](std::vector<ConvConfig>& from, size_t i) {
    if (i < from.size() && seen.insert(from[i].name).second) all.push_back(std::move(from[i]));
  };
  // In turns, so that the favourites of both heuristics are among the first.
  for (size_t i = 0; i < std::max(quick.size(), careful.size()); ++i) {
    add(quick, i);
    add(careful, i);
  }
  for (size_t i = 0; i < fallback.size(); ++i) add(fallback, i);
  return all;
}

}  // namespace sinter::cuda
