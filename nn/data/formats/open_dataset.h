// One door to the data sets that the trainers know: what a folder holds is told by its files.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include <sinter/nn/data/dataset.h>
#include <sinter/nn/data/formats/idx.h>
#include <sinter/nn/data/image/jpeg.h>

namespace sinter::nn::data {

struct DatasetPair {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> test;
  std::string kind;  ///< "idx", "cifar10", "cifar100" or "image folder"
};

/// Opens a folder that holds one of
/// - IDX files {train,test|t10k}-images-idx3-ubyte[.gz] and {train,test|t10k}-labels-idx1-ubyte[.gz];
/// - CIFAR-10: data_batch_1.bin ... data_batch_5.bin, test_batch.bin, perhaps batches.meta.txt;
/// - CIFAR-100: train.bin, test.bin, perhaps fine_label_names.txt;
/// - image folders: train/<class>/ and test/<class>/ or val/<class>/.
/// `decode` concerns image folders only, `max_idx_values` IDX files (see parse_idx). Throws IoError if it is
/// none of these, or damaged.
DatasetPair open_dataset(const std::filesystem::path& folder, const DecodeOptions& decode = {},
                         uint64_t max_idx_values = kIdxMaxValues);

}  // namespace sinter::nn::data
