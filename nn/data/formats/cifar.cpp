#include <utility>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/formats/cifar.h>
#include <sinter/nn/data/formats/file_bytes.h>

namespace sinter::nn::data {
namespace {

constexpr int64_t kSide = 32;
constexpr size_t kPlane = static_cast<size_t>(kSide * kSide);
constexpr uint64_t kMaxCifarBytes = uint64_t{4} << 30;

size_t label_bytes(CifarKind kind) {
  return kind == CifarKind::kCifar10 ? 1 : 2;
}
size_t label_position(CifarKind kind) {
  return kind == CifarKind::kCifar100 ? 1 : 0;
}
int class_count(CifarKind kind) {
  return kind == CifarKind::kCifar10 ? 10 : kind == CifarKind::kCifar100 ? 100 : 20;
}

}  // namespace

void parse_cifar(std::span<const uint8_t> bytes, CifarKind kind, const std::string& name,
                 MemoryDataset::Content& content) {
  const size_t record = label_bytes(kind) + 3 * kPlane;
  if (bytes.empty() || bytes.size() % record != 0) {
    throw_error<IoError>("[cifar] {}: expected one or more records of {} bytes but the file has {} bytes",
                         name, record, bytes.size());
  }
  const size_t count = bytes.size() / record;
  const size_t before = content.labels.size();
  content.height = content.width = kSide;
  content.channels = 3;
  content.pixels.resize((before + count) * 3 * kPlane);
  for (size_t i = 0; i < count; ++i) {
    const uint8_t* from = bytes.data() + i * record;
    const int label = from[label_position(kind)];
    if (label >= class_count(kind)) {
      throw_error<IoError>("[cifar] {}: expected a label from 0 to {} in record {} at byte {} but got {}",
                           name, class_count(kind) - 1, i, i * record + label_position(kind), label);
    }
    content.labels.push_back(label);
    from += label_bytes(kind);
    uint8_t* to = content.pixels.data() + (before + i) * 3 * kPlane;
    for (size_t pixel = 0; pixel < kPlane; ++pixel, to += 3) {
      to[0] = from[pixel];
      to[1] = from[kPlane + pixel];
      to[2] = from[2 * kPlane + pixel];
    }
  }
}

std::shared_ptr<const MemoryDataset> open_cifar(const std::vector<std::filesystem::path>& files,
                                                CifarKind kind, std::vector<std::string> class_names) {
  SINTER_CHECK(!files.empty(), "[cifar] expected at least one file but got none");
  const auto classes = static_cast<size_t>(class_count(kind));
  SINTER_CHECK(class_names.empty() || class_names.size() == classes,
               "[cifar] expected {} class names but got {}", classes, class_names.size());
  MemoryDataset::Content content;
  std::vector<uint8_t> bytes;
  for (const std::filesystem::path& file : files) {
    read_file(file, kMaxCifarBytes, bytes);
    parse_cifar(bytes, kind, file.string(), content);
  }
  content.class_names = std::move(class_names);
  if (content.class_names.empty()) {
    for (size_t i = 0; i < classes; ++i) content.class_names.push_back(std::to_string(i));
  }
  return std::make_shared<MemoryDataset>(std::move(content));
}

}  // namespace sinter::nn::data
