#include <algorithm>
#include <array>

#include <sinter/core/file_system/file_system.h>
#include <sinter/core/protobuf/fields.h>
#include <sinter/nn/export/onnx_file.h>
#include <sinter/ops/cast/cast.h>

namespace sinter::nn {
namespace {

using protobuf::bytes_field;
using protobuf::bytes_field_head;
using protobuf::float_field;
using protobuf::integer_field;

constexpr int64_t kIrVersion = 8, kOpset = 17;
constexpr uint64_t kInline = 1024;     // smaller ones stay in the file: shapes, which checkers read there
constexpr uint64_t kAlignment = 4096;  // of external data: pages, which can be mapped

// Fields of the messages, by their names.
namespace model_field {
enum { kIr = 1, kProducer = 2, kProducerVersion = 3, kGraph = 7, kOpsetImport = 8, kMetadata = 14 };
}
namespace graph_field {
enum { kNode = 1, kName = 2, kInitializer = 5, kInput = 11, kOutput = 12 };
}
namespace node_field {
enum { kInput = 1, kOutput = 2, kName = 3, kType = 4, kAttribute = 5 };
}
namespace attribute_field {
enum { kName = 1, kFloat = 2, kInt = 3, kString = 4, kInts = 8, kType = 20 };
enum { kIsFloat = 1, kIsInt = 2, kIsString = 3, kIsInts = 7 };
}  // namespace attribute_field
namespace tensor_field {
enum { kDims = 1, kType = 2, kName = 8, kRaw = 9, kExternal = 13, kLocation = 14 };
}

std::string entry(const std::string& key, const std::string& value) {
  return bytes_field(1, key) + bytes_field(2, value);
}

std::string attribute(const OnnxAttribute& attribute) {
  using namespace attribute_field;
  std::string text = bytes_field(kName, attribute.first);
  if (const auto* const number = std::get_if<int64_t>(&attribute.second)) {
    text += integer_field(kInt, *number) + integer_field(kType, kIsInt);
  } else if (const auto* const real = std::get_if<double>(&attribute.second)) {
    text += float_field(kFloat, static_cast<float>(*real)) + integer_field(kType, kIsFloat);
  } else if (const auto* const word = std::get_if<std::string>(&attribute.second)) {
    text += bytes_field(kString, *word) + integer_field(kType, kIsString);
  } else {
    // In onnx.proto, of proto2, repeated numbers are not packed.
    for (const int64_t value : std::get<OnnxInts>(attribute.second)) text += integer_field(kInts, value);
    text += integer_field(kType, kIsInts);
  }
  return text;
}

std::string node(const OnnxNode& node) {
  using namespace node_field;
  std::string text;
  for (const std::string& input : node.inputs) text += bytes_field(kInput, input);
  for (const std::string& output : node.outputs) text += bytes_field(kOutput, output);
  text += bytes_field(kName, node.name) + bytes_field(kType, node.type);
  for (const OnnxAttribute& each : node.attributes) text += bytes_field(kAttribute, attribute(each));
  return text;
}

std::string value(const OnnxValue& value) {
  std::string shape;
  for (const auto& extent : value.extents) {
    const auto* const number = std::get_if<int64_t>(&extent);
    shape += bytes_field(
        1, number != nullptr ? integer_field(1, *number) : bytes_field(2, std::get<std::string>(extent)));
  }
  const std::string type = integer_field(1, onnx_type(value.dtype)) + bytes_field(2, shape);
  return bytes_field(1, value.name) + bytes_field(2, bytes_field(1, type));
}

uint64_t written_bytes(const OnnxInitializer& initializer) {
  return static_cast<uint64_t>(initializer.value.numel()) * size_of(written_dtype(initializer.value.dtype()));
}

/// All of a TensorProto but what its elements are, or where.
std::string tensor_head(const OnnxInitializer& initializer) {
  using namespace tensor_field;
  std::string text;
  for (const int64_t extent : initializer.value.shape()) text += integer_field(kDims, extent);
  return text + integer_field(kType, onnx_type(initializer.value.dtype())) +
         bytes_field(kName, initializer.name);
}

/// Hands the elements to `write` as they stand in the file.
template <class Write>
void write_elements(const OnnxInitializer& initializer, const Write& write) {
  const Tensor wide =
      ops::cast(initializer.value.to(Device::cpu()), written_dtype(initializer.value.dtype()));
  write(std::span(static_cast<const std::byte*>(wide.raw_data()), wide.spec().bytes()));
}

/// Where the elements of each initializer begin in the file of external data; -1: they are none of it.
std::vector<int64_t> external_offsets(const OnnxModel& model, uint64_t external_data_above) {
  std::vector<int64_t> offsets(model.initializers.size(), -1);
  uint64_t total = 0, offset = 0;
  for (const OnnxInitializer& initializer : model.initializers) total += written_bytes(initializer);
  if (total <= external_data_above) return offsets;
  for (size_t i = 0; i < offsets.size(); ++i) {
    const uint64_t bytes = written_bytes(model.initializers[i]);
    if (bytes <= kInline) continue;
    offset = (offset + kAlignment - 1) / kAlignment * kAlignment;
    offsets[i] = static_cast<int64_t>(offset);
    offset += bytes;
  }
  return offsets;
}

void write_external(const OnnxModel& model, const std::vector<int64_t>& offsets,
                    const std::filesystem::path& path) {
  AtomicOutputFile file(path);
  uint64_t written = 0;
  const auto write = [&](std::span<const std::byte> bytes) {
    file.write(bytes);
    written += bytes.size();
  };
  static constexpr std::array<std::byte, kAlignment> kZeros{};
  for (size_t i = 0; i < offsets.size(); ++i) {
    if (offsets[i] < 0) continue;
    write(std::span(kZeros).first(static_cast<uint64_t>(offsets[i]) - written));
    write_elements(model.initializers[i], write);
  }
  file.commit();
}

std::string external_tensor(const OnnxInitializer& initializer, int64_t offset, const std::string& location) {
  using namespace tensor_field;
  return tensor_head(initializer) + bytes_field(kExternal, entry("location", location)) +
         bytes_field(kExternal, entry("offset", std::to_string(offset))) +
         bytes_field(kExternal, entry("length", std::to_string(written_bytes(initializer)))) +
         integer_field(kLocation, 1);
}

}  // namespace

DType written_dtype(DType dtype) {
  return is_half(dtype) ? DType::kFloat32 : dtype;
}

int64_t onnx_type(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
      return 2;
    case DType::kInt32:
      return 6;
    case DType::kInt64:
      return 7;
    case DType::kBool:
      return 9;
    default:
      return 1;
  }
}

