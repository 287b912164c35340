// Damaged and hostile safetensors files: each is refused with its own text.
#include <cstring>
#include <string>
#include <vector>

#include <common/temporary_folder.h>
#include <gtest/gtest.h>
#include <nn/checkpoint/checkpoint_samples.h>
#include <nn/checkpoint/safetensors_samples.h>

#include <sinter/core/runtime/random.h>
#include <sinter/nn/checkpoint/safetensors.h>
#include <sinter/nn/checkpoint/safetensors_header.h>

namespace sinter::nn {
namespace {

using sinter::testing::file_of;
using sinter::testing::message_of;
using sinter::testing::parse;
using sinter::testing::random_tensor;
using sinter::testing::serialize;
using sinter::testing::TemporaryFolder;
using sinter::testing::write_file;

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"("t":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

struct Hostile {
  std::string header;
  size_t data_bytes;
  std::string message;  // behind "[safetensors] x.safetensors: "
};

const std::vector<Hostile>& hostile_headers() {
  static const std::vector<Hostile> cases = {
      {"\xC0\xAF", 0, "byte 8: the header is no valid UTF-8 text"},
      {"{\"a\xFF\":1}", 0, "byte 11: the header is no valid UTF-8 text"},
      {"{\"\xED\xA0\x80\":1}", 0, "byte 10: the header is no valid UTF-8 text"},
      {"{\"\xF4\x90\x80\x80\":1}", 0, "byte 10: the header is no valid UTF-8 text"},
      {"{\"\xE2\x82", 0, "byte 10: the header is no valid UTF-8 text"},
      {std::string("{}\0{}", 5), 0, "byte 10: the header is no valid UTF-8 text"},
      {"", 0, "byte 8: the header does not start with '{'"},
      {" {}", 0, "byte 8: the header does not start with '{'"},
      {"[]", 0, "byte 8: the header does not start with '{'"},
      {"\xEF\xBB\xBF{}", 0, "byte 8: the header does not start with '{'"},
      {"{", 0, "byte 9: the header is no valid JSON"},
      {"{}x", 0, "byte 11: the header is no valid JSON"},
      {"{\"t\":}", 0, "byte 14: the header is no valid JSON"},
      {"{\"\n\":1}", 0, "byte 11: the header is no valid JSON"},
      {R"({"\ud800":1})", 0, "byte 17: the header is no valid JSON"},
      {"{\"t\":{\"dtype\":1e999}}", 0, R"(byte 28: tensor "t": the header is no valid JSON)"},
      {"{" + entry("U8", "[1]", "[0,1]") + "," + entry("U8", "[1]", "[0,1]") + "}", 1,
       R"(byte 64: the key "t" stands twice in one object)"},
      {R"({"t":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1,
       R"(byte 34: tensor "t": the key "dtype" stands twice in one object)"},
      {R"({"__metadata__":{"a":"1","a":"2"}})", 0, R"(byte 36: the key "a" stands twice in one object)"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0,
       R"(byte 41: the key "__metadata__" stands twice in one object)"},
      {R"({"t":{"new":{"x":1,"x":1},"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1,
       R"(byte 30: tensor "t": the key "x" stands twice in one object)"},
      {R"({"t":null})", 0, R"(byte 17: expected an object for "t" but got null)"},
      {R"({"t":[1]})", 0, R"(byte 14: expected an object for "t" but got an array)"},
      {R"({"__metadata__":"x"})", 0, R"(byte 27: expected an object for "__metadata__" but got a string)"},
      {R"({"__metadata__":{"a":1}})", 0,
       R"(byte 31: expected a string for "a" in __metadata__ but got a number)"},
      {R"({"__metadata__":{"a":{}}})", 0,
       R"(byte 30: expected a string for "a" in __metadata__ but got an object)"},
      {R"({"t":{"dtype":7,"shape":[1],"data_offsets":[0,1]}})", 1,
       R"(byte 24: tensor "t": expected a string for dtype but got a number)"},
      {R"({"t":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})", 1,
       R"(byte 37: tensor "t": expected an array for shape but got a number)"},
      {R"({"t":{"dtype":"U8","shape":[1],"data_offsets":"0"}})", 1,
       R"(byte 57: tensor "t": expected an array for data_offsets but got a string)"},
      {R"({"t":{"shape":[1],"data_offsets":[0,1]}})", 1, R"(byte 47: tensor "t": dtype is missing)"},
      {R"({"t":{"dtype":"U8","data_offsets":[0,1]}})", 1, R"(byte 48: tensor "t": shape is missing)"},
      {R"({"t":{"dtype":"U8","shape":[1]}})", 1, R"(byte 39: tensor "t": data_offsets is missing)"},
      {"{" + entry("U8", "[1]", "[0]") + "}", 1,
       R"(byte 58: tensor "t": data_offsets has fewer than two numbers)"},
      {"{" + entry("U8", "[1]", "[0,1,1]") + "}", 1,
       R"(byte 61: tensor "t": data_offsets has more than two numbers)"},
      {"{" + entry("U8", "[[1]]", "[0,1]") + "}", 1,
       R"(byte 37: tensor "t": expected extents >= 0 below 2^64 in the shape but got an array)"},
      {"{" + entry("U8", "[1]", "[[0],1]") + "}", 1,
       R"(byte 56: tensor "t": expected offsets >= 0 below 2^64 in data_offsets but got an array)"},
      {"{" + entry("U8", "[1]", "[-1,1]") + "}", 1,
       R"(byte 58: tensor "t": expected offsets >= 0 below 2^64 in data_offsets but got the number "-1")"},
      {R"({"t":{"new":[[[1]]],"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1,
       R"(byte 23: tensor "t": the header is nested deeper than 4 levels)"},
      {std::string("{\"t\":") + std::string(100'000, '['), 0,
       R"(byte 14: expected an object for "t" but got an array)"},
      {"{" + entry("f32", "[1]", "[0,4]") + "}", 4,
       R"(byte 61: tensor "t": unknown dtype "f32"; expected one of F64, F32, F16, BF16, I64, I32, U8, BOOL)"},
      {"{" + entry("", "[1]", "[0,4]") + "}", 4,
       R"(byte 58: tensor "t": unknown dtype ""; expected one of F64, F32, F16, BF16, I64, I32, U8, BOOL)"},
      {"{" + entry("U8", "[-1]", "[0,1]") + "}", 1,
       R"(byte 39: tensor "t": expected extents >= 0 below 2^64 in the shape but got the number "-1")"},
      {"{" + entry("U8", "[1.0]", "[0,1]") + "}", 1,
       R"(byte 40: tensor "t": expected extents >= 0 below 2^64 in the shape but got the number "1.0")"},
      {"{" + entry("U8", "[\"1\"]", "[0,1]") + "}", 1,
       R"(byte 39: tensor "t": expected extents >= 0 below 2^64 in the shape but got a string)"},
      {"{" + entry("U8", "[18446744073709551616]", "[0,1]") + "}", 1,
       R"(byte 57: tensor "t": expected extents >= 0 below 2^64 in the shape but got the number "18446744073709551616")"},
      {"{" + entry("U8", "[18446744073709551615]", "[0,1]") + "}", 1,
       R"(byte 79: tensor "t": the number of elements exceeds 2^59)"},
      {"{" + entry("F32", "[4294967296,4294967296]", "[0,0]") + "}", 0,
       R"(byte 81: tensor "t": the number of elements exceeds 2^59)"},
      {"{" + entry("F32", "[0,4294967296,4294967296]", "[0,0]") + "}", 0,
       R"(byte 83: tensor "t": the number of elements exceeds 2^59)"},
      {"{" + entry("F64", "[2305843009213693952]", "[0,0]") + "}", 0,
       R"(byte 79: tensor "t": the number of elements exceeds 2^59)"},
      {"{" + entry("F64", "[288230376151711744]", "[0,0]") + "}", 0,
       R"(byte 78: tensor "t": 288230376151711744 elements of dtype F64 do not take the 0 bytes [0, 0))"},
      {"{" + entry("U8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,1]") + "}", 1,
       R"(byte 70: tensor "t": the shape has more than 16 axes)"},
      {"{" + entry("F32", "[2]", "[0,4]") + "}", 4,
       R"(byte 61: tensor "t": 2 elements of dtype F32 do not take the 4 bytes [0, 4))"},
      {"{" + entry("F32", "[1]", "[0,5]") + "}", 5,
       R"(byte 61: tensor "t": 1 elements of dtype F32 do not take the 5 bytes [0, 5))"},
      {"{" + entry("F32", "[]", "[0,0]") + "}", 0,
       R"(byte 60: tensor "t": 1 elements of dtype F32 do not take the 0 bytes [0, 0))"},
      {"{" + entry("U8", "[4]", "[4,0]") + "}", 4,
       R"(byte 60: tensor "t": the bytes [4, 0) do not lie in the 4 bytes of data)"},
      {"{" + entry("U8", "[5]", "[0,5]") + "}", 4,
       R"(byte 60: tensor "t": the bytes [0, 5) do not lie in the 4 bytes of data)"},
      {"{" + entry("U8", "[1]", "[18446744073709551615,18446744073709551615]") + "}", 4,
       R"(byte 98: tensor "t": the bytes [18446744073709551615, 18446744073709551615) do not lie in the 4 bytes of data)"},
      {"{" + entry("U8", "[3]", "[1,4]") + "}", 4,
       R"(byte 61: tensor "t": 1 bytes before it belong to no tensor)"},
      {"{" + entry("U8", "[3]", "[0,3]") + "}", 4, "byte 64: the last 1 bytes belong to no tensor"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[3],"data_offsets":[1,4]}})",
       4, R"(byte 114: tensor "b": overlaps the tensor before it, which ends at byte 115)"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}})",
       4, R"(byte 114: tensor "b": 2 bytes before it belong to no tensor)"},
      {"{}", 1, "byte 10: the last 1 bytes belong to no tensor"},
      {R"({"a\u0007\u00e9":1})", 0, "byte 27: expected an object for \"a\\x07\\xc3\\xa9\" but got a number"},
      {"{\"" + std::string(200, 'n') + "\":1}", 0,
       R"(byte 214: expected an object for "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn..." but got a number)"},
  };
  return cases;
}

