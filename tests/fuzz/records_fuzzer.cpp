// Any bytes as an index, a property file and records: images inside the file, or an IoError. The first two
// bytes say how long the index is, the third how long the property is.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/records/record_table.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sinter::nn::data;
  constexpr size_t kHeader = 3;
  if (size < kHeader) return 0;
  std::span<const uint8_t> rest(data + kHeader, size - kHeader);
  const auto take = [&](size_t count) {
    const std::span<const uint8_t> piece = rest.first(std::min(count, rest.size()));
    rest = rest.subspan(piece.size());
    return piece;
  };
  const std::span<const uint8_t> index = take(data[0] + size_t{256} * data[1]), property = take(data[2]);
  try {
    if (parse_record_property(property, "property").classes < 1) std::abort();
  } catch (const sinter::IoError&) {
  }
  try {
    const RecordTable table(rest, "rec", index, "idx");
    std::vector<uint8_t> joined;
    for (size_t i = 0; i < table.size(); ++i) {
      try {
        const ImageRecord record = table.read(i, rest, joined);
        if (record.image.empty()) std::abort();
        // Every byte is touched, so that a sanitizer sees one that lies outside.
        uint32_t sum = 0;
        for (const uint8_t byte : record.image) sum += byte;
        if (sum > record.image.size() * 255) std::abort();
      } catch (const sinter::IoError&) {
      }
    }
  } catch (const sinter::IoError&) {
  }
  return 0;
}