void write_onnx(const OnnxModel& model, const std::filesystem::path& path, uint64_t external_data_above) {
  const std::vector<int64_t> offsets = external_offsets(model, external_data_above);
  const std::filesystem::path data = path.string() + ".data";
  if (std::ranges::any_of(offsets, [](int64_t offset) { return offset >= 0; })) {
    write_external(model, offsets, data);
  }

  // The graph but for the elements of its tensors, and each tensor's head: then all sizes are known.
  std::string graph = bytes_field(graph_field::kName, "sinter");
  for (const OnnxNode& each : model.nodes) graph += bytes_field(graph_field::kNode, node(each));
  for (const OnnxValue& each : model.inputs) graph += bytes_field(graph_field::kInput, value(each));
  for (const OnnxValue& each : model.outputs) graph += bytes_field(graph_field::kOutput, value(each));
  std::vector<std::string> heads;
  uint64_t graph_bytes = graph.size();
  for (size_t i = 0; i < offsets.size(); ++i) {
    const OnnxInitializer& initializer = model.initializers[i];
    if (offsets[i] >= 0) {
      heads.push_back(bytes_field(graph_field::kInitializer,
                                  external_tensor(initializer, offsets[i], data.filename().string())));
      graph_bytes += heads.back().size();
      continue;
    }
    const uint64_t bytes = written_bytes(initializer);
    const std::string tensor = tensor_head(initializer) + bytes_field_head(tensor_field::kRaw, bytes);
    heads.push_back(bytes_field_head(graph_field::kInitializer, tensor.size() + bytes) + tensor);
    graph_bytes += heads.back().size() + bytes;
  }

  std::string head = integer_field(model_field::kIr, kIrVersion) +
                     bytes_field(model_field::kProducer, "sinter") +
                     bytes_field(model_field::kOpsetImport, integer_field(2, kOpset));
  for (const auto& [key, text] : model.metadata)
    head += bytes_field(model_field::kMetadata, entry(key, text));
  head += bytes_field_head(model_field::kGraph, graph_bytes) + graph;
  AtomicOutputFile file(path);
  file.write(std::as_bytes(std::span(head)));
  for (size_t i = 0; i < heads.size(); ++i) {
    file.write(std::as_bytes(std::span(heads[i])));
    if (offsets[i] < 0) {
      write_elements(model.initializers[i], [&](std::span<const std::byte> bytes) { file.write(bytes); });
    }
  }
  file.commit();
}

}  // namespace sinter::nn
