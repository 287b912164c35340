#include <sinter/core/base/error.h>
#include <sinter/core/text/printable.h>
#include <sinter/nn/data/records/record_io.h>
#include <sinter/nn/data/records/record_writer.h>

namespace sinter::nn::data {
namespace {

constexpr int64_t kMostClasses = int64_t{1} << 24;
constexpr size_t kLinesAtOnce = 1 << 16;

void write_text(AtomicOutputFile& file, const std::string& text) {
  file.write(std::as_bytes(std::span(text)));
}

}  // namespace

RecordWriter::RecordWriter(const std::filesystem::path& folder, const std::string& name)
    : folder_(folder), records_(folder / (name + ".rec")), index_(folder / (name + ".idx")) {}

void RecordWriter::add(int64_t label, std::span<const uint8_t> image) {
  SINTER_CHECK(label >= 0 && label < kMostClasses, "[records] expected a class from 0 to {} but got {}",
               kMostClasses - 1, label);
  record_.clear();
  append_image_record(static_cast<float>(label), static_cast<uint64_t>(size_), image, record_);
  records_.write(std::as_bytes(std::span(record_)));
  lines_ += fmt::format("{}\t{}\n", size_, offset_);
  offset_ += record_.size();
  ++size_;
  if (lines_.size() < kLinesAtOnce) return;
  write_text(index_, lines_);
  lines_.clear();
}

void RecordWriter::check_names(const std::vector<std::string>& class_names) {
  for (const std::string& name : class_names) {
    SINTER_CHECK(name.find_first_of("\r\n") == std::string::npos,
                 "[records] expected class names of one line but got \"{}\"", escape_name(name));
  }
}

void RecordWriter::commit(const std::vector<std::string>& class_names, int64_t height, int64_t width) {
  check_names(class_names);
  std::string names;
  for (const std::string& name : class_names) names += name + '\n';
  write_text(index_, lines_);
  records_.commit();
  index_.commit();
  if (class_names.empty()) return;
  AtomicOutputFile list(folder_ / "classes.txt"), property(folder_ / "property");
  write_text(list, names);
  write_text(property, fmt::format("{},{},{}\n{}\n", class_names.size(), height, width, size_));
  list.commit();
  property.commit();
}

}  // namespace sinter::nn::data
