// The files of a batch that a device decodes by itself: where their pixels go, and which of them it refuses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <sinter/core/image/image_decoder.h>

namespace sinter::nn::data {

/// Used for one batch after another. put() may be called by several threads at once, for different rows.
class EncodedRows {
 public:
  /// Without a decoder no row is ever put.
  explicit EncodedRows(std::shared_ptr<ImageDecoder> decoder) : decoder_(std::move(decoder)) {}

  bool has_decoder() const { return decoder_ != nullptr; }
  Stream stream() const { return decoder_->stream(); }

  /// Makes room for the rows of a batch. The files of the former one must not be in use any more.
  void begin(int64_t rows);
  /// Takes the file of a row and leaves an older one's buffer in its place. (height, width) is its image's
  /// size.
  void put(int64_t row, std::vector<uint8_t>& file, int64_t height, int64_t width);

  /// The rows that were put, in order, without those that drop() took out.
  std::vector<int64_t> rows() const;
  int64_t height(int64_t row) const { return at(row).height; }
  int64_t width(int64_t row) const { return at(row).width; }

  /// Gives each of them a place for its pixels, RGB, from `begin` on; returns the end of the last.
  size_t place(size_t begin);
  /// The place of a row's pixels, once place() was called.
  size_t offset(int64_t row) const { return at(row).offset; }
  /// Queues the decoding of all, to their places behind `pixels`, on stream(). Returns the rows that were
  /// refused.
  std::vector<int64_t> decode(uint8_t* pixels);
  /// Takes a row out: it is not decoded.
  void drop(int64_t row) { rows_[static_cast<size_t>(row)].is_put = false; }

 private:
  struct Row {
    std::vector<uint8_t> file;
    int64_t height = 0, width = 0;
    size_t offset = 0;
    bool is_put = false;
  };
  const Row& at(int64_t row) const { return rows_[static_cast<size_t>(row)]; }

  std::shared_ptr<ImageDecoder> decoder_;
  std::vector<Row> rows_;  // keeps buffers of larger batches
  size_t count_ = 0;       // of this batch
};

}  // namespace sinter::nn::data
