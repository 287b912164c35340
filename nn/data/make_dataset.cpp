#include <cstddef>
#include <span>
#include <utility>

#include <sinter/core/base/error.h>
#include <sinter/nn/data/make_dataset.h>

namespace sinter::nn::data {
namespace {

using Read = std::function<Sample(int64_t, const DecodeHintFunction&)>;

class FunctionDataset final : public Dataset {
 public:
  FunctionDataset(int64_t size, Read read) : size_(size), read_(std::move(read)) {}

  int64_t size() const override { return size_; }
  void read(int64_t index, Sample& sample, const DecodeHintFunction& hint) const override {
    checked_index(index);
    sample = read_(index, hint);
  }

 private:
  int64_t size_;
  Read read_;
};

class TensorDataset final : public Dataset {
 public:
  explicit TensorDataset(std::map<std::string, Tensor> fields) : fields_(std::move(fields)) {}

  int64_t size() const override { return fields_.begin()->second.shape()[0]; }
  void read(int64_t index, Sample& sample, const DecodeHintFunction&) const override {
    checked_index(index);
    for (const auto& [name, field] : fields_) {
      const std::span<const int64_t> extents = field.shape().extents();
      const TensorSpec row{Shape(extents.subspan(1)), field.dtype(), field.device()};
      const auto first = static_cast<const std::byte*>(field.raw_data()) -
                         static_cast<const std::byte*>(field.storage()->data());
      const size_t offset = static_cast<size_t>(first) + static_cast<size_t>(index) * row.bytes();
      sample.values[name] = Tensor::over(field.storage(), offset, row);
    }
  }
  uint64_t fingerprint() const override {
    Fingerprint print;
    for (const auto& [name, field] : fields_) {
      print.add(name);
      print.add(to_string(field.spec()));
      print.add(std::span(static_cast<const uint8_t*>(field.raw_data()), field.spec().bytes()));
    }
    return print.value();
  }

 private:
  std::map<std::string, Tensor> fields_;
};

}  // namespace

DatasetPtr make_dataset(int64_t size, std::function<Sample(int64_t index)> read) {
  SINTER_CHECK(read != nullptr, "[make_dataset] expected a function but got none");
  return make_dataset(
      size, [read = std::move(read)](int64_t index, const DecodeHintFunction&) { return read(index); });
}

DatasetPtr make_dataset(int64_t size, Read read) {
  SINTER_CHECK(size >= 0, "[make_dataset] expected a size >= 0 but got {}", size);
  SINTER_CHECK(read != nullptr, "[make_dataset] expected a function but got none");
  return std::make_shared<FunctionDataset>(size, std::move(read));
}

DatasetPtr tensor_dataset(std::map<std::string, Tensor> fields) {
  SINTER_CHECK(!fields.empty(), "[tensor_dataset] expected at least one tensor but got none");
  const auto& [first_name, first] = *fields.begin();
  for (auto& [name, field] : fields) {
    SINTER_CHECK(field.defined() && field.device().is_cpu() && field.shape().rank() > 0,
                 "[tensor_dataset] expected a tensor of rows on the CPU for {} but got {}", name,
                 field.defined() ? to_string(field.spec()) : "none");
    SINTER_CHECK(field.shape()[0] == first.shape()[0],
                 "[tensor_dataset] expected {} rows, as {} has, but {} has {}", first.shape()[0], first_name,
                 name, field.shape()[0]);
    field = field.detach();
  }
  return std::make_shared<TensorDataset>(std::move(fields));
}

}  // namespace sinter::nn::data
