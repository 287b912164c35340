// Any bytes as CIFAR's records: whole images with labels that are classes, or an IoError. The first byte
// chooses the kind.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/formats/cifar.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sinter::nn::data;
  if (size == 0) return 0;
  const CifarKind kinds[] = {CifarKind::kCifar10, CifarKind::kCifar100, CifarKind::kCifar100Coarse};
  const CifarKind kind = kinds[*data % 3];
  // A record takes thousands of bytes, which a fuzzer hardly grows to: each byte stands for 256.
  std::vector<uint8_t> bytes;
  for (size_t i = 1; i < size && i < 64; ++i) bytes.insert(bytes.end(), 256, data[i]);
  bytes.resize(bytes.size() + *data % 16);
  try {
    MemoryDataset::Content content;
    parse_cifar(bytes, kind, "fuzz", content);
    if (content.labels.empty() || content.pixels.size() != content.labels.size() * 3072) std::abort();
    for (const int64_t label : content.labels) {
      if (label < 0 || label >= 100) std::abort();
    }
  } catch (const sinter::IoError&) {
  }
  return 0;
}