TEST(HostileSafetensors, EachHeaderIsRefusedWithItsText) {
  for (const Hostile& hostile : hostile_headers()) {
    SCOPED_TRACE(hostile.header.substr(0, 200));
    const std::string file = file_of(hostile.header, std::string(hostile.data_bytes, '\0'));
    EXPECT_EQ(message_of<IoError>([&] { parse(file); }), "[safetensors] x.safetensors: " + hostile.message);
  }
}

TEST(HostileSafetensors, OtherFormatsAreCalledByTheirNames) {
  const auto message = [](std::string start) {
    start.resize(200, '\0');
    return message_of<IoError>([&] { parse(start); });
  };
  const std::string other = "[safetensors] x.safetensors: byte 0: this is a file of PyTorch (.pth, .pt): ";
  for (const char* start : {"PK\3\4\x14\1\x8\x8", "\x80\x2\x8a\xal\xfc\x9c\x46", "\x80\x4}q.abc"})
    EXPECT_EQ(message(start),
              other + "nn::read_pytorch reads it, and sinter_convert makes a safetensors file of it");
  EXPECT_EQ(message("\x1f\x8b\x8\x1\x1\x1\x1\x1"),
            "[safetensors] x.safetensors: byte 0: this file is compressed with gzip; unpack it first");
}

