// What the tests of jobs share: a step as eager code makes it, and comparisons of bits.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/autograd/backward.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/core/runtime/settings.h>
#include <sinter/nn/job/train_job.h>
#include <sinter/nn/loss/loss.h>
#include <sinter/nn/nn.h>
#include <sinter/ops/copy/copy.h>
#include <sinter/ops/fill/fill.h>

#include "common/deterministic.h"
#include "nn/nn_test_support.h"

namespace sinter::nn::testing {

using test::Deterministic;

/// Devices that are here: the CPU, and the first GPU if there is one. Plans are not timed from then on: tests
/// meet hundreds of shapes once each.
inline std::vector<Device> devices_here() {
  std::vector<Device> devices{Device::cpu()};
  if (is_available(Device::cuda())) {
    devices.push_back(Device::cuda());
    settings::set_autotune(false);
  }
  return devices;
}

inline Tensor labels(int64_t count, int64_t classes, int64_t seed) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < count; ++i) values.push_back((i * 7 + seed * 5 + i * i * 3) % classes);
  return Tensor::from_values(values, {count});
}

inline std::vector<std::byte> bytes_of(const Tensor& tensor) {
  const Tensor host = tensor.detach().to(Device::cpu());
  std::vector<std::byte> bytes(host.spec().bytes());
  if (!bytes.empty()) std::memcpy(bytes.data(), host.raw_data(), bytes.size());
  return bytes;
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.spec().shape == b.spec().shape && a.dtype() == b.dtype() && bytes_of(a) == bytes_of(b);
}

/// Names of what differs between two states.
inline std::string differences(const State& a, const State& b) {
  std::string text;
  for (const auto& [name, value] : a) {
    const auto other = b.find(name);
    if (other == b.end() || !same_bits(value, other->second)) text += name + " ";
  }
  for (const auto& [name, value] : b) {
    if (!a.contains(name)) text += "(" + name + ") ";
  }
  return text;
}

}  // namespace sinter::nn::testing
