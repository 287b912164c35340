// Records put together byte by byte, for tests of their reader that do not trust its writer.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/attack_cost.h"
#include "nn/data/data_test_support.h"

namespace sinter::nn::data::testing {

template <class T>
void put(T value, Bytes& bytes) {
  const auto* first = reinterpret_cast<const uint8_t*>(&value);
  bytes.insert(bytes.end(), first, first + sizeof value);
}

inline Bytes text_bytes(const std::string& text) {
  return Bytes(text.begin(), text.end());
}
inline std::span<const uint8_t> span_of(const Bytes& bytes) {
  return bytes;
}

/// A part of a record: magic, flag and length, the bytes, zeros.
inline void put_part(uint32_t flag, const Bytes& payload, Bytes& file) {
  put(uint32_t{0xced7230a}, file);
  put(static_cast<uint32_t>(flag << 29 | payload.size()), file);
  file.insert(file.end(), payload.begin(), payload.end());
  while (file.size() % 4 != 0) file.push_back(0);
}

/// An image's payload: with one label in the header, or a list of them behind it.
inline Bytes payload(const std::vector<float>& labels, const Bytes& image, bool list = false) {
  Bytes bytes;
  put(static_cast<uint32_t>(list ? labels.size() : 0), bytes);
  put(list ? 0.0f : labels.front(), bytes);
  put(uint64_t{5}, bytes);
  put(uint64_t{0}, bytes);
  if (list) {
    for (const float label : labels) put(label, bytes);
  }
  bytes.insert(bytes.end(), image.begin(), image.end());
  return bytes;
}

/// A record file and its index, which grow together.
struct RecordFiles {
  Bytes rec;
  std::string idx;

  void add(uint64_t key, const Bytes& bytes) {
    idx += std::to_string(key) + '\t' + std::to_string(rec.size()) + '\n';
    put_part(0, bytes, rec);
  }
  void write(const TemporaryFolder& folder, const std::string& name = "train") const {
    folder.write(name + ".rec", rec);
    folder.write(name + ".idx", text_bytes(idx));
  }
};

/// Images under the keys 1 ... `count`, two identities and key 0 behind them, as InsightFace's sets have
/// them.
inline RecordFiles face_files(uint64_t count) {
  RecordFiles files;
  const auto end = static_cast<float>(count + 1);
  for (uint64_t key = 1; key <= count; ++key)
    files.add(key, payload({static_cast<float>(key % 2), 7.0f}, load_picture("rgb.jpg"), key % 3 == 0));
  files.add(count + 1, payload({1, end / 2}, {}, true));
  files.add(count + 2, payload({end / 2, end}, {}, true));
  files.add(0, payload({end, end + 2}, {}, true));
  return files;
}

using test::kMostMemory;
using test::kMostSeconds;
using test::peak_memory;
using test::processor_seconds;

}  // namespace sinter::nn::data::testing
