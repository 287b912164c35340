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
  std::shared_ptr<const Dataset> test;  ///< null where there is none, which records alone may lack
  std::string kind;  ///< "idx", "cifar10", "cifar100", "records", "shards" or "image folder"
  /// Images to choose with while training, so that `test` is seen by nobody before the end: `val` where a
  /// folder has both `val` and `test`. Else null.
  std::shared_ptr<const Dataset> validation = {};
};

/// How a folder without test images of its own is divided (see stratified_split).
struct HoldOut {
  double fraction = 0;  ///< of each class, for testing; 0: the folder has test images
  uint64_t seed = 0;
};

struct OpenDatasetOptions {
  HoldOut hold_out = {};
  DecodeOptions decode = {};                ///< of records, shards and image folders
  uint64_t max_idx_values = kIdxMaxValues;  ///< of IDX files (see parse_idx)
};

/// Opens a folder that holds one of
/// - IDX files {train,test|t10k}-images-idx3-ubyte[.gz] and {train,test|t10k}-labels-idx1-ubyte[.gz];
/// - CIFAR-10: data_batch_1.bin ... data_batch_5.bin, test_batch.bin, perhaps batches.meta.txt;
/// - CIFAR-100: train.bin, test.bin, perhaps fine_label_names.txt;
/// - records: train.rec, train.idx and property, perhaps val.rec and val.idx, whose classes are the same, and
///   classes.txt (see open_records). Face data sets have no val.rec: they are tested with pairs of faces none
///   of whom was seen (open_verification_set);
/// - tar shards: `train*.tar` and `test*.tar` or `val*.tar`, or both, perhaps classes.txt (see open_shards);
/// - image folders: `train/<class>/` and `test/<class>/` or `val/<class>/`, or both;
/// - with a share to `hold_out` for testing: shards `train*.tar`, or any `*.tar`, or folders `<class>/` or
///   `train/<class>/`, without images to test on beside them.
/// Throws IoError if it is none of these, or damaged, or has images to test on besides the share.
///
///   DatasetPair data = open_dataset("flowers", {.hold_out = {.fraction = 0.1}});
DatasetPair open_dataset(const std::filesystem::path& folder, const OpenDatasetOptions& options = {});

}  // namespace sinter::nn::data
