// Feeds bytes to the IDX reader, plain and gzip. Whatever they are, it gives an array or one of the
// documented errors.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/formats/idx.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const sinter::nn::data::IdxArray array = sinter::nn::data::parse_idx({data, size}, "fuzz");
    uint64_t count = 1;
    for (const int64_t dim : array.dims) count *= static_cast<uint64_t>(dim);
    if (count != array.values.size()) std::abort();
  } catch (const sinter::IoError&) {
  } catch (const sinter::Unsupported&) {
  }
  return 0;
}
