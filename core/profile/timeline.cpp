#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <sinter/core/base/log.h>
#include <sinter/core/profile/timeline.h>

namespace sinter {
namespace {

using Json = nlohmann::ordered_json;

// The times between a GPU's marks have 24 bits: over so long they are still good to 8 ns.
constexpr double kLongestFromOrigin = 1e5;  // microseconds
constexpr size_t kChunk = size_t{1} << 16;  // bytes that are written at once

/// Names of ops, and of kernels and modules that users wrote, may hold any bytes.
std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

int process_of(Device device) {
  return device.is_cpu() ? 0 : device.index + 1;
}

double microseconds(int64_t ns) {
  return static_cast<double>(ns) / 1000.0;
}

/// One event after another, in chunks.
class TraceFile {
 public:
  TraceFile(const std::filesystem::path& path, FileSystem& files) : file_(path, files) {}

  void write(std::string_view text) {
    pending_ += text;
    if (pending_.size() < kChunk) return;
    file_.write(std::as_bytes(std::span(pending_)));
    pending_.clear();
  }
  void add(const Json& event) { write(std::exchange(separator_, ",\n") + dump(event)); }
  void commit() {
    file_.write(std::as_bytes(std::span(pending_)));
    file_.commit();
  }

 private:
  AtomicOutputFile file_;
  std::string pending_;
  std::string separator_ = "\n";
};

Json name_event(const char* what, int process, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", process}, {"args", {{"name", name}}}};
}

}  // namespace

Timeline::Lane& Timeline::lane_of(const Call& call) {
  const Device device = call.stream.device;
  const auto key = device.is_cpu() ? std::tuple(device, StreamId{0}, call.thread)
                                   : std::tuple(device, call.stream.id, std::thread::id());
  const auto found = lanes_.find(key);
  if (found != lanes_.end()) return found->second;
  const auto is_of_device = [&](const auto& entry) { return entry.second.device == device; };
  const auto number = static_cast<int>(std::ranges::count_if(lanes_, is_of_device));
  return lanes_[key] = Lane{.device = device, .number = number};
}

double Timeline::start_of(const Call& call, std::shared_ptr<const TimeMark> start) {
  Origin& origin = origins_[call.stream.device];
  if (origin.mark == nullptr) origin = {start, call.queued_us};
  const double since = start->microseconds_since(*origin.mark);
  const double us = origin.us + since;
  if (since > kLongestFromOrigin) origin = {std::move(start), us};
  return us;
}

void Timeline::add(const Call& call, std::shared_ptr<const TimeMark> start) {
  if (events_.size() >= most_) {
    ++left_out_;
    return;
  }
  const auto start_ns = std::llround(1000.0 * start_of(call, std::move(start)));
  const int64_t end_ns = start_ns + std::llround(1000.0 * call.us);
  Lane& lane = lane_of(call);
  // A stream's work runs in order; what is less than that is a rounding of the marks.
  const int64_t begin = std::max<int64_t>(start_ns, lane.end_ns);
  const int64_t end = std::max(end_ns, begin);
  lane.end_ns = end;
  events_.push_back({.op = call.op,
                     .kernel = call.kernel,
                     .shapes = &*texts_.insert(call.shapes).first,
                     .scope = &*texts_.insert(call.scope).first,
                     .lane = &lane,
                     .start_ns = begin,
                     .ns = end - begin,
                     .bytes = call.bytes,
                     .flops = call.flops});
}

void Timeline::write(const std::filesystem::path& path, FileSystem& files) const {
  if (left_out_ > 0) {
    log::warning("[profile] {} holds the first {} calls; {} later ones were not kept", path.string(),
                 events_.size(), left_out_);
  }
  TraceFile file(path, files);
  file.write(
      fmt::format("{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"calls\":{},\"calls_left_out\":{}}},"
                  "\"traceEvents\":[",
                  events_.size(), left_out_));
  for (const auto& [device, origin] : origins_)
    file.add(name_event("process_name", process_of(device), to_string(device)));
  for (const auto& [key, lane] : lanes_) {
    Json event = name_event("thread_name", process_of(lane.device),
                            fmt::format("{} {}", lane.device.is_cpu() ? "thread" : "stream", lane.number));
    event["tid"] = lane.number;
    file.add(event);
  }
  for (const Event& event : events_) {
    Json args = {{"kernel", event.kernel->name}, {"shapes", *event.shapes}, {"bytes", event.bytes}};
    if (!event.scope->empty()) args["scope"] = *event.scope;
    if (event.flops > 0) args["flops"] = event.flops;
    file.add({{"ph", "X"},
              {"name", event.op->name()},
              {"cat", "op"},
              {"pid", process_of(event.lane->device)},
              {"tid", event.lane->number},
              {"ts", microseconds(event.start_ns)},
              {"dur", microseconds(event.ns)},
              {"args", std::move(args)}});
  }
  file.write("\n]}\n");
  file.commit();
}

}  // namespace sinter
