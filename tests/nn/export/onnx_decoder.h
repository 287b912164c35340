// Reads ONNX files for tests, by the encoding of protobuf alone.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace sinter::nn::testing {

/// The fields of a message: numbers, or bytes, which may be a message in turn.
struct DecodedMessage {
  struct Field {
    int number = 0;
    uint64_t value = 0;
    std::string bytes;
  };
  std::vector<Field> fields;

  explicit DecodedMessage(std::string_view text) {
    size_t at = 0;
    const auto need = [&](uint64_t bytes) {
      if (bytes > text.size() - at) throw std::runtime_error("a message that is cut off");
    };
    const auto varint = [&] {
      uint64_t value = 0;
      for (int shift = 0; shift < 70; shift += 7) {
        need(1);
        const auto byte = static_cast<unsigned char>(text[at++]);
        value |= static_cast<uint64_t>(byte & 0x7f) << shift;
        if (byte < 0x80) return value;
      }
      throw std::runtime_error("a varint without end");
    };
    while (at < text.size()) {
      const uint64_t key = varint();
      Field field{static_cast<int>(key >> 3), 0, {}};
      const uint64_t type = key & 7;
      if (type == 0) {
        field.value = varint();
      } else if (type == 2) {
        const uint64_t size = varint();
        need(size);
        field.bytes = text.substr(at, size);
        at += size;
      } else if (type == 5) {
        need(4);
        field.bytes = text.substr(at, 4);
        at += 4;
      } else {
        throw std::runtime_error("a wire type that ONNX files have not");
      }
      fields.push_back(field);
    }
  }

  std::vector<const Field*> all(int number) const {
    std::vector<const Field*> found;
    for (const Field& field : fields) {
      if (field.number == number) found.push_back(&field);
    }
    return found;
  }
  std::string text(int number) const {
    const auto found = all(number);
    return found.empty() ? std::string() : found[0]->bytes;
  }
  int64_t integer(int number) const {
    const auto found = all(number);
    return found.empty() ? 0 : static_cast<int64_t>(found[0]->value);
  }
  std::vector<std::string> texts(int number) const {
    std::vector<std::string> result;
    for (const Field* const field : all(number)) result.push_back(field->bytes);
    return result;
  }
  std::vector<int64_t> integers(int number) const {
    std::vector<int64_t> result;
    for (const Field* const field : all(number)) result.push_back(static_cast<int64_t>(field->value));
    return result;
  }
  std::map<std::string, std::string> entries(int number) const {
    std::map<std::string, std::string> result;
    for (const std::string& bytes : texts(number)) {
      const DecodedMessage entry(bytes);
      result[entry.text(1)] = entry.text(2);
    }
    return result;
  }
};

struct DecodedNode {
  std::string type, name;
  std::vector<std::string> inputs, outputs;
  std::map<std::string, DecodedMessage> attributes;

  std::vector<int64_t> ints(const std::string& attribute) const {
    return attributes.at(attribute).integers(8);
  }
  int64_t integer(const std::string& attribute) const { return attributes.at(attribute).integer(3); }
  std::string text(const std::string& attribute) const { return attributes.at(attribute).text(4); }
};

struct DecodedTensor {
  std::vector<int64_t> dims;
  int64_t type = 0;
  std::string raw;
  std::map<std::string, std::string> external;

  std::vector<float> floats() const {
    std::vector<float> values(raw.size() / sizeof(float));
    std::memcpy(values.data(), raw.data(), raw.size());
    return values;
  }
  std::vector<int64_t> ints() const {
    std::vector<int64_t> values(raw.size() / sizeof(int64_t));
    std::memcpy(values.data(), raw.data(), raw.size());
    return values;
  }
};

/// "float (batch, 3, 8, 8)" and the like.
inline std::string decoded_value(const DecodedMessage& value) {
  const DecodedMessage tensor(DecodedMessage(value.text(2)).text(1));
  std::string text = tensor.integer(1) == 1 ? "float (" : std::to_string(tensor.integer(1)) + " (";
  for (const std::string& bytes : DecodedMessage(tensor.text(2)).texts(1)) {
    const DecodedMessage dim(bytes);
    text += (text.back() == '(' ? "" : ", ") +
            (dim.all(2).empty() ? std::to_string(dim.integer(1)) : dim.text(2));
  }
  return text + ")";
}

struct DecodedOnnx {
  int64_t ir_version, opset;
  std::string producer;
  std::map<std::string, std::string> metadata;
  std::vector<DecodedNode> nodes;
  std::map<std::string, DecodedTensor> initializers;
  std::vector<std::pair<std::string, std::string>> inputs, outputs;  // names, and what they are

  explicit DecodedOnnx(std::string_view file) {
    const DecodedMessage model(file);
    ir_version = model.integer(1);
    producer = model.text(2);
    opset = DecodedMessage(model.text(8)).integer(2);
    metadata = model.entries(14);
    const DecodedMessage graph(model.text(7));
    for (const std::string& bytes : graph.texts(1)) {
      const DecodedMessage message(bytes);
      DecodedNode node{message.text(4), message.text(3), message.texts(1), message.texts(2), {}};
      for (const std::string& attribute : message.texts(5)) {
        const DecodedMessage decoded(attribute);
        node.attributes.emplace(decoded.text(1), decoded);
      }
      nodes.push_back(node);
    }
    for (const std::string& bytes : graph.texts(5)) {
      const DecodedMessage message(bytes);
      initializers[message.text(8)] = {message.integers(1), message.integer(2), message.text(9),
                                       message.entries(13)};
    }
    for (const auto& [field, list] : {std::pair{11, &inputs}, std::pair{12, &outputs}}) {
      for (const std::string& bytes : graph.texts(field)) {
        const DecodedMessage value(bytes);
        list->emplace_back(value.text(1), decoded_value(value));
      }
    }
  }

  /// "Conv Relu ...".
  std::string types() const {
    std::string text;
    for (const DecodedNode& node : nodes) text += (text.empty() ? "" : " ") + node.type;
    return text;
  }
};

inline std::string file_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace sinter::nn::testing
