#include <utility>

#include <sinter/core/json/json.h>
#include <sinter/core/text/printable.h>
#include <sinter/nn/checkpoint/pytorch/metadata_record.h>

namespace sinter::nn::pytorch {
namespace {

// Those of a safetensors file, so that what one of the formats holds the other does.
constexpr size_t kMostNames = size_t{1} << 18;
constexpr uint64_t kMostBytes = 100'000'000;

/// Takes an object of texts, one level deep, whatever follows what: memory is taken for these alone.
class MetadataEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  MetadataEvents(const ByteSource& source, const uint64_t& consumed) : source_(source), consumed_(consumed) {}

  std::map<std::string, std::string> texts;

  bool start_object(size_t) override {
    if (is_inside_) fail("expected a text");
    is_inside_ = true;
    return true;
  }
  bool key(std::string& text) override {
    if (texts.size() == kMostNames) fail("expected at most 2^18 names");
    const auto [place, is_new] = texts.emplace(std::move(text), "");
    if (!is_new) fail("a name stands there twice");
    place_ = place;
    return true;
  }
  bool string(std::string& text) override {
    if (!is_inside_) fail("expected an object");
    place_->second = std::move(text);
    return true;
  }
  bool end_object() override { return true; }

  bool null() override { return refuse(); }
  bool boolean(bool) override { return refuse(); }
  bool number_integer(int64_t) override { return refuse(); }
  bool number_unsigned(uint64_t) override { return refuse(); }
  bool number_float(double, const std::string&) override { return refuse(); }
  bool binary(nlohmann::json::binary_t&) override { return refuse(); }  // not in JSON text
  bool start_array(size_t) override { return refuse(); }
  bool end_array() override { return refuse(); }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override {
    fail("this is no valid JSON");
  }

 private:
  bool refuse() const { fail(is_inside_ ? "expected a text" : "expected an object"); }
  [[noreturn]] void fail(const char* what) const {
    source_.fail("record {}: byte {}: {}", kMetadataRecord, consumed_, what);
  }

  const ByteSource& source_;
  const uint64_t& consumed_;
  bool is_inside_ = false;
  std::map<std::string, std::string>::iterator place_;
};

}  // namespace

std::string format_metadata(const std::map<std::string, std::string>& metadata) {
  SINTER_CHECK(metadata.size() <= kMostNames, "[pytorch] expected at most {} metadata but got {}", kMostNames,
               metadata.size());
  for (const auto& [name, text] : metadata) {
    SINTER_CHECK(valid_utf8_prefix(name) == name.size() && valid_utf8_prefix(text) == text.size(),
                 "[pytorch] expected UTF-8 texts without zero bytes as metadata but got {} of {}",
                 quote_name(text), quote_name(name));
  }
  std::string json = nlohmann::json(metadata).dump();
  SINTER_CHECK(json.size() <= kMostBytes, "[pytorch] expected at most {} bytes of metadata but got {}",
               kMostBytes, json.size());
  return json;
}

std::map<std::string, std::string> parse_metadata(const ByteSource& source, const Record& record) {
  if (record.size > kMostBytes) {
    source.fail("byte {}: expected at most {} bytes of metadata but got {}", record.begin, kMostBytes,
                record.size);
  }
  std::string json(record.size, '\0');
  read_record(source, record, std::as_writable_bytes(std::span(json)));
  uint64_t consumed = 0;
  MetadataEvents events(source, consumed);
  read_json_events(json, events, consumed);
  return std::move(events.texts);
}

}  // namespace sinter::nn::pytorch
