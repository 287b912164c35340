#include <sinter/nn/export/onnx.h>
#include <sinter/nn/export/onnx_file.h>
#include <sinter/nn/export/onnx_graph.h>
#include <sinter/nn/export/onnx_trace.h>

namespace sinter::nn {

std::string_view to_string(OnnxPreprocessing preprocessing) {
  switch (preprocessing) {
    case OnnxPreprocessing::kNone:
      return "none";
    case OnnxPreprocessing::kRgb:
      return "rgb";
    case OnnxPreprocessing::kUInt8:
      return "uint8";
  }
  return "?";
}

OnnxPreprocessing parse_onnx_preprocessing(std::string_view text) {
  for (const auto each : {OnnxPreprocessing::kNone, OnnxPreprocessing::kRgb, OnnxPreprocessing::kUInt8}) {
    if (to_string(each) == text) return each;
  }
  throw_error<InvalidArgument>("[export_onnx] expected none, rgb or uint8 as preprocessing but got '{}'",
                               text);
}

TensorSpec detail::onnx_input(const ModuleBase& model, const Shape& shape) {
  const std::vector<Parameter> parameters = model.parameters();
  if (parameters.empty()) return {shape, DType::kFloat32, Device::cpu()};
  const Tensor& tensor = parameters[0].tensor();
  return {shape, tensor.dtype(), tensor.device()};
}

void export_onnx(const ModuleBase& model, const JobFunction& function, std::span<const TensorSpec> inputs,
                 const std::filesystem::path& path, const OnnxOptions& options) {
  const OnnxTrace trace = trace_for_onnx(model, function, inputs, options);
  OnnxModel file = OnnxGraph(trace, options).build();
  if (options.metadata) {
    for (const auto& entry : to_safetensors_metadata(*options.metadata)) file.metadata.push_back(entry);
  }
  file.metadata.emplace_back("preprocessing", to_string(options.preprocessing));
  write_onnx(file, path, options.external_data_above);
}

void export_onnx(const InferJob& job, const std::filesystem::path& path, const OnnxOptions& options) {
  const std::vector<TensorSpec> inputs = job.input_specs();
  export_onnx(job.model(), job.function(), inputs, path, options);
}

}  // namespace sinter::nn