TEST(HostileSafetensors, LengthsAreCheckedBeforeMemoryIsTaken) {
  const auto message = [](uint64_t length, size_t bytes_behind) {
    std::string file(8 + bytes_behind, '{');
    std::memcpy(file.data(), &length, 8);
    return message_of<IoError>([&] { parse(file); });
  };
  const auto expected = [](uint64_t most, uint64_t length) {
    return fmt::format(
        "[safetensors] x.safetensors: byte 0: expected the length of the header, at most {}, but got {}: "
        "this "
        "is no safetensors file, or it is damaged or cut off",
        most, length);
  };
  EXPECT_EQ(message(100'000'001, 2), expected(2, 100'000'001));
  EXPECT_EQ(message(UINT64_MAX, 2), expected(2, UINT64_MAX));
  EXPECT_EQ(message(3, 2), expected(2, 3));
  EXPECT_THROW(check_safetensors_header_length(100'000'001, 200'000'000, "x"), IoError);
  EXPECT_NO_THROW(check_safetensors_header_length(100'000'000, 200'000'000, "x"));
  EXPECT_EQ(message_of<IoError>([] { parse("1234567"); }),
            "[safetensors] x.safetensors: byte 0: expected a length of 8 bytes but the file has 7");
  EXPECT_EQ(message_of<IoError>([] { parse(""); }),
            "[safetensors] x.safetensors: byte 0: expected a length of 8 bytes but the file has 0");
}

