// The harness of the GPU benchmarks: what it measures is plausible, what it cannot measure is an error, and
// the GPU is usable afterwards.
#include "common/gpu_bench.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sinter/core/op/node.h>
#include <sinter/core/runtime/backend.h>
#include <sinter/nn/init/init.h>
#include <sinter/ops/binary/binary.h>

#include "common/graph_kernels.h"
#include "common/networks.h"
#include "common/op_profile.h"
#include "common/temporary_folder.h"

namespace sinter::bench {
namespace {

class GpuBench : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!is_available(gpu())) GTEST_SKIP() << "no GPU";
  }

  const NoGrad no_grad_;
};

TEST_F(GpuBench, NormalTensorsHaveTheirMoments) {
  const std::vector<float> values = normal_tensor({3, 1 << 20}, DType::kFloat32).to_vector<float>();
  double sum = 0, squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  const auto count = static_cast<double>(values.size());
  EXPECT_NEAR(sum / count, 0.0, 0.01);
  EXPECT_NEAR(squares / count, 1.0, 0.01);
  EXPECT_EQ(normal_tensor({0, 5}, DType::kFloat16).numel(), 0);
}

TEST_F(GpuBench, MoreBytesTakeLonger) {
  const double small = copy_us(size_t{8} << 20), large = copy_us(size_t{256} << 20);
  EXPECT_GT(small, 0.5);
  EXPECT_GT(large, 4 * small);
  // Reads two thirds more than a copy of one of the tensors, so it cannot be faster.
  const Tensor a = normal_tensor({1 << 25}), b = normal_tensor({1 << 25}, DType::kFloat32, 2);
  EXPECT_GT(time_cold([&] { ops::add(a, b); }), copy_us(a.spec().bytes()));
}

TEST_F(GpuBench, WhatCannotBeCapturedIsAnError) {
  const Tensor a = normal_tensor({16});
  EXPECT_THROW(time_cold([&] { ops::add(a, a).to_vector<float>(); }), DeviceError);
  EXPECT_THROW(time_cold([] {}), DeviceError);
  EXPECT_THROW(time_cold([] { throw InvalidArgument("mine"); }), InvalidArgument);  // before the capture
  EXPECT_GT(time_cold([&] { ops::add(a, a); }), 0.0);
  EXPECT_EQ(ops::add(a, a).to_vector<float>()[0], 2 * a.to_vector<float>()[0]);
}

TEST_F(GpuBench, NamesTheKernelsOfACall) {
  const Tensor a = normal_tensor({1 << 20});
  ops::add(a, a);
  const std::string names = captured_kernels([&] {
    ops::add(a, a);
    ops::add(a, a);
  });
  EXPECT_NE(names.find("; "), std::string::npos) << names;
  EXPECT_EQ(names.find("sinter"), std::string::npos) << names;
  EXPECT_FALSE(names.starts_with("kernel")) << names;
}

TEST(GraphKernels, NamesAreShort) {
  EXPECT_EQ(short_kernel_name(
                "void sinter::ops::(anonymous namespace)::add<float, (sinter::Layout)0, F<2> >(float*)"),
            "add<float, (Layout)0, F<2> >");
  EXPECT_EQ(short_kernel_name("sm90_gemm_tn"), "sm90_gemm_tn");
}

TEST_F(GpuBench, TimesOfHostAndStream) {
  const Tensor large = normal_tensor({1 << 27}), tiny = normal_tensor({16});
  const double copied = copy_us(large.spec().bytes());
  EXPECT_GT(time_stream([&] { ops::add(large, large); }, 3, 3), 0.9 * copied);
  EXPECT_LT(host_us_per_call([&] { ops::add(large, large); }, 3, 3), 0.9 * copied);
  EXPECT_GT(host_us_per_call([&] { ops::add(tiny, tiny); }), 0.1);
}

TEST_F(GpuBench, ProfilesByOpAndShape) {
  const Tensor a = normal_tensor({1 << 20}), b = normal_tensor({8});
  const std::string table = profile_ops([&] {
    ops::add(a, a);
    ops::add(b, b);
  });
  EXPECT_NE(table.find("2 op calls"), std::string::npos) << table;
  EXPECT_NE(table.find("add: float32 (8,), float32 (8,) -> float32 (8,)"), std::string::npos) << table;
}

