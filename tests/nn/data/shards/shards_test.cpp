// Tar shards: what is read of them, and the exact words with which damage is refused.
#include <filesystem>
#include <map>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/formats/open_dataset.h>
#include <sinter/nn/data/shards/shard_dataset.h>
#include <sinter/nn/data/shards/shard_index.h>

#include "nn/data/shards/tar_samples.h"

namespace sinter::nn::data {
namespace {

namespace fs = std::filesystem;
using namespace testing;

TarReadAt reader_of(const Bytes& archive) {
  return [&archive](uint64_t offset, std::span<uint8_t> bytes) {
    ASSERT_LE(bytes.size(), archive.size());
    ASSERT_LE(offset, archive.size() - bytes.size());  // never asks for what is not there
    std::copy_n(archive.begin() + static_cast<std::ptrdiff_t>(offset), bytes.size(), bytes.begin());
  };
}

// Names and contents of an archive's members.
std::map<std::string, std::string> members_of(const Bytes& archive) {
  std::map<std::string, std::string> members;
  read_tar(archive.size(), reader_of(archive), "file", [&](const TarMember& member) {
    const auto begin = archive.begin() + static_cast<std::ptrdiff_t>(member.offset);
    members[member.name] = std::string(begin, begin + static_cast<std::ptrdiff_t>(member.size));
  });
  return members;
}
std::string tar_error(const Bytes& archive) {
  return message_of<IoError>([&] { members_of(archive); });
}
std::string shard_error(const Bytes& archive) {
  return message_of<IoError>([&] { index_shard(archive.size(), reader_of(archive), "file"); });
}

using Members = std::map<std::string, std::string>;

TEST(Tar, ReadsEveryFormatsNamesAndSizes) {
  const std::string deep(130, 'd'), text(700, 't');
  Bytes archive;
  append_member(archive, "folder/", "", '5');
  append_member(archive, "a", "first");
  append_member(archive, "empty", "");
  append_member(archive, "././@LongLink", deep + '\0', 'L');
  append_member(archive, deep, "gnu");
  append_member(archive, "comment", pax_record("comment", "of git"), 'g');
  append_member(archive, "pax", pax_record("mtime", "1.5") + pax_record("path", "p/" + deep), 'x');
  append_member(archive, "short", "pax");
  const size_t prefixed = append_member(archive, "name", text);
  put_text(archive, prefixed + 345, "front");
  seal_header(archive, prefixed);
  const size_t base256 = append_member(archive, "large", "12345");
  put_text(archive, base256 + 124, std::string_view("\x80\0\0\0\0\0\0\0\0\0\0\5", 12));
  seal_header(archive, base256);
  append_end(archive);
  const Members expected = {{"a", "first"},       {"empty", ""},        {deep, "gnu"},
                            {"p/" + deep, "pax"}, {"front/name", text}, {"large", "12345"}};
  EXPECT_EQ(members_of(archive), expected);
  archive.resize(archive.size() + 10'000);  // writers fill up
  EXPECT_EQ(members_of(archive), expected);
}

TEST(Tar, TakesASizeFromPax) {
  Bytes archive;
  append_member(archive, "pax", pax_record("size", "3"), 'x');
  const size_t at = append_member(archive, "a", "abc");
  put_text(archive, at + 124, "00000000000");
  seal_header(archive, at);
  append_end(archive);
  EXPECT_EQ(members_of(archive), (Members{{"a", "abc"}}));
}

TEST(Tar, RefusesWrongHeaders) {
  Bytes archive;
  append_member(archive, "a", "first");
  const size_t at = append_member(archive, "dir/b", "second");
  append_end(archive);
  const auto with = [&](size_t offset, std::string_view text, bool seal = true) {
    Bytes changed = archive;
    put_text(changed, at + offset, text);
    if (seal) seal_header(changed, at);
    return tar_error(changed);
  };
  EXPECT_EQ(with(0, "x", false), "[tar] file: at byte 1024: the checksum of the header is wrong");
  EXPECT_EQ(with(124, "0000000000z"), "[tar] file: member \"dir/b\" at byte 1024: the size is no number");
  EXPECT_EQ(with(124, std::string_view("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12)),
            "[tar] file: member \"dir/b\" at byte 1024: the size is no number");
  EXPECT_EQ(
      with(124, "77777777777"),
      "[tar] file: member \"dir/b\" at byte 1024: expected 8589934591 bytes but the archive has 1536 more");
  for (const char type : {'3', '4', '6', 'S', 'K', 'V', 'Z'}) {
    EXPECT_EQ(with(156, {&type, 1}),
              fmt::format(
                  "[tar] file: member \"dir/b\" at byte 1024: expected a file or a folder but got type '{}'",
                  type));
  }
  for (const char type : {'1', '2'})
    EXPECT_EQ(with(156, {&type, 1}),
              "[tar] file: member \"dir/b\" at byte 1024: expected a file or a folder but it is a link; "
              "`tar --hard-dereference -h` packs the files");
}

TEST(Tar, RefusesWrongExtensions) {
  const auto error = [](std::string_view contents, char type, bool follow = true) {
    Bytes archive;
    append_member(archive, "ext", contents, type);
    if (follow) append_member(archive, "a", "first");
    append_end(archive);
    return tar_error(archive);
  };
  const std::string at = "[tar] file: member \"ext\" at byte 0: ";
  EXPECT_EQ(error("12 path", 'x'), at + "a record of the pax header is damaged");
  EXPECT_EQ(error("99999999999999999999 path=a\n", 'x'), at + "a record of the pax header is damaged");
  EXPECT_EQ(error("3 \n", 'x'), at + "a record of the pax header is damaged");
  EXPECT_EQ(error("9", 'x'), at + "a record of the pax header is damaged");
  EXPECT_EQ(error(pax_record("size", "1e3"), 'x'), at + "the size in the pax header is no number");
  EXPECT_EQ(error(pax_record("size", "-1"), 'x'), at + "the size in the pax header is no number");
  EXPECT_EQ(error(pax_record("path", "a"), 'g'), at + "expected no path for all members");
  EXPECT_EQ(error(pax_record("GNU.sparse.major", "1"), 'x'), at + "sparse files are not read");
  EXPECT_EQ(error("", 'L'), at + "expected a name of 1 to 4096 bytes");
  EXPECT_EQ(error(std::string(5000, 'n'), 'L'),
            at + "expected at most 4097 bytes of name or header but got 5000");
  EXPECT_EQ(error("name", 'L', false), "[tar] file: at byte 1024: a long name or a pax header has no member");
  EXPECT_EQ(error(pax_record("size", "4000"), 'x'),
            "[tar] file: member \"a\" at byte 1024: expected 4000 bytes but the archive has 1536 more");
}

TEST(Tar, RefusesEveryTruncation) {
  Bytes archive;
  append_member(archive, "a.ppm", std::string(600, 'a'));
  append_member(archive, "b", "second");
  const size_t end = archive.size();
  append_end(archive);
  for (size_t size = 0; size < end + kTarBlock; ++size) {
    const Bytes cut(archive.begin(), archive.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_TRUE(tar_error(cut).starts_with("[tar] file: ")) << size << tar_error(cut);
  }
  const Bytes two = [&] {
    Bytes bytes = archive;
    bytes.insert(bytes.end(), archive.begin(), archive.end());
    return bytes;
  }();
  EXPECT_EQ(tar_error(two), fmt::format("[tar] file: at byte {}: expected nothing but zeros behind the "
                                        "archive's end",
                                        archive.size()));
}

// Two samples whose members also have what is passed over.
Bytes sound_shard() {
  Bytes archive;
  append_member(archive, ".hidden.jpg", "no image");
  append_member(archive, "n1/000.json", "{}");
  append_member(archive, "n1/000.pgm", small_picture("abc"));
  append_member(archive, "n1/000.cls", "2\n");
  append_member(archive, "n1/001.cls", "0");
  append_member(archive, "n1/001.PGM", small_picture("xyz"));
  append_member(archive, "n1/001.txt", "a cat");
  append_end(archive);
  return archive;
}

TEST(Shards, GiveTheirSamplesInOrder) {
  const TemporaryFolder folder;
  folder.write("train-000.tar", sound_shard());
  folder.write("train-001.tar", sound_shard());
  const auto data =
      open_shards((folder.path() / "train-{000..001}.tar").string(), {.decode = {.channels = 1}});
  ASSERT_EQ(data->size(), 4);
  EXPECT_EQ(data->class_names(), (std::vector<std::string>{"0", "1", "2"}));
  EXPECT_EQ(data->labels(), (std::vector<int64_t>{2, 0, 2, 0}));
  for (const int64_t i : {0, 2}) {
    const Sample first = data->get(i), second = data->get(i + 1);
    EXPECT_EQ(first.label, 2);
    EXPECT_EQ(first.image.pixels, (Bytes{'a', 'b', 'c'}));
    EXPECT_EQ(second.label, 0);
    EXPECT_EQ(second.image.pixels, (Bytes{'x', 'y', 'z'}));
  }
  EXPECT_THROW(data->get(4), InvalidArgument);
}

TEST(Shards, AgreeWithTheirListOfClasses) {
  const TemporaryFolder folder;
  const std::string shard = folder.write("a.tar", sound_shard()).string();
  folder.write("classes.txt", {0xef, 0xbb, 0xbf, 'a', '\n', 'b', '\r', '\n', 'c', '\n'});
  EXPECT_EQ(open_shards(shard)->class_names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(message_of<IoError>([&] {
              open_shards(shard, {.class_names = {"a", "b"}});
            }),
            "[shards] " + shard + ": member at byte 2048: expected a class from 0 to 1 but got 2");
}

TEST(Shards, RefuseIncompleteSamples) {
  const auto error = [](const std::vector<std::pair<std::string, std::string>>& members) {
    Bytes archive;
    for (const auto& [name, contents] : members) append_member(archive, name, contents);
    append_end(archive);
    return shard_error(archive);
  };
  const std::string image = small_picture("a");
  const std::string start = "[shard] file: member ";
  EXPECT_EQ(error({{"a.jpg", image}}), start + "\"a.jpg\" at byte 0: the sample has no label (.cls)");
  EXPECT_EQ(error({{"a.jpg", image}, {"b.cls", "1"}}),
            start + "\"a.jpg\" at byte 0: the sample has no label (.cls)");
  EXPECT_EQ(error({{"a.cls", "1"}}),
            start + "\"a.cls\" at byte 0: the sample has no image (.jpg, .jpeg, .png, .webp, .pgm or .ppm)");
  EXPECT_EQ(error({{"a.jpg", image}, {"a.png", image}, {"a.cls", "1"}}),
            start + "\"a.png\" at byte 1024: the sample has another image already");
  EXPECT_EQ(error({{"a.jpg", image}, {"a.cls", "1"}, {"a.cls", "1"}}),
            start + "\"a.cls\" at byte 2048: the sample has another label already");
  EXPECT_EQ(error({{"a.jpg", ""}, {"a.cls", "1"}}),
            start + "\"a.jpg\" at byte 0: expected an image of 1 to 268435456 bytes but got 0");
  for (const std::string label :
       {"", "x", "1 2", "-1", "1.5", "16777216", "99999999999999999999999999999999999"}) {
    const std::string message = error({{"a.cls", label}});
    EXPECT_TRUE(message.starts_with(start + "\"a.cls\" at byte 0: expected a class from 0 to 16777215"))
        << message;
  }
  EXPECT_EQ(error({{"../../etc/a.jpg", image}, {"../../etc/a.cls", "3"}}), "no error")
      << "names are no paths";
}

TEST(Shards, AreNotAskedForMillionsOfClassesByOneLabel) {
  const TemporaryFolder folder;
  Bytes archive;
  append_member(archive, "a.pgm", small_picture("a"));
  append_member(archive, "a.cls", "16777215");
  append_end(archive);
  const std::string shard = folder.write("a.tar", archive).string();
  EXPECT_EQ(
      message_of<IoError>([&] { open_shards(shard); }),
      fmt::format(
          "[shards] {}: member at byte 0: a label of 16777215 for 1 samples in all; {} can name so many "
          "classes",
          shard, (folder.path() / "classes.txt").string()));
}

TEST(Shards, NoticeThatAFileHasChanged) {
  const TemporaryFolder folder;
  Bytes bytes = sound_shard();
  const fs::path shard = folder.write("a.tar", bytes);
  const auto data = open_shards(shard.string());
  bytes[2048] ^= 1;  // in the header of the first image
  folder.write("a.tar", bytes);
  EXPECT_EQ(message_of<IoError>([&] { data->get(0); }),
            "[shards] " + shard.string() + ": expected a member at byte 2048, as when it was opened");
  EXPECT_EQ(data->get(1).label, 0);
  fs::resize_file(shard, 100);
  EXPECT_EQ(message_of<IoError>([&] { data->get(1); }),
            fmt::format("[shards] {}: expected {} bytes, as when it was opened, but it has 100 now",
                        shard.string(), bytes.size()));
}

TEST(Shards, NameTheMemberOfADamagedImage) {
  const TemporaryFolder folder;
  Bytes archive;
  append_member(archive, "x/a.jpg", "no image");
  append_member(archive, "x/a.cls", "0");
  append_end(archive);
  const std::string shard = folder.write("a.tar", archive).string();
  const auto data = open_shards(shard);
  EXPECT_TRUE(message_of<IoError>([&] {
                data->get(0);
              }).starts_with("[image] " + shard + ", member \"x/a.jpg\" at byte 0: expected a JPEG, "));
}

TEST(Shards, AreNamedByPatterns) {
  const TemporaryFolder folder;
  const auto names = [&](const std::string& pattern) {
    std::string text;
    for (const fs::path& path : expand_shards((folder.path() / pattern).string()))
      text += path.filename().string() + " ";
    return text;
  };
  for (const char* name : {"a-08.tar", "a-09.tar", "a-10.tar", "b-9.tar", "b-10.tar", "c[1].tar"})
    folder.write(name, {});
  EXPECT_EQ(names("a-{08..10}.tar"), "a-08.tar a-09.tar a-10.tar ");
  EXPECT_EQ(names("b-{9..10}.tar"), "b-9.tar b-10.tar ");
  EXPECT_EQ(names("{a-10,b-9}.tar"), "a-10.tar b-9.tar ");
  EXPECT_EQ(names("a-*.tar"), "a-08.tar a-09.tar a-10.tar ");
  EXPECT_EQ(names("?-10.tar"), "a-10.tar b-10.tar ");
  EXPECT_EQ(names("c[1].tar"), "c[1].tar ");
  EXPECT_EQ(message_of<IoError>([&] { names("a-{08..11}.tar"); }),
            "[shards] " + (folder.path() / "a-11.tar").string() + ": expected a regular file");
  EXPECT_EQ(message_of<IoError>([&] { names("z*.tar"); }),
            "[shards] " + (folder.path() / "z*.tar").string() + ": there is no such file");
  for (const char* wrong :
       {"a-{08..}.tar", "a-{9..8}.tar", "a-{0..99999999}.tar", "a-{08", "{0..9999}{0..9999}"}) {
    EXPECT_THROW(names(wrong), InvalidArgument) << wrong;
  }
}

}  // namespace
}  // namespace sinter::nn::data
