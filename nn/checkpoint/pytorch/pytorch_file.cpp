#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include <sinter/core/text/printable.h>
#include <sinter/nn/checkpoint/pytorch/byte_source.h>
#include <sinter/nn/checkpoint/pytorch/metadata_record.h>
#include <sinter/nn/checkpoint/pytorch/pytorch_file.h>
#include <sinter/nn/checkpoint/pytorch/pytorch_pickle.h>
#include <sinter/nn/checkpoint/pytorch/state_choice.h>
#include <sinter/nn/checkpoint/pytorch/tensor_reader.h>
#include <sinter/nn/checkpoint/pytorch/zip_archive.h>

namespace sinter::nn {
namespace {

using namespace pytorch;

enum class FileKind { kForeign, kZip, kLegacy, kTar };

constexpr uint64_t kMostPickleBytes = uint64_t{256} << 20;
constexpr size_t kFirstBytes = 512;
constexpr std::string_view kZipMagic = "PK\3\4";
// A pickle of the number 0x1950a86a20f9469cfc6c.
constexpr std::string_view kLegacyMagic{"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e", 15};
constexpr std::string_view kTarMagic = "ustar";
constexpr size_t kTarMagicPlace = 257;

FileKind kind_of(std::span<const std::byte> first_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(first_bytes.data()), first_bytes.size());
  if (text.starts_with(kZipMagic)) return FileKind::kZip;
  if (text.starts_with(kLegacyMagic)) return FileKind::kLegacy;
  const bool is_tar = text.size() > kTarMagicPlace && text.substr(kTarMagicPlace).starts_with(kTarMagic);
  return is_tar ? FileKind::kTar : FileKind::kForeign;
}

std::span<const uint8_t> as_octets(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

/// The weights that the top value of a pickle holds.
PytorchFile read_state(const ByteSource& source, const Records& records, const PytorchPickle& pickle,
                       const PickleValue& top, const std::string& key) {
  ChosenState state = choose_state(pickle, top, key, source);
  PytorchFile file{.tensors = read_tensors(source, records, pickle, state.tensors),
                   .key = std::move(state.key),
                   .prefix = std::move(state.prefix),
                   .skipped = std::move(state.skipped),
                   .metadata = {}};
  return file;
}

// ---- archives ----

constexpr std::string_view kPickleName = "/data.pkl";

void check_byte_order(const ByteSource& source, const ZipArchive::Entry* entry) {
  if (entry == nullptr) return;  // before 2.1
  std::string order(std::min<uint64_t>(entry->record.size, 16), '\0');
  source.read(entry->record.begin, std::as_writable_bytes(std::span(order)));
  if (order == "big") source.fail<Unsupported>("it was written on a big-endian machine");
  if (order != "little")
    source.fail("record {}: expected \"little\" or \"big\" but got {}", quote_name(entry->name),
                quote_name(order));
}

PytorchFile read_zip(const ByteSource& source, const std::string& key) {
  const ZipArchive archive(source);
  const std::string_view first = archive.first_name();
  const std::string prefix(first.substr(0, first.find('/')));
  if (archive.find(prefix + "/constants.pkl") != nullptr) {
    source.fail<Unsupported>("this is a TorchScript program: save the module's state_dict() with torch.save");
  }
  archive.check_stored(source);
  const auto pickles = std::count_if(archive.entries().begin(), archive.entries().end(),
                                     [](const auto& entry) { return entry.name.ends_with(kPickleName); });
  const ZipArchive::Entry* entry = archive.find(prefix + std::string(kPickleName));
  if (entry == nullptr || pickles != 1) {
    source.fail(
        "byte 0: expected an archive with one data.pkl, in the first folder, but it has {}: this is no "
        "file of PyTorch's",
        pickles);
  }
  if (entry->record.size > kMostPickleBytes) {
    source.fail("byte {}: expected at most {} bytes of data.pkl but got {}", entry->record.begin,
                kMostPickleBytes, entry->record.size);
  }
  check_byte_order(source, archive.find(prefix + "/byteorder"));
  std::map<std::string, std::string> metadata;
  if (const auto* about = archive.find(fmt::format("{}/{}", prefix, kMetadataRecord)))
    metadata = parse_metadata(source, about->record);
  std::vector<std::byte> bytes(entry->record.size);
  read_record(source, entry->record, bytes);
  PytorchPickle pickle(as_octets(bytes), 0, fmt::format("[pytorch] {}: data.pkl", source.path));
  const PickleValue top = pickle.run();
  pickle.expect_end();
  Records records;
  for (const auto& [storage, ignored] : pickle.storages()) {
    if (const auto* found = archive.find(prefix + "/data/" + storage))
      records.emplace(storage, found->record);
  }
  PytorchFile file = read_state(source, records, pickle, top, key);
  file.metadata = std::move(metadata);
  return file;
}

// ---- files of before version 1.6 ----

/// The pickles at the beginning of a file, each with a memo of its own.
struct LegacyPickles {
  std::vector<std::byte> bytes;
  std::unique_ptr<PytorchPickle> object;
  PickleValue top;
  std::vector<std::string> keys;  // in the order of the storages
  uint64_t end = 0;

  /// Runs them. Gives false if they need more than the first `count` bytes.
  bool run(const ByteSource& source, size_t count) {
    bytes.resize(count);
    source.read(0, bytes);
    size_t at = kLegacyMagic.size();
    const auto next = [&](auto&& use) {
      auto pickle = std::make_unique<PytorchPickle>(as_octets(bytes), at, "[pytorch] " + source.path);
      try {
        const PickleValue value = pickle->run();
        at = pickle->position();
        use(pickle, value);
      } catch (const IoError&) {
        if (!pickle || !pickle->ran_out() || count == source.size || count == kMostPickleBytes) throw;
        return false;
      }
      return true;
    };
    const bool complete =
        next([&](auto&, const PickleValue& version) { check_version(source, version); }) &&
        next([&](auto& pickle, const PickleValue& system) { check_system(source, *pickle, system); }) &&
        next([&](auto& pickle, const PickleValue& value) {
          object = std::move(pickle);
          top = value;
        }) &&
        next([&](auto& pickle, const PickleValue& list) { take_keys(source, *pickle, list); });
    end = at;
    return complete;
  }

  static void check_version(const ByteSource& source, const PickleValue& version) {
    if (version.kind != PickleValue::Kind::kNumber || version.number != 1001)
      source.fail("byte {}: expected the format's version 1001", kLegacyMagic.size());
  }

  static void check_system(const ByteSource& source, const PytorchPickle& pickle, const PickleValue& system) {
    const auto* entries = pickle.entries(system);
    if (entries == nullptr) source.fail("expected a dict of the machine's properties behind the version");
    for (const auto& [name, value] : *entries) {
      if (name.is_string() && name.text() == "little_endian" && value.number == 0)
        source.fail<Unsupported>("it was written on a big-endian machine");
    }
  }

  void take_keys(const ByteSource& source, const PytorchPickle& pickle, const PickleValue& list) {
    const auto* items = pickle.items(list);
    if (items == nullptr) source.fail("expected a list of storages behind the object");
    keys.clear();
    // Of a key only so much is kept as one can have: a memo may repeat a long text without end.
    for (const PickleValue& item : *items)
      keys.emplace_back(item.is_string() ? item.text().substr(0, kMostKeyDigits + 1) : "");
  }
};

/// Where the storages lie: of each the number of its elements, then these.
Records find_legacy_records(const ByteSource& source, const LegacyPickles& pickles) {
  Records records;
  uint64_t at = pickles.end;
  for (const std::string& key : pickles.keys) {
    const auto found = pickles.object->storages().find(key);
    if (found == pickles.object->storages().end() || records.contains(key))
      source.fail("byte {}: the list of storages names {}, which no tensor has, or which it named before", at,
                  quote_name(key));
    const PickledStorage& storage = found->second;
    if (storage.type == nullptr)
      source.fail<Unsupported>("storage {} is a {}, whose size is not known", key, storage.type_name);
    uint64_t elements = 0;
    if (source.size - at < sizeof elements) source.fail("byte {}: storage {} is cut off", at, key);
    source.read(at, std::as_writable_bytes(std::span(&elements, 1)));
    at += sizeof elements;
    if (elements != storage.elements)
      source.fail("byte {}: expected {} elements of storage {} but got {}", at - sizeof elements,
                  storage.elements, key, elements);
    const uint64_t left = source.size - at;
    if (elements > left / storage.type->element_bytes)
      source.fail("byte {}: expected {} elements of storage {} but {} bytes are left", at, elements, key,
                  left);
    records[key] = {.begin = at, .size = elements * storage.type->element_bytes, .crc32 = {}};
    at += records[key].size;
  }
  if (at != source.size)
    source.fail("byte {}: expected the end of the file but {} bytes follow", at, source.size - at);
  return records;
}

PytorchFile read_legacy(const ByteSource& source, const std::string& key) {
  constexpr uint64_t kFirstTry = uint64_t{1} << 20;  // pickles are small, elements many
  const uint64_t most = std::min(source.size, kMostPickleBytes);
  LegacyPickles pickles;
  for (uint64_t count = std::min(kFirstTry, most); !pickles.run(source, count);)
    count = std::min(4 * count, most);
  const Records records = find_legacy_records(source, pickles);
  return read_state(source, records, *pickles.object, pickles.top, key);
}

PytorchFile read_from(const ByteSource& source, const std::string& key) {
  std::vector<std::byte> first(std::min<uint64_t>(source.size, kFirstBytes));
  source.read(0, first);
  switch (kind_of(first)) {
    case FileKind::kZip:
      return read_zip(source, key);
    case FileKind::kLegacy:
      return read_legacy(source, key);
    case FileKind::kTar:
      source.fail<Unsupported>(
          "this is a tar archive of PyTorch before 2018: load it with torch, save it anew");
    case FileKind::kForeign:
      break;
  }
  source.fail("byte 0: this is no file of PyTorch's, or its beginning is damaged");
}

}  // namespace

bool is_pytorch(std::span<const std::byte> first_bytes) {
  return kind_of(first_bytes) != FileKind::kForeign;
}

PytorchFile read_pytorch(const std::filesystem::path& path, const ReadPytorchOptions& options,
                         FileSystem& files) {
  InputFile file(path, files);
  const ByteSource source{
      .path = path.string(),
      .size = file.size(),
      .read = [&](uint64_t offset, std::span<std::byte> bytes) { file.read(offset, bytes); },
      .is_concurrent = &files == &FileSystem::native()};
  return read_from(source, options.key);
}

PytorchFile parse_pytorch(std::span<const std::byte> bytes, const std::filesystem::path& path,
                          const ReadPytorchOptions& options) {
  const ByteSource source{
      .path = path.string(), .size = bytes.size(), .read = [&](uint64_t offset, std::span<std::byte> target) {
        if (!target.empty()) std::memcpy(target.data(), bytes.data() + offset, target.size());
      }};
  return read_from(source, options.key);
}

}  // namespace sinter::nn
