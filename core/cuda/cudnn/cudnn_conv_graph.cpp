#include <algorithm>
#include <array>
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

CudnnDescriptor make_tensor(int64_t id, const std::array<int64_t, 4>& extents, const ConvProblem& problem,
                            DType dtype) {
  CudnnDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, data_type_of(dtype));
  tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, static_cast<int64_t>(kConvAlignment));
  tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, extents);
  tensor.set(CUDNN_ATTR_TENSOR_STRIDES, strides_of(extents, problem.layout));
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

/// The tensors of kConvTensorIds, not yet finalized.
std::vector<CudnnDescriptor> make_tensors(const ConvProblem& problem) {
  std::vector<CudnnDescriptor> tensors;
  for (const auto& [id, extents] : {std::pair(kConvTensorIds[0], problem.x),
                                    {kConvTensorIds[1], problem.weight},
                                    {kConvTensorIds[2], problem.y}}) {
    tensors.push_back(make_tensor(id, extents, problem, problem.dtype));
  }
  for (size_t i = tensors.size(); i < conv_tensor_count(problem); ++i)
    tensors.push_back(make_tensor(kConvTensorIds[i], {1, problem.y[1], 1, 1}, problem, DType::kFloat32));
  return tensors;
}

/// The sums of y, which are computed while it is written.
CudnnDescriptor make_statistics(const CudnnDescriptor& y, const CudnnDescriptor& sums,
                                const CudnnDescriptor& squares) {
  const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
  CudnnDescriptor statistics(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
  statistics.set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode);
  statistics.set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT);
  statistics.set(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, y);
  statistics.set(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sums);
  statistics.set(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, squares);
  return statistics;
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

std::shared_ptr<const ConvGraph> make_conv_graph(cudnnHandle_t handle, const ConvProblem& problem) try {
  auto made = std::make_shared<ConvGraph>();
  // Tensors come first in `parts`, in the order of kConvTensorIds; a part must be finalized before it is
  // referred to.
  made->parts = make_tensors(problem);
  made->parts.push_back(make_convolution(problem));
  for (CudnnDescriptor& part : made->parts) {
    if (!part.try_finalize()) return nullptr;
  }

  const OperationNames names = names_of(problem.pass);
  CudnnDescriptor operation(names.type);
  operation.set(names.x, made->parts[0]);
  operation.set(names.weight, made->parts[1]);
  operation.set(names.y, made->parts[2]);
  operation.set(names.convolution, made->parts.back());
  operation.set(names.alpha, 1.0f);
  operation.set(names.beta, 0.0f);
  if (!operation.try_finalize()) return nullptr;
  std::vector<cudnnBackendDescriptor_t> operations{operation.get()};
  made->parts.push_back(std::move(operation));
  if (problem.sums) {
    CudnnDescriptor statistics = make_statistics(made->parts[2], made->parts[3], made->parts[4]);
    if (!statistics.try_finalize()) return nullptr;
    operations.push_back(statistics.get());
    made->parts.push_back(std::move(statistics));
  }

  made->graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::ssize(operations),
                  operations.data());
  made->graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  if (!made->graph.try_finalize()) return nullptr;
  return made;
} catch (const DeviceError& error) {  // some problems are refused as early as when an attribute is set
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
