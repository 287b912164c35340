// The reader of tar archives against GNU tar: over random archives with everything odd that is known, both
// find the same files, or the reader says that it will not read the archive.
#include <array>
#include <cstdio>
#include <memory>
#include <random>
#include <sstream>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>

#include "common/test_cases.h"
#include "nn/data/shards/tar_samples.h"

namespace sinter::nn::data {
namespace {

using namespace testing;
using Files = std::vector<std::pair<std::string, uint64_t>>;

/// The regular files that GNU tar lists; none if it says that the archive is damaged.
std::optional<Files> files_of_gnu(const std::filesystem::path& path) {
  const std::string command =
      fmt::format("LC_ALL=C tar --list --verbose --file={} 2>/dev/null", path.string());
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot start tar");
  std::string text;
  std::array<char, 4096> piece{};
  while (const size_t count = std::fread(piece.data(), 1, piece.size(), pipe))
    text.append(piece.data(), count);
  if (::pclose(pipe) != 0) return std::nullopt;
  Files files;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string mode, owner, date, time, name;
    uint64_t size = 0;
    words >> mode >> owner >> size >> date >> time >> name;
    if (mode.starts_with('-') && !name.ends_with('/')) files.emplace_back(name, size);
  }
  return files;
}

std::optional<Files> files_of_reader(const Bytes& archive) {
  Files files;
  const TarReadAt read_at = [&](uint64_t offset, std::span<uint8_t> bytes) {
    std::copy_n(archive.begin() + static_cast<std::ptrdiff_t>(offset), bytes.size(), bytes.begin());
  };
  try {
    read_tar(archive.size(), read_at, "file",
             [&](const TarMember& member) { files.emplace_back(member.name, member.size); });
  } catch (const IoError&) {
    return std::nullopt;
  }
  return files;
}

/// Appends members of every kind, sound ones and odd ones.
class RandomArchive {
 public:
  explicit RandomArchive(uint32_t seed) : random_(seed) {
    const uint32_t count = 1 + below(6);
    for (uint32_t i = 0; i < count; ++i) append_one(fmt::format("file{}", i));
    append_end(bytes);
  }

  Bytes bytes;

 private:
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }
  std::string contents() { return std::string(below(3) == 0 ? 0 : below(1500), 'x'); }

  /// A header that states `size`, and as many bytes behind it as `text` has.
  void append_stating(const std::string& name, const std::string& text, char type, uint64_t size) {
    const size_t at = append_member(bytes, name, text, type);
    put_text(bytes, at + 124, fmt::format("{:011o}", size));
    put_text(bytes, at + 329,
             std::string_view("0000001\0"
                              "0000001\0",
                              16));  // of a device
    seal_header(bytes, at);
  }

  void append_one(const std::string& name) {
    const std::string text = contents();
    switch (below(14)) {
      case 0:  // a folder that states a size, as some writers have it
        return append_stating(name + "/", "", '5', below(9000));
      case 1:  // the same without its slash
        return append_stating(name, "", '5', below(9000));
      case 2:  // ... with bytes behind it
        return append_stating(name + "/", text, '5', text.size());
      case 3:
        append_member(bytes, "././@LongLink", name + std::string(below(200), 'n') + '\0', 'L');
        break;
      case 4:
        append_member(bytes, "pax", pax_record("path", "p/" + name) + pax_record("mtime", "1.5"), 'x');
        break;
      case 5: {  // a size in pax, and another in the header
        append_member(bytes, "pax", pax_record("size", std::to_string(text.size())), 'x');
        return append_stating(name, text, '0', below(2) == 0 ? 0 : below(5000));
      }
      case 6:  // a folder whose size is in pax
        append_member(bytes, "pax", pax_record("size", std::to_string(below(5000))), 'x');
        return append_stating(name + "/", "", '5', 0);
      case 7:  // a name both ways
        append_member(bytes, "pax", pax_record("path", "p/" + name), 'x');
        append_member(bytes, "././@LongLink", "l/" + name + '\0', 'L');
        break;
      case 8:
        append_member(bytes, "././@LongLink", "l/" + name + '\0', 'L');
        append_member(bytes, "pax", pax_record("path", "p/" + name), 'x');
        break;
      case 9:
        append_member(bytes, "global", pax_record("comment", "of git"), 'g');
        break;
      case 10: {  // a size in base 256
        const size_t at = append_member(bytes, name, text);
        for (size_t i = 0; i < 12; ++i)
          bytes[at + 124 + i] = i == 0  ? 0x80
                                : i < 4 ? 0
                                        : static_cast<uint8_t>(uint64_t{text.size()} >> (8 * (11 - i)));
        return seal_header(bytes, at);
      }
      case 11: {  // links and devices that state a size, with or without bytes
        constexpr std::array<char, 5> kTypes = {'1', '2', '3', '4', '6'};
        const size_t at = bytes.size();
        append_stating(name, below(2) == 0 ? "" : text, kTypes[below(5)], text.size());
        put_text(bytes, at + 157, "file0");
        return seal_header(bytes, at);
      }
      case 12:  // from before ustar
        return append_stating(name, text, '\0', text.size());
      default:
        break;
    }
    append_member(bytes, name, text);
  }

  std::mt19937 random_;
};

TEST(TarAgainstGnu, FindsTheSameFilesOrRefuses) {
  if (std::system("tar --version 2>/dev/null | grep -q GNU") != 0) GTEST_SKIP() << "GNU tar is not here";
  const TemporaryFolder folder;
  int64_t read = 0;
  const int cases = test::random_cases(150);
  for (int i = 0; i < cases; ++i) {
    const RandomArchive archive(static_cast<uint32_t>(i) + 1);
    const std::optional<Files> ours = files_of_reader(archive.bytes);
    if (!ours) continue;  // said so: nothing is lost in silence
    ++read;
    const std::optional<Files> expected = files_of_gnu(folder.write("a.tar", archive.bytes));
    ASSERT_TRUE(expected) << "archive " << i << ": GNU tar finds it damaged";
    ASSERT_EQ(*ours, *expected) << "archive " << i;
  }
  EXPECT_GT(read, cases / 4);
}

TEST(TarAgainstGnu, AFolderThatStatesASizeSwallowsNothing) {
  Bytes archive;
  append_member(archive, "first", "1");
  const size_t at = append_member(archive, "folder/", "", '5');
  put_text(archive, at + 124, fmt::format("{:011o}", 5120));
  seal_header(archive, at);
  for (const char* name : {"second", "third"}) append_member(archive, name, std::string(2000, 'x'));
  append_end(archive);
  EXPECT_EQ(files_of_reader(archive), (Files{{"first", 1}, {"second", 2000}, {"third", 2000}}));
}

}  // namespace
}  // namespace sinter::nn::data
