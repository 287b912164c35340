#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>
#include <system_error>
#include <utility>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/image/files/image_file.h>
#include <sinter/nn/data/records/mapped_file.h>
#include <sinter/nn/data/records/record_dataset.h>
#include <sinter/nn/data/records/record_table.h>
#include <sinter/nn/data/text/lines.h>

namespace sinter::nn::data {
namespace {

namespace fs = std::filesystem;

class RecordDataset final : public Dataset {
 public:
  RecordDataset(const fs::path& rec, const fs::path& index, const RecordDatasetOptions& options)
      : file_(rec),
        table_(file_.bytes(), rec.string(), MappedFile(index).bytes(), index.string()),
        decode_(options.decode),
        class_names_(options.class_names) {
    SINTER_CHECK(decode_.channels == 1 || decode_.channels == 3,
                 "[records] expected 1 or 3 channels but got {}", decode_.channels);
    if (class_names_.empty()) class_names_ = read_classes(rec.parent_path());
  }

  int64_t size() const override { return static_cast<int64_t>(table_.size()); }
  const std::vector<std::string>& class_names() const override { return class_names_; }

  // Images lie at other bytes if one of them has another size; labels are looked at here and there.
  uint64_t fingerprint() const override {
    constexpr size_t kMostLabels = 1 << 12;
    file_.check_whole();
    Fingerprint print;
    print.add(uint64_t{file_.bytes().size()});
    for (const std::string& name : class_names_) print.add(name);
    for (size_t i = 0; i < table_.size(); ++i) {
      print.add(table_.place(i).key);
      print.add(table_.place(i).offset);
    }
    std::vector<uint8_t> joined;
    const size_t count = std::min(table_.size(), kMostLabels);
    for (size_t i = 0; i < count; ++i) print.add(label_bits(i * table_.size() / count, joined));
    return print.value();
  }

  void read(int64_t index, Sample& sample, const DecodeHintFunction& reduction) const override {
    const size_t i = checked_index(index);
    file_.check_whole();
    thread_local std::vector<uint8_t> joined;  // one buffer a reader, for the few records of several parts
    const ImageRecord record = table_.read(i, file_.bytes(), joined);
    const std::string name = table_.place(i).text();
    sample.label = label_of(record, name);
    decode_image(record.image, name, decode_, reduction, sample.image);
  }

  bool read_encoded(int64_t index, EncodedSample& sample) const override {
    const size_t i = checked_index(index);
    file_.check_whole();
    thread_local std::vector<uint8_t> joined;
    const ImageRecord record = table_.read(i, file_.bytes(), joined);
    sample.label = label_of(record, table_.place(i).text());
    sample.decode = decode_;
    sample.bytes.assign(record.image.begin(), record.image.end());
    return true;
  }

 private:
  // Of a damaged record, which is an error when it is read, a number that no label has.
  uint64_t label_bits(size_t image, std::vector<uint8_t>& joined) const {
    try {
      return std::bit_cast<uint32_t>(table_.read(image, file_.bytes(), joined).label);
    } catch (const IoError&) {
      return UINT64_MAX;
    }
  }

  int64_t label_of(const ImageRecord& record, const std::string& name) const {
    const float label = record.label;
    if (!(label >= 0 && label < static_cast<float>(num_classes()) && label == std::floor(label))) {
      throw_error<IoError>("[records] {}: expected a class from 0 to {} but got {}", name, num_classes() - 1,
                           label);
    }
    return static_cast<int64_t>(label);
  }

  std::vector<std::string> read_classes(const fs::path& folder) const {
    const fs::path property_path = folder / "property";
    std::error_code ignored;
    if (!fs::exists(property_path, ignored)) fail_without_property(property_path);
    const MappedFile property(property_path);
    const int64_t classes = parse_record_property(property.bytes(), property_path.string()).classes;
    // A few bytes must not ask for gigabytes of names; a face data set has many images of each person.
    const int64_t most = std::max<int64_t>(size(), int64_t{1} << 22);
    if (classes > most) {
      throw_error<IoError>("[records] {}: expected at most {} classes for {} images but got {}",
                           property_path.string(), most, size(), classes);
    }
    const fs::path names = folder / "classes.txt";
    if (fs::is_regular_file(names, ignored)) return read_names(names, static_cast<size_t>(classes));
    std::vector<std::string> numbers;
    numbers.reserve(static_cast<size_t>(classes));
    for (int64_t i = 0; i < classes; ++i) numbers.push_back(std::to_string(i));
    return numbers;
  }

  // A record file does not say how many classes it has. Says what its labels suggest, and what to write.
  [[noreturn]] void fail_without_property(const fs::path& path) const {
    constexpr size_t kMostLabels = 200'000;  // each is a page of the file to be read
    const size_t count = std::min(table_.size(), kMostLabels);
    float largest = 0;
    std::vector<uint8_t> joined;
    for (size_t i = 0; i < count; ++i)
      largest = std::max(largest, table_.read(i * table_.size() / count, file_.bytes(), joined).label);
    const auto classes =
        std::max<size_t>(table_.identities(), static_cast<size_t>(std::min(largest, 1e8f)) + 1);
    const auto [height, width] = size_of_first();
    const std::string seen =
        table_.identities() > 0
            ? fmt::format("it lists {} of them", table_.identities())
            : fmt::format("the labels of {} of its {} images go up to {}", count, table_.size(), largest);
    throw_error<IoError>(
        "[records] {}: there is no such file; it says how many classes (identities) {} has: {}. If these are "
        "all, "
        "make the file with the one line \"{},{},{}\" (classes, height, width of the images)",
        path.string(), file_.path().string(), seen, classes, height, width);
  }

  std::pair<int64_t, int64_t> size_of_first() const {
    try {
      Sample first;
      std::vector<uint8_t> joined;
      decode_image(table_.read(0, file_.bytes(), joined).image, "", decode_, {}, first.image);
      return {first.image.height, first.image.width};
    } catch (const IoError&) {
      return {0, 0};  // which stands for sizes that differ
    }
  }

  static std::vector<std::string> read_names(const fs::path& path, size_t count) {
    const MappedFile file(path);
    std::string_view text =
        without_byte_order_mark({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
    if (text.ends_with('\n')) text.remove_suffix(1);
    const auto lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) + 1;
    if (lines != count) {
      throw_error<IoError>("[records] {}: expected {} class names, as property says, but got {}",
                           path.string(), count, lines);
    }
    std::vector<std::string> names;
    names.reserve(count);
    for (size_t i = 0; i < count; ++i) names.emplace_back(take_line(text));
    return names;
  }

  MappedFile file_;
  RecordTable table_;
  DecodeOptions decode_;
  std::vector<std::string> class_names_;
};

}  // namespace

std::shared_ptr<const Dataset> open_records(const fs::path& rec, const RecordDatasetOptions& options) {
  fs::path file = rec;
  if (file.extension() != ".rec") file += ".rec";
  fs::path index = file;
  index.replace_extension(".idx");
  std::error_code ignored;
  if (fs::exists(file, ignored) && !fs::exists(index, ignored)) {
    throw_error<IoError>(
        "[records] {}: there is no such file; it says where the records of {} begin. sinter_pack writes "
        "both, and "
        "MXNet's tools/rec2idx.py makes it of the .rec",
        index.string(), file.string());
  }
  return std::make_shared<RecordDataset>(file, index, options);
}

}  // namespace sinter::nn::data
