// Any bytes as a verification set, pickle or list: two images a pair, or an IoError.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/records/verification_parts.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sinter::nn::data;
  try {
    const VerificationBins bins = parse_verification_bins({data, size}, "fuzz");
    if (bins.images.size() != 2 * bins.same.size()) std::abort();
    for (const auto& image : bins.images) {
      uint32_t sum = 0;  // touches every byte
      for (const uint8_t byte : image) sum += byte;
      if (image.empty() || sum > image.size() * 255) std::abort();
    }
  } catch (const sinter::IoError&) {
  }
  try {
    const VerificationList list = parse_verification_list({data, size}, "fuzz");
    if (list.paths.size() != 2 * list.same.size()) std::abort();
  } catch (const sinter::IoError&) {
  }
  return 0;
}
