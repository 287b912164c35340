// The readers of data sets: what they give, and the exact words with which they refuse damage.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <numeric>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <sinter/core/base/error.h>
#include <sinter/core/base/log.h>
#include <sinter/nn/data/formats/cifar.h>
#include <sinter/nn/data/formats/file_bytes.h>
#include <sinter/nn/data/formats/idx.h>
#include <sinter/nn/data/formats/image_folder.h>
#include <sinter/nn/data/formats/open_dataset.h>

#include "common/project_folder.h"
#include "nn/data/data_test_support.h"

namespace sinter::nn::data {
namespace {

namespace fs = std::filesystem;
using testing::Bytes;
using testing::load_picture;
using testing::message_of;
using testing::TemporaryFolder;

// (2, 2, 3) with the values 0 ... 11, plain and packed by Python's gzip.
const Bytes kPlain = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
const Bytes kPacked = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0x63, 0x60, 0xe0, 0x60,
                       0x66, 0x60, 0x60, 0x60, 0x82, 0x62, 0x66, 0x06, 0x46, 0x26, 0x66, 0x16, 0x56, 0x36,
                       0x76, 0x0e, 0x4e, 0x2e, 0x6e, 0x00, 0x78, 0x1e, 0x23, 0x84, 0x1c, 0x00, 0x00, 0x00};

// A packed file whose header promises 10 values and whose stream holds 100,000.
Bytes bomb() {
  Bytes bytes = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xed, 0xc1, 0x31,
                 0x11, 0x00, 0x30, 0x08, 0x00, 0xb1, 0x67, 0xeb, 0xe1, 0x5f, 0x30, 0x36, 0x3a,
                 0x24, 0xa9, 0x37, 0xd5, 0x06, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
  bytes.insert(bytes.end(), 126 - bytes.size(), 0);
  const Bytes end = {0x7c, 0xeb, 0x00, 0x7f, 0x8e, 0x3f, 0xf1, 0xa8, 0x86, 0x01, 0x00};
  bytes.insert(bytes.end(), end.begin(), end.end());
  return bytes;
}

std::string idx_error(const Bytes& bytes) {
  return message_of<IoError>([&] { parse_idx(bytes, "file"); });
}
Bytes with(Bytes bytes, size_t at, uint8_t value) {
  bytes[at] = value;
  return bytes;
}
Bytes first(const Bytes& bytes, size_t count) {
  return Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
}

TEST(Idx, ReadsPlainAndPacked) {
  for (const Bytes& bytes : {kPlain, kPacked}) {
    const IdxArray array = parse_idx(bytes, "file");
    EXPECT_EQ(array.dims, (std::vector<int64_t>{2, 2, 3}));
    EXPECT_EQ(array.values, Bytes(kPlain.begin() + 16, kPlain.end()));
  }
}

TEST(Idx, RefusesWrongHeaders) {
  EXPECT_EQ(idx_error(with(kPlain, 0, 9)),
            "[idx] file: expected two zero bytes at byte 0 but got 0x09 0x00; this is no IDX file");
  EXPECT_EQ(message_of<Unsupported>([] { parse_idx(with(kPlain, 2, 0x0d), "file"); }),
            "[idx] file: expected element type 0x08 (uint8) at byte 2 but got 0x0d");
  EXPECT_EQ(idx_error(with(kPlain, 3, 0)), "[idx] file: expected a rank from 1 to 8 at byte 3 but got 0");
  EXPECT_EQ(idx_error(with(kPlain, 3, 9)), "[idx] file: expected a rank from 1 to 8 at byte 3 but got 9");
  EXPECT_EQ(idx_error(first(kPlain, 3)),
            "[idx] file: expected a header of at least 4 bytes but the file has 3");
  EXPECT_EQ(idx_error(first(kPlain, 15)), "[idx] file: expected a header of 16 bytes but the file has 15");
}

TEST(Idx, RefusesSizesThatDoNotFit) {
  EXPECT_EQ(idx_error(first(kPlain, 27)),
            "[idx] file: expected 12 values for shape (2, 2, 3) from byte 16 on but the file has 11");
  Bytes trailing = kPlain;
  trailing.push_back(0);
  EXPECT_EQ(idx_error(trailing),
            "[idx] file: expected 12 values for shape (2, 2, 3) from byte 16 on but the file has 13");
  Bytes huge = kPlain;
  std::fill(huge.begin() + 4, huge.begin() + 16, uint8_t{0xff});
  EXPECT_EQ(idx_error(huge),
            "[idx] file: the extents at byte 4 promise more than 2147483648 values (max_values)");
  EXPECT_EQ(message_of<IoError>([] { parse_idx(kPlain, "file", 11); }),
            "[idx] file: the extents at byte 4 promise more than 11 values (max_values)");
  EXPECT_EQ(parse_idx(kPlain, "file", 12).values.size(), 12u);
  // 2^31 - 1 values promised: refused by the size of the file, before any memory is taken.
  EXPECT_EQ(
      idx_error({0, 0, 8, 1, 0x7f, 0xff, 0xff, 0xff, 1}),
      "[idx] file: expected 2147483647 values for shape (2147483647) from byte 8 on but the file has 1");
}

TEST(Idx, RefusesDamagedGzip) {
  for (size_t size = 2; size < kPacked.size(); ++size) {
    EXPECT_EQ(idx_error(first(kPacked, size)), "[gzip] file: the compressed stream is cut short") << size;
  }
  EXPECT_EQ(idx_error(with(kPacked, 35, 0)),
            "[gzip] file: the compressed stream is damaged: incorrect data check");
  EXPECT_EQ(idx_error(with(kPacked, 10, 0x67)),
            "[gzip] file: the compressed stream is damaged: invalid block type");
  Bytes trailing = kPacked;
  trailing.push_back(7);
  EXPECT_EQ(idx_error(trailing), "[gzip] file: 1 trailing bytes after the compressed stream");
  EXPECT_EQ(idx_error(bomb()), "[gzip] file: unpacks to more bytes than its header says");
}

TEST(Idx, PairsImagesWithLabels) {
  const TemporaryFolder folder;
  const fs::path images = folder.write("images", kPacked);
  const fs::path labels = folder.write("labels", {0, 0, 8, 1, 0, 0, 0, 2, 4, 1});
  const auto dataset = open_idx(images, labels);
  EXPECT_EQ(dataset->size(), 2);
  EXPECT_EQ(dataset->class_names(), (std::vector<std::string>{"0", "1", "2", "3", "4"}));
  const Sample sample = dataset->get(1);
  EXPECT_EQ(sample.label, 1);
  EXPECT_EQ(sample.image.height, 2);
  EXPECT_EQ(sample.image.width, 3);
  EXPECT_EQ(sample.image.pixels, (Bytes{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(message_of<InvalidArgument>([&] { dataset->get(2); }),
            "[dataset] expected an index from 0 to 1 but got 2");

  EXPECT_EQ(message_of<IoError>([&] { open_idx(images, labels, 4); }),
            "[idx] " + labels.string() + ": expected labels below 4 but label 0 is 4");
  const fs::path three = folder.write("three", {0, 0, 8, 1, 0, 0, 0, 3, 4, 1, 0});
  EXPECT_EQ(message_of<IoError>([&] { open_idx(images, three); }),
            "[idx] " + three.string() + ": expected labels (2) for the images of " + images.string() +
                " but got (3)");
  EXPECT_EQ(message_of<IoError>([&] { open_idx(labels, labels); }),
            "[idx] " + labels.string() +
                ": expected images (N, height, width) or (N, height, width, channels) but got (2)");
  const fs::path none = folder.write("none", {0, 0, 8, 1, 0, 0, 0, 0});
  const fs::path no_images = folder.write("no_images", {0, 0, 8, 3, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 2});
  EXPECT_EQ(message_of<IoError>([&] { open_idx(no_images, none); }),
            "[idx] " + no_images.string() + ": expected at least one image and pixel but got (0, 2, 2)");
}

TEST(Files, NameTheReason) {
  const TemporaryFolder folder;
  const std::string missing = (folder.path() / "missing").string();
  EXPECT_EQ(message_of<IoError>([&] { read_file(missing, 10); }),
            "[file] " + missing + ": cannot open: No such file or directory");
  EXPECT_EQ(message_of<IoError>([&] { read_file(folder.path(), 10); }),
            "[file] " + folder.path().string() + ": expected a regular file");
  const fs::path file = folder.write("file", {1, 2, 3});
  EXPECT_EQ(message_of<IoError>([&] { read_file(file, 2); }),
            "[file] " + file.string() + ": expected at most 2 bytes but it has 3");
  EXPECT_EQ(read_file(file, 3), (Bytes{1, 2, 3}));
}

TEST(Files, TellWhenThereIsNoMemoryForThem) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need the address space";
#endif
  // 64 GiB without a single block on the disk, of which this process may have no more than 2 GiB.
  const TemporaryFolder folder;
  const fs::path file = folder.write("sparse", {});
  fs::resize_file(file, uint64_t{64} << 30);
  const auto report = [&] {
    const rlimit limit{rlim_t{2} << 30, RLIM_INFINITY};
    if (setrlimit(RLIMIT_AS, &limit) != 0) std::exit(1);
    std::fputs(message_of<OutOfMemory>([&] { read_file(file, uint64_t{1} << 40); }).c_str(), stderr);
    std::exit(0);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(report(), ::testing::ExitedWithCode(0), "sparse: no memory for 68719476736 bytes");
}

// A record with a label and planes 10 + i, 100 + i, 200 + i (mod 256).
Bytes cifar_record(Bytes labels) {
  for (const int base : {10, 100, 200}) {
    for (int i = 0; i < 1024; ++i) labels.push_back(static_cast<uint8_t>(base + i));
  }
  return labels;
}

TEST(Cifar, ReadsPlanesAndLabels) {
  MemoryDataset::Content content;
  parse_cifar(cifar_record({7}), CifarKind::kCifar10, "file", content);
  EXPECT_EQ(content.labels, (std::vector<int64_t>{7}));
  EXPECT_EQ(first(content.pixels, 6), (Bytes{10, 100, 200, 11, 101, 201}));
  EXPECT_EQ(content.pixels.size(), 3072u);
  const Bytes fine_and_coarse = cifar_record({19, 99});
  parse_cifar(fine_and_coarse, CifarKind::kCifar100, "file", content);
  parse_cifar(fine_and_coarse, CifarKind::kCifar100Coarse, "file", content);
  EXPECT_EQ(content.labels, (std::vector<int64_t>{7, 99, 19}));
  EXPECT_EQ(content.pixels[3072 * 2], 10);
}

TEST(Cifar, RefusesDamage) {
  const auto error = [](const Bytes& bytes, CifarKind kind) {
    MemoryDataset::Content content;
    return message_of<IoError>([&] { parse_cifar(bytes, kind, "file", content); });
  };
  EXPECT_EQ(error({}, CifarKind::kCifar10),
            "[cifar] file: expected one or more records of 3073 bytes but the file has 0 bytes");
  EXPECT_EQ(error(cifar_record({1, 2}), CifarKind::kCifar10),
            "[cifar] file: expected one or more records of 3073 bytes but the file has 3074 bytes");
  Bytes second = cifar_record({1});
  const Bytes bad = cifar_record({10});
  second.insert(second.end(), bad.begin(), bad.end());
  EXPECT_EQ(error(second, CifarKind::kCifar10),
            "[cifar] file: expected a label from 0 to 9 in record 1 at byte 3073 but got 10");
  EXPECT_EQ(error(cifar_record({0, 100}), CifarKind::kCifar100),
            "[cifar] file: expected a label from 0 to 99 in record 0 at byte 1 but got 100");
}

TEST(ImageFolder, ReadsClassesInOrder) {
  const TemporaryFolder folder;
  folder.write("zebra/2.JPEG", load_picture("rgb.jpg"));
  folder.write("zebra/1.jpg", load_picture("gray.jpg"));
  folder.write("zebra/notes.txt", {1});
  folder.write("ant/a.ppm", load_picture("rgb.ppm"));
  folder.write(".cache/x.jpg", {1});
  folder.write("list.txt", {1});
  const auto dataset = open_image_folder(folder.path());
  EXPECT_EQ(dataset->class_names(), (std::vector<std::string>{"ant", "zebra"}));
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_EQ(dataset->get(0).label, 0);
  EXPECT_EQ(dataset->get(1).label, 1);
  const Image gray = dataset->get(1).image;
  EXPECT_EQ(gray.channels, 3);
  EXPECT_EQ(gray.pixels[0], gray.pixels[2]);
  EXPECT_NE(dataset->get(2).image.pixels, gray.pixels);
  EXPECT_EQ(open_image_folder(folder.path(), {.decode = {.channels = 1}})->get(2).image.channels, 1);

  const auto more = open_image_folder(folder.path(), {.class_names = {"zebra", "fox", "ant"}});
  EXPECT_EQ(more->get(0).label, 2);
  EXPECT_EQ(more->num_classes(), 3);
}

/// What the log warns of while `action` runs.
template <class Action>
std::vector<std::string> warnings_of(Action&& action) {
  std::vector<std::string> warnings;
  log::set_sink([&](log::Level, std::string_view text) { warnings.emplace_back(text); });
  action();
  log::set_sink({});
  return warnings;
}

// As torchvision's ImageFolder does.
TEST(ImageFolder, TakesTheImagesOfFoldersInClassFolders) {
  const TemporaryFolder folder;
  const Bytes picture = load_picture("half.ppm");
  for (const char* name :
       {"ant/b.ppm", "ant/a/2.ppm", "ant/a/1.PPM", "ant/a/deep/x.ppm", "bee/1.ppm", "far/y.ppm"})
    folder.write(name, picture);
  folder.write("ant/.hidden/x.ppm", {1});
  fs::create_directory_symlink(folder.path() / "far", folder.path() / "ant/linked");
  fs::create_directory_symlink(folder.path() / "ant", folder.path() / "ant/a/loop");  // brings nothing new
  const ImageFolderFiles all = list_image_folder(folder.path());
  std::vector<std::string> names;
  for (const auto& file : all.files) names.push_back(all.class_names[file.label] + ": " + file.name);
  EXPECT_EQ(names, (std::vector<std::string>{"ant: a/1.PPM", "ant: a/2.ppm", "ant: a/deep/x.ppm",
                                             "ant: b.ppm", "ant: linked/y.ppm", "bee: 1.ppm", "far: y.ppm"}));
  EXPECT_EQ(list_images(folder.path() / "ant").files.size(), 5u);
  EXPECT_EQ(open_image_folder(folder.path())->get(2).image.height,
            open_image_folder(folder.path())->get(3).image.height);
}

TEST(ImageFolder, SaysInOneLineWhatItLeavesOut) {
  const TemporaryFolder folder;
  const Bytes picture = load_picture("half.ppm");
  for (const char* name : {"ant/1.ppm", "ant/sub/2.ppm", "bee/1.ppm"}) folder.write(name, picture);
  EXPECT_EQ(warnings_of([&] { open_image_folder(folder.path()); }), std::vector<std::string>{});
  for (const char* name :
       {"ant/1.bmp", "ant/sub/2.BMP", "bee/1.gif", "bee/README", "loose.ppm", "bee/.hidden"})
    folder.write(name, {1});
  EXPECT_EQ(
      warnings_of([&] { open_image_folder(folder.path()); }),
      (std::vector<std::string>{"[image_folder] " + folder.path().string() +
                                ": 5 of 8 files are left out: 2 .bmp, 1 .gif, 1 .ppm beside the folders of "
                                "classes, 1 without an ending"}));
  EXPECT_EQ(warnings_of([&] {
              list_image_folder(folder.path(), {"ant", "bee", "cat", "dog"});
            }),
            (std::vector<std::string>{"[image_folder] " + folder.path().string() +
                                      ": 2 of 4 classes have no folder: cat, dog"}));
}

TEST(ImageFolder, NamesWhatIsWrong) {
  const TemporaryFolder folder;
  const std::string root = folder.path().string();
  const auto error = [&](const std::string& path, const ImageFolderOptions& options = {}) {
    return message_of<IoError>([&] { open_image_folder(path, options); });
  };
  EXPECT_EQ(error(root + "/none"),
            "[image_folder] " + root + "/none: expected a folder of class folders but it does not exist");
  EXPECT_EQ(error(root),
            "[image_folder] " + root + ": expected one folder per class but it has no sub-folder");
  folder.write("file", {1});
  EXPECT_EQ(error(root + "/file"),
            "[image_folder] " + root + "/file: expected a folder of class folders but it is a file");
  folder.write("cat/readme.md", {1});
  EXPECT_EQ(
      error(root),
      "[image_folder] " + root +
          "/cat: expected images (.jpg, .jpeg, .png, .webp, .pgm or .ppm) but there are none; 1 of 1 file "
          "is left out: 1 .md");
  folder.write("cat/1.jpg", {'G', 'I', 'F'});
  EXPECT_EQ(error(root, {.class_names = {"dog"}}),
            "[image_folder] " + root + ": expected only folders of the 1 known classes but got \"cat\"");
  EXPECT_EQ(message_of<IoError>([&] { open_image_folder(root)->get(0); }),
            "[image] " + root +
                "/cat/1.jpg: expected a JPEG, PNG, WebP, PGM (P5) or PPM (P6) file but its first bytes are "
                "of none");
}

TEST(ImageFolder, TellsOfClassesThatCannotBeLookedAt) {
  const TemporaryFolder folder;
  const std::string root = folder.path().string();
  folder.write("ant/1.ppm", load_picture("rgb.ppm"));
  folder.write("far/1.ppm", load_picture("rgb.ppm"));
  fs::create_directory_symlink(folder.path() / "far", folder.path() / "bee");
  EXPECT_EQ(open_image_folder(root)->class_names(), (std::vector<std::string>{"ant", "bee", "far"}));

  const fs::path broken = folder.path() / "cow", loop = folder.path() / "dog";
  const auto error = [&] { return message_of<IoError>([&] { open_image_folder(root); }); };
  fs::create_directory_symlink("nowhere", broken);
  EXPECT_EQ(error(), "[image_folder] " + broken.string() +
                         ": cannot tell whether it is a folder of a class: No such file or directory");
  fs::remove(broken);
  fs::create_directory_symlink("dog", loop);
  EXPECT_EQ(error(),
            "[image_folder] " + loop.string() +
                ": cannot tell whether it is a folder of a class: Too many levels of symbolic links");
  fs::rename(loop, folder.path() / ".dog");  // passed over, as all that begins with a dot
  EXPECT_EQ(open_image_folder(root)->num_classes(), 3);
}

TEST(ImageFolder, FindsEachOfManyClassesAtOnce) {
  // Many names to choose from, and few or many folders that each have to find theirs.
  ImageFolderOptions options;
  for (int i = 0; i < 1'000'000; ++i)
    options.class_names.push_back("a_class_with_a_long_name_" + std::to_string(i));
  const auto seconds_for = [&](int folders) {
    const TemporaryFolder folder;
    const auto image = load_picture("half.ppm");
    for (int i = 0; i < folders; ++i) {
      folder.write(options.class_names[options.class_names.size() - 1 - static_cast<size_t>(i)] + "/1.ppm",
                   image);
    }
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(open_image_folder(folder.path(), options)->size(), folders);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const double few = seconds_for(3);
  EXPECT_LT(seconds_for(1'500), 3 * few + 1.0);  // a search among all names for each takes a few ms a folder
}

TEST(OpenDataset, KnowsTheShippedDigits) {
  const DatasetPair digits = open_dataset(test::project_folder() / "examples/data/digits");
  EXPECT_EQ(digits.kind, "idx");
  EXPECT_EQ(digits.train->size(), 1437);
  EXPECT_EQ(digits.test->size(), 360);
  EXPECT_EQ(digits.train->num_classes(), 10);
  EXPECT_EQ(digits.test->num_classes(), 10);
  const Sample zero = digits.train->get(0);
  EXPECT_EQ(zero.image.height, 8);
  EXPECT_EQ(zero.image.width, 8);
  EXPECT_EQ(zero.image.channels, 1);
  std::vector<int> counts(10);
  for (int64_t i = 0; i < 360; ++i) ++counts[static_cast<size_t>(digits.test->get(i).label)];
  for (const int count : counts) EXPECT_NEAR(count, 36, 1);
  // The first digit of the source: a zero whose first rows have ink 0 0 5 13 9 1 0 0 and 0 0 13 15 10 15 5 0.
  EXPECT_EQ(zero.label, 0);
  EXPECT_EQ(first(zero.image.pixels, 16),
            (Bytes{0, 0, 80, 207, 143, 16, 0, 0, 0, 0, 207, 239, 159, 239, 80, 0}));
}

TEST(OpenDataset, KnowsCifarAndFolders) {
  const TemporaryFolder folder;
  for (int i = 1; i <= 5; ++i) {
    folder.write("c10/data_batch_" + std::to_string(i) + ".bin", cifar_record({static_cast<uint8_t>(i)}));
  }
  folder.write("c10/test_batch.bin", cifar_record({9}));
  const DatasetPair ten = open_dataset(folder.path() / "c10");
  EXPECT_EQ(ten.kind, "cifar10");
  EXPECT_EQ(ten.train->size(), 5);
  EXPECT_EQ(ten.train->get(4).label, 5);
  EXPECT_EQ(ten.test->get(0).label, 9);
  const fs::path names = folder.write("c10/batches.meta.txt", {'a', '\n', 'b', '\n'});
  EXPECT_EQ(message_of<IoError>([&] { open_dataset(folder.path() / "c10"); }),
            "[dataset] " + names.string() + ": expected 10 class names but got 2");
  const std::string_view ten_names = "\357\273\277ant\r\nb\nc\nd\ne\nf\ng\nh\ni\njay";
  folder.write("c10/batches.meta.txt", {ten_names.begin(), ten_names.end()});
  const std::vector<std::string> named = open_dataset(folder.path() / "c10").test->class_names();
  EXPECT_EQ(named.front(), "ant") << "without a byte order mark";
  EXPECT_EQ(named.back(), "jay");

  folder.write("c100/train.bin", cifar_record({3, 33}));
  folder.write("c100/test.bin", cifar_record({4, 44}));
  const DatasetPair hundred = open_dataset(folder.path() / "c100");
  EXPECT_EQ(hundred.kind, "cifar100");
  EXPECT_EQ(hundred.train->get(0).label, 33);
  EXPECT_EQ(hundred.test->num_classes(), 100);

  folder.write("folders/train/a/1.jpg", load_picture("rgb.jpg"));
  folder.write("folders/train/b/1.jpg", load_picture("rgb.jpg"));
  folder.write("folders/val/b/1.jpg", load_picture("rgb.jpg"));
  const DatasetPair folders = open_dataset(folder.path() / "folders");
  EXPECT_EQ(folders.kind, "image folder");
  EXPECT_EQ(folders.test->get(0).label, 1);  // numbered as in training
  EXPECT_EQ(folders.validation, nullptr);
  folder.write("folders/test/a/1.jpg", load_picture("rgb.jpg"));
  folder.write("folders/test/b/1.jpg", load_picture("rgb.jpg"));
  const DatasetPair three = open_dataset(folder.path() / "folders");  // val to choose with
  EXPECT_EQ(three.test->size(), 2);
  ASSERT_NE(three.validation, nullptr);
  EXPECT_EQ(three.validation->size(), 1);
  EXPECT_EQ(three.validation->get(0).label, 1);
  EXPECT_EQ(
      message_of<IoError>([&] { open_dataset(folder.path() / "folders", {.hold_out = {.fraction = 0.5}}); }),
      "[dataset] " + (folder.path() / "folders").string() +
          ": has images to test on; expected none beside a share of the others");
  for (const char* image : {"a/1.jpg", "a/2.jpg", "b/1.jpg", "b/2.jpg"})
    folder.write(std::string("whole/") + image, load_picture("rgb.jpg"));
  const DatasetPair divided = open_dataset(
      folder.path() / "whole", {.hold_out = {.fraction = 0.5, .seed = 3}, .decode = {.channels = 1}});
  EXPECT_EQ(divided.train->size(), 2);
  EXPECT_EQ(divided.test->size(), 2);
  EXPECT_EQ(divided.test->get(0).image.channels, 1) << "as the options say to decode";

  folder.write("idx/train-images-idx3-ubyte", kPlain);
  const std::string idx = (folder.path() / "idx").string();
  EXPECT_EQ(message_of<IoError>([&] { open_dataset(idx); }),
            "[dataset] " + idx + ": expected a file train-labels-idx1-ubyte[.gz] beside the others");
  const std::string other = (folder.path() / "folders/train").string();
  EXPECT_EQ(
      message_of<IoError>([&] { open_dataset(other); }),
      "[dataset] " + other +
          ": expected IDX files (train-images-idx3-ubyte[.gz], ...), CIFAR files (data_batch_1.bin, ... or "
          "train.bin, test.bin), records (train.rec, train.idx, property), shards (train*.tar "
          "and test*.tar or val*.tar), or folders train/<class>/ and test/<class>/ or val/<class>/");
  EXPECT_EQ(message_of<IoError>([&] { open_dataset(other + "x"); }),
            "[dataset] " + other + "x: expected a folder");
}

}  // namespace
}  // namespace sinter::nn::data
