#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include <sinter/core/op/profile.h>
#include <sinter/core/op/timed_run.h>

namespace sinter {
namespace {

// So many calls may wait to be read: reading one waits for its device, and each holds two of the vendor's
// events.
constexpr size_t kMostUnread = 4096;

std::mutex& running_mutex() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

std::string to_text(const TensorView& view) {
  return view.present ? fmt::format("{} {}", to_string(view.dtype), view.shape) : "none";
}

std::string shapes_of(const KernelContext& context) {
  std::string text;
  for (size_t i = 0; i < context.input_count(); ++i) {
    text += (i == 0 ? "" : ", ") + (context.has_input(i) ? to_text(context.input(i)) : "none");
  }
  for (size_t i = 0; i < context.output_count(); ++i)
    text += (i == 0 ? " -> " : ", ") + to_text(context.output(i));
  return text;
}

double bytes_of(const KernelContext& context) {
  double bytes = 0;
  const auto add = [&bytes](const TensorView& view) {
    bytes += static_cast<double>(view.numel()) * static_cast<double>(size_of(view.dtype));
  };
  for (size_t i = 0; i < context.input_count(); ++i) {
    if (context.has_input(i)) add(context.input(i));
  }
  for (size_t i = 0; i < context.output_count(); ++i) add(context.output(i));
  return bytes;
}

/// The record of the profile that is running, or null; under running_mutex().
std::shared_ptr<OpProfile::Record>& running_record() {
  static auto& record = *new std::shared_ptr<OpProfile::Record>;
  return record;
}

}  // namespace

/// Device times are read long after the calls, so that profiling does not make a program wait at each.
class OpProfile::Record {
 public:
  explicit Record(const Options& options) : options_(options) {}

  struct Call {
    const Op* op;
    const Kernel* kernel;
    std::string shapes;
    Device device;
    double host_us, bytes;
    std::unique_ptr<TimeMark> start, stop;
  };

  const Options& options() const { return options_; }

  void add(Call call) {
    const std::lock_guard lock(mutex_);
    unread_.push_back(std::move(call));
    if (unread_.size() > kMostUnread) read(kMostUnread / 2);
  }

  std::vector<Row> rows() {
    const std::lock_guard lock(mutex_);
    read(unread_.size());
    std::vector<Row> rows;
    for (const auto& [key, row] : rows_) rows.push_back(row);
    std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.device_us > b.device_us; });
    return rows;
  }

 private:
  void read(size_t count) {
    for (; count > 0; --count) {
      const Call& call = unread_.front();
      Row& row = rows_[{call.op, call.kernel, call.device, call.shapes}];
      if (row.calls == 0) {
        row.op = call.op->name();
        row.kernel = call.kernel->name;
        row.shapes = call.shapes;
        row.device = call.device;
      }
      row.device_us += call.stop->microseconds_since(*call.start);
      row.host_us += call.host_us;
      row.bytes += call.bytes;
      ++row.calls;
      unread_.pop_front();
    }
  }

  const Options options_;
  std::mutex mutex_;
  std::deque<Call> unread_;
  std::map<std::tuple<const Op*, const Kernel*, Device, std::string>, Row> rows_;
};

OpProfile::OpProfile(const Options& options) : record_(std::make_shared<Record>(options)) {
  const std::lock_guard lock(running_mutex());
  SINTER_CHECK(running_record() == nullptr, "[profile] another profile is running; stop it first");
  running_record() = record_;
  detail::profile_is_running = true;
}

OpProfile::~OpProfile() {
  stop();
}

void OpProfile::stop() {
  const std::lock_guard lock(running_mutex());
  if (running_record() != record_) return;
  detail::profile_is_running = false;
  running_record().reset();
}

std::vector<OpProfile::Row> OpProfile::rows() const {
  return record_->rows();
}

std::string OpProfile::table() const {
  const std::vector<Row> listed = rows();
  Row total{.op = "total", .kernel = "", .shapes = "", .device = {}};
  for (const Row& row : listed) {
    total.calls += row.calls;
    total.device_us += row.device_us;
    total.host_us += row.host_us;
  }
  const auto line = [&total](const Row& row, const std::string& device) {
    const auto calls = static_cast<double>(std::max<uint64_t>(row.calls, 1));
    const double share = total.device_us > 0 ? 100.0 * row.device_us / total.device_us : 0.0;
    return fmt::format("{:<24} {:<16} {:<8} {:>8} {:>11.3f} {:>6.1f} {:>10.2f} {:>10.2f}{}{}\n", row.op,
                       row.kernel, device, row.calls, row.device_us / 1000.0, share, row.device_us / calls,
                       row.host_us / calls, row.shapes.empty() ? "" : "  ", row.shapes);
  };
  std::string text = fmt::format("{:<24} {:<16} {:<8} {:>8} {:>11} {:>6} {:>10} {:>10}\n", "op", "kernel",
                                 "device", "calls", "time ms", "%", "us/call", "host us");
  for (const Row& row : listed) text += line(row, to_string(row.device));
  return text + line(total, "");
}

namespace detail {

void run_timed(const Op& op, const Kernel& kernel, const KernelContext& context) {
  std::shared_ptr<OpProfile::Record> record;
  {
    const std::lock_guard lock(running_mutex());
    record = running_record();
  }
  if (record == nullptr) {  // stopped a moment ago
    kernel.run(context);
    return;
  }
  const Stream& stream = context.stream();
  Backend& backend = backend_of(stream.device);
  std::unique_ptr<TimeMark> start = backend.mark_time(stream);
  const auto began = std::chrono::steady_clock::now();
  kernel.run(context);
  const std::chrono::duration<double, std::micro> host = std::chrono::steady_clock::now() - began;
  record->add({.op = &op,
               .kernel = &kernel,
               .shapes = record->options().by_shape ? shapes_of(context) : std::string(),
               .device = stream.device,
               .host_us = host.count(),
               .bytes = bytes_of(context),
               .start = std::move(start),
               .stop = backend.mark_time(stream)});
}

}  // namespace detail
}  // namespace sinter
