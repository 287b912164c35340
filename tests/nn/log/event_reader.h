// Reads TensorBoard's event files back, sharing nothing with what writes them: framing, checksums bit by bit,
// and protobuf's wire format.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sinter::nn::test {

struct ReadEvent {
  double time = 0;
  int64_t step = 0;
  std::string version;
  bool starts = false;
  std::vector<std::pair<std::string, float>> values;
};

/// CRC-32C as a division of polynomials, one bit at a time.
inline uint32_t slow_crc32c(std::string_view bytes) {
  uint32_t remainder = 0xffffffff;
  for (const char c : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      const bool one = ((static_cast<unsigned char>(c) >> bit) ^ remainder) & 1;
      remainder /= 2;
      if (one) remainder ^= 0x82f63b78;
    }
  }
  return remainder ^ 0xffffffff;
}

class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}
  bool done() const { return bytes_.empty(); }
  std::string_view take(size_t count) {
    if (count > bytes_.size()) throw std::runtime_error("the message ends early");
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      const auto byte = number<uint8_t>();
      value += static_cast<uint64_t>(byte % 128) << shift;
      if (byte < 128) return value;
    }
    throw std::runtime_error("a number without an end");
  }
  std::string_view text() { return take(varint()); }

 private:
  std::string_view bytes_;
};

inline std::pair<std::string, float> read_value(std::string_view bytes) {
  std::pair<std::string, float> value;
  for (WireReader reader(bytes); !reader.done();) {
    const uint64_t key = reader.varint();
    if (key == (1 << 3 | 2)) {
      value.first = reader.text();
    } else if (key == (2 << 3 | 5)) {
      value.second = reader.number<float>();
    } else {
      throw std::runtime_error("an unknown field of a value");
    }
  }
  return value;
}

inline ReadEvent read_event(std::string_view bytes) {
  ReadEvent event;
  for (WireReader reader(bytes); !reader.done();) {
    const uint64_t key = reader.varint();
    if (key == (1 << 3 | 1)) {
      event.time = reader.number<double>();
    } else if (key == (2 << 3 | 0)) {
      event.step = static_cast<int64_t>(reader.varint());
    } else if (key == (3 << 3 | 2)) {
      event.version = reader.text();
    } else if (key == (5 << 3 | 2)) {
      for (WireReader summary(reader.text()); !summary.done();) {
        if (summary.varint() != (1 << 3 | 2)) throw std::runtime_error("an unknown field of a summary");
        event.values.push_back(read_value(summary.text()));
      }
    } else if (key == (7 << 3 | 2)) {
      if (reader.text() != "\x08\x01") throw std::runtime_error("another status than a start");
      event.starts = true;
    } else {
      throw std::runtime_error("an unknown field of an event");
    }
  }
  return event;
}

inline std::vector<ReadEvent> read_events(std::string_view file) {
  const auto check = [](std::string_view bytes, uint32_t masked) {
    const uint32_t crc = slow_crc32c(bytes);
    if (((crc >> 15) | (crc << 17)) + 0xa282ead8u != masked) throw std::runtime_error("a wrong checksum");
  };
  std::vector<ReadEvent> events;
  for (WireReader reader(file); !reader.done();) {
    const std::string_view length = reader.take(8);
    check(length, reader.number<uint32_t>());
    const std::string_view data = reader.take(WireReader(length).number<uint64_t>());
    check(data, reader.number<uint32_t>());
    events.push_back(read_event(data));
  }
  return events;
}

}  // namespace sinter::nn::test
