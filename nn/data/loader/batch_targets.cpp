#include <algorithm>
#include <cstring>

#include <sinter/core/base/error.h>
#include <sinter/core/tensor/transfer.h>
#include <sinter/nn/data/loader/batch_targets.h>
#include <sinter/ops/cast/cast.h>

namespace sinter::nn::data {

void BatchTargets::begin(int64_t rows) {
  rows_ = rows;
  masks_ = {};
  values_.clear();
  boxes_.clear();
  gathered_ = {};
}

// The stack, made for rows of this kind if this is the first.
BatchTargets::Stack& BatchTargets::begin_row(Stack& stack, const std::string& what, const TensorSpec& row,
                                             int64_t at, int64_t index) {
  if (!stack.tensor.defined()) {
    stack.tensor = Tensor::empty_pinned(row.shape.inserted(0, rows_), row.dtype, device_);
    stack.is_put.assign(static_cast<size_t>(rows_), 0);
  }
  const TensorSpec other{stack.tensor.shape().without(0), stack.tensor.dtype(), Device::cpu()};
  SINTER_CHECK(row == other,
               "[data_loader] expected {} of all samples of a batch to be {} but that of sample {} is {}",
               what, to_string(other), index, to_string(row));
  stack.is_put[static_cast<size_t>(at)] = 1;
  return stack;
}

void BatchTargets::put_mask(int64_t row, int64_t index, const Image& mask, const Frame* frame) {
  const int64_t height = frame != nullptr ? frame->height() : mask.height;
  const int64_t width = frame != nullptr ? frame->width() : mask.width;
  const DType dtype = device_.is_cpu() ? DType::kInt64 : DType::kUInt8;
  Tensor tensor;
  {
    const std::lock_guard lock(mutex_);
    tensor = begin_row(masks_, "the masks", {{height, width}, dtype, Device::cpu()}, row, index).tensor;
  }
  const auto write = [&](auto* masks) {
    auto* const to = masks + row * height * width;
    if (frame != nullptr) {
      show_mask(*frame, mask, to);
    } else {
      std::ranges::copy(mask.pixels, to);
    }
  };
  device_.is_cpu() ? write(tensor.data<int64_t>()) : write(tensor.data<uint8_t>());
}

void BatchTargets::put(int64_t row, int64_t index, const Sample& sample, const Frame* frame) {
  const auto at = static_cast<size_t>(row);
  if (!sample.boxes.empty()) {
    std::vector<ObjectBox> boxes = sample.boxes;
    if (frame != nullptr) show_boxes(*frame, boxes);
    const std::lock_guard lock(mutex_);
    boxes_.resize(static_cast<size_t>(rows_));
    boxes_[at].swap(boxes);
  }
  if (sample.mask.height > 0) put_mask(row, index, sample.mask, frame);
  for (const auto& [name, value] : sample.values) {
    SINTER_CHECK(value.defined() && value.device().is_cpu(),
                 "[data_loader] expected values on the CPU but {} of sample {} is {}", name, index,
                 value.defined() ? to_string(value.spec()) : "undefined");
    void* to = nullptr;
    {
      const std::lock_guard lock(mutex_);
      const Stack& stack = begin_row(values_[name], name, value.spec(), row, index);
      to = static_cast<std::byte*>(stack.tensor.raw_data()) + at * value.spec().bytes();
    }
    std::memcpy(to, value.raw_data(), value.spec().bytes());
  }
}

void BatchTargets::check_rows(const Stack& stack, const std::string& what) const {
  const auto missing = std::ranges::find(stack.is_put, 0);
  SINTER_CHECK(missing == stack.is_put.end(),
               "[data_loader] expected {} for all samples of a batch or for none but row {} of {} has none",
               what, missing - stack.is_put.begin(), rows_);
}

BoxBatch BatchTargets::gather_boxes() const {
  std::vector<float> edges;
  std::vector<int64_t> labels, images;
  for (size_t row = 0; row < boxes_.size(); ++row) {
    for (const ObjectBox& box : boxes_[row]) {
      for (const double edge : {box.top, box.left, box.height, box.width})
        edges.push_back(static_cast<float>(edge));
      labels.push_back(box.label);
      images.push_back(static_cast<int64_t>(row));
    }
  }
  const auto count = static_cast<int64_t>(labels.size());
  const auto pinned = [this]<class T>(const std::vector<T>& values, const Shape& shape) {
    const Tensor tensor = Tensor::empty_pinned(shape, dtype_of<T>, device_);
    if (!values.empty()) std::memcpy(tensor.raw_data(), values.data(), values.size() * sizeof(T));
    return tensor;
  };
  return {pinned(edges, {count, 4}), pinned(labels, {count}), pinned(images, {count})};
}

void BatchTargets::move_to_device(Tensor& tensor, const Stream& stream) const {
  if (!tensor.defined() || device_.is_cpu()) return;
  const StreamGuard guard(stream);
  const Tensor there = Tensor::empty(tensor.shape(), tensor.dtype(), device_);
  if (tensor.numel() > 0) copy_async(there, tensor, stream);
  tensor = there;
}

void BatchTargets::upload(const Stream& stream) {
  check_rows(masks_, "a mask");
  for (const auto& [name, stack] : values_) check_rows(stack, "a value " + name);
  gathered_ = gather_boxes();
  for (Tensor* const part : {&masks_.tensor, &gathered_.boxes, &gathered_.labels, &gathered_.images})
    move_to_device(*part, stream);
  for (auto& [name, stack] : values_) move_to_device(stack.tensor, stream);
}

void BatchTargets::finish(const Stream& stream, Batch& batch) {
  const auto take = [&](const Tensor& tensor) {
    if (!device_.is_cpu() && tensor.numel() > 0) tensor.storage()->record_stream(stream);
    return tensor;
  };
  if (masks_.tensor.defined()) batch.masks = ops::cast(take(masks_.tensor), DType::kInt64);
  batch.boxes = {take(gathered_.boxes), take(gathered_.labels), take(gathered_.images)};
  for (const auto& [name, stack] : values_) batch.values[name] = take(stack.tensor);
}

}  // namespace sinter::nn::data
