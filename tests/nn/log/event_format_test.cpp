// TensorBoard's event files: checksums, frames and messages.
#include <cmath>
#include <limits>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <sinter/nn/log/event_format.h>

#include "nn/log/event_reader.h"

namespace sinter::nn {
namespace {

TEST(EventFormat, ChecksumsAreThoseOfTheStandard) {
  // RFC 3720, appendix B.4, and the check value of catalogues of CRCs.
  std::string rising, falling;
  for (int i = 0; i < 32; ++i) {
    rising.push_back(static_cast<char>(i));
    falling.push_back(static_cast<char>(31 - i));
  }
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c(rising), 0x46dd794eu);
  EXPECT_EQ(crc32c(falling), 0x113fdb5cu);
  EXPECT_EQ(crc32c("123456789"), test::slow_crc32c("123456789"));
}

TEST(EventFormat, WhatIsWrittenIsReadBack) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::string long_tag(300, 'x');  // whose length takes two bytes
  const std::string file =
      event_record(version_event(1.5)) + event_record(start_event(2.5, 301)) +
      event_record(scalar_event({.step = 0, .time = 3.5, .values = {{"a", 0.25}}})) +
      event_record(scalar_event({.step = int64_t{1} << 62,
                                 .time = 4.5,
                                 .values = {{"train/loss", -1e-3},
                                            {long_tag, std::numeric_limits<double>::infinity()},
                                            {"größe", std::nan("")}}}));
  const std::vector<test::ReadEvent> events = test::read_events(file);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_EQ(events[0].time, 1.5);
  EXPECT_TRUE(events[1].starts);
  EXPECT_EQ(events[1].step, 301);
  EXPECT_EQ(events[2].step, 0);
  EXPECT_EQ(events[2].time, 3.5);
  ASSERT_EQ(events[2].values.size(), 1u);
  EXPECT_EQ(events[2].values[0], std::pair(std::string("a"), 0.25f));
  EXPECT_EQ(events[3].step, int64_t{1} << 62);
  ASSERT_EQ(events[3].values.size(), 3u);
  EXPECT_EQ(events[3].values[0], std::pair(std::string("train/loss"), -1e-3f));
  EXPECT_EQ(events[3].values[1], std::pair(long_tag, infinity));
  EXPECT_EQ(events[3].values[2].first, "größe");
  EXPECT_TRUE(std::isnan(events[3].values[2].second));
}

std::string hex_of(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

// The bytes that TensorBoard 2.21 gives for the same:
// event_pb2.Event(...).SerializeToString(deterministic=True) of tensorboard.compat.proto and
// tensorboard.plugins.hparams.plugin_data_pb2.
TEST(EventFormat, PicturesAndHyperParametersAreTensorBoardsBytes) {
  EXPECT_EQ(hex_of(image_event({.step = 7,
                                .time = 2.5,
                                .tag = "mistakes/01",
                                .height = 3,
                                .width = 2,
                                .channels = 1,
                                .png = "png"})),
            "09000000000000044010072a1c0a1a0a0b6d697374616b65732f3031220b0803100218012203706e"
            "67");
  EXPECT_EQ(hex_of(hyper_parameters_event(1.5, {{"lr", 0.25}, {"flip", false}, {"model", "resnet20"}})),
            "09000000000000f83f2a6c0a6a0a1c5f68706172616d735f2f73657373696f6e5f73746172745f69"
            "6e666f4a4a0a480a0768706172616d73123d1a3b0a0a0a04666c6970120220000a0f0a026c721209"
            "11000000000000d03f0a130a056d6f64656c120a1a087265736e6574323029000000000000f83f");
}

TEST(EventFormat, TheReaderOfTheseTestsSeesDamage) {
  const std::string file = event_record(version_event(1.5));
  for (size_t i = 0; i < file.size(); ++i) {
    std::string damaged = file;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_ANY_THROW(test::read_events(damaged)) << "byte " << i;
  }
}

}  // namespace
}  // namespace sinter::nn
