#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/formats/file_bytes.h>
#include <sinter/nn/data/formats/idx.h>

namespace sinter::nn::data {
namespace {

constexpr size_t kMagicBytes = 4;
constexpr uint8_t kTypeUInt8 = 0x08;
constexpr int kMaxDims = 8;
constexpr uint64_t kMaxHeaderBytes = kMagicBytes + 4 * kMaxDims;

// Checks the four bytes before the extents and returns the number of extents.
size_t parse_magic(std::span<const uint8_t> magic, const std::string& name) {
  if (magic[0] != 0 || magic[1] != 0) {
    throw_error<IoError>(
        "[idx] {}: expected two zero bytes at byte 0 but got 0x{:02x} 0x{:02x}; this is no IDX file", name,
        magic[0], magic[1]);
  }
  if (magic[2] != kTypeUInt8) {
    throw_error<Unsupported>("[idx] {}: expected element type 0x08 (uint8) at byte 2 but got 0x{:02x}", name,
                             magic[2]);
  }
  if (magic[3] < 1 || magic[3] > kMaxDims) {
    throw_error<IoError>("[idx] {}: expected a rank from 1 to {} at byte 3 but got {}", name, kMaxDims,
                         magic[3]);
  }
  return magic[3];
}

// Reads the extents and returns how many values they promise.
uint64_t parse_dims(std::span<const uint8_t> header, IdxArray& array, const std::string& name,
                    uint64_t max_values) {
  uint64_t count = 1;
  for (size_t at = 0; at < header.size(); at += 4) {
    const uint32_t dim = uint32_t{header[at]} << 24 | uint32_t{header[at + 1]} << 16 |
                         uint32_t{header[at + 2]} << 8 | uint32_t{header[at + 3]};
    if (__builtin_mul_overflow(count, uint64_t{dim}, &count) || count > max_values) {
      throw_error<IoError>("[idx] {}: the extents at byte {} promise more than {} values (max_values)", name,
                           kMagicBytes, max_values);
    }
    array.dims.push_back(dim);
  }
  return count;
}

IdxArray parse_gzip(std::span<const uint8_t> bytes, const std::string& name, uint64_t max_values) {
  GzipReader gzip(bytes, name);
  std::vector<uint8_t> header;
  gzip.read(kMagicBytes, header);
  const size_t dims = parse_magic(header, name);
  header.clear();
  gzip.read(4 * dims, header);
  IdxArray array;
  const uint64_t count = parse_dims(header, array, name, max_values);
  gzip.read(count, array.values);
  gzip.finish();
  return array;
}

std::string shape_text(const std::vector<int64_t>& dims) {
  return fmt::format("({})", fmt::join(dims, ", "));
}

}  // namespace

IdxArray parse_idx(std::span<const uint8_t> bytes, const std::string& name, uint64_t max_values) {
  if (is_gzip(bytes)) return parse_gzip(bytes, name, max_values);
  if (bytes.size() < kMagicBytes) {
    throw_error<IoError>("[idx] {}: expected a header of at least {} bytes but the file has {}", name,
                         kMagicBytes, bytes.size());
  }
  const size_t header_bytes = kMagicBytes + 4 * parse_magic(bytes, name);
  if (bytes.size() < header_bytes) {
    throw_error<IoError>("[idx] {}: expected a header of {} bytes but the file has {}", name, header_bytes,
                         bytes.size());
  }
  IdxArray array;
  const uint64_t count =
      parse_dims(bytes.subspan(kMagicBytes, header_bytes - kMagicBytes), array, name, max_values);
  const std::span<const uint8_t> values = bytes.subspan(header_bytes);
  if (values.size() != count) {
    throw_error<IoError>("[idx] {}: expected {} values for shape {} from byte {} on but the file has {}",
                         name, count, shape_text(array.dims), header_bytes, values.size());
  }
  resize_for_file(array.values, count, name);
  std::copy(values.begin(), values.end(), array.values.begin());
  return array;
}

IdxArray read_idx(const std::filesystem::path& path, uint64_t max_values) {
  const uint64_t most = max_values + std::min(kMaxHeaderBytes, ~max_values);
  return parse_idx(read_file(path, most), path.string(), max_values);
}

std::shared_ptr<const MemoryDataset> open_idx(const std::filesystem::path& images,
                                              const std::filesystem::path& labels, int64_t num_classes,
                                              uint64_t max_values) {
  IdxArray pixels = read_idx(images, max_values);
  const IdxArray classes = read_idx(labels, max_values);
  if (pixels.dims.size() != 3 && pixels.dims.size() != 4) {
    throw_error<IoError>(
        "[idx] {}: expected images (N, height, width) or (N, height, width, channels) but got {}",
        images.string(), shape_text(pixels.dims));
  }
  if (classes.dims.size() != 1 || classes.dims[0] != pixels.dims[0]) {
    throw_error<IoError>("[idx] {}: expected labels ({}) for the images of {} but got {}", labels.string(),
                         pixels.dims[0], images.string(), shape_text(classes.dims));
  }
  if (std::count(pixels.dims.begin(), pixels.dims.end(), 0) != 0) {
    throw_error<IoError>("[idx] {}: expected at least one image and pixel but got {}", images.string(),
                         shape_text(pixels.dims));
  }
  const int64_t most = *std::max_element(classes.values.begin(), classes.values.end());
  if (num_classes == 0) num_classes = most + 1;
  if (most >= num_classes) {
    const auto at = std::find_if(classes.values.begin(), classes.values.end(),
                                 [&](uint8_t v) { return v >= num_classes; });
    throw_error<IoError>("[idx] {}: expected labels below {} but label {} is {}", labels.string(),
                         num_classes, at - classes.values.begin(), *at);
  }
  MemoryDataset::Content content;
  content.height = pixels.dims[1];
  content.width = pixels.dims[2];
  content.channels = pixels.dims.size() == 4 ? pixels.dims[3] : 1;
  content.pixels = std::move(pixels.values);
  content.labels.assign(classes.values.begin(), classes.values.end());
  for (int64_t i = 0; i < num_classes; ++i) content.class_names.push_back(std::to_string(i));
  return std::make_shared<MemoryDataset>(std::move(content));
}

}  // namespace sinter::nn::data
