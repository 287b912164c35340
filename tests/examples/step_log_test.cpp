// What is logged between the ends of epochs: means over the steps in between, each once.
#include "run/step_log.h"

#include <cmath>

#include <gtest/gtest.h>

#include <sinter/core/tensor/tensor.h>
#include <sinter/nn/log/run_log.h>
#include <sinter/nn/log/scalars.h>

#include "common/temporary_folder.h"

namespace {

using namespace sinter;
using examples::StepLog;
using examples::StepSums;
using sinter::testing::TemporaryFolder;

std::vector<nn::ScalarRecord> logged(nn::RunLog& log) {
  log.flush();
  return nn::read_scalars(log.folder() / nn::RunLog::kJsonName);
}

/// The log takes all.
StepLog::Sink into(nn::RunLog& log) {
  return [&log](int64_t step, std::vector<std::pair<std::string, double>> values) {
    log.scalars(step, std::move(values));
  };
}

TEST(StepLog, LogsMeansSinceTheLastRecord) {
  const TemporaryFolder folder;
  nn::RunLog log(folder.path(), {.tensorboard = false});
  nn::TensorMean loss;
  loss.add(Tensor::scalar(100.0f), 10);  // of the part of the epoch before a resume
  StepSums sums{.images = 10, .seconds = 5.0, .wait_seconds = 5.0};
  StepLog steps(into(log), 2, sums, loss);
  for (int64_t step = 1; step <= 5; ++step) {
    loss.add(Tensor::scalar(static_cast<float>(step)), 10);
    sums.images += 10;
    sums.seconds += 0.5;
    sums.wait_seconds += step <= 2 ? 0.0 : 0.25;
    steps.after_step(step, 0.1 * static_cast<double>(step), sums, loss);
  }
  steps.finish();
  const std::vector<nn::ScalarRecord> records = logged(log);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].step, 2);
  EXPECT_EQ(records[0].values[0].first, "train/loss");
  EXPECT_DOUBLE_EQ(records[0].values[0].second, 1.5);
  EXPECT_DOUBLE_EQ(records[0].values[1].second, 0.2);
  EXPECT_DOUBLE_EQ(records[0].values[2].second, 20.0) << "images per second";
  EXPECT_DOUBLE_EQ(records[0].values[3].second, 0.0);
  EXPECT_EQ(records[1].step, 4);
  EXPECT_DOUBLE_EQ(records[1].values[0].second, 3.5);
  EXPECT_EQ(records[1].values[3].first, "train/data_wait_share");
  EXPECT_DOUBLE_EQ(records[1].values[3].second, 0.5);
}

TEST(StepLog, StepsWithoutAFiniteLossHaveNone) {
  const TemporaryFolder folder;
  nn::RunLog log(folder.path(), {.tensorboard = false});
  nn::TensorMean loss;
  StepLog steps(into(log), 1, {}, loss);
  for (const float value : {1.0f, static_cast<float>(INFINITY), 3.0f}) {
    loss.add(Tensor::scalar(value));
    steps.after_step(loss.read().values, 0.1, {}, loss);
  }
  steps.finish();
  const std::vector<nn::ScalarRecord> records = logged(log);
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].values[0].second, 1.0);
  EXPECT_TRUE(std::isnan(records[1].values[0].second));
  EXPECT_EQ(records[2].values[0].second, 3.0);
}

TEST(StepLog, WhatLedToAnErrorIsLogged) {
  const TemporaryFolder folder;
  nn::RunLog log(folder.path(), {.tensorboard = false});
  nn::TensorMean loss;
  {
    StepLog steps(into(log), 1, {}, loss);
    loss.add(Tensor::scalar(1.0f));
    steps.after_step(1, 0.1, {}, loss);
    EXPECT_TRUE(logged(log).empty()) << "read from the device only when it has arrived";
  }
  EXPECT_EQ(logged(log).size(), 1u);
}

}  // namespace
