// ModelMetadata: what gives a model's outputs their meaning. It stands beside the weights, in checkpoints and
// in the metadata of safetensors files, so that whoever has a file of weights needs nothing else to use it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sinter::nn {

struct ModelMetadata {
  /// "image-classification": the outputs are logits, one for each of `classes`; "image-feature-extraction":
  /// embeddings, which were trained to tell `classes` apart.
  std::string task;
  std::string model;                           ///< the function that makes it: "resnet18", "iresnet50"
  std::map<std::string, std::string> options;  ///< what that function is given: {"small_stem", "true"}
  std::vector<std::string> classes;            ///< names in UTF-8, in the order of labels and logits

  // How a picture becomes an input.
  int64_t height = 0, width = 0;
  int64_t channels = 0;  ///< 3: RGB, in this order; 1: grey
  /// "none": pictures have the size of an input; "shorter_side": the shorter side is resized to
  /// `resize_size` pixels and the middle is cut out; "exact": all of the picture is resized.
  std::string resize = "none";
  int64_t resize_size = 0;       ///< of "shorter_side"
  std::vector<float> mean, std;  ///< of each channel: y = (x / 255 - mean) / std

  // What it was trained on: see Dataset::fingerprint().
  int64_t train_images = 0;
  std::string data_fingerprint;  ///< 16 hexadecimal digits

  std::string interpolation = "bilinear";  ///< how a picture is resized; or "bicubic"

  bool operator==(const ModelMetadata&) const = default;
};

/// One JSON object, whose keys docs/train_resnet.md tells. Throws InvalidArgument for text that is no UTF-8.
std::string to_json(const ModelMetadata& metadata);
/// The inverse, for untrusted text; keys that it does not know are passed over. Throws IoError with `path`
/// for anything else, and for metadata of a later version.
ModelMetadata parse_model_metadata(std::string_view json, const std::string& path);

/// The same keys as metadata of a safetensors file, to be merged with others: texts as they are, all else as
/// JSON.
std::map<std::string, std::string> to_safetensors_metadata(const ModelMetadata& metadata);
/// The inverse; none if the file has no such metadata. Throws IoError with `path` if it is damaged.
std::optional<ModelMetadata> find_model_metadata(const std::map<std::string, std::string>& metadata,
                                                 const std::string& path);

/// How classes differ, in words, of which three name classes at most: "class 3 was 'z', is 'a' now"; empty if
/// they do not. If one side's names are but their numbers, "0", "1", ..., as those of data sets without
/// names, and the other has none of these, classes are only counted.
std::string describe_class_changes(const std::vector<std::string>& before,
                                   const std::vector<std::string>& now);

/// Whether the names are but their numbers, "0", "1", ..., as those of data sets without names.
bool are_numbers(const std::vector<std::string>& classes);

/// The text, with each byte that is no valid UTF-8, and zero, as `\x..`.
std::string to_utf8(std::string_view text);

}  // namespace sinter::nn
