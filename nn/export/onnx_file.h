// What an ONNX file holds, and how it is written: as protobuf messages, field by field.
//
// Source: onnx.proto, https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <sinter/core/tensor/tensor.h>
#include <sinter/nn/export/onnx_call.h>

namespace sinter::nn {

struct OnnxNode {
  std::string type, name;
  std::vector<std::string> inputs, outputs;
  std::vector<OnnxAttribute> attributes;
};

/// A constant. The tensor may be on any device; 16-bit ones are written as float32.
struct OnnxInitializer {
  std::string name;
  Tensor value;
};

/// An input or an output; each extent is a number or a name.
struct OnnxValue {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<std::variant<int64_t, std::string>> extents;
};

struct OnnxModel {
  std::vector<OnnxNode> nodes;  // in an order in which they can run
  std::vector<OnnxInitializer> initializers;
  std::vector<OnnxValue> inputs, outputs;
  std::vector<std::pair<std::string, std::string>> metadata;
};

/// float32 for the 16-bit dtypes, else itself.
DType written_dtype(DType dtype);
/// The number in ONNX of what a dtype is written as.
int64_t onnx_type(DType dtype);

/// Writes the model to `path`, and, if its initializers have more than `external_data_above` bytes, those of
/// more than 1 KiB to `<path>.data` before. Both files appear when they are complete. Throws IoError.
void write_onnx(const OnnxModel& model, const std::filesystem::path& path, uint64_t external_data_above);

}  // namespace sinter::nn
