// Tensors and checkpoints for the tests of this folder, and comparisons of them.
#pragma once

#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include <sinter/core/runtime/random.h>
#include <sinter/nn/checkpoint/checkpoint.h>

#include "common/error_message.h"

namespace sinter::testing {

/// A tensor of random bytes (0 or 1 for bools), so that every bit pattern occurs, NaNs too.
inline Tensor random_tensor(const Shape& shape, DType dtype, uint64_t seed) {
  Tensor tensor = Tensor::empty(shape, dtype);
  Generator generator(seed);
  auto* bytes = static_cast<uint8_t*>(tensor.raw_data());
  for (size_t i = 0; i < tensor.spec().bytes(); ++i) {
    bytes[i] = static_cast<uint8_t>(generator.word() & (dtype == DType::kBool ? 1u : 0xFFu));
  }
  return tensor;
}

inline void expect_same(const nn::NamedTensors& actual, const nn::NamedTensors& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(actual.contains(name)) << name;
    const Tensor& other = actual.at(name);
    ASSERT_EQ(other.spec(), tensor.spec()) << name;
    if (tensor.numel() == 0) continue;
    EXPECT_EQ(std::memcmp(other.raw_data(), tensor.raw_data(), tensor.spec().bytes()), 0) << name;
  }
}

inline void expect_same(const nn::CheckpointData& actual, const nn::CheckpointData& expected) {
  EXPECT_EQ(actual.values, expected.values);
  ASSERT_EQ(actual.tensors.size(), expected.tensors.size());
  for (const auto& [part, tensors] : expected.tensors) {
    ASSERT_TRUE(actual.tensors.contains(part)) << part;
    expect_same(actual.tensors.at(part), tensors);
  }
}

/// A small checkpoint whose every part depends on `step`.
inline nn::CheckpointData make_checkpoint(int64_t step) {
  const auto seed = static_cast<uint64_t>(step) * 10;
  nn::CheckpointData data;
  data.tensors["model"]["conv1.weight"] = random_tensor({4, 3, 3, 3}, DType::kFloat32, seed);
  data.tensors["model"]["bn1.num_batches_tracked"] = random_tensor({}, DType::kInt64, seed + 1);
  data.tensors["optimiser"]["conv1.weight.momentum"] = random_tensor({4, 3, 3, 3}, DType::kFloat32, seed + 2);
  data.values["step"] = step;
  data.values["schedule"] = std::string("cosine");
  data.values["loss"] = 1.0 / static_cast<double>(step + 3);
  return data;
}

using test::message_of;

}  // namespace sinter::testing
