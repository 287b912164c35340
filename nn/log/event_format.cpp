#include <array>
#include <bit>

#include <sinter/core/protobuf/fields.h>
#include <sinter/nn/log/event_format.h>

namespace sinter::nn {
namespace {

// Reflected, so that bytes are taken from their lowest bit on.
constexpr uint32_t kCastagnoli = 0x82f63b78;

constexpr std::array<uint32_t, 256> kCrcTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ kCastagnoli : crc >> 1;
    table[byte] = crc;
  }
  return table;
}();

// A CRC of data that hold their own CRC says little, hence the mask.
uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8u;
}

using protobuf::bytes_field;
using protobuf::double_field;
using protobuf::float_field;
using protobuf::integer_field;
using protobuf::little_endian;

// Fields of Event.
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
// Of Summary, Summary.Value and SessionLog, and the status of a start.
constexpr int kValue = 1, kTag = 1, kSimpleValue = 2, kImage = 4, kMetadata = 9, kStatus = 1, kStart = 1;

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = 0xffffffff;
  for (const char c : bytes) crc = crc >> 8 ^ kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return ~crc;
}

std::string event_record(std::string_view message) {
  const std::string size = little_endian<8>(message.size());
  return size + little_endian<4>(masked_crc(size)) + std::string(message) +
         little_endian<4>(masked_crc(message));
}

std::string version_event(double time) {
  return double_field(kWallTime, time) + bytes_field(kFileVersion, "brain.Event:2");
}

std::string start_event(double time, int64_t step) {
  return double_field(kWallTime, time) + integer_field(kStep, step) +
         bytes_field(kSessionLog, integer_field(kStatus, kStart));
}

std::string image_event(const ImageRecord& record) {
  const std::string image = integer_field(1, record.height) + integer_field(2, record.width) +
                            integer_field(3, record.channels) + bytes_field(4, record.png);
  return double_field(kWallTime, record.time) + integer_field(kStep, record.step) +
         bytes_field(kSummary,
                     bytes_field(kValue, bytes_field(kTag, record.tag) + bytes_field(kImage, image)));
}

std::string hyper_parameters_event(double time, const std::map<std::string, HyperParameter>& values) {
  // Fields of google.protobuf.Value.
  constexpr int kNumber = 2, kText = 3, kBool = 4;
  std::string session;
  for (const auto& [name, value] : values) {
    std::string text;
    if (const bool* const flag = std::get_if<bool>(&value)) {
      text = integer_field(kBool, *flag ? 1 : 0);
    } else if (const double* const number = std::get_if<double>(&value)) {
      text = double_field(kNumber, *number);
    } else {
      text = bytes_field(kText, std::get<std::string>(value));
    }
    session += bytes_field(1, bytes_field(1, name) + bytes_field(2, text));  // an entry of a map
  }
  session += double_field(5, time);
  // HParamsPluginData.session_start_info, in SummaryMetadata.PluginData of a value.
  const std::string plugin = bytes_field(1, "hparams") + bytes_field(2, bytes_field(3, session));
  const std::string value =
      bytes_field(kTag, "_hparams_/session_start_info") + bytes_field(kMetadata, bytes_field(1, plugin));
  return double_field(kWallTime, time) + bytes_field(kSummary, bytes_field(kValue, value));
}

std::string scalar_event(const ScalarRecord& record) {
  std::string summary;
  for (const auto& [tag, value] : record.values) {
    summary +=
        bytes_field(kValue, bytes_field(kTag, tag) + float_field(kSimpleValue, static_cast<float>(value)));
  }
  return double_field(kWallTime, record.time) + integer_field(kStep, record.step) +
         bytes_field(kSummary, summary);
}

}  // namespace sinter::nn
