#include <utility>

#include <sinter/nn/data/decode/encoded_rows.h>

namespace sinter::nn::data {
namespace {

constexpr size_t kAlignment = 256;  // of an image's first pixel

}  // namespace

void EncodedRows::begin(int64_t rows) {
  count_ = decoder_ == nullptr ? 0 : static_cast<size_t>(rows);
  if (rows_.size() < count_) rows_.resize(count_);
  for (Row& row : rows_) row.is_put = false;
}

void EncodedRows::put(int64_t row, std::vector<uint8_t>& file, int64_t height, int64_t width) {
  Row& taken = rows_[static_cast<size_t>(row)];
  std::swap(taken.file, file);
  taken.height = height;
  taken.width = width;
  taken.is_put = true;
}

std::vector<int64_t> EncodedRows::rows() const {
  std::vector<int64_t> rows;
  for (size_t i = 0; i < count_; ++i) {
    if (rows_[i].is_put) rows.push_back(static_cast<int64_t>(i));
  }
  return rows;
}

size_t EncodedRows::place(size_t begin) {
  size_t end = begin;
  for (size_t i = 0; i < count_; ++i) {
    Row& row = rows_[i];
    if (!row.is_put) continue;
    row.offset = (end + kAlignment - 1) / kAlignment * kAlignment;
    end = row.offset + static_cast<size_t>(3 * row.height * row.width);
  }
  return end;
}

std::vector<int64_t> EncodedRows::decode(uint8_t* pixels) {
  const std::vector<int64_t> all = rows();
  std::vector<EncodedImage> images;
  images.reserve(all.size());
  for (const int64_t number : all) {
    const Row& row = at(number);
    images.push_back({row.file, row.height, row.width, pixels + row.offset});
  }
  std::vector<int64_t> refused;
  for (const size_t position : decoder_->decode(images)) refused.push_back(all[position]);
  return refused;
}

}  // namespace sinter::nn::data
