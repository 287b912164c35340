// The binary files of CIFAR-10 and CIFAR-100: records of label bytes and a planar 32x32 RGB image.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <sinter/nn/data/dataset.h>

namespace sinter::nn::data {

enum class CifarKind {
  kCifar10,         ///< records of 3,073 bytes: label, 1,024 red, 1,024 green, 1,024 blue
  kCifar100,        ///< records of 3,074 bytes: coarse label, fine label, pixels; the class is the fine label
  kCifar100Coarse,  ///< the same records; the class is the coarse label, one of 20
};

/// Reads the records of one or several files, in order, with planes interleaved to RGB. The classes are named
/// as `class_names` says, else by number. Throws IoError unless a file's size is a multiple of the record's,
/// is not empty, and each label is in range. Source: A. Krizhevsky, "Learning multiple layers of features
/// from tiny images", 2009.
std::shared_ptr<const MemoryDataset> open_cifar(const std::vector<std::filesystem::path>& files,
                                                CifarKind kind, std::vector<std::string> class_names = {});

/// Appends the records in `bytes` to `content`; `name` is the file's, for messages. Throws as open_cifar
/// does.
void parse_cifar(std::span<const uint8_t> bytes, CifarKind kind, const std::string& name,
                 MemoryDataset::Content& content);

}  // namespace sinter::nn::data
