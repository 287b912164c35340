// PyTorch files made byte by byte, by nothing that the library writes with, and whatever is wrong with them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sinter/core/file_system/file_system.h>
#include <sinter/nn/checkpoint/pytorch/pytorch_file.h>

namespace sinter::testing {

template <class T>
std::string le(T number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

/// A record of an archive, with what its local header and the directory say of it.
struct ZipRecord {
  std::string name, bytes;
  uint16_t method = 0, flags = 0x0808;
  std::optional<uint32_t> crc = std::nullopt;  // that of the bytes if none
  uint32_t packed_more = 0;                    // beyond the size
  std::string local_name = {};                 // `name` if empty
  uint16_t local_method = 0;
  uint32_t local_signature = 0x04034b50;
  uint16_t disk = 0;
  std::optional<uint32_t> offset = std::nullopt;
  bool wide = false;  // sizes and place in the extra field of 64 bits
};

struct ZipChanges {
  bool end64 = true;
  std::string comment = {};     // and its length
  uint64_t more_entries = 0;    // than there are, as the end records say
  int64_t directory_shift = 0;  // of its place
  uint32_t end64_signature = 0x06064b50;
  uint16_t disk = 0;
  std::string behind_directory = {};
};

/// An archive as PyTorch writes it: local headers without sizes, elements from multiples of 64 on, the sizes
/// behind them.
inline std::string make_zip(const std::vector<ZipRecord>& records, const ZipChanges& changes = {}) {
  std::string file, directory;
  for (const ZipRecord& r : records) {
    const std::string local_name = r.local_name.empty() ? r.name : r.local_name;
    const uint32_t place = r.offset.value_or(static_cast<uint32_t>(file.size()));
    const size_t padding = 64 - (file.size() + 30 + local_name.size() + 4) % 64;
    file += le(r.local_signature) + le(uint16_t{0}) + le(r.flags) + le(r.local_method) +
            std::string(16, '\0') + le(static_cast<uint16_t>(local_name.size())) +
            le(static_cast<uint16_t>(padding + 4)) + local_name + "FB" + le(static_cast<uint16_t>(padding)) +
            std::string(padding, 'Z') + r.bytes;
    const uint32_t crc = r.crc.value_or(extend_crc32(0, std::as_bytes(std::span(r.bytes))));
    const auto size = static_cast<uint32_t>(r.bytes.size());
    file += "PK\x07\x08" + le(crc) + le(size) + le(size);
    const uint32_t hidden = 0xffffffff;
    const std::string extra = r.wide ? le(uint16_t{1}) + le(uint16_t{24}) + le(uint64_t{size}) +
                                           le(uint64_t{size} + r.packed_more) + le(uint64_t{place})
                                     : "";
    directory += le(uint32_t{0x02014b50}) + le(uint32_t{0}) + le(r.flags) + le(r.method) + le(uint32_t{0}) +
                 le(crc) + le(r.wide ? hidden : size + r.packed_more) + le(r.wide ? hidden : size) +
                 le(static_cast<uint16_t>(r.name.size())) + le(static_cast<uint16_t>(extra.size())) +
                 le(uint16_t{0}) + le(r.disk) + std::string(6, '\0') + le(r.wide ? hidden : place) + r.name +
                 extra;
  }
  directory += changes.behind_directory;
  const uint64_t begin = file.size() + static_cast<uint64_t>(changes.directory_shift),
                 size = directory.size();
  const uint64_t count = records.size() + changes.more_entries;
  const uint64_t end64 = file.size() + directory.size();
  file += directory;
  if (changes.end64) {
    file += le(changes.end64_signature) + le(uint64_t{44}) + le(uint32_t{0}) + le(uint64_t{changes.disk}) +
            le(count) + le(count) + le(size) + le(begin);
    file += le(uint32_t{0x07064b50}) + le(uint32_t{0}) + le(end64) + le(uint32_t{1});
  }
  file += le(uint32_t{0x06054b50}) + le(changes.disk) + le(changes.disk) + le(static_cast<uint16_t>(count)) +
          le(static_cast<uint16_t>(count)) + le(static_cast<uint32_t>(size)) +
          le(static_cast<uint32_t>(begin)) + le(static_cast<uint16_t>(changes.comment.size())) +
          changes.comment;
  return file;
}

// ---- pickles ----

inline std::string text(const std::string& value) {
  return "X" + le(static_cast<uint32_t>(value.size())) + value;
}
inline std::string number(int64_t value) {
  return "\x8a\x08" + le(value);
}
inline std::string tuple(const std::vector<int64_t>& values) {
  std::string opcodes = "(";
  for (const int64_t value : values) opcodes += number(value);
  return opcodes + "t";
}
inline std::string storage(const std::string& key, int64_t elements,
                           const std::string& type = "FloatStorage") {
  return "(" + text("storage") + "ctorch\n" + type + "\n" + text(key) + text("cpu") + number(elements) + "tQ";
}
inline std::string tensor(const std::string& of, int64_t offset, const std::vector<int64_t>& extents,
                          const std::vector<int64_t>& strides, const std::string& more = "") {
  return "ctorch._utils\n_rebuild_tensor_v2\n(" + of + number(offset) + tuple(extents) + tuple(strides) +
         "\x89}" + more + "tR";
}
/// A dict of opcodes.
inline std::string dict(const std::map<std::string, std::string>& values) {
  std::string opcodes = "}(";
  for (const auto& [name, value] : values) opcodes += text(name) + value;
  return opcodes + "u";
}
inline std::string pickle_of(const std::string& opcodes) {
  return "\x80\x02" + opcodes + ".";
}

/// The records of a file with this pickle, and storages by key.
inline std::vector<ZipRecord> records_of(const std::string& pickle,
                                         const std::map<std::string, std::string>& storages = {}) {
  std::vector<ZipRecord> records = {{.name = "a/data.pkl", .bytes = pickle},
                                    {.name = "a/byteorder", .bytes = "little"}};
  for (const auto& [key, bytes] : storages) records.push_back({.name = "a/data/" + key, .bytes = bytes});
  records.push_back({.name = "a/version", .bytes = "3\n"});
  return records;
}
inline std::string file_with(const std::string& opcodes,
                             const std::map<std::string, std::string>& storages = {}) {
  return make_zip(records_of(pickle_of(opcodes), storages));
}

/// A file of before version 1.6: pickles, and storages by key with their number of elements.
inline std::string legacy_file(const std::string& object, const std::vector<std::string>& keys,
                               const std::string& behind, const std::string& version = "M\xe9\x03",
                               const std::string& little_endian = "\x88") {
  std::string list = "](";
  for (const std::string& key : keys) list += text(key);
  return std::string("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15) + pickle_of(version) +
         pickle_of(dict({{"protocol_version", "M\xe9\x03"}, {"little_endian", little_endian}})) +
         pickle_of(object) + pickle_of(list + "e") + behind;
}

inline nn::PytorchFile parse_pytorch(const std::string& file, const std::string& key = "") {
  return nn::parse_pytorch(std::as_bytes(std::span(file)), "x.pth", {.key = key});
}

}  // namespace sinter::testing
