// How a batch gets from samples to a tensor on its device: 8-bit pixels in host memory, one copy, one op.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <sinter/core/runtime/event.h>
#include <sinter/core/tensor/tensor.h>
#include <sinter/nn/data/data_loader.h>
#include <sinter/nn/data/decode/encoded_rows.h>
#include <sinter/nn/data/loader/batch_targets.h>
#include <sinter/ops/common/image_output.h>

namespace sinter::nn::data {

/// Which transforms a worker applies to the image, and which are left to the op that makes the batch: those
/// at the end of the list that mirror, and one among them that shifts or resamples.
struct TransformSplit {
  /// All on the host if the device is not to have any.
  TransformSplit(const Transforms& transforms, bool all_on_host);

  Transforms host, device;
  bool resamples = false;
  ops::PadMode border = ops::PadMode::kConstant;
  ResizeFilter filter = ResizeFilter::kBilinear;
};

/// The pixels of an image of (height, width) that the resampling of `box` to an output looks at.
PixelWindow needed_pixels(const Box& box, int64_t height, int64_t width, int64_t out_height,
                          int64_t out_width, ResizeFilter filter = ResizeFilter::kBilinear);
/// Throws InvalidArgument for a frame, which is the transforms' work and they may be the user's, that is no
/// place near its image.
void check_frame(const Frame& frame, int64_t height, int64_t width);

/// The memory of one batch on its way, used for one batch after another: the samples' pixels, where they lie
/// and which part of each is shown, in one block of (pinned) host memory and one of the device. The CPU has
/// one block only. With a decoder some samples may come as files instead, whose pixels are made in the
/// device's block, behind the others'. Only begin_once(), put() and put_encoded() may be called by several
/// threads at once.
class BatchStaging {
 public:
  /// `split` must outlive this; `output` lacks the size. A decoder is for a split that resamples.
  BatchStaging(Device device, const TransformSplit& split, const ops::ImageOutput& output,
               std::shared_ptr<ImageDecoder> decoder = nullptr)
      : device_(device), split_(split), output_(output), encoded_(std::move(decoder)), targets_(device) {}

  virtual ~BatchStaging();

  /// Makes room for a batch of images that will be (H, W, C) = `image`, of no channels if there are none: the
  /// first call after finish() does, and every other returns once it has.
  void begin_once(int64_t rows, const Shape& image);
  /// Copies a sample's pixels, as far as its frame needs them; of one without an image the label alone.
  void put(int64_t row, const detail::SampleView& sample, const Frame* frame);
  /// What a sample has besides, as BatchTargets::put().
  void put_targets(int64_t row, int64_t index, const Sample& sample, const Frame* frame) {
    targets_.put(row, index, sample, frame);
  }
  /// Takes a sample's file (another buffer is left in its place), whose image, (H, W) in RGB, the decoder
  /// makes.
  void put_encoded(int64_t row, EncodedSample& sample, int64_t height, int64_t width, const Frame& frame);
  /// Queues the decoding and the copy to the device behind the use of the former batch there. `put_decoded`
  /// is asked to put() a row whose file the decoder has refused. Gives the number of images that it decodes.
  int64_t upload(const std::function<void(int64_t row)>& put_decoded);
  /// The batch, made on the calling thread's current stream of the device, which waits for the copy; the host
  /// does not. If it throws, it can be called again.
  Batch finish();

 protected:
  /// The work of begin_once(). Waits until the former batch has been copied away.
  virtual void begin(int64_t rows, const Shape& image);

 private:
  uint8_t* host_bytes() const { return static_cast<uint8_t*>(host_.raw_data()); }
  void put_exact(int64_t row, const detail::SampleView& sample, const Frame& frame);
  void put_resampled(int64_t row, const detail::SampleView& sample, const Frame& frame);
  void write_box(int64_t row, const Frame& frame, int64_t first_row, int64_t first_column);
  void collect_spilled();
  int64_t decode_encoded(const Stream& stream, const std::function<void(int64_t row)>& put_decoded);
  void reserve_device_block(const Stream& stream, size_t bytes);
  Tensor section(size_t offset, const Shape& shape, DType dtype) const;

  const Device device_;
  const TransformSplit& split_;
  ops::ImageOutput output_;
  EncodedRows encoded_;
  BatchTargets targets_;

  std::mutex begin_mutex_;
  int64_t rows_ = 0, channels_ = 0;  // rows: 0 before begin and after finish
  // Bytes from the start of the block to its sections.
  size_t table_at_ = 0;  // windows of crop_images, or extents of resize_images
  size_t boxes_at_ = 0;  // boxes of resize_images
  size_t pixels_at_ = 0;
  std::atomic<size_t> pixel_bytes_ = 0;  // taken so far
  size_t pixels_end_ = 0;                // behind pixels_at_, with those that are decoded on the device
  Tensor host_, device_block_;
  Event copied_;    // host_ may be written again
  Event consumed_;  // device_block_ may be

  std::mutex mutex_;  // guards what follows
  // Pixels for which there was no room, with their offsets among the others; the next block is larger.
  std::vector<std::pair<size_t, std::vector<uint8_t>>> spilled_;
};

}  // namespace sinter::nn::data
