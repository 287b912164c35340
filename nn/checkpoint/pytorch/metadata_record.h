// Metadata in a PyTorch file: texts by name, as those of a safetensors file, in a record that torch.load
// passes over.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include <sinter/nn/checkpoint/pytorch/byte_source.h>

namespace sinter::nn::pytorch {

/// Where it lies in the archive's folder: beside the extra files of torch.jit.save.
inline constexpr std::string_view kMetadataRecord = "extra/metadata.json";

/// A JSON object of texts. Throws InvalidArgument for a text that is no UTF-8, more names than 2^18 or more
/// than 100 MB.
std::string format_metadata(const std::map<std::string, std::string>& metadata);

/// The inverse, for untrusted bytes. Throws IoError with the record and the byte in it for anything else.
std::map<std::string, std::string> parse_metadata(const ByteSource& source, const Record& record);

}  // namespace sinter::nn::pytorch
