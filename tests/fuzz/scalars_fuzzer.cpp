// Feeds bytes to the reader of logged lines of JSON. Whatever they are, it gives a record or IoError; a
// record comes back as it was when it is written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <sinter/core/base/error.h>
#include <sinter/nn/log/scalars.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sinter::nn;
  try {
    const ScalarRecord record = parse_json_line({reinterpret_cast<const char*>(data), size}, "fuzz");
    const ScalarRecord back = parse_json_line(to_json_line(record), "fuzz");
    if (back.step != record.step || back.values.size() != record.values.size()) std::abort();
  } catch (const sinter::IoError&) {
  }
  return 0;
}
