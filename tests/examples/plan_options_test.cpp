// What --plan, --for and --batch auto take, and the search for the batch that fits.
#include "trainer/plan_options.h"

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <sinter/core/base/error.h>

#include "train_resnet/options.h"
#include "trainer/trainer_plan.h"

namespace sinter::examples {
namespace {

TEST(PlanOptions, BytesHaveAUnit) {
  EXPECT_EQ(parse_bytes("80GiB"), size_t{80} << 30);
  EXPECT_EQ(parse_bytes("0.5GiB"), size_t{512} << 20);
  EXPECT_EQ(parse_bytes("512MiB"), size_t{512} << 20);
  for (const char* text :
       {"", "80", "80GB", "80 GiB", "-1GiB", "0GiB", "GiB", "nanGiB", "infGiB", "1e3GiB", "80GiBs"})
    EXPECT_FALSE(parse_bytes(text)) << text;
  EXPECT_EQ(bytes_text(size_t{3} << 29), "1.50 GiB");
  EXPECT_EQ(bytes_text(size_t{1} << 19), "0.5 MiB");
}

/// What is refused of a command line; empty if nothing is.
std::string refused(std::vector<std::string> words) {
  words.insert(words.begin(), "train_resnet");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  train_resnet::Options options;
  testing::internal::CaptureStderr();
  const auto code = train_resnet::parse_options(static_cast<int>(argv.size()), argv.data(), options);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(code.has_value(), !said.empty());
  return said;
}

TEST(PlanOptions, RefuseWhatDoesNotGoTogether) {
  EXPECT_EQ(refused({"--plan"}), "");
  EXPECT_EQ(refused({"--plan", "--for", "80GiB"}), "");
  EXPECT_EQ(refused({"--batch", "auto", "--for", "1GiB"}), "");
  EXPECT_EQ(refused({"--batch", "64"}), "");
  for (const auto& [words, text] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--for", "80GiB"}, "--for needs --plan or --batch auto"},
           {{"--plan", "--for", "80"}, "expected bytes as in 80GiB or 512MiB but got '80'"},
           {{"--plan", "--eager"}, "--plan is of jobs: leave --eager out"},
           {{"--batch", "auto", "--eager"}, "--batch auto is of jobs: leave --eager out"},
           {{"--plan", "--evaluate", "--load-weights", "w.pth"},
            "--plan is of training: leave --evaluate out"},
           {{"--batch", "many"}, "many"},
           {{"--batch", "0"}, "--batch"}})
    EXPECT_NE(refused(words).find(text), std::string::npos) << text << ": " << refused(words);
}

TEST(PlanOptions, TheBatchOfACheckpointGoesBeforeAuto) {
  std::vector<std::string> words = {"train_resnet", "--checkpoints", "run1", "--resume", "--batch", "auto"};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  train_resnet::Options options;
  ASSERT_FALSE(train_resnet::parse_options(static_cast<int>(argv.size()), argv.data(), options));
  EXPECT_TRUE(options.batch_auto);
  train_resnet::adopt({{"--batch", "96"}}, options);
  EXPECT_FALSE(options.batch_auto);
  EXPECT_EQ(options.batch, 96);
}

TEST(LargestFitting, IsExactAndAsksSeldom) {
  for (const double each : {3.0, 100.0, 1e6}) {
    for (const double power : {1.0, 1.1, 0.9}) {
      for (const int64_t most : {1, 2, 7, 1000, 1'000'000}) {
        for (const size_t room : {size_t{10}, size_t{1} << 20, size_t{1} << 34}) {
          const auto bytes = [&](int64_t n) {
            return static_cast<size_t>(5 + each * std::pow(static_cast<double>(n), power));
          };
          int64_t asked = 0;
          const int64_t found = largest_fitting(most, room, [&](int64_t n) {
            EXPECT_LE(n, most);
            ++asked;
            return bytes(n);
          });
          if (found > 0) {
            EXPECT_LE(bytes(found), room);
          }
          if (found < most) {
            EXPECT_GT(bytes(found + 1), room);
          }
          EXPECT_LE(asked, 10) << each << " " << power << " " << most << " " << room;
        }
      }
    }
  }
  EXPECT_EQ(largest_fitting(0, 100, [](int64_t) { return size_t{1}; }), 0);
}

}  // namespace
}  // namespace sinter::examples
