// Profiles on a GPU: rates that its hardware allows, and traces of its streams.
#include <cmath>
#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sinter/core/profile/profile.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/ops/fill/fill.h>
#include <sinter/ops/matmul/matmul.h>
#include <sinter/ops/unary/unary.h>

#include "common/temporary_folder.h"

namespace sinter::ops {
namespace {

using testing::read_file;
using testing::TemporaryFolder;

bool has_gpu() {
  return is_available(Device::cuda());
}

TEST(GpuProfile, ComparesWithCopiesOfTheSameBytes) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  const Tensor large = full({64 << 20}, 1.0, DType::kFloat32, Device::cuda());
  neg(large);  // what is done at the first call only
  synchronize(Device::cuda());
  const MemoryPool& pool = backend_of(Device::cuda()).memory_pool(0);
  OpProfile profile;
  for (int i = 0; i < 20; ++i) neg(large);
  profile.stop();
  const size_t peak = pool.stats().peak_live_bytes;
  const auto rows = profile.rows();
  EXPECT_EQ(pool.stats().peak_live_bytes, peak);  // what is copied is not the program's memory
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].bytes, 20 * 2 * 0x1p28);
  // An op that reads and writes as much as a copy takes about as long.
  EXPECT_GT(rows[0].copy_share(), 0.6) << profile.table();
  EXPECT_LT(rows[0].copy_share(), 1.5) << profile.table();
}

TEST(GpuProfile, CountsOperationsPerSecond) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  const Tensor a = full({4096, 4096}, 1.0, DType::kFloat16, Device::cuda());
  matmul(a, a);
  synchronize(Device::cuda());
  OpProfile profile;
  for (int i = 0; i < 20; ++i) matmul(a, a);
  profile.stop();
  const auto rows = profile.rows();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].flops, 20 * 2 * std::pow(4096.0, 3));
  EXPECT_GT(rows[0].teraflops(), 1.0) << profile.table();
  EXPECT_LT(rows[0].teraflops(), 10'000.0) << profile.table();
}

TEST(GpuProfile, TracesStreamsInTheirOrder) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  const TemporaryFolder folder;
  const Tensor x = full({1 << 20}, 1.0, DType::kFloat32, Device::cuda());
  const Stream other = backend_of(Device::cuda()).create_stream(0);
  synchronize(Device::cuda());
  OpProfile profile({.timeline = 1000});
  for (int i = 0; i < 50; ++i) {
    neg(x);
    const StreamGuard guard(other);
    neg(neg(x));
  }
  profile.stop();
  profile.write_trace(folder / "trace.json");
  const auto trace = nlohmann::json::parse(read_file(folder / "trace.json"));
  std::map<uint64_t, int> calls;
  std::map<uint64_t, int64_t> ends;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const auto stream = event.at("tid").get<uint64_t>();
    const int64_t start = std::llround(1000.0 * event.at("ts").get<double>());
    EXPECT_GE(start, ends[stream]);
    ends[stream] = start + std::llround(1000.0 * event.at("dur").get<double>());
    ++calls[stream];
  }
  EXPECT_EQ(calls, (std::map<uint64_t, int>{{0, 50}, {1, 100}}));
}

}  // namespace
}  // namespace sinter::ops
