// Writes state dicts as torch.save() does: a zip archive of a pickle of protocol 2 and the elements.
#include <bit>
#include <cstring>
#include <string_view>
#include <tuple>

#include <sinter/core/base/checked.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/text/printable.h>
#include <sinter/nn/checkpoint/pytorch/metadata_record.h>
#include <sinter/nn/checkpoint/pytorch/pytorch_file.h>
#include <sinter/nn/checkpoint/pytorch/pytorch_pickle.h>

namespace sinter::nn {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie");

using Sink = std::function<void(std::span<const std::byte>)>;

constexpr size_t kMostTensors = 100'000;  // whose pickle the reader's limits allow
constexpr uint32_t kIn64 = 0xffffffff;    // a field that the 64-bit part says

template <class T>
void append(std::string& text, T number) {
  text.append(reinterpret_cast<const char*>(&number), sizeof number);
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// ---- the pickle ----

/// Tensors over the same memory, which becomes one record.
using Memory = std::tuple<const Storage*, size_t, size_t, DType>;

Memory memory_of(const Tensor& tensor) {
  return {tensor.storage().get(), tensor.offset_bytes(), tensor.spec().bytes(), tensor.dtype()};
}

std::string_view storage_type(DType dtype) {
  for (const char* name : {"FloatStorage", "DoubleStorage", "HalfStorage", "BFloat16Storage", "LongStorage",
                           "IntStorage", "ByteStorage", "BoolStorage"}) {
    if (pytorch::find_storage_type(name)->dtype == dtype) return name;
  }
  throw_error<InternalError>("[pytorch] {} has no storage type", dtype);
}

void append_text(std::string& pickle, std::string_view text) {
  pickle += 'X';
  append(pickle, static_cast<uint32_t>(text.size()));
  pickle += text;
}

void append_number(std::string& pickle, int64_t number) {
  if (number <= INT32_MAX) {
    pickle += 'J';
    append(pickle, static_cast<int32_t>(number));
  } else {
    pickle += "\x8a\x08";
    append(pickle, number);
  }
}

void append_tuple(std::string& pickle, const Shape& shape, bool strides) {
  pickle += '(';
  for (int axis = 0; axis < shape.rank(); ++axis)
    append_number(pickle, strides ? shape.stride(axis) : shape[axis]);
  pickle += 't';
}

void append_tensor(std::string& pickle, const Tensor& tensor, size_t record) {
  pickle += "ctorch._utils\n_rebuild_tensor_v2\n((";
  append_text(pickle, "storage");
  pickle.append("ctorch\n").append(storage_type(tensor.dtype())).append("\n");
  append_text(pickle, std::to_string(record));
  append_text(pickle, "cpu");
  append_number(pickle, tensor.numel());
  pickle += "tQ";
  append_number(pickle, 0);
  append_tuple(pickle, tensor.shape(), false);
  append_tuple(pickle, tensor.shape(), true);
  pickle +=
      "\x89"
      "ccollections\nOrderedDict\n)RtR";
}

/// The pickle, and the tensors whose elements are the records data/0, data/1, ...
std::pair<std::string, std::vector<const Tensor*>> make_pickle(const std::map<std::string, Tensor>& tensors) {
  std::string pickle =
      "\x80\x02"
      "ccollections\nOrderedDict\n)R(";
  std::map<Memory, size_t> numbers;
  std::vector<const Tensor*> records;
  for (const auto& [name, tensor] : tensors) {
    const auto [place, is_new] = numbers.emplace(memory_of(tensor), records.size());
    if (is_new) records.push_back(&tensor);
    append_text(pickle, name);
    append_tensor(pickle, tensor, place->second);
  }
  pickle += "u.";
  return {std::move(pickle), std::move(records)};
}

// ---- the archive ----

class ZipWriter {
 public:
  explicit ZipWriter(const Sink& sink) : sink_(sink) {}

  void add(std::string_view short_name, std::span<const std::byte> bytes) {
    const std::string name = "archive/" + std::string(short_name);
    const uint64_t begin = size_;
    const bool is_long = bytes.size() >= kIn64, is_far = begin >= kIn64;
    const uint32_t crc = extend_crc32(0, bytes);
    std::string numbers;  // of 64 bits
    if (is_long) append(numbers, uint64_t{bytes.size()});
    if (is_long) append(numbers, uint64_t{bytes.size()});

    std::string head;
    append(head, uint32_t{0x04034b50});
    append_common(head, crc, bytes.size());
    append(head, static_cast<uint16_t>(name.size()));
    std::string extra = extra_of(numbers);
    const size_t padding = 64 - (begin + 30 + name.size() + extra.size() + 4) % 64;
    extra += "FB";
    append(extra, static_cast<uint16_t>(padding));
    extra.append(padding, 'Z');
    append(head, static_cast<uint16_t>(extra.size()));
    head += name + extra;
    write(bytes_of(head));
    write(bytes);

    if (is_far) append(numbers, begin);
    const std::string far = extra_of(numbers);
    append(directory_, uint32_t{0x02014b50});
    append(directory_, uint16_t{0});
    append_common(directory_, crc, bytes.size());
    append(directory_, static_cast<uint16_t>(name.size()));
    append(directory_, static_cast<uint16_t>(far.size()));
    directory_.append(2 + 2 + 2 + 4, '\0');  // comment, disk, attributes
    append(directory_, is_far ? kIn64 : static_cast<uint32_t>(begin));
    directory_ += name + far;
    ++entries_;
  }

  void finish() {
    const uint64_t begin = size_, directory = directory_.size();
    append(directory_, uint32_t{0x06064b50});
    append(directory_, uint64_t{44});
    append(directory_, uint32_t{0x002d002d});  // versions
    append(directory_, uint64_t{0});           // disks
    append(directory_, entries_);
    append(directory_, entries_);
    append(directory_, directory);
    append(directory_, begin);
    append(directory_, uint32_t{0x07064b50});
    append(directory_, uint32_t{0});
    append(directory_, begin + directory);
    append(directory_, uint32_t{1});
    const auto narrow = [](uint64_t number, uint64_t most) { return number < most ? number : most; };
    append(directory_, uint32_t{0x06054b50});
    append(directory_, uint32_t{0});
    append(directory_, static_cast<uint16_t>(narrow(entries_, 0xffff)));
    append(directory_, static_cast<uint16_t>(narrow(entries_, 0xffff)));
    append(directory_, static_cast<uint32_t>(narrow(directory, kIn64)));
    append(directory_, static_cast<uint32_t>(narrow(begin, kIn64)));
    append(directory_, uint16_t{0});
    write(bytes_of(directory_));
  }

 private:
  /// From the version that is needed to the sizes: a local header and the directory's entry have these alike.
  static void append_common(std::string& head, uint32_t crc, uint64_t size) {
    const uint32_t narrow = size >= kIn64 ? kIn64 : static_cast<uint32_t>(size);
    append(head, uint16_t{0});
    append(head, uint16_t{0x0800});  // names are UTF-8
    append(head, uint16_t{0});       // stored
    append(head, uint32_t{0});       // no time
    append(head, crc);
    append(head, narrow);
    append(head, narrow);
  }
  static std::string extra_of(const std::string& numbers) {
    if (numbers.empty()) return {};
    std::string extra;
    append(extra, uint16_t{1});
    append(extra, static_cast<uint16_t>(numbers.size()));
    return extra + numbers;
  }
  void write(std::span<const std::byte> bytes) {
    if (!bytes.empty()) sink_(bytes);
    size_ += bytes.size();
  }

  const Sink& sink_;
  std::string directory_;
  uint64_t size_ = 0;
  uint64_t entries_ = 0;
};

void check(const std::map<std::string, Tensor>& tensors) {
  SINTER_CHECK(tensors.size() <= kMostTensors, "[pytorch] expected at most {} tensors but got {}",
               kMostTensors, tensors.size());
  for (const auto& [name, tensor] : tensors) {
    SINTER_CHECK(valid_utf8_prefix(name) == name.size(),
                 "[pytorch] expected UTF-8 text without zero bytes as the name of a tensor but got {}",
                 quote_name(name));
    SINTER_CHECK(tensor.defined(), "[pytorch] tensor {} is undefined", quote_name(name));
  }
}

}  // namespace

void serialize_pytorch(const std::map<std::string, Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata, const Sink& sink) {
  check(tensors);
  const std::string about = metadata.empty() ? std::string() : pytorch::format_metadata(metadata);
  const auto [pickle, records] = make_pickle(tensors);
  ZipWriter archive(sink);
  archive.add("data.pkl", bytes_of(pickle));
  archive.add("byteorder", bytes_of("little"));
  for (size_t i = 0; i < records.size(); ++i) {
    const Tensor tensor = records[i]->to(Device::cpu());
    synchronize(records[i]->device());
    archive.add("data/" + std::to_string(i),
                {static_cast<const std::byte*>(tensor.raw_data()), tensor.spec().bytes()});
  }
  if (!about.empty()) archive.add(pytorch::kMetadataRecord, bytes_of(about));
  archive.add("version", bytes_of("3\n"));
  archive.finish();
}

void write_pytorch(const std::filesystem::path& path, const std::map<std::string, Tensor>& tensors,
                   const std::map<std::string, std::string>& metadata, FileSystem& files) {
  check(tensors);  // what the caller did wrong is said before a file is touched
  pytorch::format_metadata(metadata);
  AtomicOutputFile file(path, files);
  serialize_pytorch(tensors, metadata, [&](std::span<const std::byte> bytes) { file.write(bytes); });
  file.commit();
}

}  // namespace sinter::nn