TEST(HostileSafetensors, NamesWhatTensorsCannotHold) {
  for (const std::string dtype : {"I8", "I16", "U16", "U32", "U64", "F8_E4M3", "F8_E5M2", "C64"}) {
    const std::string file = file_of("{" + entry(dtype, "[1]", "[0,8]") + "}", std::string(8, '\0'));
    EXPECT_EQ(
        message_of<Unsupported>([&] { parse(file); }),
        fmt::format(
            "[safetensors] x.safetensors: byte {}: tensor \"t\": tensors cannot hold the dtype {}, only "
            "F64, F32, F16, BF16, I64, I32, U8, BOOL",
            58 + dtype.size(), dtype));
  }
  const std::string deep = file_of("{" + entry("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") + "}", "\1");
  EXPECT_EQ(message_of<Unsupported>([&] { parse(deep); }),
            "[safetensors] x.safetensors: byte 76: tensor \"t\": tensors have at most 8 axes, not 9");
}

TEST(HostileSafetensors, BoolsMustBeZeroOrOne) {
  const std::string file = file_of("{" + entry("BOOL", "[3]", "[0,3]") + "}", std::string("\1\0\2", 3));
  EXPECT_EQ(message_of<IoError>([&] { parse(file); }),
            "[safetensors] x.safetensors: byte 65: tensor \"t\": expected a BOOL of 0 or 1 but got 2");
}

TEST(HostileSafetensors, EveryTruncationIsAnError) {
  const std::string file = serialize(
      {{"a", random_tensor({3, 5}, DType::kFloat32, 1)}, {"b", random_tensor({7}, DType::kBool, 2)}},
      {{"format", "pt"}});
  ASSERT_NO_THROW(parse(file));
  const TemporaryFolder folder;
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_THROW(parse(file.substr(0, size)), IoError) << size;
    write_file(folder / "a.safetensors", file.substr(0, size));
    EXPECT_THROW(read_safetensors(folder / "a.safetensors"), IoError) << size;
  }
  EXPECT_THROW(parse(file + '\0'), IoError);
}

TEST(HostileSafetensors, RandomDamageIsReadOrRefusedButNeverACrash) {
  const std::string file = serialize({{"layer.weight", random_tensor({3, 5}, DType::kFloat32, 1)},
                                      {"layer.flag", random_tensor({7}, DType::kBool, 2)}},
                                     {{"format", "pt"}});
  Generator generator(7);
  int refused = 0;
  for (int i = 0; i < 10'000; ++i) {
    std::string damaged = file;
    for (uint64_t changes = 1 + generator.below(3); changes > 0; --changes) {
      damaged[generator.below(damaged.size())] = static_cast<char>(generator.below(256));
    }
    try {
      parse(damaged);
    } catch (const IoError&) {
      ++refused;
    } catch (const Unsupported&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 5'000);
}

TEST(HostileSafetensors, MissingFilesAndFoldersAreIoErrors) {
  const TemporaryFolder folder;
  const std::string path = (folder / "none.safetensors").string();
  EXPECT_EQ(message_of<IoError>([&] { read_safetensors(path); }),
            "[file] " + path + ": cannot open: No such file or directory");
  EXPECT_EQ(message_of<IoError>([&] { read_safetensors(folder.path()); }),
            "[file] " + folder.path().string() + ": expected a regular file but it is a folder");
  EXPECT_EQ(message_of<IoError>([&] { read_safetensors("/dev/null"); }),
            "[file] /dev/null: expected a regular file but it is a device or a pipe");
}

TEST(HostileSafetensors, RefusesToWriteWhatCannotBeRead) {
  const TemporaryFolder folder;
  const Tensor tensor = random_tensor({2}, DType::kFloat32, 1);
  const auto message = [&](const NamedTensors& tensors,
                           const std::map<std::string, std::string>& metadata = {}) {
    return message_of<InvalidArgument>(
        [&] { write_safetensors(folder / "a.safetensors", tensors, metadata); });
  };
  EXPECT_EQ(message({{"w", Tensor()}}), "[safetensors] tensor \"w\" is undefined");
  EXPECT_EQ(message({{"__metadata__", tensor}}),
            "[safetensors] a tensor cannot have the reserved name __metadata__");
  EXPECT_EQ(
      message({{"w\xFF", tensor}}),
      "[safetensors] expected UTF-8 text without zero bytes as the name of a tensor but got \"w\\xff\"");
  EXPECT_EQ(
      message({}, {{"k", "\xFF"}}),
      "[safetensors] expected UTF-8 text without zero bytes as a value of the metadata but got \"\\xff\"");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace sinter::nn
