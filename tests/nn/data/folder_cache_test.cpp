// The kept list of an image folder: never another answer than listing gives, whatever has happened to the
// folder or to the file.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include <sinter/core/base/error.h>
#include <sinter/core/base/log.h>
#include <sinter/core/file_system/file_system.h>
#include <sinter/nn/data/formats/folder_cache.h>
#include <sinter/nn/data/formats/image_folder.h>

#include "nn/data/data_test_support.h"

namespace sinter::nn::data {
namespace {

namespace fs = std::filesystem;
using testing::Bytes;
using testing::load;
using testing::message_of;
using testing::TemporaryFolder;

ListedClasses sample_classes() {
  return {{"ant", {{{1, 2, 3, 4}}, {"a.jpg", "b.jpg"}}},
          {"bee", {{{5, -6, 7, 8}}, {}}},
          {"cat",
           {{{}},
            {"deep/er/ü.png", "ü.png"},
            {{"deep", {{9, 8, 7, 6}}}, {"deep/er", {{1, 1, 1, 1}}}},
            {{"", 3}, {"gif", 40}}}}};
}

bool same(const ListedClasses& a, const ListedClasses& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.stamp == y.second.stamp && x.second.images == y.second.images &&
           x.second.folders == y.second.folders && x.second.left_out == y.second.left_out;
  });
}

Bytes sealed(Bytes bytes) {
  bytes.resize(bytes.size() - 4);
  const uint32_t crc = extend_crc32(0, std::as_bytes(std::span(bytes)));
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<uint8_t>(crc >> (8 * i)));
  return bytes;
}

TEST(FolderCache, KeepsWhatItWasGiven) {
  EXPECT_TRUE(same(parse_folder_cache(format_folder_cache(sample_classes()), "file"), sample_classes()));
  EXPECT_TRUE(parse_folder_cache(format_folder_cache({}), "file").empty());
}

TEST(FolderCache, RefusesEveryTruncationAndChangedByte) {
  const Bytes bytes = format_folder_cache(sample_classes());
  for (size_t size = 0; size < bytes.size(); ++size) {
    const Bytes cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_TRUE(
        message_of<IoError>([&] { parse_folder_cache(cut, "file"); }).starts_with("[folder_cache] file: "));
  }
  for (size_t at = 0; at < bytes.size(); ++at) {
    Bytes changed = bytes;
    changed[at] ^= 0x20;
    EXPECT_EQ(message_of<IoError>([&] { parse_folder_cache(changed, "file"); }),
              "[folder_cache] file: byte 0: the checksum is wrong");
  }
}

TEST(FolderCache, RefusesWhatAListingWouldNotGive) {
  const auto error = [](const ListedClasses& classes) {
    return message_of<IoError>([&] { parse_folder_cache(format_folder_cache(classes), "file"); });
  };
  for (const std::string& name : std::vector<std::string>{".hidden", "a/../b", "..", "a/", "/a", "a//b",
                                                          "a/.b", std::string("a\0b", 3)}) {
    EXPECT_NE(error({{"ant", {{}, {name}}}}).find("a name is none, or out of order"), std::string::npos)
        << name;
    EXPECT_NE(error({{"ant", {{}, {}, {{name, {}}}}}}).find("a name is none"), std::string::npos) << name;
    EXPECT_NE(error({{name, {{}, {"a.jpg"}}}}).find("a name is none, or out of order"), std::string::npos);
  }
  EXPECT_NE(error({{"ant", {{}, {"b.jpg", "a.jpg"}}}}).find("out of order"), std::string::npos);
  EXPECT_NE(error({{"ant", {{}, {"a.jpg", "a.jpg"}}}}).find("out of order"), std::string::npos);
  // Numbers that promise more than there is, behind a right checksum.
  Bytes bytes = format_folder_cache(sample_classes());
  for (size_t at = 22; at < 30; ++at) {
    Bytes changed = bytes;
    changed[at] = 0xff;
    EXPECT_TRUE(message_of<IoError>([&] {
                  parse_folder_cache(sealed(changed), "file");
                }).starts_with("[folder_cache]"));
  }
  bytes.insert(bytes.end() - 4, 0);
  EXPECT_NE(message_of<IoError>([&] { parse_folder_cache(sealed(bytes), "file"); }).find("expected the end"),
            std::string::npos);
}

/// Sets a variable of the environment for a test.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  ~Environment() { unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
};

std::vector<std::string> names_of(const fs::path& root) {
  const ImageFolderFiles all = list_image_folder(root);
  std::vector<std::string> names;
  for (const ImageFolderFiles::File& file : all.files)
    names.push_back(all.class_names[file.label] + "/" + file.name);
  return names;
}

