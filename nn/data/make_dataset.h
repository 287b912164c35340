// Data sets of a function or of tensors, without a class of one's own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include <sinter/nn/data/dataset.h>

namespace sinter::nn::data {

/// `size` samples that a function gives, which is called from several threads at once:
///
///     DatasetPtr data = make_dataset(files.size(), [=](int64_t i) {
///       return Sample{.image = read_image(pictures / files[i]), .mask = read_mask(masks / files[i])};
///     });
///
/// What it throws ends the epoch, but for IoError, which is a damaged sample. Throws InvalidArgument for a
/// negative size.
DatasetPtr make_dataset(int64_t size, std::function<Sample(int64_t index)> read);

/// The same with what a decoder may leave out, for read_image(path, {}, hint): photographs that will be
/// cropped or shrunk are then read faster. Only where the loader's transforms get the image as it is read.
DatasetPtr make_dataset(int64_t size,
                        std::function<Sample(int64_t index, const DecodeHintFunction& hint)> read);

/// Row i of every tensor is a value of sample i: `tensor_dataset({{"x", x}, {"y", y}})` gives batches with
/// batch["x"] and batch["y"]. torch's TensorDataset. Throws InvalidArgument unless there are tensors, all on
/// the CPU, and all have as many rows.
DatasetPtr tensor_dataset(std::map<std::string, Tensor> fields);

}  // namespace sinter::nn::data
