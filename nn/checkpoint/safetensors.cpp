#include <algorithm>
#include <bit>
#include <cstring>

#include <sinter/core/runtime/backend.h>
#include <sinter/core/text/printable.h>
#include <sinter/nn/checkpoint/safetensors.h>
#include <sinter/nn/checkpoint/safetensors_header.h>

namespace sinter::nn {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian, and bytes are copied as they are");

using ReadBytes = std::function<void(uint64_t offset, std::span<std::byte> bytes)>;

/// A bool that is neither 0 nor 1 is undefined behaviour in C++, so such a file must not become a tensor.
void check_bools(const SafetensorsEntry& entry, std::span<const std::byte> bytes, uint64_t position,
                 const std::string& path) {
  const auto bad = std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; });
  if (bad == bytes.end()) return;
  throw_error<IoError>("[safetensors] {}: byte {}: tensor {}: expected a BOOL of 0 or 1 but got {}", path,
                       position + static_cast<uint64_t>(bad - bytes.begin()), quote_name(entry.name),
                       std::to_integer<int>(*bad));
}

Safetensors read_from(uint64_t file_bytes, const ReadBytes& read, const std::string& path) {
  if (file_bytes < kSafetensorsPrefixBytes) {
    throw_error<IoError>("[safetensors] {}: byte 0: expected a length of 8 bytes but the file has {}", path,
                         file_bytes);
  }
  uint64_t header_bytes = 0;
  read(0, std::as_writable_bytes(std::span(&header_bytes, 1)));
  check_safetensors_header_length(header_bytes, file_bytes, path);
  std::string text(header_bytes, '\0');
  read(kSafetensorsPrefixBytes, std::as_writable_bytes(std::span(text)));
  const uint64_t data_start = kSafetensorsPrefixBytes + header_bytes;
  SafetensorsHeader header = parse_safetensors_header(text, file_bytes - data_start, path);

  Safetensors result;
  result.metadata = std::move(header.metadata);
  for (const SafetensorsEntry& entry : header.entries) {
    Tensor tensor = Tensor::empty(entry.shape, entry.dtype);
    const std::span<std::byte> bytes(static_cast<std::byte*>(tensor.raw_data()), entry.end - entry.begin);
    read(data_start + entry.begin, bytes);
    if (entry.dtype == DType::kBool) check_bools(entry, bytes, data_start + entry.begin, path);
    result.tensors.emplace(entry.name, std::move(tensor));
  }
  return result;
}

void check_text(const std::string& text, const char* what) {
  SINTER_CHECK(valid_utf8_prefix(text) == text.size(),
               "[safetensors] expected UTF-8 text without zero bytes as {} but got {}", what,
               quote_name(text));
}

/// Places the tensors: those with larger elements first, so that each is aligned, and by name among equals.
SafetensorsHeader place_tensors(const NamedTensors& tensors,
                                const std::map<std::string, std::string>& metadata) {
  SafetensorsHeader header;
  header.metadata = metadata;
  for (const auto& [key, value] : metadata) {
    check_text(key, "a key of the metadata");
    check_text(value, "a value of the metadata");
  }
  for (const auto& [name, tensor] : tensors) {
    check_text(name, "the name of a tensor");
    SINTER_CHECK(name != kSafetensorsMetadata,
                 "[safetensors] a tensor cannot have the reserved name __metadata__");
    SINTER_CHECK(tensor.defined(), "[safetensors] tensor {} is undefined", quote_name(name));
    header.entries.push_back({.name = name, .dtype = tensor.dtype(), .shape = tensor.shape()});
  }
  std::stable_sort(header.entries.begin(), header.entries.end(),
                   [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
                     return size_of(a.dtype) > size_of(b.dtype);
                   });
  uint64_t end = 0;
  for (SafetensorsEntry& entry : header.entries) {
    entry.begin = end;
    end += static_cast<uint64_t>(entry.shape.numel()) * size_of(entry.dtype);
    entry.end = end;
  }
  return header;
}

/// Throws InvalidArgument, with the first names of the map, if `name` is not among them.
template <class Value>
const Value& at_name(const std::map<std::string, Value>& map, const std::string& name, const char* what) {
  constexpr size_t kMost = 20;
  const auto found = map.find(name);
  if (found != map.end()) return found->second;
  std::string names;
  size_t count = 0;
  for (auto at = map.begin(); at != map.end() && count < kMost; ++at, ++count) {
    names += (count == 0 ? "" : ", ") + quote_name(at->first);
  }
  if (map.size() > kMost) names += fmt::format(" and {} more", map.size() - kMost);
  throw_error<InvalidArgument>("[safetensors] there is no {} {}; there {} {}", what, quote_name(name),
                               map.size() == 1 ? "is" : "are", map.empty() ? "none" : names);
}

}  // namespace

const Tensor& Safetensors::tensor(const std::string& name) const {
  return at_name(tensors, name, "tensor");
}

const std::string& Safetensors::metadata_of(const std::string& key) const {
  return at_name(metadata, key, "metadata");
}

Safetensors read_safetensors(const std::filesystem::path& path, FileSystem& files) {
  // Not mapped into memory: a mapped file that another process shortens kills the reader with SIGBUS.
  InputFile file(path, files);
  const ReadBytes read = [&](uint64_t offset, std::span<std::byte> bytes) { file.read(offset, bytes); };
  return read_from(file.size(), read, path.string());
}

Safetensors parse_safetensors(std::span<const std::byte> bytes, const std::filesystem::path& path) {
  const ReadBytes read = [&](uint64_t offset, std::span<std::byte> target) {
    if (!target.empty()) std::memcpy(target.data(), bytes.data() + offset, target.size());
  };
  return read_from(bytes.size(), read, path.string());
}

void serialize_safetensors(const NamedTensors& tensors, const std::map<std::string, std::string>& metadata,
                           const std::function<void(std::span<const std::byte>)>& sink) {
  const SafetensorsHeader header = place_tensors(tensors, metadata);
  const std::string text = format_safetensors_header(header);
  SINTER_CHECK(text.size() <= kSafetensorsMaxHeaderBytes,
               "[safetensors] a header of {} bytes is longer than {}", text.size(),
               kSafetensorsMaxHeaderBytes);
  const uint64_t length = text.size();
  sink(std::as_bytes(std::span(&length, 1)));
  sink(std::as_bytes(std::span(text)));
  for (const SafetensorsEntry& entry : header.entries) {
    const Tensor& source = tensors.at(entry.name);
    const Tensor tensor = source.to(Device::cpu());
    synchronize(source.device());
    if (tensor.numel() == 0) continue;
    sink({static_cast<const std::byte*>(tensor.raw_data()), tensor.spec().bytes()});
  }
}

void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata, FileSystem& files) {
  place_tensors(tensors, metadata);  // what the caller did wrong is said before a file is touched
  AtomicOutputFile file(path, files);
  serialize_safetensors(tensors, metadata, [&](std::span<const std::byte> bytes) { file.write(bytes); });
  file.commit();
}

}  // namespace sinter::nn
