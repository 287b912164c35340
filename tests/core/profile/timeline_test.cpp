// The trace files of profiles: what other programs read in them.
#include <algorithm>
#include <cmath>
#include <map>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sinter/core/base/log.h>
#include <sinter/core/op/call.h>
#include <sinter/core/op/call_observer.h>
#include <sinter/core/profile/profile.h>
#include <sinter/core/profile/timeline.h>

#include "common/error_message.h"
#include "common/failing_file_system.h"
#include "common/temporary_folder.h"

namespace sinter {
namespace {

using nlohmann::json;
using test::message_of;
using testing::FailingFileSystem;
using testing::read_file;
using testing::TemporaryFolder;

/// A mark that says when it was passed. Like a GPU's, it tells times with 24 bits of milliseconds.
class FakeMark final : public TimeMark {
 public:
  explicit FakeMark(double at_us) : at_us_(at_us) {}
  double microseconds_since(const TimeMark& earlier) const override {
    const double us = at_us_ - static_cast<const FakeMark&>(earlier).at_us_;
    return 1000.0 * static_cast<double>(static_cast<float>(us / 1000.0));
  }

 private:
  double at_us_;
};

const Op& traced_op() {
  static const Op* const op = [] {
    OpRegistry& registry = OpRegistry::instance();
    const Op& added = registry.add(
        {.name = "test_traced",
         .inputs = {{"x"}},
         .outputs = {{"y"}},
         .infer = [](const InferContext& c) { return std::vector{c.input(0)}; },
         .flops = [](const InferContext& c,
                     std::span<const TensorSpec>) { return 3.0 * static_cast<double>(c.shape(0).numel()); }});
    registry.add_kernel("test_traced", {.name = "quick", .run = [](const KernelContext&) {}});
    return &added;
  }();
  return *op;
}

/// A call that ran from `start_us` to `end_us` on a stream.
void add(Timeline& timeline, Device device, StreamId stream, double start_us, double end_us) {
  const auto start = std::make_shared<FakeMark>(start_us);
  Timeline::Call call;
  call.op = &traced_op();
  call.kernel = &traced_op().kernels.front();
  call.stream = {device, stream, nullptr};
  call.thread = std::this_thread::get_id();
  call.queued_us = start_us;
  call.us = FakeMark(end_us).microseconds_since(*start);
  timeline.add(call, start);
}

json written(const Timeline& timeline) {
  const TemporaryFolder folder;
  timeline.write(folder / "trace.json", FileSystem::native());
  return json::parse(read_file(folder / "trace.json"));
}

std::vector<json> calls_of(const json& trace) {
  std::vector<json> calls;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") calls.push_back(event);
  }
  return calls;
}

int64_t nanoseconds(const json& microseconds) {
  return std::llround(1000.0 * microseconds.get<double>());
}

/// Calls of one stream that overlap or go back in time; 0 if all is well.
int disorders(const json& trace) {
  std::map<std::pair<int, int>, int64_t> ends;
  int count = 0;
  for (const json& call : calls_of(trace)) {
    int64_t& end = ends[{call.at("pid").get<int>(), call.at("tid").get<int>()}];
    const int64_t start = nanoseconds(call.at("ts")), length = nanoseconds(call.at("dur"));
    count += start < end || length < 0 ? 1 : 0;
    end = start + length;
  }
  return count;
}

/// The name of a process or thread, as viewers show it.
std::string name_of(const json& trace, const char* what, const json& call) {
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "M" || event.at("name") != what || event.at("pid") != call.at("pid")) continue;
    if (!event.contains("tid") || event.at("tid") == call.at("tid")) return event.at("args").at("name");
  }
  return "none";
}

TEST(ProfileTrace, HasEveryCallWithWhatItWas) {
  const TemporaryFolder folder;
  OpProfile profile({.timeline = 100});
  {
    const CallScope scope("layer1.0");
    call(traced_op(), {Tensor::empty({2, 3})});
  }
  for (int i = 0; i < 20; ++i) call(traced_op(), {Tensor::empty({4}, DType::kFloat64)});
  std::thread([] { call(traced_op(), {Tensor::empty({1})}); }).join();
  profile.stop();
  profile.write_trace(folder / "trace.json");

  const json trace = json::parse(read_file(folder / "trace.json"));
  const std::vector<json> calls = calls_of(trace);
  ASSERT_EQ(calls.size(), 22u);
  EXPECT_EQ(disorders(trace), 0);
  EXPECT_EQ(calls[0].at("name"), "test_traced");
  EXPECT_EQ(calls[0].at("args"), (json{{"kernel", "quick"},
                                       {"shapes", "float32 (2, 3) -> float32 (2, 3)"},
                                       {"scope", "layer1.0"},
                                       {"bytes", 48.0},
                                       {"flops", 18.0}}));
  EXPECT_FALSE(calls[1].at("args").contains("scope"));
  EXPECT_EQ(name_of(trace, "process_name", calls[0]), "cpu");
  EXPECT_EQ(name_of(trace, "thread_name", calls[0]), "thread 0");
  EXPECT_EQ(name_of(trace, "thread_name", calls[21]), "thread 1");
  EXPECT_NE(calls[0].at("tid"), calls[21].at("tid"));
  EXPECT_EQ(trace.at("otherData").at("calls_left_out"), 0);
  // What the rows say is told by the calls too.
  double us = 0;
  for (const json& call : calls) us += call.at("dur").get<double>();
  double rows_us = 0;
  for (const auto& row : profile.rows()) rows_us += row.device_us;
  EXPECT_NEAR(us, rows_us, 0.001 * 22);  // rounded to nanoseconds
}

