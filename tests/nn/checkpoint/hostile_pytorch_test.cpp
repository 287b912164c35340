// Files that PyTorch did not write: each is refused with its file, place and reason, and costs no more memory
// than it has bytes.
#include <fstream>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include <common/attack_cost.h>
#include <common/error_message.h>
#include <common/temporary_folder.h>
#include <gtest/gtest.h>
#include <nn/checkpoint/pytorch_samples.h>

#include <sinter/core/base/checked.h>

namespace sinter::nn {
namespace {

using namespace sinter::testing;
using namespace std::string_literals;
using test::message_of;

const std::string kEight(8, '\1');  // two elements of float32

/// The error, of exactly type E, without the path, and with `byte N` for the number of a byte.
template <class E = IoError>
std::string refusal(const std::string& file, const std::string& key = "") {
  static const std::regex number("byte [0-9]+");
  const std::string message = message_of<E>([&] { testing::parse_pytorch(file, key); });
  const std::string start = "[pytorch] x.pth: ";
  if (!message.starts_with(start)) return message;
  return std::regex_replace(message.substr(start.size()), number, "byte N");
}

/// A sound file of one tensor "w" of two elements.
std::vector<ZipRecord> sound_records() {
  return records_of(pickle_of(dict({{"w", tensor(storage("0", 2), 0, {2}, {1})}})), {{"0", kEight}});
}

std::string changed(size_t record, const std::function<void(ZipRecord&)>& change) {
  std::vector<ZipRecord> records = sound_records();
  change(records[record]);
  return make_zip(records);
}

TEST(HostilePytorch, TheSampleIsSound) {
  for (const bool end64 : {true, false}) {
    const PytorchFile file = testing::parse_pytorch(make_zip(sound_records(), {.end64 = end64}));
    EXPECT_EQ(file.tensors.at("w").spec(),
              (TensorSpec{.shape = {2}, .dtype = DType::kFloat32, .device = {}}));
    EXPECT_EQ(std::memcmp(file.tensors.at("w").raw_data(), kEight.data(), 8), 0);
  }
  const std::string wide = changed(2, [](ZipRecord& r) { r.wide = true; });
  EXPECT_EQ(testing::parse_pytorch(wide).tensors.size(), 1U);
  const std::string unsummed = changed(2, [](ZipRecord& r) { r.crc = 0; });
  EXPECT_EQ(testing::parse_pytorch(unsummed).tensors.size(), 1U);
  std::vector<ZipRecord> old = sound_records();  // before 2.1
  old.erase(old.begin() + 1);
  EXPECT_EQ(testing::parse_pytorch(make_zip(old)).tensors.size(), 1U);
}

TEST(HostilePytorch, OtherFilesAreCalledByTheirNames) {
  EXPECT_EQ(refusal(""), "byte N: this is no file of PyTorch's, or its beginning is damaged");
  EXPECT_EQ(refusal(std::string(1000, 'x')),
            "byte N: this is no file of PyTorch's, or its beginning is damaged");
  std::string tar(1000, '\0');
  tar.replace(257, 5, "ustar");
  EXPECT_EQ(refusal<Unsupported>(tar),
            "this is a tar archive of PyTorch before 2018: load it with torch, save it anew");
  EXPECT_EQ(refusal("PK\3\4"), "byte N: expected the end record of an archive but the file has 4 bytes");
  EXPECT_EQ(refusal("PK\3\4" + std::string(100, '\0')),
            "byte N: expected the end record of an archive: the file is cut off, or something follows");
  EXPECT_EQ(
      refusal(make_zip({{.name = "word/document.xml", .bytes = "<a/>"}})),
      "byte N: expected an archive with one data.pkl, in the first folder, but it has 0: this is no file of "
      "PyTorch's");
  std::vector<ZipRecord> script = sound_records();
  script.push_back({.name = "a/constants.pkl", .bytes = "\x80\2)."});
  script.push_back(
      {.name = "a/code/x.py", .bytes = "packed", .method = 8, .packed_more = 3, .local_method = 8});
  EXPECT_EQ(refusal<Unsupported>(make_zip(script)),
            "this is a TorchScript program: save the module's state_dict() with torch.save");
}

TEST(HostilePytorch, ArchivesThatDoNotHoldTogether) {
  const std::vector<ZipRecord> records = sound_records();
  const auto with = [&](const ZipChanges& changes) { return refusal(make_zip(records, changes)); };
  EXPECT_EQ(with({.comment = "later"}),
            "byte N: expected the end record of an archive: the file is cut off, or something follows");
  EXPECT_EQ(refusal(make_zip(records) + "x"),
            "byte N: expected the end record of an archive: the file is cut off, or something follows");
  EXPECT_EQ(with({.disk = 1}), "byte N: expected an archive of one disk");
  EXPECT_EQ(with({.end64_signature = 0}), "byte N: expected a 64-bit end record that ends at byte N");
  EXPECT_EQ(with({.more_entries = 1}), "byte N: 5 records do not fit into the archive's directory");
  EXPECT_EQ(with({.end64 = false, .more_entries = 60'000}),
            "byte N: 60004 records do not fit into the archive's directory");
  EXPECT_EQ(with({.more_entries = (1 << 20) + 0xffff - 4}),
            "byte N: expected at most 1048576 records but got 1114111");
  EXPECT_TRUE(
      with({.directory_shift = 1}).starts_with("byte N: expected a directory that ends at byte N but got "));
  EXPECT_TRUE(
      with({.directory_shift = -1}).starts_with("byte N: expected a directory that ends at byte N but got "));
  EXPECT_EQ(with({.behind_directory = "more"}), "byte N: expected the end of the archive's directory");
  // A directory that one end record places elsewhere than the other.
  std::string differ = make_zip(records);
  differ[differ.size() - 6] = static_cast<char>(differ[differ.size() - 6] + 1);
  EXPECT_EQ(refusal(differ), "byte N: the end records differ");
  std::string long_directory = make_zip(records, {.end64 = false});
  long_directory[long_directory.size() - 7] = '\x7f';
  EXPECT_TRUE(
      refusal(long_directory).starts_with("byte N: expected a directory of at most 268435456 bytes but got"));
}

TEST(HostilePytorch, RecordsThatPyTorchDoesNotWrite) {
  const auto with = [](const std::function<void(ZipRecord&)>& change) { return refusal(changed(2, change)); };
  EXPECT_EQ(refusal<Unsupported>(changed(2, [](ZipRecord& r) { r.method = r.local_method = 8; })),
            R"(byte N: record "a/data/0" is compressed: the file was zipped again; save it anew with torch)");
  for (const int bit : {0, 6, 13}) {
    EXPECT_EQ(with([&](ZipRecord& r) { r.flags = static_cast<uint16_t>(r.flags | 1 << bit); }),
              R"(byte N: record "a/data/0" is encrypted)");
  }
  EXPECT_EQ(with([](ZipRecord& r) { r.packed_more = 1; }),
            R"(byte N: record "a/data/0": 8 bytes are stored as 9)");
  EXPECT_EQ(with([](ZipRecord& r) { r.disk = 1; }), "byte N: expected an archive of one disk");
  const std::string local = R"(byte N: expected the local header of record "a/data/0")";
  EXPECT_EQ(with([](ZipRecord& r) { r.local_name = "a/data/1"; }), local);
  EXPECT_EQ(with([](ZipRecord& r) { r.local_name = "a/data/00"; }), local);
  EXPECT_EQ(with([](ZipRecord& r) { r.local_method = 8; }), local);
  EXPECT_EQ(with([](ZipRecord& r) { r.local_signature = 0; }), local);
  EXPECT_EQ(with([](ZipRecord& r) { r.offset = 0xfffffff0; }),
            R"(byte N: record "a/data/0" does not lie before the archive's directory)");
  EXPECT_EQ(with([](ZipRecord& r) { r.offset = 0xffffffff; }), "byte N: a number of 64 bits is missing");
  EXPECT_EQ(with([](ZipRecord& r) { r.crc = 1; }).substr(0, 57),
            "byte N: expected the checksum 00000001 of 8 bytes but got");
  EXPECT_EQ(refusal(changed(0, [](ZipRecord& r) { r.crc = 1; })).substr(0, 41),
            "byte N: expected the checksum 00000001 of");

  std::vector<ZipRecord> twice = sound_records();
  twice.push_back(twice[2]);
  EXPECT_EQ(refusal(make_zip(twice)), R"(byte N: two records have the name "a/data/0")");
  twice.back().name = "a/data/1";
  twice.back().offset = 0;
  EXPECT_EQ(refusal(make_zip(twice)), R"(byte N: expected the local header of record "a/data/1")");
  // A record whose elements are another one, whole.
  std::string inner = make_zip({{.name = "a/data/8", .bytes = kEight}});
  inner.resize(inner.find("PK\x07"));
  const size_t place = make_zip(records_of(pickle_of("}"))).find("a/version") - 30;
  const std::string outer_name = "a/data/7";
  std::vector<ZipRecord> nested = {{.name = "a/data.pkl", .bytes = pickle_of("}")}};
  nested.push_back({.name = outer_name, .bytes = inner});
  const std::string before = make_zip(nested);
  nested.push_back({.name = "a/data/8",
                    .bytes = "",
                    .crc = 0,
                    .offset = static_cast<uint32_t>(before.find("a/data/8") - 30)});
  EXPECT_EQ(refusal(make_zip(nested)), "byte N: two records of the archive overlap") << place;

  std::vector<ZipRecord> two = sound_records();
  two.push_back({.name = "b/data.pkl", .bytes = "x"});
  EXPECT_TRUE(refusal(make_zip(two)).starts_with("byte N: expected an archive with one data.pkl"))
      << refusal(make_zip(two));
  // Names are compared, and make no paths.
  EXPECT_EQ(
      testing::parse_pytorch(make_zip({{.name = "../data.pkl", .bytes = pickle_of("}")}})).tensors.size(),
      0U);
}

TEST(HostilePytorch, ByteOrders) {
  EXPECT_EQ(refusal<Unsupported>(changed(1, [](ZipRecord& r) { r.bytes = "big"; })),
            "it was written on a big-endian machine");
  EXPECT_EQ(refusal(changed(1, [](ZipRecord& r) { r.bytes = "middle"; })),
            R"(record "a/byteorder": expected "little" or "big" but got "middle")");
}

TEST(HostilePytorch, NamesRunNothing) {
  // What a virus would put there is a value like others, and beside weights it does no harm.
  const std::string evil = "cos\nsystem\n(" + text("touch /tmp/sinter_was_here") + "tR";
  const std::string w = tensor(storage("0", 2), 0, {2}, {1});
  const auto skipped = [](const std::string& values) {
    return testing::parse_pytorch(file_with(values, {{"0", kEight}})).skipped;
  };
  EXPECT_EQ(skipped(dict({{"w", w}, {"x", evil}})), std::vector<std::string>{"x"});
  EXPECT_EQ(skipped("}(" + text("w") + w + "K\7" + w + "u")[0], "(1 tensor under keys that are no strings)");
  EXPECT_EQ(refusal<Unsupported>(file_with(evil)),
            "it holds a whole module, os.system, and not its weights: save its state_dict()");
  // Nor can it be a part of one.
  EXPECT_EQ(refusal(file_with(dict({{"w", tensor(evil, 0, {2}, {1})}}))), R"(tensor "w": it has no storage)");
  // What lists, sets and objects of unknown classes are given goes nowhere.
  const std::string odd = "cx\nList\n)\x81K\1a(K\3e}b" + std::string("\x8f(K\1\x90(K\1\x91") +
                          "cx\nY\n)}\x92" + "G12345678" + "\x8b\x09" + std::string("\0\0\0", 3) + "123456789";
  EXPECT_EQ(testing::parse_pytorch(file_with(odd + dict({}))).tensors.size(), 0U);
}

TEST(HostilePytorch, PicklesThatPyTorchDoesNotWrite) {
  const auto pickle = [](const std::string& opcodes) { return refusal(file_with(opcodes)); };
  EXPECT_EQ(pickle("i"), "data.pkl: byte N: refuses the opcode 0x69");
  EXPECT_EQ(pickle(""), "data.pkl: byte N: expected a value on the stack");
  EXPECT_EQ(refusal(make_zip(records_of("\x80\2}.}"))),
            "data.pkl: byte N: expected the end of the file behind STOP but 1 bytes follow");
  EXPECT_EQ(pickle("K\1)R"), "data.pkl: byte N: refuses a call of a number");
  EXPECT_EQ(pickle("ccollections\nOrderedDict\nNR"),
            "data.pkl: byte N: expected a tuple of arguments but got None");
  for (const std::string arguments : {"(K\1t", "(](K\1et",
                                      "(](K\1\x85"
                                      "et",
                                      "(NNt"}) {
    EXPECT_EQ(pickle("ccollections\nOrderedDict\n" + arguments + "R"),
              "data.pkl: byte N: expected a list of pairs for an OrderedDict");
  }
  EXPECT_EQ(pickle("ctorch\nFloatStorage\n)R"), "data.pkl: byte N: refuses a call of a class or function");
  EXPECT_EQ(pickle("ctorch\nFloatStorage\n)}\x92"), "data.pkl: byte N: refuses a call of this kind");
  EXPECT_EQ(pickle("ctorch\nSize\n)R"), "data.pkl: byte N: expected an argument");
  EXPECT_EQ(pickle("ctorch._tensor\n_rebuild_from_type_v2\n)R"),
            "data.pkl: byte N: expected four arguments of _rebuild_from_type_v2");
  // A tuple that holds itself, of a function that calls another one.
  EXPECT_EQ(pickle("ctorch._tensor\n_rebuild_from_type_v2\nq\1](h\1NeNaq\2h\2h\2aNa0"),
            "data.pkl: byte N: refuses the opcode 0x30");
  EXPECT_EQ(pickle("ctorch._tensor\n_rebuild_from_type_v2\nq\1]q\2(h\1Nh\2NeR"),
            "data.pkl: byte N: refuses _rebuild_from_type_v2 of itself");
  EXPECT_EQ(pickle("K\1}b"), "data.pkl: byte N: refuses to set the state of a number");
  EXPECT_EQ(pickle("K\1K\2K\3s"), "data.pkl: byte N: expected a dict to set items of");
  EXPECT_EQ(pickle("}(K\1u"), "data.pkl: byte N: expected a value for each key");
  EXPECT_EQ(pickle("K\1(K\1\x90"), "data.pkl: byte N: expected a set to add to");
  EXPECT_EQ(pickle("\x8b\xff\xff\xff\xff"), "data.pkl: byte N: expected a length but got -1");
  std::string names;
  for (int i = 0; i < 5000; ++i) names += "cx\n" + std::to_string(i) + "\n";
  EXPECT_EQ(pickle(names), "data.pkl: byte N: expected at most 4096 names");
}

TEST(HostilePytorch, StoragesThatPyTorchDoesNotWrite) {
  const auto id = [](const std::string& opcodes) { return refusal(file_with(opcodes + "Q")); };
  const std::string expected = "data.pkl: byte N: expected the persistent id of a storage";
  for (const std::string odd : {"N", ")", "(K\1t", "(U\1xt", "(U\7storaget"})
    EXPECT_EQ(id(odd), expected) << odd;
  const auto parts = [](const std::string& type, const std::string& key, const std::string& elements) {
    return "(" + text("storage") + type + key + text("cpu") + elements + "t";
  };
  const std::string type = "ctorch\nFloatStorage\n";
  EXPECT_EQ(id(parts("N", text("0"), number(1))),
            "data.pkl: byte N: expected the type of a storage but got None");
  for (const std::string key : {"", "x", "-1", "../0", "123456789012345678901"}) {
    EXPECT_EQ(id(parts(type, text(key), number(1))),
              "data.pkl: byte N: expected 1 to 20 digits as the key of a storage but got " + key);
  }
  EXPECT_EQ(id(parts(type, "N", number(1))),
            "data.pkl: byte N: expected 1 to 20 digits as the key of a storage but got None");
  for (const int64_t elements : {int64_t{-1}, kMaxElements + 1}) {
    EXPECT_EQ(id(parts(type, text("0"), number(elements))),
              "data.pkl: byte N: expected a number of elements from 0 to 2^59 of storage 0");
  }
  for (const std::string& other : {storage("0", 3), storage("0", 2, "IntStorage")}) {
    EXPECT_EQ(refusal(file_with(storage("0", 2) + other)),
              "data.pkl: byte N: storage 0 had another type or size before");
  }
}

TEST(HostilePytorch, TensorsThatAreNotInTheirStorage) {
  const auto one = [](const std::string& opcodes, const std::string& bytes = kEight) {
    return refusal(file_with(dict({{"w", opcodes}}), {{"0", bytes}}));
  };
  const std::string two = storage("0", 2), begin = R"(tensor "w": )";
  EXPECT_EQ(one(tensor(two, 0, {2}, {1})), "no error");
  EXPECT_EQ(one(tensor(two, 1, {2}, {1})), begin + "it ends behind the 2 elements of its storage");
  EXPECT_EQ(one(tensor(two, 0, {3}, {1})), begin + "it ends behind the 2 elements of its storage");
  EXPECT_EQ(one(tensor(two, 0, {2}, {2})), begin + "it ends behind the 2 elements of its storage");
  EXPECT_EQ(one(tensor(two, 2, {}, {})), begin + "it ends behind the 2 elements of its storage");
  EXPECT_EQ(one(tensor(two, 5, {0}, {9})), "no error");
  const std::string negative = begin + "expected extents, strides and an offset >= 0";
  EXPECT_EQ(one(tensor(two, -1, {1}, {1})), negative);
  EXPECT_EQ(one(tensor(two, 0, {-1}, {1})), negative);
  EXPECT_EQ(one(tensor(two, 1, {2}, {-1})), negative);
  EXPECT_EQ(one(tensor(two, 0, {1, 2}, {1})), begin + "expected as many extents as strides");
  const std::string large = begin + "the number of its elements exceeds 2^59";
  EXPECT_EQ(one(tensor(two, 0, {int64_t{1} << 32, int64_t{1} << 32}, {0, 0})), large);
  EXPECT_EQ(one(tensor(two, 0, {0, int64_t{1} << 32, int64_t{1} << 32}, {0, 0, 0})), large);
  EXPECT_EQ(one(tensor(two, 0, {int64_t{1} << 60}, {0})), large);
  EXPECT_EQ(one(tensor(two, 0, {3}, {INT64_MAX})), large);
  EXPECT_EQ(one(tensor(two, INT64_MAX, {2}, {1})), large);
  EXPECT_EQ(one(tensor(storage("0", 3), 0, {2}, {1})).substr(0, 62),
            begin + "3 elements of float32 do not take the 8 bytes from");
  EXPECT_EQ(one(tensor(storage("1", 2), 0, {2}, {1})), begin + "its storage 1 is missing");
  EXPECT_EQ(one("ctorch._utils\n_rebuild_tensor_v2\n)R"),
            begin + "it has another number of parts than PyTorch's");
  EXPECT_EQ(one("ctorch._utils\n_rebuild_tensor\n(" + two + number(0) + tuple({2}) + tuple({1}) + "tR"),
            "no error");
  EXPECT_EQ(one(tensor(storage("0", 8, "BoolStorage"), 0, {8}, {1}), "\1\0\1\0\1\0\2\1"s),
            "byte N: expected a bool of 0 or 1 but got 2");
}

TEST(HostilePytorch, UnsupportedTensorsThrowAmongTheWeightsAlone) {
  const std::string odd = "ctorch._utils\n_rebuild_odd_tensor\n)R",
                    good = tensor(storage("0", 2), 0, {2}, {1});
  const std::string fault =
      R"(tensor "odd": tensors that torch._utils._rebuild_odd_tensor makes cannot be read)";
  EXPECT_EQ(refusal<Unsupported>(file_with(dict({{"odd", odd}, {"w", good}}), {{"0", kEight}})), fault);
  const std::string beside = file_with(dict({{"odd", odd}, {"model", dict({{"w", good}})}}), {{"0", kEight}});
  EXPECT_EQ(testing::parse_pytorch(beside).tensors.size(), 1U);
  const std::string view =
      "(" + text("storage") + "ctorch\nFloatStorage\n" + text("0") + text("cpu") + number(2) + ")tQ";
  EXPECT_EQ(refusal<Unsupported>(file_with(dict({{"w", tensor(view, 0, {2}, {1})}}), {{"0", kEight}})),
            R"(tensor "w": tensors cannot hold the elements of a view of another storage)");
  EXPECT_EQ(
      refusal<Unsupported>(file_with(dict({{"w", tensor(storage("0", 2), 0, {4}, {0})}}), {{"0", kEight}})),
      R"(tensor "w": it repeats elements, as expand() does; clone it before it is saved)");
}

// Whatever is repeated, however often: less than 512 MB beyond what the file has, and less than a second.
TEST(HostilePytorch, KeepsItsLimits) {
  const std::string id =
      "(" + text("storage") + "ctorch\nFloatStorage\n" + text("1") + text("cpu") + "K\1tq\1";
  const std::vector<std::pair<std::string, std::string>> attacks = {
      {"", "}"},
      {"", "\x8f"},
      {"}", "NNs"},
      {"Nq\1", "}(h\1h\1h\1h\1u"},
      {"", "cx\ny\n"},
      {"cx\ny\nq\1", "h\1)\x81"},
      {"ccollections\nOrderedDict\nq\1", "h\1)R"},
      {"ctorch._utils\n_rebuild_tensor_v2\nq\1)q\2", "h\1h\2R"},
      {id, "h\1Q"},
      {"ccollections\nOrderedDict\nq\1](" +
           [] {
             std::string pairs;
             for (int i = 0; i < 2000; ++i) pairs += "NN\x86";
             return pairs;
           }() +
           "e\x85q\2",
       "h\1h\2R"}};
  for (const auto& [first, repeated] : attacks) {
    SCOPED_TRACE(repeated);
    const size_t bytes = std::min<size_t>(24'000'000, 4'200'000 * repeated.size());
    std::string more = repeated;
    while (more.size() < bytes) more += more;
    more.resize(bytes / repeated.size() * repeated.size());
    const std::string file = file_with(first + more);
    const int64_t before = test::peak_memory();
    const double start = test::processor_seconds();
    EXPECT_EQ(refusal(file), "data.pkl: byte N: expected at most 4194304 values");
    EXPECT_LT(test::processor_seconds() - start, test::kMostSeconds);
    EXPECT_LT(test::peak_memory() - before, test::kMostMemory);
  }
}

// Contents whose parts are named again and again, where looking at each anew would take hours.
TEST(HostilePytorch, PartsThatAreRepeatedCostNothing) {
  const std::string w = tensor(storage("0", 2), 0, {2}, {1});
  std::string one_dict = "}q\1(", names, prefix, keys = "](" + text(std::string(1 << 20, '1')) + "q\1";
  for (int i = 0; i < 200'000; ++i) one_dict += "NN";
  one_dict += "u";
  for (int i = 0; i < 200'000; ++i) names += text(std::to_string(i) + "_ema") + "h\1";
  for (int i = 0; i < 100'000; ++i) prefix += "module.";
  for (int i = 0; i < 200'000; ++i) keys += "h\1";
  const std::string legacy = legacy_file("}", {}, "");
  const std::string named_often =
      file_with("}(" + text("a") + one_dict + names + text("w") + w + "u", {{"0", kEight}});
  const int64_t before = test::peak_memory();
  const double start = test::processor_seconds();
  EXPECT_EQ(testing::parse_pytorch(named_often).tensors.size(), 1U);
  EXPECT_EQ(testing::parse_pytorch(file_with(dict({{prefix + "w", w}}), {{"0", kEight}})).prefix,
            "module.module.");
  const std::string listed_often =
      legacy.substr(0, legacy.size() - pickle_of("](e").size()) + pickle_of(keys + "e");
  EXPECT_TRUE(refusal(listed_often).starts_with("byte N: the list of storages names"));
  EXPECT_LT(test::processor_seconds() - start, 3 * test::kMostSeconds);
  EXPECT_LT(test::peak_memory() - before, test::kMostMemory);
}

// A thousand views of the same elements would take a thousand times the file's memory.
TEST(HostilePytorch, ViewsTakeFourTimesTheFileAtMost) {
  constexpr int64_t kElements = 100'000;
  const std::string bytes(4 * kElements, '\0');
  std::map<std::string, std::string> views;
  for (int64_t i = 0; i < 4; ++i)
    views[std::to_string(i)] = tensor(storage("0", kElements), i, {kElements - 4}, {1});
  EXPECT_EQ(testing::parse_pytorch(file_with(dict(views), {{"0", bytes}})).tensors.size(), 4U);
  views["again"] = views["0"];  // shares memory
  EXPECT_EQ(testing::parse_pytorch(file_with(dict(views), {{"0", bytes}})).tensors.size(), 5U);
  for (int64_t i = 4; i < 6; ++i)  // the fifth is too much
    views[std::to_string(i)] = tensor(storage("0", kElements), 0, {kElements - i}, {1});
  const std::string message = refusal<Unsupported>(file_with(dict(views), {{"0", bytes}}));
  EXPECT_TRUE(message.starts_with(R"(tensor "5": with it tensors take more than 4 times the file's )"))
      << message;
}

TEST(HostilePytorch, DictsMayHoldThemselves) {
  const std::string circle = "}q\1" + text("a") + "h\1s" + text("b") + "}q\2" + text("c") + "h\1ss";
  EXPECT_EQ(refusal<InvalidArgument>(file_with(circle)),
            "expected a dict of tensors but there are no tensors");
  const std::string deep_tensor = tensor(storage("0", 2), 0, {2}, {1});
  std::string deep = dict({{"w", deep_tensor}});
  for (int i = 0; i < 100; ++i) deep = "}" + text("d") + deep + "s";
  EXPECT_EQ(refusal<InvalidArgument>(file_with(deep, {{"0", kEight}})),
            "expected a dict of tensors but there are no tensors");  // so deep is looked at by key alone
  std::string key = "d";
  for (int i = 1; i < 100; ++i) key += ".d";
  EXPECT_EQ(testing::parse_pytorch(file_with(deep, {{"0", kEight}}), key).tensors.size(), 1U);
  EXPECT_EQ(
      refusal<InvalidArgument>(
          file_with("}" + text("x") + dict({{"w", deep_tensor}}) + "s", {{"0", kEight}})),
      R"(expected tensors at the top, or in an entry that checkpoints use, but they are in "x"; choose by a key, as sinter_convert --key does)");
}

TEST(HostilePytorch, NamesOfWeights) {
  const std::string w = tensor(storage("0", 2), 0, {2}, {1});
  const auto names = [&](const std::map<std::string, std::string>& values) {
    const PytorchFile file = testing::parse_pytorch(file_with(dict(values), {{"0", kEight}}));
    std::string text = file.prefix + ":";
    for (const auto& [name, tensor] : file.tensors) text += " " + name;
    return text;
  };
  EXPECT_EQ(names({{"module.a", w}, {"module.b", w}}), "module.: a b");
  EXPECT_EQ(names({{"module.a", w}, {"b", w}}), ": b module.a");
  EXPECT_EQ(names({{"_orig_mod.module.a", w}}), "_orig_mod.module.: a");
  EXPECT_EQ(names({{"module._orig_mod.a", w}}), "module._orig_mod.: a");
  EXPECT_EQ(names({{"module.", w}}), ": module.");
  for (const std::string key : {"state_dict", "model", "model_state_dict", "backbone", "state_dict_backbone",
                                "net", "module", "params", "weights_ema"}) {
    EXPECT_EQ(names({{key, dict({{"a", w}})}, {"optimizer", dict({{"b", w}})}, {"best", w}}), ": a") << key;
  }
  // The last of equal keys counts, as in Python.
  EXPECT_EQ(testing::parse_pytorch(file_with("}(" + text("a") + w + text("a") + "Nu", {{"0", kEight}}))
                .tensors.size(),
            0U);
}

TEST(HostilePytorch, FilesBeforeVersion16) {
  const std::string object = dict({{"w", tensor(storage("7", 2), 0, {2}, {1})}});
  const std::string data = le(int64_t{2}) + kEight;
  EXPECT_EQ(testing::parse_pytorch(legacy_file(object, {"7"}, data)).tensors.size(), 1U);
  const auto with = [&](const std::vector<std::string>& keys, const std::string& behind) {
    return refusal(legacy_file(object, keys, behind));
  };
  EXPECT_EQ(with({"7"}, le(int64_t{3}) + kEight), "byte N: expected 2 elements of storage 7 but got 3");
  EXPECT_EQ(with({"7"}, data.substr(0, 5)), "byte N: storage 7 is cut off");
  EXPECT_EQ(with({"7"}, data.substr(0, 15)), "byte N: expected 2 elements of storage 7 but 7 bytes are left");
  EXPECT_EQ(with({"7"}, data + "x"), "byte N: expected the end of the file but 1 bytes follow");
  EXPECT_EQ(with({"8"}, data),
            R"(byte N: the list of storages names "8", which no tensor has, or which it named before)");
  EXPECT_EQ(with({"7", "7"}, data + data),
            R"(byte N: the list of storages names "7", which no tensor has, or which it named before)");
  EXPECT_EQ(with({}, ""), R"(tensor "w": its storage 7 is missing)");
  EXPECT_EQ(refusal(legacy_file(object, {"7"}, data, "K\1")), "byte N: expected the format's version 1001");
  EXPECT_EQ(refusal<Unsupported>(legacy_file(object, {"7"}, data, "M\xe9\x03", "\x89")),
            "it was written on a big-endian machine");
  const std::string odd =
      "(" + text("storage") + "ctorch\nNewStorage\n" + text("9") + text("cpu") + number(2) + "tQ";
  EXPECT_EQ(refusal<Unsupported>(legacy_file("}" + text("x") + odd + "s", {"9"}, data)),
            "storage 9 is a torch.NewStorage, whose size is not known");
  const std::string module =
      "(" + text("module") + "cmy\nNet\n" + text("net.py") + text("class Net") + "tQ)\x81}b";
  EXPECT_EQ(refusal<Unsupported>(legacy_file(module, {}, "")),
            "it holds a whole module, my.Net, and not its weights: save its state_dict()");
  // Pickles that are longer than what is read of the file at first.
  const std::string object_of_3_mb =
      dict({{"note", text(std::string(3 << 20, 'x'))}, {"w", tensor(storage("7", 2), 0, {2}, {1})}});
  EXPECT_EQ(testing::parse_pytorch(legacy_file(object_of_3_mb, {"7"}, data)).tensors.size(), 1U);
  const std::string cut = legacy_file(object_of_3_mb, {"7"}, data).substr(0, 2 << 20);
  EXPECT_TRUE(refusal(cut).starts_with("byte N: expected 3145728 more bytes but ")) << refusal(cut);
}

// Beyond four GiB places need 64 bits. The file is a hole but for what PyTorch would write there.
TEST(HostilePytorch, FilesBeyondFourGigabytes) {
  const TemporaryFolder folder;
  const uint64_t hole = (uint64_t{9} << 30) + 4096;
  const std::string pickle =
      pickle_of(dict({{"model", dict({{"w", tensor(storage("1", 2), 0, {2}, {1})}})},
                      {"other", dict({{"large", tensor(storage("0", int64_t{9} << 28), 0, {1}, {1})}})}}));
  const auto local = [](const std::string& name, const std::string& bytes) {
    return "PK\3\4"s + std::string(22, '\0') + le(static_cast<uint16_t>(name.size())) + le(uint16_t{0}) +
           name + bytes;
  };
  const auto entry = [](const std::string& name, uint64_t size, uint64_t place) {
    const std::string extra = le(uint16_t{1}) + le(uint16_t{24}) + le(size) + le(size) + le(place);
    return "PK\1\2"s + std::string(16, '\0') + le(UINT32_MAX) + le(UINT32_MAX) +
           le(static_cast<uint16_t>(name.size())) + le(static_cast<uint16_t>(extra.size())) +
           std::string(10, '\0') + le(UINT32_MAX) + name + extra;
  };
  const std::string front = local("a/data.pkl", pickle) + local("a/data/0", ""),
                    behind = local("a/data/1", kEight);
  const uint64_t directory = hole + behind.size();
  const std::string entries = entry("a/data.pkl", pickle.size(), 0) +
                              entry("a/data/0", uint64_t{9} << 30, local("a/data.pkl", pickle).size()) +
                              entry("a/data/1", 8, hole);
  const std::string end = "PK\6\6"s + le(uint64_t{44}) + std::string(12, '\0') + le(uint64_t{3}) +
                          le(uint64_t{3}) + le(uint64_t{entries.size()}) + le(directory) + "PK\6\7"s +
                          le(uint32_t{0}) + le(directory + entries.size()) + le(uint32_t{1}) + "PK\5\6"s +
                          le(uint32_t{0}) + le(uint32_t{0x00030003}) +
                          le(static_cast<uint32_t>(entries.size())) + le(UINT32_MAX) + le(uint16_t{0});
  write_file(folder / "large.pth", front);
  std::error_code failure;
  std::filesystem::resize_file(folder / "large.pth", hole, failure);
  if (failure) GTEST_SKIP() << "no file of nine GiB can be made here: " << failure.message();
  std::ofstream(folder / "large.pth", std::ios::binary | std::ios::app) << behind << entries << end;
  const PytorchFile file = read_pytorch(folder / "large.pth");
  EXPECT_EQ(std::memcmp(file.tensors.at("w").raw_data(), kEight.data(), 8), 0);
}

}  // namespace
}  // namespace sinter::nn
