#include <algorithm>
#include <cmath>
#include <cstring>

#include <sinter/core/op/node.h>
#include <sinter/core/tensor/transfer.h>
#include <sinter/nn/data/loader/batch_staging.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/crop_images/crop_images.h>
#include <sinter/ops/resize_images/resize_images.h>

namespace sinter::nn::data {
namespace {

constexpr size_t kAlignment = 256;
constexpr double kFarthest = 1e9;  // of a frame's edges, in pixels

size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// The whole pixels [begin, end) of an axis that the resampling of [start, start + extent) looks at.
struct Span {
  int64_t begin, end;
};
Span needed(int64_t inputs, double start, double extent, int64_t outputs, ResizeFilter filter) {
  const double steps = filter == ResizeFilter::kBicubic ? 2 : 1;
  const double radius = steps * std::max(extent / static_cast<double>(outputs), 1.0);
  const auto most = static_cast<double>(inputs);
  const double begin = std::clamp(std::floor(start - radius), 0.0, most - 1);
  const double end = std::clamp(std::ceil(start + extent + radius), begin + 1, most);
  return {static_cast<int64_t>(begin), static_cast<int64_t>(end)};
}

}  // namespace

PixelWindow needed_pixels(const Box& box, int64_t height, int64_t width, int64_t out_height,
                          int64_t out_width, ResizeFilter filter) {
  const Span rows = needed(height, box.top, box.height, out_height, filter);
  const Span columns = needed(width, box.left, box.width, out_width, filter);
  return {rows.begin, columns.begin, rows.end, columns.end};
}

void check_frame(const Frame& frame, int64_t height, int64_t width) {
  const Box& box = frame.box();
  SINTER_CHECK(frame.is_upright(), "[data_loader] expected a frame that is not turned for the device");
  for (const double edge : {box.top, box.left, box.height, box.width}) {
    SINTER_CHECK(std::abs(edge) <= kFarthest,
                 "[data_loader] expected a frame near the {} x {} image but got "
                 "{} x {} at ({}, {})",
                 height, width, box.height, box.width, box.top, box.left);
  }
}

TransformSplit::TransformSplit(const Transforms& transforms, bool all_on_host) {
  using Kind = detail::FrameStep::Kind;
  auto first = transforms.end();
  bool moves = false;
  while (first != transforms.begin() && !all_on_host) {
    const detail::FrameStep step = (*std::prev(first))->frame_step();
    if (step.kind == Kind::kNone || (step.kind != Kind::kMirror && moves)) break;
    --first;
    if (step.kind == Kind::kMirror) continue;
    moves = true;
    resamples = step.kind == Kind::kResample;
    border = step.border;
    filter = step.filter;
  }
  host.assign(transforms.begin(), first);
  device.assign(first, transforms.end());
}

// A decoder may still read the files.
BatchStaging::~BatchStaging() {
  if (!encoded_.has_decoder()) return;
  try {
    copied_.synchronize();
  } catch (const Error&) {  // the device is lost, and reads nothing
  }
}

void BatchStaging::begin_once(int64_t rows, const Shape& image) {
  const std::lock_guard lock(begin_mutex_);
  if (rows_ > 0) return;
  begin(rows, image);
  targets_.begin(rows);
  rows_ = rows;
}

void BatchStaging::begin(int64_t rows, const Shape& image) {
  copied_.synchronize();
  output_.height = image[0];
  output_.width = image[1];
  channels_ = image[2];
  const auto count = static_cast<size_t>(rows);
  table_at_ = aligned(count * sizeof(int64_t));  // behind the labels
  if (split_.resamples) {
    boxes_at_ = table_at_ + aligned(count * 3 * sizeof(int64_t));
    pixels_at_ = boxes_at_ + aligned(count * 5 * sizeof(double));
  } else {
    pixels_at_ = table_at_ + aligned(count * 3 * sizeof(int32_t));
  }
  spilled_.clear();
  encoded_.begin(rows);
  if (device_.is_cpu()) device_block_ = Tensor();  // the host's, under its other name
  pixel_bytes_ = split_.resamples ? 0 : count * static_cast<size_t>(image.numel());
  const size_t bytes = pixels_at_ + pixel_bytes_;
  if (!host_.defined() || static_cast<size_t>(host_.numel()) < bytes) {
    host_ = Tensor();  // its memory is free for the next
    host_ = Tensor::empty_pinned({static_cast<int64_t>(bytes)}, DType::kUInt8, device_);
  }
}

void BatchStaging::put(int64_t row, const detail::SampleView& sample, const Frame* frame) {
  reinterpret_cast<int64_t*>(host_bytes())[row] = sample.label;
  if (frame == nullptr) return;
  check_frame(*frame, sample.height, sample.width);
  if (split_.resamples) return put_resampled(row, sample, *frame);
  put_exact(row, sample, *frame);
}

// All of an image whose size the window has: the device moves it. Of others only the window.
void BatchStaging::put_exact(int64_t row, const detail::SampleView& sample, const Frame& frame) {
  uint8_t* const block = host_bytes();
  const auto bytes = static_cast<size_t>(frame.height() * frame.width() * sample.channels);
  uint8_t* const to = block + pixels_at_ + static_cast<size_t>(row) * bytes;
  auto* const window = reinterpret_cast<int32_t*>(block + table_at_) + 3 * row;
  window[0] = window[1] = 0;
  window[2] = frame.mirrored() ? 1 : 0;
  if (frame.height() != sample.height || frame.width() != sample.width) return copy_window(sample, frame, to);
  window[0] = static_cast<int32_t>(frame.box().top);
  window[1] = static_cast<int32_t>(frame.box().left);
  std::memcpy(to, sample.pixels, bytes);
}

void BatchStaging::put_encoded(int64_t row, EncodedSample& sample, int64_t height, int64_t width,
                               const Frame& frame) {
  check_frame(frame, height, width);
  reinterpret_cast<int64_t*>(host_bytes())[row] = sample.label;
  write_box(row, frame, 0, 0);
  encoded_.put(row, sample.bytes, height, width);
}

void BatchStaging::write_box(int64_t row, const Frame& frame, int64_t first_row, int64_t first_column) {
  auto* const box = reinterpret_cast<double*>(host_bytes() + boxes_at_) + 5 * row;
  box[0] = frame.box().top - static_cast<double>(first_row);
  box[1] = frame.box().left - static_cast<double>(first_column);
  box[2] = frame.box().height;
  box[3] = frame.box().width;
  box[4] = frame.mirrored() ? 1.0 : 0.0;
}

void BatchStaging::put_resampled(int64_t row, const detail::SampleView& sample, const Frame& frame) {
  const PixelWindow window =
      needed_pixels(frame.box(), sample.height, sample.width, output_.height, output_.width, split_.filter);
  const int64_t height = window.bottom - window.top, width = window.right - window.left;
  const auto row_bytes = static_cast<size_t>(width * sample.channels);
  const size_t bytes = static_cast<size_t>(height) * row_bytes;
  const size_t offset = pixel_bytes_.fetch_add(bytes, std::memory_order_relaxed);

  uint8_t* const block = host_bytes();
  auto* const extent = reinterpret_cast<int64_t*>(block + table_at_) + 3 * row;
  extent[0] = static_cast<int64_t>(offset);
  extent[1] = height;
  extent[2] = width;
  write_box(row, frame, window.top, window.left);

  uint8_t* to = block + pixels_at_ + offset;
  std::vector<uint8_t> own;
  const bool fits = pixels_at_ + offset + bytes <= static_cast<size_t>(host_.numel());
  if (!fits) {
    own.resize(bytes);
    to = own.data();
  }
  for (int64_t y = 0; y < height; ++y, to += row_bytes) {
    const int64_t from = ((window.top + y) * sample.width + window.left) * sample.channels;
    std::memcpy(to, sample.pixels + from, row_bytes);
  }
  if (fits) return;
  const std::lock_guard lock(mutex_);
  spilled_.emplace_back(offset, std::move(own));
}

// Moves all to a block with room, and some to spare for batches like this one.
void BatchStaging::collect_spilled() {
  if (spilled_.empty()) return;
  const size_t bytes = pixels_at_ + pixel_bytes_ + pixel_bytes_ / 8;
  const Tensor larger = Tensor::empty_pinned({static_cast<int64_t>(bytes)}, DType::kUInt8, device_);
  auto* const to = static_cast<uint8_t*>(larger.raw_data());
  std::memcpy(to, host_bytes(), static_cast<size_t>(host_.numel()));
  for (const auto& [offset, pixels] : spilled_) {
    std::memcpy(to + pixels_at_ + offset, pixels.data(), pixels.size());
  }
  host_ = larger;
  spilled_.clear();
}

int64_t BatchStaging::upload(const std::function<void(int64_t row)>& put_decoded) {
  collect_spilled();
  pixels_end_ = pixel_bytes_;
  if (device_.is_cpu() && !encoded_.has_decoder()) {
    targets_.upload(current_stream(device_));
    device_block_ = host_;
    return 0;
  }
  // Decoding has a stream of its own, which small copies for others need not wait behind.
  const Stream stream = encoded_.has_decoder() ? encoded_.stream() : transfer_stream(device_);
  const int64_t decoded = decode_encoded(stream, put_decoded);
  reserve_device_block(stream, pixels_at_ + pixels_end_);
  const TensorSpec used{Shape{static_cast<int64_t>(pixels_at_ + pixel_bytes_)}, DType::kUInt8, device_};
  copy_async(Tensor::over(device_block_.storage(), 0, used),
             Tensor::over(host_.storage(), 0, {used.shape, used.dtype, Device::cpu()}), stream);
  targets_.upload(stream);
  copied_ = Event(stream);
  return decoded;
}

// Where a file is refused, a row is put in its place and all others are decoded again: their pixels lie
// behind its, and this is seldom.
int64_t BatchStaging::decode_encoded(const Stream& stream,
                                     const std::function<void(int64_t row)>& put_decoded) {
  for (;;) {
    const std::vector<int64_t> rows = encoded_.rows();
    if (rows.empty()) return 0;
    pixels_end_ = encoded_.place(pixel_bytes_);
    reserve_device_block(stream, pixels_at_ + pixels_end_);
    const std::vector<int64_t> refused =
        encoded_.decode(static_cast<uint8_t*>(device_block_.raw_data()) + pixels_at_);
    if (refused.empty()) {
      for (const int64_t row : rows) {
        auto* const extent = reinterpret_cast<int64_t*>(host_bytes() + table_at_) + 3 * row;
        extent[0] = static_cast<int64_t>(encoded_.offset(row));
        extent[1] = encoded_.height(row);
        extent[2] = encoded_.width(row);
      }
      return static_cast<int64_t>(rows.size());
    }
    for (const int64_t row : refused) {
      encoded_.drop(row);
      put_decoded(row);
    }
    collect_spilled();
    pixels_end_ = pixel_bytes_;
  }
}

// Waits for the use of the former batch, and makes the block larger if it has to be. A stream can wait for
// it; engines that decode cannot, nor for what the block's memory was used for before on the stream.
void BatchStaging::reserve_device_block(const Stream& stream, size_t bytes) {
  if (encoded_.has_decoder()) {
    consumed_.synchronize();
  } else {
    consumed_.make_wait(stream);
  }
  const auto least = static_cast<int64_t>(bytes);
  if (device_block_.defined() && device_block_.numel() >= least) return;
  // Photographs that are decoded differ much in size: some room to spare saves a block for most batches.
  const int64_t spare = encoded_.has_decoder() ? least / 8 : 0;
  const StreamGuard guard(stream);
  device_block_ = Tensor();
  device_block_ = Tensor::empty({std::max(host_.numel(), least + spare)}, DType::kUInt8, device_);
  if (encoded_.has_decoder()) Event(stream).synchronize();
}

Tensor BatchStaging::section(size_t offset, const Shape& shape, DType dtype) const {
  return Tensor::over(device_block_.storage(), offset, {shape, dtype, device_});
}

Batch BatchStaging::finish() {
  const NoGrad no_grad;
  const Stream stream = current_stream(device_);
  device_block_.storage()->record_stream(stream);
  copied_.make_wait(stream);
  Batch batch;
  batch.labels = ops::copy(section(0, {rows_}, DType::kInt64));
  const auto* const labels = reinterpret_cast<const int64_t*>(host_bytes());
  batch.host_labels.assign(labels, labels + rows_);
  targets_.finish(stream, batch);
  if (channels_ == 0) {
    // Samples without images.
  } else if (split_.resamples) {
    const auto bytes = static_cast<int64_t>(pixels_end_);
    batch.images = ops::resize_images(section(pixels_at_, {bytes}, DType::kUInt8),
                                      section(table_at_, {rows_, 3}, DType::kInt64),
                                      section(boxes_at_, {rows_, 5}, DType::kFloat64), output_,
                                      {.channels = channels_, .filter = split_.filter});
  } else {
    const Shape shape{rows_, output_.height, output_.width, channels_};
    batch.images =
        ops::crop_images(section(pixels_at_, shape, DType::kUInt8),
                         section(table_at_, {rows_, 3}, DType::kInt32), output_, {.border = split_.border});
  }
  consumed_ = Event(stream);
  rows_ = 0;
  return batch;
}

}  // namespace sinter::nn::data
