// Tar archives made here byte by byte, sound ones and damaged ones.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include <sinter/nn/data/shards/tar.h>

#include "nn/data/data_test_support.h"

namespace sinter::nn::data::testing {

inline void put_text(Bytes& archive, size_t at, std::string_view text) {
  std::copy(text.begin(), text.end(), archive.begin() + static_cast<std::ptrdiff_t>(at));
}

/// Makes the checksum of the header at `at` right.
inline void seal_header(Bytes& archive, size_t at) {
  put_text(archive, at + 148, "        ");
  unsigned sum = 0;
  for (size_t i = 0; i < kTarBlock; ++i) sum += archive[at + i];
  put_text(archive, at + 148, fmt::format("{:06o}", sum));
  archive[at + 154] = 0;
}

/// Appends a ustar header and contents; gives the byte of the header.
inline size_t append_member(Bytes& archive, std::string_view name, std::string_view contents,
                            char type = '0') {
  const size_t at = archive.size();
  archive.resize(at + kTarBlock);
  put_text(archive, at, name.substr(0, 100));
  put_text(archive, at + 100, "0000644");
  put_text(archive, at + 124, fmt::format("{:011o}", contents.size()));
  archive[at + 156] = static_cast<uint8_t>(type);
  put_text(archive, at + 257, std::string_view("ustar\00000", 8));
  seal_header(archive, at);
  archive.insert(archive.end(), contents.begin(), contents.end());
  archive.resize((archive.size() + kTarBlock - 1) / kTarBlock * kTarBlock);
  return at;
}

inline void append_end(Bytes& archive) {
  archive.resize(archive.size() + 2 * kTarBlock);
}

/// A record of a pax header; its length counts itself.
inline std::string pax_record(std::string_view key, std::string_view value) {
  const std::string rest = fmt::format(" {}={}\n", key, value);
  size_t length = rest.size() + 1;
  while (std::to_string(length).size() + rest.size() != length) ++length;
  return std::to_string(length) + rest;
}

/// A gray image of one row.
inline std::string small_picture(std::string_view values) {
  return fmt::format("P5 {} 1 255\n{}", values.size(), values);
}

}  // namespace sinter::nn::data::testing