/// Two classes of 6,000 images, which are left alone long enough to be kept.
void make_folder(const fs::path& root) {
  for (const char* name : {"ant", "bee"}) {
    fs::create_directories(root / name);
    std::ofstream(root / name / "0.jpg") << "x";
    for (int i = 1; i < 6'000; ++i)
      fs::create_hard_link(root / name / "0.jpg", root / name / (std::to_string(i) + ".jpg"));
  }
}
void settle() {
  std::this_thread::sleep_for(std::chrono::milliseconds(2'100));
}

/// The one file of a folder.
fs::path only_file(const fs::path& folder) {
  const std::vector<fs::directory_entry> all(fs::directory_iterator(folder), {});
  if (all.size() != 1 || !all.front().is_regular_file()) throw std::runtime_error("not one file");
  return all.front().path();
}

TEST(FolderCache, GivesWhatListingGivesAfterEveryChange) {
  const TemporaryFolder folder, caches;
  const Environment environment("SINTER_CACHE_DIR", caches.path());
  const fs::path root = folder.path();
  make_folder(root);
  const std::vector<std::string> first = names_of(root);
  EXPECT_EQ(first.size(), 12'000u);
  EXPECT_TRUE(fs::is_empty(caches.path())) << "kept a list that may change within the clock's tick";
  settle();
  EXPECT_EQ(names_of(root), first);
  const fs::path index = only_file(caches.path());
  EXPECT_EQ(names_of(root), first);

  const auto expect_change = [&](const char* what, const std::function<void()>& change) {
    change();
    const std::vector<std::string> kept = names_of(root);
    {
      const Environment without("SINTER_CACHE_DIR", "");
      EXPECT_EQ(kept, names_of(root)) << what;
    }
    setenv("SINTER_CACHE_DIR", caches.path().c_str(), 1);
  };
  expect_change("removed", [&] { fs::remove(root / "ant/17.jpg"); });
  expect_change("renamed", [&] { fs::rename(root / "bee/18.jpg", root / "bee/new.jpg"); });
  expect_change("another folder of the same name and time", [&] {
    const auto time = fs::last_write_time(root / "ant");
    fs::rename(root / "ant", root / ".ant");
    fs::create_directories(root / "ant");
    std::ofstream(root / "ant/only.jpg") << "x";
    fs::last_write_time(root / "ant", time);
  });
  expect_change("an image in a folder in a class", [&] {
    fs::create_directories(root / "ant/deep/er");
    std::ofstream(root / "ant/deep/er/1.jpg") << "x";
  });
  settle();
  names_of(root);
  expect_change("another image there", [&] { std::ofstream(root / "ant/deep/er/2.jpg") << "x"; });
  expect_change("a new class", [&] { fs::rename(root / ".ant", root / "cow"); });
  settle();
  names_of(root);
  // What the list says is what is read: a list that was made up is believed, so its stamps must be the
  // folder's.
  ListedClasses listed = parse_folder_cache(load(index), "file");
  EXPECT_EQ(listed.size(), 3u);
  listed["bee"].images = {"made_up.jpg"};
  listed["bee"].stamp.values[2] -= 1;
  std::ofstream(index, std::ios::binary)
      .write(reinterpret_cast<const char*>(format_folder_cache(listed).data()),
             static_cast<std::streamsize>(format_folder_cache(listed).size()));
  expect_change("a stale list", [] {});
  fs::resize_file(index, 1000);
  expect_change("a damaged list", [] {});
  EXPECT_EQ(parse_folder_cache(load(index), "file").size(), 3u) << "a damaged list is replaced";
}

TEST(FolderCache, NeitherBelievesNorFollowsWhatOthersMayHavePutThere) {
  const TemporaryFolder folder, caches;
  const Environment environment("SINTER_CACHE_DIR", caches.path());
  const fs::path root = folder.path();
  make_folder(root);
  settle();
  const std::vector<std::string> first = names_of(root);
  const fs::path index = only_file(caches.path());
  ListedClasses made_up = parse_folder_cache(load(index), "file");
  made_up["bee"].images = {"made_up.jpg"};
  const Bytes lie = format_folder_cache(made_up);
  const fs::path other = caches.path() / "other";
  std::ofstream(other, std::ios::binary)
      .write(reinterpret_cast<const char*>(lie.data()), static_cast<std::streamsize>(lie.size()));
  std::vector<std::string> warnings;
  log::set_sink([&](log::Level, std::string_view text) { warnings.emplace_back(text); });
  fs::remove(index);
  fs::create_symlink(other, index);
  EXPECT_EQ(names_of(root), first);
  EXPECT_EQ(load(other), lie) << "written through the link";
  EXPECT_EQ(warnings, std::vector<std::string>{
                          "[folder_cache] " + index.string() +
                          ": it is not believed: it is a symbolic link; the folder is listed again"});
  fs::remove(index);
  fs::rename(other, index);
  fs::permissions(index, fs::perms::others_write, fs::perm_options::add);
  EXPECT_EQ(names_of(root), first);
  if (::geteuid() == 0 && ::chown(index.c_str(), 65534, 65534) == 0) {
    fs::permissions(index, fs::perms::others_write, fs::perm_options::remove);
    EXPECT_EQ(names_of(root), first);
    EXPECT_NE(warnings.back().find("another user owns it"), std::string::npos);
  }
  log::set_sink({});
}

// Programs that take every entry of a folder for a class must find the same ones after us.
TEST(FolderCache, LeavesNothingAmongTheData) {
  const TemporaryFolder folder, caches;
  const Environment environment("SINTER_CACHE_DIR", (caches.path() / "sub").string());
  make_folder(folder.path());
  settle();
  const std::vector<std::string> first = names_of(folder.path());
  EXPECT_TRUE(only_file(caches.path() / "sub").filename().string().starts_with("images-"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 2);
  EXPECT_EQ(names_of(folder.path()), first);
}

}  // namespace
}  // namespace sinter::nn::data
