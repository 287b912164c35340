// Verification sets: what Python's pickles give, and that nothing else than lists of bytes comes through.
#include <random>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/records/pickle.h>
#include <sinter/nn/data/records/verification_parts.h>
#include <sinter/nn/data/records/verification_set.h>

#include "common/project_folder.h"
#include "nn/data/records/record_samples.h"

namespace sinter::nn::data {
namespace {

namespace fs = std::filesystem;
using namespace testing;
using namespace std::string_literals;

fs::path stored(const std::string& name) {
  return test::test_data() / "verification" / name;
}
const std::vector<std::string> kStored = {
    "bytes_2.bin", "bytes_3.bin", "bytes_4.bin", "bytes_5.bin",       "array_2.bin",
    "array_3.bin", "array_4.bin", "array_5.bin", "python2_bytes.bin", "python2_array.bin"};

std::string pickle_error(const std::string& text) {
  return message_of<IoError>([&] { ImagePickle(text_bytes(text), "file"); });
}

TEST(VerificationSet, ReadsWhatPythonWrites) {
  for (const std::string& name : kStored) {
    const VerificationSet set = open_verification_set(stored(name));
    ASSERT_EQ(set.pairs(), 2) << name;
    EXPECT_EQ(set.same, (std::vector<uint8_t>{1, 0})) << name;
    ASSERT_EQ(set.images->size(), 4) << name;
    const VerificationBins bins = parse_verification_bins(load(stored(name)), name);
    for (size_t i = 0; i < 4; ++i) {
      const std::string picture = i < 3 ? "rgb.jpg" : "gray.jpg";
      Image expected;
      decode_jpeg(load_picture(picture), picture, {}, {}, expected);
      const Sample sample = set.images->get(static_cast<int64_t>(i));
      EXPECT_EQ(sample.image.pixels, expected.pixels) << name << ' ' << i;
      EXPECT_EQ(sample.label, i < 2 ? 1 : 0);
    }
    EXPECT_EQ(set.images->class_names(), (std::vector<std::string>{"different", "same"}));
  }
}

TEST(VerificationSet, ReadsAListOfPairs) {
  const TemporaryFolder folder;
  folder.write("a/1.jpg", load_picture("rgb.jpg"));
  folder.write("b/1.pgm", load_picture("gray.pgm"));
  const fs::path list =
      folder.write("pairs.txt", text_bytes("\357\273\277a/1.jpg\ta/1.jpg 1\r\n\n  a/1.jpg b/1.pgm   0"));
  for (const fs::path& path : {folder.path(), list}) {
    const VerificationSet set = open_verification_set(path, {.channels = 1});
    EXPECT_EQ(set.same, (std::vector<uint8_t>{1, 0}));
    EXPECT_EQ(set.images->get(3).image.channels, 1);
    EXPECT_EQ(set.images->get(1).label, 1);
  }
  const auto error = [](const std::string& text) {
    return message_of<IoError>([&] { parse_verification_list(text_bytes(text), "list"); });
  };
  const std::string form = "[verification] list: expected \"path path 0\" or \"path path 1\" in line ";
  EXPECT_EQ(error("a b 1\na b\n"), form + "2");
  EXPECT_EQ(error("a b 2\n"), form + "1");
  EXPECT_EQ(error("a b c 1\n"), form + "1");
  EXPECT_EQ(error("a b 1 1 1\n"), form + "1");
  EXPECT_EQ(parse_verification_list(text_bytes("a b/1.jpg\tc d.jpg\t1\r\na\t\tb 0\n"), "list").paths,
            (std::vector<std::string>{"a b/1.jpg", "c d.jpg", "a", "b"}));
  EXPECT_EQ(error("a b\tc 1\n"), form + "1");
  EXPECT_EQ(error("a b\tc\t2\n"), form + "1");
  EXPECT_EQ(error(" \n"), "[verification] list: expected at least one pair");
  for (const std::string& path : {"/etc/passwd"s, "../x"s, "a/../../x"s, "x/.."s, "a\0b"s})
    EXPECT_EQ(error("a " + path + " 1"),
              "[verification] list: expected paths inside the list's folder in line 1");
  EXPECT_EQ(
      message_of<IoError>([&] { open_verification_set(folder.path() / "a"); }),
      "[file] " + (folder.path() / "a/pairs.txt").string() + ": cannot open: No such file or directory");
}

TEST(VerificationSet, RefusesWhatIsNoSuchList) {
  const auto error = [](const std::string& text) {
    return message_of<IoError>([&] { parse_verification_bins(text_bytes(text), "file"); });
  };
  const std::string form = "[verification] file: expected a pair of lists, images and truths";
  EXPECT_EQ(error("\x80\2N."), form);
  EXPECT_EQ(error("\x80\2]]]\x87."), form);
  EXPECT_EQ(error("\x80\2NN\x86."), form);
  EXPECT_EQ(error("\x80\2]N\x86."), "[verification] file: expected a list of truths behind that of images");
  EXPECT_EQ(error("\x80\2]]\x86."),
            "[verification] file: expected two images a pair but got 0 images and 0 pairs");
  EXPECT_EQ(error("\x80\2](C\1xC\1xe](\x88\x88"
                  "e\x86."),
            "[verification] file: expected two images a pair but got 2 images and 2 pairs");
  EXPECT_EQ(error("\x80\2](C\1xC\1xe](K\2e\x86."),
            "[verification] file: expected True or False for pair 0 but got something else");
  EXPECT_EQ(error("\x80\2](C\1xC\0e](\x88"
                  "e\x86."s),
            "[verification] file: expected image 1 to be bytes or an array of them");
  EXPECT_EQ(error("\x80\2](C\1xNe](\x88"
                  "e\x86."),
            "[verification] file: expected image 1 to be bytes or an array of them");
  // A list that holds itself is a value like another.
  EXPECT_EQ(error("\x80\2]q\1(h\1h\1e](\x88"
                  "e\x86."),
            "[verification] file: expected image 0 to be bytes or an array of them");
}

TEST(Pickle, RefusesWhatCouldRunSomething) {
  EXPECT_EQ(pickle_error("\x80\2cos\nsystem\nU\4evil\x85R."),
            "[pickle] file: byte 2: refuses the name os.system: only arrays of bytes are known here");
  EXPECT_EQ(pickle_error("\x80\4\x8c\x08"
                         "builtins\x8c\4eval\x93."),
            "[pickle] file: byte 18: refuses the name builtins.eval: only arrays of bytes are known here");
  EXPECT_EQ(pickle_error("\x80\4\x8c\5numpy\x8c\x08loadtxt!\x93."),
            "[pickle] file: byte 19: refuses the name numpy.loadtxt!: only arrays of bytes are known here");
  // Opcodes for objects, instances, extensions, persistent ids, buffers, dicts, sets, and all of protocol 0.
  const std::string refused = "ioPQGILSVFdsu}012pg\x81\x82\x83\x84\x8b\x8f\x90\x91\x92\x97\x98\xff\0"s;
  for (const char opcode : refused) {
    EXPECT_EQ(
        pickle_error("\x80\2NN"s + opcode + "x\n."),
        fmt::format("[pickle] file: byte 4: refuses the opcode 0x{:02x}", static_cast<uint8_t>(opcode)));
  }
  const std::string call = "refuses a call of this kind";
  EXPECT_EQ(pickle_error("\x80\2N)R."), "[pickle] file: byte 4: " + call);
  EXPECT_EQ(pickle_error("\x80\2"
                         "cnumpy\nndarray\n)R."),
            "[pickle] file: byte 18: " + call);
  EXPECT_EQ(pickle_error("\x80\2"
                         "cnumpy\nndarray\nNR."),
            "[pickle] file: byte 18: expected a tuple of arguments");
  EXPECT_EQ(pickle_error("\x80\2"
                         "c_codecs\nencode\nX\1\0\0\0aX\4\0\0\0zlib\x86R."s),
            "[pickle] file: byte 34: " + call);
  EXPECT_EQ(pickle_error("\x80\2"
                         "c_codecs\nencode\nX\3\0\0\0\xe2\x82\xacX\6\0\0\0latin1\x86R."s),
            "[pickle] file: byte 38: expected characters up to 255 in a string that stands for bytes");
  EXPECT_EQ(pickle_error("\x80\2"
                         "cnumpy\ndtype\nU\2O8\x85R."),
            "[pickle] file: byte 20: expected elements of one byte (u1 or b1) but got O8");
  EXPECT_EQ(pickle_error("\x80\2N]b."),
            "[pickle] file: byte 4: refuses to set the state of anything but an array of bytes");
}

TEST(Pickle, RefusesBrokenStacks) {
  EXPECT_EQ(pickle_error(""), "[pickle] file: byte 0: expected 1 more bytes but 0 are left");
  EXPECT_EQ(pickle_error("\x80\1."), "[pickle] file: byte 0: expected a pickle of protocol 2 to 5 but got 1");
  EXPECT_EQ(pickle_error("\x80\6."), "[pickle] file: byte 0: expected a pickle of protocol 2 to 5 but got 6");
  EXPECT_EQ(pickle_error("\x80\2."), "[pickle] file: byte 2: expected a value on the stack");
  EXPECT_EQ(pickle_error("\x80\2N(."), "[pickle] file: byte 4: expected a value on the stack");
  EXPECT_EQ(pickle_error("\x80\2N\x86."), "[pickle] file: byte 3: expected 2 values on the stack");
  EXPECT_EQ(pickle_error("\x80\2Nt."), "[pickle] file: byte 3: expected a mark on the stack");
  EXPECT_EQ(pickle_error("\x80\2NNa."), "[pickle] file: byte 4: expected a list to append to");
  EXPECT_EQ(pickle_error("\x80\2h\1."), "[pickle] file: byte 2: expected a memo number but 1 is none");
  EXPECT_EQ(pickle_error("\x80\2N.N"),
            "[pickle] file: byte 4: expected the end of the file behind STOP but 1 bytes follow");
  EXPECT_EQ(pickle_error("\x80\2T\xff\xff\xff\xff."), "[pickle] file: byte 2: expected a length but got -1");
  EXPECT_EQ(pickle_error("\x80\2\x8a\x09"s + std::string(9, 1)),
            "[pickle] file: byte 2: expected a number of at most 64 bits");
  EXPECT_EQ(pickle_error("\x80\2"
                         "cnumpy"),
            "[pickle] file: byte 2: expected a name that ends with its line");
}

TEST(Pickle, RefusesLyingLengths) {
  const std::string most(8, '\xff');
  for (const std::string opcode : {"\x8e", "\x96", "\x8d"}) {
    EXPECT_EQ(pickle_error("\x80\4" + opcode + most + "abc"),
              "[pickle] file: byte 2: expected 18446744073709551615 more bytes but 3 are left");
  }
  EXPECT_EQ(pickle_error("\x80\4\x95" + most),
            "[pickle] file: byte 2: promises 18446744073709551615 bytes but 0 are left");
  EXPECT_EQ(pickle_error("\x80\3"
                         "B\xff\xff\xff\xff"
                         "abc"),
            "[pickle] file: byte 2: expected 4294967295 more bytes but 3 are left");
  EXPECT_EQ(pickle_error("\x80\2Nr\xff\xff\xff\xff."),
            "[pickle] file: byte 3: expected a memo number below 2097152 but got 4294967295");
  const std::string array =
      "\x80\2"
      "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85U\1b\x87R(K\1"s;
  const std::string type = "cnumpy\ndtype\nU\2u1\x85R"s;
  for (const std::string shape : {"K\4\x85", "K\1K\3\x86", "J\xff\xff\xff\xff\x85", "N\x85", ")", "N"}) {
    EXPECT_TRUE(pickle_error(array + shape + type + "\x89U\3abctb.")
                    .ends_with("expected an array of one axis and one byte an element that fits its 3 bytes"))
        << shape;
  }
  EXPECT_EQ(pickle_error(array + "K\3\x85" + type + "\x89U\3abctb."), "no error");
}

// Whatever opcode is repeated, however often: less than 512 MB beyond what the file has, and less than a
// second.
TEST(Pickle, KeepsItsLimits) {
  const std::string begin = "\x80\4", list = begin + "]\x94";
  const std::vector<std::pair<std::string, std::string>> attacks = {
      {begin, "N"},          {begin, "]"},
      {begin, "("},          {begin, "(t"},
      {begin, "N\x85"},      {begin, "]\x94"},
      {list, "h\0a"s},       {list, "(h\0e"s},
      {begin + "]", "\x85"}, {list, "h\0\x85"s},
      {begin + "N", "\x94"}, {begin, "N\x94"},
      {begin, "(NNNNNNNNl"}, {begin, "cnumpy\nndarray\n"},
      {list, "h\0h\0\x86"s}};
  for (const auto& [first, repeated] : attacks) {
    constexpr size_t kBytes = 24'000'000;
    std::string more = repeated;
    while (more.size() < kBytes) more += more;
    more.resize(kBytes / repeated.size() * repeated.size());
    const std::string text = first + more;
    const Bytes bytes = text_bytes(text);
    const int64_t before = peak_memory();
    const double start = processor_seconds();
    EXPECT_THROW(ImagePickle(bytes, "file"), IoError);
    EXPECT_LT(processor_seconds() - start, kMostSeconds) << repeated;
    EXPECT_LT(peak_memory() - before, kMostMemory) << repeated;
  }
  // The same text made to bytes again and again.
  std::string text =
      begin + "c_codecs\nencode\n\x94X"s + "\0\0\x10\0"s + std::string(1 << 20, 'x') + "\x94\x8c\6latin1\x94";
  for (int i = 0; i < 100'000; ++i) text += "h\0h\1h\2\x86R"s;
  EXPECT_NE(pickle_error(text).find("expected strings of no more bytes than the file has"),
            std::string::npos);
}

TEST(VerificationSet, RefusesEveryTruncation) {
  for (const std::string& name : kStored) {
    const Bytes whole = load(stored(name));
    for (size_t size = 0; size < whole.size(); ++size)
      EXPECT_THROW(parse_verification_bins(span_of(whole).first(size), "cut"), IoError)
          << name << ' ' << size;
  }
}

TEST(VerificationSet, SurvivesFlippedBits) {
  std::mt19937 random(11);
  int refused = 0;
  for (const std::string& name : kStored) {
    const Bytes whole = load(stored(name));
    for (size_t i = 0; i < whole.size() * 2; ++i) {
      Bytes bytes = whole;
      bytes[i / 2] ^= static_cast<uint8_t>(1u << random() % 8);
      try {
        const VerificationBins bins = parse_verification_bins(bytes, "flipped");
        EXPECT_EQ(bins.images.size(), 2 * bins.same.size());
      } catch (const IoError&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 500);
}

TEST(VerificationSet, NamesADamagedImage) {
  const TemporaryFolder folder;
  const fs::path file = folder.write("x.bin", text_bytes("\x80\2](U\1xU\1xe](\x88"
                                                         "e\x86."));
  const VerificationSet set = open_verification_set(file);
  EXPECT_EQ(
      message_of<IoError>([&] { set.images->get(1); }),
      "[image] " + file.string() +
          ": image 1: expected a JPEG, PNG, WebP, PGM (P5) or PPM (P6) file but its first bytes are of none");
  fs::resize_file(file, 3);
  EXPECT_EQ(message_of<IoError>([&] { set.images->get(1); }),
            "[file] " + file.string() + ": expected 17 bytes, as when it was opened, but it has 3 now");
}

}  // namespace
}  // namespace sinter::nn::data
