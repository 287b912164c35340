// Shapes, dtypes, devices, 16-bit floats, small arrays and error texts.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include <sinter/core/base/device.h>
#include <sinter/core/base/dtype.h>
#include <sinter/core/base/log.h>
#include <sinter/core/base/shape.h>
#include <sinter/core/base/small_array.h>

#include "common/error_message.h"

namespace sinter {
namespace {

using test::message_of;

TEST(ShapeTest, CountsAndPrints) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.numel(), 24);
  EXPECT_EQ(shape[-1], 4);
  EXPECT_EQ(shape.stride(0), 12);
  EXPECT_EQ(shape.count(0, 2), 6);
  EXPECT_EQ(to_string(shape), "(2, 3, 4)");
  EXPECT_EQ(to_string(Shape{5}), "(5,)");
  EXPECT_EQ(to_string(Shape{}), "()");
  EXPECT_EQ(Shape{}.numel(), 1);
  EXPECT_EQ((Shape{3, 0, 2}.numel()), 0);
  EXPECT_EQ(shape.without(1), (Shape{2, 4}));
  EXPECT_EQ(shape.with(1, 7), (Shape{2, 7, 4}));
  EXPECT_EQ(shape.inserted(3, 9), (Shape{2, 3, 4, 9}));
}

TEST(ShapeTest, RefusesWhatCannotBe) {
  EXPECT_EQ(message_of([] { Shape{2, -1}; }), "[shape] expected extents >= 0 but axis 1 has -1");
  EXPECT_EQ(message_of([] { Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}; }),
            "[shape] expected at most 8 axes but got 9");
  const int64_t big = int64_t{1} << 40;
  EXPECT_EQ(message_of([&] { Shape{big, big}; }), "[shape] the number of elements exceeds 2^59");
  EXPECT_EQ(message_of([&] { Shape{big, big, 0}; }), "[shape] the number of elements exceeds 2^59");
  EXPECT_EQ(message_of([] { normalize_axis(2, 2, "sum"); }),
            "[sum] axis 2 is out of range for a tensor of rank 2");
}

TEST(ShapeTest, Broadcasts) {
  EXPECT_EQ(broadcast_shapes({4, 1, 3}, {5, 1}, "add"), (Shape{4, 5, 3}));
  EXPECT_EQ(broadcast_shapes({}, {2}, "add"), (Shape{2}));
  EXPECT_EQ(broadcast_shapes({0}, {1}, "add"), (Shape{0}));
  EXPECT_EQ(message_of([] { broadcast_shapes({2}, {3}, "add"); }),
            "[add] shapes (2,) and (3,) cannot be broadcast together");
}

TEST(DTypeTest, NamesRoundTrip) {
  for (const DType dtype : kAllDTypes) EXPECT_EQ(parse_dtype(to_string(dtype)), dtype);
  EXPECT_EQ(message_of([] { parse_dtype("float"); }),
            "[dtype] 'float' is not a dtype; expected one of float32, float16, bfloat16, float64, int64, "
            "int32, uint8, "
            "bool");
}

TEST(DTypeTest, DispatchesToTheTypesThatTheNamePromises) {
  const auto same = [](DType dtype) { return [dtype]<class T> { return dtype_of<T> == dtype; }; };
  for (const DType dtype : kAllDTypes) {
    EXPECT_TRUE(dispatch_all(dtype, "test", same(dtype)));
    if (dtype == DType::kBool) {
      EXPECT_THROW(dispatch_number(dtype, "test", same(dtype)), InvalidArgument);
    } else {
      EXPECT_TRUE(dispatch_number(dtype, "test", same(dtype)));
    }
    if (is_float(dtype)) {
      EXPECT_TRUE(dispatch_float(dtype, "test", same(dtype)));
    } else {
      EXPECT_THROW(dispatch_float(dtype, "test", same(dtype)), InvalidArgument);
    }
  }
}

TEST(SmallArrayTest, HoldsFewAndMany) {
  for (const size_t size : {0u, 1u, 4u, 5u, 1000u}) {
    SmallArray<int64_t, 4> array(size);
    ASSERT_EQ(array.size(), size);
    EXPECT_EQ(static_cast<size_t>(std::count(array.begin(), array.end(), 0)), size);
    std::iota(array.begin(), array.end(), int64_t{0});
    for (size_t i = 0; i < size; ++i) EXPECT_EQ(array[i], static_cast<int64_t>(i));
  }
}

TEST(DeviceTest, Parses) {
  EXPECT_EQ(Device::parse("cpu"), Device::cpu());
  EXPECT_EQ(Device::parse("cuda:3"), Device::cuda(3));
  EXPECT_EQ(to_string(Device::parse("cuda")), "cuda:0");
  for (const char* text : {"", "gpu", "cuda:", "cuda:-1", "cuda:1x", "cpu:0"}) {
    EXPECT_EQ(message_of([&] { Device::parse(text); }),
              fmt::format("[device] '{}' is not a device; expected cpu, cuda or cuda:<index>", text));
  }
}

TEST(Float16Test, AllValuesRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    float16 half;
    half.bits = static_cast<uint16_t>(bits);
    const float value = half;
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(float16(value))));
    } else {
      EXPECT_EQ(float16(value).bits, half.bits) << bits;
    }
    bfloat16 brain;
    brain.bits = static_cast<uint16_t>(bits);
    const float wide = brain;
    EXPECT_TRUE(std::isnan(wide) || bfloat16(wide).bits == brain.bits) << bits;
  }
}

TEST(Float16Test, RoundsToNearestEven) {
  EXPECT_EQ(float16(1.0f + 0x1p-11f).bits, float16(1.0f).bits);             // a tie goes to even
  EXPECT_EQ(static_cast<float>(float16(1.0f + 0x3p-11f)), 1.0f + 0x1p-9f);  // a tie goes to even
  EXPECT_EQ(static_cast<float>(float16(65519.0f)), 65504.0f);
  EXPECT_TRUE(std::isinf(static_cast<float>(float16(65520.0f))));
  EXPECT_EQ(static_cast<float>(float16(0x1p-25f)), 0.0f);  // a tie with zero
  EXPECT_EQ(static_cast<float>(float16(0x1.8p-25f)), 0x1p-24f);
  EXPECT_EQ(static_cast<float>(bfloat16(1.0f + 0x1p-8f)), 1.0f);
  EXPECT_EQ(static_cast<float>(bfloat16(1.0f + 0x3p-8f)), 1.0f + 0x1p-6f);
  EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(LogTest, GoesToTheSinkAboveItsLevel) {
  std::vector<std::string> lines;
  log::set_sink([&](log::Level, std::string_view text) { lines.emplace_back(text); });
  const log::Level before = log::level();
  log::set_level(log::Level::kInfo);
  log::debug("dropped {}", 1);
  log::info("kept {}", 2);
  log::warning("kept {}", 3);
  log::set_level(before);
  log::set_sink({});
  EXPECT_EQ(lines, (std::vector<std::string>{"kept 2", "kept 3"}));
}

TEST(LogTest, WarnsOfAnUnknownLevelInTheEnvironment) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process of its own, which reads the variable anew
  ::setenv("SINTER_LOG", "loud", 1);
  EXPECT_EXIT(std::exit(log::level() == log::Level::kWarning ? 0 : 1), ::testing::ExitedWithCode(0),
              "SINTER_LOG must be trace, debug, info, warning, error or off but is 'loud'");
  ::unsetenv("SINTER_LOG");
}

}  // namespace
}  // namespace sinter
