// Any bytes as a tar shard, as they are and with the checksums of their blocks made right: samples that lie
// inside it, or an IoError.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/shards/shard_index.h>

namespace {

using namespace sinter::nn::data;

void try_shard(const std::vector<uint8_t>& shard) {
  const TarReadAt read_at = [&](uint64_t offset, std::span<uint8_t> bytes) {
    if (bytes.size() > shard.size() || offset > shard.size() - bytes.size()) std::abort();
    std::copy_n(shard.begin() + static_cast<std::ptrdiff_t>(offset), bytes.size(), bytes.begin());
  };
  try {
    for (const ShardSample& sample : index_shard(shard.size(), read_at, "fuzz")) {
      const std::span<const uint8_t> all(shard);
      if (sample.size == 0 || sample.header > all.size() - kTarBlock ||
          sample.size > all.size() - kTarBlock - sample.header)
        std::abort();
      if (!tar_header_name(all.subspan(sample.header).first<kTarBlock>())) std::abort();
    }
  } catch (const sinter::IoError&) {
  }
}

// Any block may be a header.
void seal(std::vector<uint8_t>& shard) {
  constexpr size_t kField = 148, kLength = 8;
  for (size_t at = 0; at + kTarBlock <= shard.size(); at += kTarBlock) {
    const auto block = shard.begin() + static_cast<std::ptrdiff_t>(at);
    if (std::all_of(block, block + kTarBlock, [](uint8_t byte) { return byte == 0; })) continue;
    std::fill_n(block + kField, kLength, uint8_t{' '});
    unsigned sum = 0;
    for (size_t i = 0; i < kTarBlock; ++i) sum += shard[at + i];
    char digits[kLength + 1];
    std::snprintf(digits, sizeof digits, "%06o", sum);
    std::copy_n(digits, 7, block + kField);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<uint8_t> shard(data, data + size);
  try_shard(shard);
  seal(shard);
  try_shard(shard);
  shard.resize((size + kTarBlock - 1) / kTarBlock * kTarBlock + 2 * kTarBlock);  // with its end
  seal(shard);
  try_shard(shard);
  return 0;
}
