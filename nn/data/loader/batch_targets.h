// What a batch has besides images and labels, on its way from samples to the device: masks, boxes, values.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <sinter/core/runtime/backend.h>
#include <sinter/core/tensor/tensor.h>
#include <sinter/nn/data/data_loader.h>

namespace sinter::nn::data {

/// Used for one batch after another. Costs nothing where samples have no such things. put() may be called by
/// several threads at once, for different rows.
class BatchTargets {
 public:
  explicit BatchTargets(Device device) : device_(device) {}

  void begin(int64_t rows);
  /// Takes what a sample, number `index` of the data set, has: its mask as `frame` shows it, or as it is
  /// without one; its boxes likewise. Throws InvalidArgument unless it goes with the batch's other samples.
  void put(int64_t row, int64_t index, const Sample& sample, const Frame* frame);
  /// Queues the copies to the device. Throws InvalidArgument if a row lacks what others have.
  void upload(const Stream& stream);
  /// Hands all over, for use on the current stream `stream`, behind whose back nothing is written any more.
  void finish(const Stream& stream, Batch& batch);

 private:
  struct Stack {
    Tensor tensor;                // on the host, then on the device; undefined: no row has one
    std::vector<uint8_t> is_put;  // a byte for each row
  };
  void put_mask(int64_t row, int64_t index, const Image& mask, const Frame* frame);
  Stack& begin_row(Stack& stack, const std::string& what, const TensorSpec& row, int64_t at, int64_t index);
  void check_rows(const Stack& stack, const std::string& what) const;
  BoxBatch gather_boxes() const;
  void move_to_device(Tensor& tensor, const Stream& stream) const;

  const Device device_;
  int64_t rows_ = 0;
  std::mutex mutex_;  // guards which stacks there are; rows of them are their writers'
  Stack masks_;       // int64 on the CPU; for other devices uint8 until they are there
  std::map<std::string, Stack> values_;
  std::vector<std::vector<ObjectBox>> boxes_;  // of every row; none at all if no row has one
  BoxBatch gathered_;
};

}  // namespace sinter::nn::data