TEST_F(GpuBench, ReportsRowsAsJson) {
  const sinter::testing::TemporaryFolder folder;
  const std::filesystem::path file = folder / "rows.json";
  Report report({.json = file, .filter = "float16 NHWC", .quick = false});
  EXPECT_TRUE(report.wants("prelu", "forward (2,3)", "float16", "NHWC"));
  EXPECT_FALSE(report.wants("prelu", "forward (2,3)", "float16", "NCHW"));
  Report two({.filter = "float16 NHWC|float32", .seconds = 60});
  EXPECT_TRUE(two.wants("prelu", "forward (2,3)", "float32", "NCHW"));
  EXPECT_FALSE(two.wants("prelu", "forward (2,3)", "float16", "NCHW"));
  Report late({.seconds = 1e-9});
  EXPECT_FALSE(late.wants("prelu", "forward (2,3)"));
  EXPECT_THROW(report.add({.suite = "prelu", .name = "nothing measured"}), InvalidArgument);
  const double ceiling = copy_us(1 << 20);
  report.add({.suite = "prelu",
              .name = "forward (2,3)",
              .dtype = "float16",
              .layout = "NHWC",
              .us = 2 * ceiling,
              .minimum_bytes = 2 << 20,
              .target_share = 0.6,
              .peers_us = {{"cudnn", 6 * ceiling}},
              .target_speedup = {{"cudnn", 2.0}},
              .target_latency = 0.8});
  const auto json = nlohmann::json::parse(std::ifstream(file));
  EXPECT_FALSE(json["gpu"].get<std::string>().empty());
  ASSERT_EQ(json["rows"].size(), 1u);
  const auto& row = json["rows"][0];
  EXPECT_EQ(row["case"], "forward (2,3)");
  EXPECT_NEAR(row["share_of_copy"], 0.5, 1e-4);
  EXPECT_EQ(row["target"]["speedup"]["cudnn"], 2.0);
  EXPECT_EQ(row["target"]["latency"], 0.8);
  EXPECT_EQ(row["met"], false);
  EXPECT_EQ(json["date"].get<std::string>().size(), 10u);
  EXPECT_THROW(report.write_json(folder / "missing/rows.json"), IoError);
}

/// The networks that cases.json lists are known, or reading it throws, and those that are written in
/// common/networks.cpp have as many parameters as in peers/torch_models.py and a finite loss.
TEST(BenchNetworks, AreThoseOfThePeers) {
  std::map<std::string, NetworkCase> networks;
  for (const char* suite : {"train_step", "scaling"}) {
    for (const NetworkCase& problem : network_cases(suite)) networks.emplace(problem.network, problem);
  }
  for (const NetworkCase& problem : infer_cases().cases) networks.emplace(problem.network, problem);
  const std::map<std::string, int64_t> own = {
      {"vgg16", 33'638'218}, {"vgg16_prelu", 14'728'266}, {"unet", 31'038'218}};
  size_t seen = 0;
  const NoGrad no_grad;
  for (auto& [name, problem] : networks) {
    problem.batch = 1;
    problem.classes = 10;
    if (problem.task != Task::kFaces) problem.size = 32;
    const auto parameters = own.find(name);
    if (parameters == own.end()) continue;
    ++seen;
    const auto network = make_trained(problem);
    network->eval();
    network->to(Layout::kNHWC);
    int64_t count = 0;
    for (const nn::Parameter& parameter : network->parameters()) count += parameter.tensor().numel();
    EXPECT_EQ(count, parameters->second) << name;
    const Tensor images = nn::init::normal({1, problem.size, problem.size, 3}, 0.0, 1.0, default_generator());
    EXPECT_TRUE(std::isfinite((*network)(images, make_labels(problem, Device::cpu())).item())) << name;
  }
  EXPECT_EQ(seen, own.size());
}

}  // namespace
}  // namespace sinter::bench