TEST(ProfileTrace, KeepsTheFirstCallsAndCountsTheOthers) {
  Timeline timeline(10);
  for (int i = 0; i < 25; ++i) add(timeline, Device::cpu(), 0, 10.0 * i, 10.0 * i + 4.0);
  std::string told;
  log::set_sink([&told](log::Level, std::string_view message) { told += message; });
  const json trace = written(timeline);
  log::set_sink({});
  EXPECT_NE(told.find("holds the first 10 calls; 15 later ones were not kept"), std::string::npos) << told;
  ASSERT_EQ(calls_of(trace).size(), 10u);
  EXPECT_EQ(calls_of(trace).back().at("ts"), 90.0);
  EXPECT_EQ(calls_of(trace).back().at("dur"), 4.0);
  EXPECT_EQ(trace.at("otherData").at("calls"), 10);
  EXPECT_EQ(trace.at("otherData").at("calls_left_out"), 15);
}

TEST(ProfileTrace, StreamsRunInOrderWhateverTheMarksRound) {
  // For 99 seconds without a gap: marks that far apart are told to 8 us only, each way.
  constexpr double kPeriod = 98'765.43;
  Timeline timeline(10'000);
  for (int i = 0; i < 1000; ++i) {
    add(timeline, Device::cuda(), 0x7f3210, kPeriod * i, kPeriod * (i + 1));
    add(timeline, Device::cuda(), 0x7f1230, kPeriod * i + 1.0, kPeriod * i + 3.7);
  }
  const json trace = written(timeline);
  const std::vector<json> calls = calls_of(trace);
  ASSERT_EQ(calls.size(), 2000u);
  EXPECT_EQ(disorders(trace), 0);
  for (size_t i = 1; i < calls.size(); i += 2) {
    const double start = calls[i - 1].at("ts").get<double>();
    EXPECT_NEAR(start, kPeriod * static_cast<double>(i / 2), 10.0);
    EXPECT_NEAR(calls[i].at("ts").get<double>() - start, 1.0, 0.1);
    EXPECT_NEAR(calls[i].at("dur").get<double>(), 2.7, 0.01);
    EXPECT_NEAR(calls[i - 1].at("dur").get<double>(), kPeriod, 0.1);
  }
  EXPECT_EQ(name_of(trace, "thread_name", calls[0]), "stream 0");
  EXPECT_EQ(name_of(trace, "thread_name", calls[1]), "stream 1");
}

TEST(ProfileTrace, DevicesAreToldApart) {
  Timeline timeline(10);
  add(timeline, Device::cuda(1), 0, 10.0, 20.0);
  add(timeline, Device::cuda(0), 0, 12.0, 18.0);
  add(timeline, Device::cpu(), 0, 14.0, 15.0);
  const json trace = written(timeline);
  const std::vector<json> calls = calls_of(trace);
  EXPECT_EQ(name_of(trace, "process_name", calls[0]), "cuda:1");
  EXPECT_EQ(name_of(trace, "process_name", calls[1]), "cuda:0");
  EXPECT_EQ(name_of(trace, "process_name", calls[2]), "cpu");
  EXPECT_EQ(calls[1].at("ts"), 12.0);
}

TEST(ProfileTrace, NeedsTheCalls) {
  OpProfile profile;
  call(traced_op(), {Tensor::empty({1})});
  EXPECT_EQ(message_of([&] { profile.write_trace("trace.json"); }),
            "[profile] no calls are kept to be written; set Options::timeline");
}

TEST(ProfileTrace, SaysWhyItCannotBeWritten) {
  const TemporaryFolder folder;
  OpProfile profile({.timeline = 10'000});
  for (int i = 0; i < 5000; ++i) call(traced_op(), {Tensor::empty({1})});
  profile.stop();
  const std::string missing = message_of<IoError>([&] { profile.write_trace(folder / "none/trace.json"); });
  EXPECT_NE(missing.find("none"), std::string::npos) << missing;
  EXPECT_NE(missing.find("No such file or directory"), std::string::npos) << missing;

  testing::write_file(folder / "trace.json", "before");
  FailingFileSystem counting;
  profile.write_trace(folder / "copy.json", counting);
  const std::vector<std::string>& whole = counting.calls();
  ASSERT_GT(std::ranges::count_if(whole, [](const auto& call) { return call.starts_with("write"); }), 5);
  const auto renamed =
      std::ranges::find_if(whole, [](const auto& call) { return call.starts_with("rename"); });
  ASSERT_NE(renamed, whole.end());
  for (int64_t k = 1; k <= renamed - whole.begin() + 1; ++k) {
    FailingFileSystem full(FailingFileSystem::Failure::kDiskFull, k);
    const std::string message =
        message_of<IoError>([&] { profile.write_trace(folder / "trace.json", full); });
    EXPECT_TRUE(full.failed()) << k;
    EXPECT_NE(message.find("No space left on device"), std::string::npos) << message;
    EXPECT_EQ(full.open_files(), 0);
    EXPECT_EQ(read_file(folder / "trace.json"), "before") << k;
  }
}

}  // namespace
}  // namespace sinter
