// TensorBoard's event files: checksums, frames and messages.
#include <cmath>
#include <limits>

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
